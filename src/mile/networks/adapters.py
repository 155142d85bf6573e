"""Your own network: a module of flax or equinox, or two functions, as a function of one flat vector."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.tree_util import GetAttrKey, keystr

from mile._json import Json
from mile._types import Features, Key, Outputs, Position, PyTree
from mile.networks._layers import Layer
from mile.networks._libraries import Library, UnsuitableError, recognize
from mile.networks._signature import Leaf, Signature, read_signature
from mile.networks.base import AbstractNetwork

__all__ = ["Adapted", "Adapter", "adapt", "read_signature"]

_ROOT = "weights"  # the path of an array that stands alone
Traced = ClosedJaxpr | Jaxpr
_MEANING = "Regression needs two outputs, a location and the logarithm of a scale; classification one for each class."


def adapt(network: object) -> "Adapter":
    """Return a network of another library as one that can be sampled; the data decide its shapes.

    Parameters
    ----------
    network
        An instance of `flax.linen.Module`, `flax.nnx.Module` or `equinox.Module`, or a pair of functions
        (init, apply) with init(key) -> arrays in any nesting and apply(arrays, batch) -> outputs. A batch has shape
        (rows, *shape of a row) and outputs have (rows, outputs); an equinox module takes one example and returns its
        outputs. Rows must not influence each other.

    Returns
    -------
    Adapter
        Its `sized(input_shape, n_outputs)` is the network.

    Raises
    ------
    TypeError
        If it is none of these.
    ValueError
        If it holds what cannot be sampled, such as the averages of a BatchNorm.

    Examples
    --------
    >>> import jax
    >>> from mile.networks.adapters import adapt
    >>> def init(key):
    ...     return {"slope": jax.random.normal(key, (3, 2)), "offset": jax.numpy.zeros(2)}
    >>> def apply(weights, batch):
    ...     return batch @ weights["slope"] + weights["offset"]
    >>> adapt((init, apply)).sized((3,), 2).dimension
    8
    """
    if isinstance(network, Adapter):
        return network
    return Adapter(network.code if isinstance(network, Adapted) else recognize(network))


@dataclass(frozen=True, eq=False)
class Adapter:
    """A network of another library before the shapes of the data are known."""

    code: Library

    def sized(self, input_shape: tuple[int, ...], n_outputs: int) -> "Adapted":
        """Return the network for rows of a shape; only shapes are computed.

        Raises
        ------
        ValueError
            If the network cannot be used with these shapes.
        """
        form, weights = self._weights(input_shape, n_outputs)
        # Two numbers of rows that no output can be confused with; their difference is the cost of one row.
        programs = [_traced(self.code, weights, (n_outputs + more, *form.input_shape), n_outputs) for more in (1, 2)]
        fewer, more = (sum(_sizes(program)) for program in programs)
        return Adapted(
            code=self.code,
            form=form,
            nested=weights,
            floats=max(more - fewer, math.prod(input_shape) + n_outputs),
        )

    def form(self, input_shape: tuple[int, ...], n_outputs: int) -> Signature:
        """Return the shapes of its arrays for rows of a shape, without checking that it works with them.

        Raises
        ------
        ValueError
            If it cannot draw weights, or they are not floats.
        """
        return self._weights(input_shape, n_outputs)[0]

    def _weights(self, input_shape: tuple[int, ...], n_outputs: int) -> tuple[Signature, PyTree]:
        input_shape = tuple(map(int, input_shape))
        weights = _shapes_of_weights(self.code, input_shape)
        paths, _ = jax.tree_util.tree_flatten_with_path(weights)
        leaves = tuple(Leaf(_path(keys), tuple(leaf.shape), str(leaf.dtype)) for keys, leaf in paths)
        for (_, shape), leaf in zip(paths, leaves, strict=True):
            if not jnp.issubdtype(shape.dtype, jnp.floating):
                raise ValueError(
                    f"{leaf.path} of the {self.code.name} network is of {leaf.dtype}, but all arrays of a network must "
                    "be floats, because they are sampled. Keep constants outside of its arrays."
                )
        if not sum(leaf.size for leaf in leaves):
            raise ValueError(f"the {self.code.name} network has no weights, so there is nothing to sample.")
        return Signature(library=self.code.name, input_shape=input_shape, n_outputs=n_outputs, leaves=leaves), weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Adapted(AbstractNetwork):
    """A network of another library as a function of one flat vector, which holds its arrays one after another.

    It is static in compiled programs: two of them are equal if their code is and all shapes are.
    """

    code: Library
    form: Signature
    nested: PyTree  # shapes of the arrays, nested as the network has them
    floats: int  # per row: the sizes of all results on the way, as if nothing were fused

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Adapted) or (type(self.code), self.form) != (type(other.code), other.form):
            return False
        mine, theirs = self.code.identity, other.code.identity
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))

    def __hash__(self) -> int:
        return hash(self.form)  # the code of others need not be hashable

    def __repr__(self) -> str:
        return f"Adapted({self.form})"  # nothing that differs from one process to the next

    def sized(self, input_shape: tuple[int, ...], n_outputs: int) -> "Adapted":
        """Return the network for rows of a shape."""
        if (tuple(input_shape), n_outputs) == (self.input_shape, self.n_outputs):
            return self
        return Adapter(self.code).sized(input_shape, n_outputs)

    @property
    def signature(self) -> dict[str, Json]:
        """The library and all shapes, as JSON can hold them."""
        return self.form.describe()

    @property
    def start(self) -> str | None:
        """Hash of what starting weights depend on besides a key; None if there is nothing."""
        if self.code.spreads is None:
            return None
        text = " ".join(f"{number:.4g}" for spread in self.code.spreads for number in spread)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row's features."""
        return self.form.input_shape

    @property
    def n_inputs(self) -> int:
        """Features of a row."""
        return math.prod(self.form.input_shape)

    @property
    def n_outputs(self) -> int:
        """Outputs of a row."""
        return self.form.n_outputs

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return self.form.dimension

    @property
    def row_floats(self) -> int:
        """Floats of intermediate results per row."""
        return self.floats

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The runs of the flat vector, one for each array: biases and scales have one axis, weights more."""
        found = []
        for path, shape, _ in self.form.leaves:
            size = math.prod(shape)
            # The bias of a convolution in equinox has an axis for each of the image's.
            is_weight = len(shape) > 1 and path.rpartition("/")[2] != "bias"
            found.append(Layer(path, size, 0, self.code.fan_in(path, shape)) if is_weight else Layer(path, 0, size, 1))
        return tuple(found)

    def init(self, key: Key) -> Position:
        """Draw starting weights."""
        weights = self.code.start(key, jnp.zeros((1, *self.input_shape), jnp.float32))
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(weights)])

    def apply(self, position: Position, x: Features) -> Outputs:
        """Evaluate the network on every row."""
        sizes = [leaf.size for leaf in self.form.leaves]
        cuts = pairwise(np.cumsum([0, *sizes]).tolist())
        leaves = [
            position[start:stop].reshape(leaf.shape) for (start, stop), leaf in zip(cuts, self.form.leaves, strict=True)
        ]
        weights = jax.tree.unflatten(jax.tree.structure(self.nested), leaves)
        batch = x.T.reshape(x.shape[1], *self.input_shape).astype(position.dtype)  # a convolution does not promote
        return self.code.apply(weights, batch).T.astype(position.dtype)


def _shapes_of_weights(code: Library, input_shape: tuple[int, ...]) -> PyTree:
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        return jax.eval_shape(code.start, key, _batch((1, *input_shape)))
    except UnsuitableError as error:
        raise ValueError(str(error)) from None
    except Exception as error:
        raise ValueError(_failed(f"draw weights for rows of shape {input_shape}", code, error)) from error


def _traced(code: Library, weights: PyTree, shape: tuple[int, ...], n_outputs: int) -> ClosedJaxpr:
    """Check the output of a forward pass and return its program."""
    try:
        program, outputs = jax.make_jaxpr(code.apply, return_shape=True)(weights, _batch(shape))
    except Exception as error:
        raise ValueError(_failed(f"evaluate a batch of shape {shape}", code, error)) from error
    if not isinstance(outputs, jax.ShapeDtypeStruct):
        raise ValueError(f"the {code.name} network must return one array; got {type(outputs).__name__}.")
    if outputs.shape != (shape[0], n_outputs) or not jnp.issubdtype(outputs.dtype, jnp.floating):
        raise ValueError(
            f"the {code.name} network must return floats of shape (rows, {n_outputs}), here {(shape[0], n_outputs)}; "
            f"it returns {outputs.dtype} of shape {outputs.shape} for a batch of shape {shape}. {_MEANING}"
        )
    if any(name.startswith("random_") or name == "threefry2x32" for name in _primitives(program)):
        raise ValueError(
            f"the {code.name} network draws random numbers when it is evaluated. Switch dropout off: the "
            "weights are sampled instead. Draw fixed random features outside of it."
        )
    return program


def _batch(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _failed(what: str, code: Library, error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return (
        f"the {code.name} network could not {what}: {type(error).__name__}: {lines[0][:300]} It is called with the "
        f"{'example' if code.name == 'equinox' else 'batch'} alone: no state, no key, no flag for training."
    )


def _path(keys: tuple[object, ...]) -> str:
    # flax wraps arrays in an object with this field
    wrapped = len(keys) > 1 and keys[-1] == GetAttrKey("value")
    return keystr(keys[:-1] if wrapped else keys, simple=True, separator="/") or _ROOT


def _same(one: object, other: object) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # arrays in a field of a module compare entry by entry, and some objects not at all
        return False


def _steps(program: Traced) -> Iterator[tuple[JaxprEqn, list[Traced], int]]:
    """Yield each operation of a program, the programs inside it, and how often it runs those."""
    for step in program.eqns:
        values = [value if isinstance(value, tuple | list) else (value,) for value in step.params.values()]
        inner = [part for part in chain(*values) if isinstance(part, ClosedJaxpr | Jaxpr)]
        yield step, inner, step.params.get("length", 1) if step.primitive.name == "scan" else 1


def _primitives(program: Traced) -> Iterator[str]:
    for step, inner, _ in _steps(program):
        yield step.primitive.name
        for part in inner:
            yield from _primitives(part)


def _sizes(program: Traced) -> Iterator[int]:
    """Yield the sizes of the results of each operation, or of all results within it if those are more."""
    for step, inner, times in _steps(program):
        own = sum(math.prod(getattr(result.aval, "shape", ())) for result in step.outvars)
        yield max(own, times * sum(sum(_sizes(part)) for part in inner))
