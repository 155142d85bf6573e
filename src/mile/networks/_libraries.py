"""Networks of other libraries as two pure functions: weights to start with, and outputs of weights and a batch.

No library is imported here. A module of one can only come from a program that has imported it, so it is looked up among
what is imported already.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeGuard, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from mile._types import Key, PyTree

ACCEPTED = (
    "a flax.linen.Module, a flax.nnx.Module or an equinox.Module (each an instance, not the class), or a pair of "
    "functions (init, apply) with init(key) -> arrays and apply(arrays, batch) -> outputs of shape (rows, outputs)"
)


class UnsuitableError(Exception):
    """Raised by `start` when a network works but cannot be sampled; the message says why."""


class Spread(NamedTuple):
    """How the entries of one array are distributed."""

    mean: float
    deviation: float


@runtime_checkable
class Library(Protocol):
    """A network of another library as functions."""

    name: ClassVar[str]

    @property
    def spreads(self) -> tuple[Spread, ...] | None:
        """How starting weights of each array are distributed; None if the network draws them itself."""
        ...

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides the compiled program; networks that agree on it share one."""
        ...

    def start(self, key: Key, example: jax.Array) -> PyTree:
        """Draw weights."""
        ...

    def apply(self, weights: PyTree, batch: jax.Array) -> jax.Array:
        """Evaluate the network on a batch."""
        ...

    def fan_in(self, path: str, shape: tuple[int, ...]) -> int:
        """Return how many inputs one unit adds up."""
        ...


@runtime_checkable
class LinenModule(Protocol):
    """The parts of `flax.linen.Module` that are used."""

    def init(self, rngs: Key, example: jax.Array, /) -> Mapping[str, PyTree]:
        """Draw all variables."""
        ...

    def apply(self, variables: Mapping[str, PyTree], batch: jax.Array, /) -> jax.Array:
        """Evaluate the module."""
        ...


@dataclass(frozen=True, eq=False)
class Linen:
    """A module of flax.linen: it draws its own weights."""

    module: LinenModule
    name: ClassVar[str] = "flax linen"

    @property
    def spreads(self) -> None:
        """None: the network draws its own weights."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides the compiled program; networks that agree on it share one."""
        return (self.module,)

    def start(self, key: Key, example: jax.Array) -> PyTree:
        """Draw weights."""
        variables = self.module.init(key, example)
        others = sorted(set(variables) - {"params"})
        if others:
            raise UnsuitableError(
                f"the flax linen network keeps {' and '.join(others)} besides its params, and these cannot be sampled; "
                "leave out layers that remember batches (use LayerNorm or GroupNorm in place of BatchNorm)."
            )
        return variables.get("params", {})

    def apply(self, weights: PyTree, batch: jax.Array) -> jax.Array:
        """Evaluate the network on a batch."""
        return self.module.apply({"params": weights}, batch)

    def fan_in(self, path: str, shape: tuple[int, ...]) -> int:
        """Return how many inputs one unit adds up; kernels are [..., in, out]."""
        return _flax_fan_in(path, shape)


@dataclass(frozen=True, eq=False)
class Nnx:
    """A module of flax.nnx: it carries weights, and each member draws its own with their means and deviations."""

    definition: object
    weights: PyTree
    generators: PyTree
    spreads: tuple[Spread, ...]
    name: ClassVar[str] = "flax nnx"

    @staticmethod
    def of(module: object) -> "Nnx":
        """Split a module into its arrays and its code; later changes to it have no effect here."""
        nnx = sys.modules["flax.nnx"]
        definition, weights, generators, others = nnx.split(module, nnx.Param, nnx.RngState, ...)
        variables = jax.tree.leaves(others, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
        kinds = sorted({type(variable).__name__ for variable in variables})
        if kinds:
            raise ValueError(
                f"the flax nnx network keeps {' and '.join(kinds)} besides its Params, and these cannot be sampled; "
                "leave out layers that remember batches (use LayerNorm or GroupNorm in place of BatchNorm)."
            )
        return Nnx(definition, weights, generators, _spreads(weights, "flax nnx"))

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides the compiled program; networks that agree on it share one."""
        return (self.definition, self.spreads)

    def start(self, key: Key, example: jax.Array) -> PyTree:
        """Draw weights."""
        return _redraw(key, self.weights, self.spreads)

    def apply(self, weights: PyTree, batch: jax.Array) -> jax.Array:
        """Evaluate the network on a batch."""
        generators = jax.tree.map(lambda leaf: leaf, self.generators)  # a module counts the draws of its own
        return sys.modules["flax.nnx"].merge(self.definition, weights, generators)(batch)

    def fan_in(self, path: str, shape: tuple[int, ...]) -> int:
        """Return how many inputs one unit adds up; kernels are [..., in, out]."""
        return _flax_fan_in(path, shape)


@dataclass(frozen=True, eq=False)
class Equinox:
    """A module of equinox: it takes one example, and carries weights as a module of flax.nnx does."""

    weights: PyTree  # the module with None in place of all that is not an array
    rest: PyTree  # the module with None in place of its arrays
    spreads: tuple[Spread, ...]
    name: ClassVar[str] = "equinox"

    @staticmethod
    def of(module: object) -> "Equinox":
        """Take a module apart."""
        if not callable(module):
            raise ValueError("the equinox network must be callable on one example.")
        weights = jax.tree.map(lambda leaf: leaf if _is_array(leaf) else None, module)
        rest = jax.tree.map(lambda leaf: None if _is_array(leaf) else leaf, module)
        return Equinox(weights, rest, _spreads(weights, "equinox"))

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides the compiled program; networks that agree on it share one."""
        return (*jax.tree.flatten(self.rest), jax.tree.structure(self.weights), self.spreads)

    def start(self, key: Key, example: jax.Array) -> PyTree:
        """Draw weights."""
        return _redraw(key, self.weights, self.spreads)

    def apply(self, weights: PyTree, batch: jax.Array) -> jax.Array:
        """Evaluate the network on each example of a batch."""
        module = jax.tree.map(
            lambda weight, other: other if weight is None else weight,
            weights,
            self.rest,
            is_leaf=lambda leaf: leaf is None,
        )
        return jax.vmap(module)(batch)

    def fan_in(self, path: str, shape: tuple[int, ...]) -> int:
        """Return how many inputs one unit adds up; weights are [out, in, ...]."""
        return int(np.prod(shape[1:]))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two functions: init(key) -> arrays, apply(arrays, batch) -> outputs."""

    functions: tuple[Callable[[Key], PyTree], Callable[[PyTree, jax.Array], jax.Array]]
    name: ClassVar[str] = "init and apply"

    @property
    def spreads(self) -> None:
        """None: the network draws its own weights."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides the compiled program; networks that agree on it share one."""
        return self.functions

    def start(self, key: Key, example: jax.Array) -> PyTree:
        """Draw weights."""
        return self.functions[0](key)

    def apply(self, weights: PyTree, batch: jax.Array) -> jax.Array:
        """Evaluate the network on a batch."""
        return self.functions[1](weights, batch)

    def fan_in(self, path: str, shape: tuple[int, ...]) -> int:
        """Return how many inputs one unit adds up; weights are taken to be [..., in, out]."""
        return _flax_fan_in(path, shape)


def recognize(network: object) -> Library:
    """Return a network of any known library as functions.

    Raises
    ------
    TypeError
        If no library is known for it.
    ValueError
        If it holds what cannot be sampled.
    """
    if _is_linen(network):
        return Linen(network)
    if _is_module(network, "flax.nnx"):
        return Nnx.of(network)
    if _is_module(network, "equinox"):
        return Equinox.of(network)
    if isinstance(network, tuple | list) and len(network) == 2 and all(map(callable, network)):
        return Pair((network[0], network[1]))
    got = f"the class {network.__name__}" if isinstance(network, type) else f"{type(network).__name__} {network!r:.80}"
    raise TypeError(f"a network of your own must be {ACCEPTED}; got {got}.")


def _is_linen(network: object) -> TypeGuard[LinenModule]:
    return _is_module(network, "flax.linen")


def _is_module(network: object, library: str) -> bool:
    kind = getattr(sys.modules.get(library), "Module", None)
    return kind is not None and isinstance(network, kind)


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _flax_fan_in(path: str, shape: tuple[int, ...]) -> int:
    # One row of an embedding is taken, nothing is added up; flax calls its table so.
    return 1 if path.endswith("embedding") else int(np.prod(shape[:-1]))


def _spreads(weights: PyTree, name: str) -> tuple[Spread, ...]:
    found = []
    for leaf in jax.tree.leaves(weights):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            found.append(Spread(0.0, 0.0))  # refused where the shapes are read, with its path
            continue
        values = np.asarray(leaf, np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"the {name} network has weights that are not finite.")
        constant = values.size == 0 or (values == values.flat[0]).all()
        mean = float(values.flat[0]) if constant and values.size else float(values.mean())
        found.append(Spread(mean, 0.0 if constant else float(values.std())))
    return tuple(found)


def _redraw(key: Key, weights: PyTree, spreads: tuple[Spread, ...]) -> PyTree:
    """Draw arrays like those of a module.

    Members of an ensemble must start apart, and a module that is built already cannot be asked to draw again. What its
    own initializers did is visible in its arrays: the draws have their means and deviations, and an array of one value
    (biases of zero, scales of one) stays as it is.
    """
    leaves, structure = jax.tree.flatten(weights)
    noise = jax.random.normal(key, (sum(leaf.size for leaf in leaves),))
    start, drawn = 0, []
    for leaf, (mean, deviation) in zip(leaves, spreads, strict=True):
        drawn.append(mean + deviation * noise[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(structure, drawn)
