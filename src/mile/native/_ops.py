"""The kernel's operations as JAX functions of one chain; `vmap` turns many chains into one call."""

import ctypes
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from mile._types import Features, MclmcState, MclmcStep, Position, PyTree, Response, Scalar
from mile.likelihoods import AbstractLikelihood
from mile.likelihoods.base import HeadName
from mile.native._library import library
from mile.native._plain import NormalForm
from mile.native._priors import prior_arguments
from mile.networks.base import Network
from mile.priors import NativePrior

_ACTIVATIONS = {"relu": 0, "tanh": 1, "gelu": 2, "silu": 3, "sigmoid": 4}
_HEADS: dict[HeadName, int] = {
    "gaussian": 0,
    "categorical": 1,
    "bounded_gaussian": 2,
    "mixture": 3,
    "student_t": 4,
    "poisson": 5,
    "negative_binomial": 6,
    "ordinal": 7,
}
_N_SUMS = {
    _HEADS["gaussian"]: lambda n_outputs: 3,
    _HEADS["categorical"]: lambda n_outputs: n_outputs + 1,
    _HEADS["bounded_gaussian"]: lambda n_outputs: 3,
}
_NORMAL_HEADS = {_HEADS["gaussian"], _HEADS["bounded_gaussian"]}
_KEEP_SLOPES = {_ACTIVATIONS["gelu"], _ACTIVATIONS["silu"]}  # of units, besides their values
_NO_HEAD = -1  # the kernel computes outputs, and knows nothing of the likelihood
_MOST_SIZES = 65  # inputs, hidden layers and outputs
_MOST_STAGES = 16
# Parameters, and features of an image with its border: the counters of random numbers have 32 bits, two for each
# parameter, and products of sizes below this stay within the 64 bits of every other number.
_TOO_MANY = 2**31
_IMAGE_NUMBERS, _STAGE_NUMBERS = 3, 4  # of `NativeForm.image`

Attribute = np.ndarray | np.int64 | np.float32 | np.float64
Chains = TypeVar("Chains")
Shared = TypeVar("Shared")
Result = TypeVar("Result")


class Specification(NamedTuple):
    """What the kernel must know of a network and its likelihood; static and hashable.

    Only with a head does the kernel compute log likelihoods, and so `value`, `value_and_grad`, steps and epochs.
    """

    sizes: tuple[int, ...]
    image: tuple[int, ...]  # of a convolutional network: its shape, then filters, kernel, padding, pool of each stage
    activation: int
    head: int
    floor: float = 0.0  # as those of `NativeHead`
    numbers: tuple[float, ...] = ()

    @property
    def has_head(self) -> bool:
        """Whether the kernel knows the likelihood, not only the network."""
        return self.head != _NO_HEAD

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The same as attributes of a custom call."""
        head = {"head": np.int64(self.head), "floor": np.float32(self.floor), "numbers": np.array(self.numbers)}
        return self.network_attributes | head

    @property
    def network_attributes(self) -> dict[str, Attribute]:
        """The attributes that do not concern the likelihood."""
        return {
            "sizes": np.array(self.sizes, np.int64),
            "image": np.array(self.image, np.int64),
            "activation": np.int64(self.activation),
        }

    def kept_floats(self, n_rows: int) -> int:
        """Return what the kernel keeps of rows on its way forward: `most_kept` in kernel.hpp."""
        if self.image:
            return 0
        of_row = sum(-(-width // 16) * 16 for width in self.sizes[1:-1])
        return -(-n_rows // 96) * 96 * of_row * (2 if self.activation in _KEEP_SLOPES else 1)

    @property
    def has_sums(self) -> bool:
        """Whether `summarize` knows the likelihood."""
        return self.head in _N_SUMS

    @property
    def n_sums(self) -> int:
        """Numbers of a row that `summarize` gives."""
        return _N_SUMS[self.head](self.sizes[-1])

    @property
    def row_floats(self) -> int:
        """Floats that a row takes while JAX computes with the outputs: these, their slopes, and what is kept."""
        return 2 * self.sizes[-1] + self.kept_floats(96) // 96


@runtime_checkable
class RowArrays(Protocol):
    """Rows as the kernel takes them: the fields of `Data`."""

    @property
    def x(self) -> Features:
        """Features, rows last."""
        ...

    @property
    def y(self) -> Response:
        """Response of each row."""
        ...

    @property
    def weight(self) -> Float[Array, " row"]:
        """Weight of each row."""
        ...

    @property
    def count(self) -> Int[Array, ""]:
        """Number of rows that are not padding."""
        ...


def specify(
    network: Network, likelihood: AbstractLikelihood, dtype: DTypeLike, rows: RowArrays | None = None
) -> Specification | None:
    """Return what the kernel must know, or None if there is no kernel or it cannot compute this.

    `dtype` is that of the parameters. The kernel may know the network alone; then it has no head.
    """
    form = network.native_form()
    if form is None or dtype != jnp.float32 or library() is None:
        return None
    if len(form.sizes) > _MOST_SIZES or len(form.image) > _IMAGE_NUMBERS + _MOST_STAGES * _STAGE_NUMBERS:
        return None
    # No error if it is too large: XLA counts in 64 bits everywhere and can compute it, given the memory.
    if max(network.dimension, form.largest_image) >= _TOO_MANY:
        return None
    if rows is not None:
        given = (rows.x.dtype, rows.y.dtype, rows.weight.dtype, rows.count.dtype)
        if given != (jnp.float32, likelihood.dtype, jnp.float32, jnp.int32):
            return None
    head = likelihood.native_head()
    activation = _ACTIVATIONS[form.activation]
    if head is None:
        return Specification(form.sizes, form.image, activation, _NO_HEAD)
    return Specification(form.sizes, form.image, activation, _HEADS[head.name], head.floor, head.numbers)


class Data(NamedTuple):
    """Arguments that all chains share."""

    x: Features
    y: Response
    weight: Float[Array, " row"]
    count: Int[Array, ""]


def value_and_grad(spec: Specification, position: Position, data: Data) -> tuple[Scalar, Position]:
    """Return the weighted log likelihood of all rows and its gradient."""

    def call(chains: tuple[Array], data: Data) -> tuple[Array, Array]:
        (position,) = chains
        shapes = (_floats(len(position)), _floats(*position.shape))
        return _ffi("mile_value_and_grad", shapes)(position, *_flat(data), **spec.attributes)

    return _one_chain(call)((position,), data)


def value(spec: Specification, position: Position, data: Data) -> Scalar:
    """Return the weighted log likelihood of all rows."""

    def call(chains: tuple[Array], data: Data) -> Array:
        (position,) = chains
        return _ffi("mile_value", _floats(len(position)))(position, *_flat(data), **spec.attributes)

    return _one_chain(call)((position,), data)


def mclmc_step(
    spec: Specification,
    key: jax.Array,
    state: MclmcState,
    step_size: Scalar,
    L: Scalar,
    prior: NativePrior,
    data: Data,
) -> MclmcStep:
    """Make one step of `samplers/_mclmc.py`.

    Returns the new position, velocity, log density and gradient, the energy change, and whether all of it
    is finite.
    """
    arguments = prior_arguments(prior, state[0].shape[0])

    def call(chains: tuple[Array, ...], shared: tuple[Array, Data]) -> MclmcStep:
        coefficients, data = shared
        n_chains, dimension = chains[1].shape
        vectors, numbers = _floats(n_chains, dimension), _floats(n_chains)
        shapes = (vectors, vectors, numbers, vectors, numbers, jax.ShapeDtypeStruct((n_chains,), jnp.bool_))
        attributes = spec.attributes | arguments.attributes
        return _ffi("mile_mclmc_step", shapes)(*chains, coefficients, *_flat(data), **attributes)

    chain = (jax.random.key_data(key), *state, step_size, L)
    return _one_chain(call)(chain, (jnp.asarray(arguments.coefficients), data))


def epoch(
    spec: Specification,
    state: tuple[Position, Position, Position, Int[Array, ""]],
    factor: Scalar,
    shuffle: Float[Array, " slot"],
    data: Data,
    batch_size: int,
    **rule: float,
) -> tuple[Position, Position, Position]:
    """Make one epoch of AdamW over mini-batches of the rows in the order of `shuffle`, uniform random numbers.

    `state` is position, both moments and the number of updates so far; `rule` are AdamW's five numbers, of
    which the learning rate is multiplied by `factor`.
    """

    def call(chains: tuple[Array, ...], data: Data) -> tuple[Position, Position, Position]:
        shapes = (_floats(*chains[0].shape),) * 3
        numbers = {name: np.float32(value) for name, value in rule.items()}
        return _ffi("mile_epoch", shapes)(
            *chains, *_flat(data), **spec.attributes, batch_size=np.int64(batch_size), **numbers
        )

    return _one_chain(call)((*state, factor, shuffle), data)


def outputs(
    spec: Specification, draws: Float[np.ndarray, "draw d"], x: Float[np.ndarray, "feature row"]
) -> Float[np.ndarray, "draw output row"]:
    """Return the network's outputs under every draw; runs without JAX and without the interpreter's lock.

    Raises
    ------
    MemoryError
        If a thread gets no memory for its tile of rows; it grows with the widths, not with rows or draws.
    """
    draws, x = _contiguous(draws), _contiguous(x)
    result = np.empty((len(draws), spec.sizes[-1], x.shape[1]), np.float32)
    asked = _run("mile_outputs", *_network(spec), spec.activation, draws, len(draws), x, x.shape[1], result)
    _check_memory(asked, spec)
    return result


def summarize(
    spec: Specification,
    draws: Float[np.ndarray, "draw d"],
    x: Float[np.ndarray, "feature row"],
    center: Float[np.ndarray, " row"],
) -> Float[np.ndarray, "number row"]:
    """Return sums over draws, in double precision; runs as `outputs` does.

    Gaussian: location minus center, its square, variance. Categorical: probability of each class, entropy.
    """
    draws, x, center = _contiguous(draws), _contiguous(x), _contiguous(center)
    result = np.zeros((spec.n_sums, x.shape[1]))
    numbers = (spec.activation, spec.head, np.array([spec.floor], np.float32))
    asked = _run("mile_summarize", *_network(spec), *numbers, draws, len(draws), x, x.shape[1], center, result)
    _check_memory(asked, spec)
    return result


def normal_form(spec: Specification) -> NormalForm | None:
    """Return what `NormalMixtures` must know; None if the kernel has no normal distribution for this network."""
    if spec.image or spec.head not in _NORMAL_HEADS:
        return None
    return NormalForm(spec.sizes, spec.activation, spec.head, spec.floor)


def described_form(network: Network, likelihood: AbstractLikelihood) -> NormalForm | None:
    """Return the same of a network and a likelihood, with or without a library here: what a file keeps."""
    form, head = network.native_form(), likelihood.native_head()
    if form is None or head is None or len(form.sizes) > _MOST_SIZES or network.dimension >= _TOO_MANY:
        return None
    activation, code = _ACTIVATIONS[form.activation], _HEADS[head.name]
    return normal_form(Specification(form.sizes, form.image, activation, code, float(head.floor)))


def _network(spec: Specification) -> tuple[np.ndarray, int, np.ndarray, int]:
    sizes, image = np.array(spec.sizes, np.int64), np.array(spec.image, np.int64)
    return sizes, len(sizes), image, len(image)


def _contiguous(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.float32)


def _run(name: str, *arguments: np.ndarray | int) -> int:
    """Call a plain function; return 0, the bytes that it asked for and did not get, or -1 for any other error."""
    loaded = library()
    assert loaded is not None  # a specification exists only with it
    pointers = [
        ctypes.c_void_p(argument.ctypes.data) if isinstance(argument, np.ndarray) else ctypes.c_int64(argument)
        for argument in arguments
    ]
    return getattr(loaded, name)(*pointers)


def _check_memory(asked: int, spec: Specification) -> None:
    if asked == 0:
        return
    size = "more memory" if asked < 0 else f"{asked / 1e9:.1f} GB" if asked >= 1e8 else f"{asked / 1e6:.1f} MB"
    *widths, last = (f"{width:,}" for width in spec.sizes)
    raise MemoryError(
        f"the native kernel needs {size} in each thread to evaluate a network with layers of {', '.join(widths)} and "
        f"{last}, and the system has not that much left. Free memory, or use fewer threads or a smaller network."
    )


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _ffi(name: str, shapes: PyTree) -> Callable[..., PyTree]:
    def call(*arguments: Array, **attributes: Attribute) -> PyTree:
        types = shapes if jax.sharding.get_abstract_mesh().empty else _types_on_mesh(shapes, arguments)
        return jax.ffi.ffi_call(name, types, vmap_method="sequential")(*arguments, **attributes)

    return call


def _types_on_mesh(shapes: PyTree, arguments: tuple[Array, ...]) -> PyTree:
    """Return the shapes with the type of a result that depends on all arguments.

    Inside shard_map the type says over which devices a number differs.
    """

    def depend_on_all(*arguments: Array) -> PyTree:
        total = sum(jnp.sum(argument, dtype=jnp.float32) for argument in arguments)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(total, leaf.shape).astype(leaf.dtype), shapes)

    return jax.eval_shape(depend_on_all, *arguments)


def _flat(data: Data) -> tuple[Array, ...]:
    return (data.x, data.y, data.weight, data.count[None])


def _one_chain(call: Callable[[Chains, Shared], Result]) -> Callable[[Chains, Shared], Result]:
    """Turn `call(chains, shared)`, whose first argument has a leading axis, into a function of one chain.

    Under `vmap` over chains it is one call for all of them; if the shared arguments are mapped too, one after another.
    """

    @custom_vmap
    def single(chain: Chains, shared: Shared) -> Result:
        return jax.tree.map(lambda leaf: leaf[0], call(jax.tree.map(lambda leaf: leaf[None], chain), shared))

    @single.def_vmap
    def many(axis_size: int, in_batched: tuple[PyTree, PyTree], chain: Chains, shared: Shared) -> tuple[Result, PyTree]:
        chain_batched, shared_batched = in_batched

        def spread(leaf: Array, batched: bool) -> Array:
            return leaf if batched else jnp.broadcast_to(leaf, (axis_size, *jnp.shape(leaf)))

        chain = jax.tree.map(spread, chain, chain_batched)
        if any(jax.tree.leaves(shared_batched)):
            shared = jax.tree.map(spread, shared, shared_batched)
            result = jax.lax.map(lambda arguments: single(*arguments), (chain, shared))
        else:
            result = call(chain, shared)
        return result, jax.tree.map(lambda _: True, result)

    return single
