"""The target: unnormalized log posterior of a network given data, a pytree with the data as leaves.

The data term is computed by the native kernel on CPU where that fits, and by XLA otherwise; both accept the
same transformations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Int

from mile import native
from mile._types import ChainNumber, Key, NativeStep, Position, Scalar, Target
from mile.likelihoods import AbstractLikelihood
from mile.networks.base import Network
from mile.padded_rows import PaddedRows
from mile.priors import Accelerated, FlatPrior

# XLA keeps the hidden features of all rows it works on, a few times over. Blocks of rows bound that, and large networks
# are faster on blocks that stay in the cache (LeNet-5, 1,024 images, two cores: 157 ms by 16, 180 by 64, 420 at once).
_XLA_ROWS = 1 << 15
_XLA_FLOATS = 1 << 21  # of intermediate results of one forward pass
_FEWEST_BLOCKS = 3  # with fewer, blocks only cost time
# Neighboring rows that enter a mini-batch together: one cache line of each feature. Buckets are multiples of it.
_GROUP = 16

Value = TypeVar("Value")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Posterior(Target):
    """Log likelihood summed over rows plus log prior, as a function of one flat vector."""

    rows: PaddedRows
    network: Network = field(metadata={"static": True})
    likelihood: AbstractLikelihood = field(metadata={"static": True})
    prior: FlatPrior = field(metadata={"static": True})

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return self.network.dimension

    @property
    def n_slots(self) -> int:
        """Rows and padding."""
        return self.rows.y.shape[0]

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log posterior."""
        return log_likelihood(self.network, self.likelihood, position, self.rows) + self.prior.log_prob(position)

    def for_chain(self, chain: ChainNumber) -> "Posterior":
        """Return the target of one chain: this one."""
        return self

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the unnormalized log posterior and its gradient."""
        value, gradient = _value_and_grad(self.network, self.likelihood, position, _data(self.rows))
        prior, prior_gradient = jax.value_and_grad(self.prior.log_prob)(position)
        return value + prior, gradient + prior_gradient

    def tempered(self, temperature: float) -> "Posterior":
        """Return the target whose density is this one's to the power 1 / temperature; at 1 that is itself."""
        if temperature == 1.0:
            return self
        rows = replace(self.rows, weight=self.rows.weight / temperature)
        return replace(self, rows=rows, prior=self.prior.tempered(temperature))

    # -- mini-batches: an epoch goes through all rows in an order of its own, in groups of neighbors

    def shuffled(self, key: Key) -> Int[Array, " group"]:
        """Return the order of one epoch: the groups with rows at random, then those that are padding."""
        numbers = jax.random.uniform(key, (self.rows.y.shape[0] // _GROUP,))
        groups = jnp.arange(len(numbers), dtype=jnp.int32)
        return jnp.argsort(jnp.where(groups < self._n_groups, numbers, jnp.inf)).astype(jnp.int32)

    def n_minibatches(self, batch_size: int) -> Int[Array, ""]:
        """Return how many whole mini-batches an epoch has; what is left over differs from epoch to epoch."""
        return jnp.maximum(self._n_groups // _groups_of(batch_size), 1)

    def minibatch(
        self, order: Int[Array, " group"], index: Int[Array, ""], batch_size: int, *, scaled: bool = True
    ) -> "Posterior":
        """Return mini-batch `index` of an epoch, its log likelihood scaled to all rows: an unbiased estimate of this.

        `batch_size` is rounded up to whole groups; a batch that holds all rows is this posterior itself. Without the
        scale the batch counts as if there were no other rows.
        """
        n_groups = _groups_of(batch_size)
        if n_groups >= len(order):
            return self
        chosen = jax.lax.dynamic_slice_in_dim(order, index * n_groups, n_groups)
        scale = jnp.maximum(self._n_groups / n_groups, 1.0).astype(self.rows.weight.dtype) if scaled else 1.0

        def take(values: Array) -> Array:
            grouped = values.reshape(*values.shape[:-1], -1, _GROUP)
            return jnp.take(grouped, chosen, axis=-2, mode="clip").reshape(*values.shape[:-1], -1)

        rows = PaddedRows(
            x=take(self.rows.x),
            y=jnp.moveaxis(take(jnp.moveaxis(self.rows.y, 0, -1)), -1, 0),
            weight=take(self.rows.weight) * scale,
            count=jnp.asarray(n_groups * _GROUP, jnp.int32),
        )
        return replace(self, rows=rows)

    def random_rows(self, key: Key, size: int, *, scaled: bool = True) -> "Posterior":
        """Return this with `size` single rows, drawn without replacement; if there are no more, with all of them.

        Unlike `minibatch` it takes no groups of neighbors, so that two draws share no more than chance has it.
        """
        n_slots = self.n_slots
        if n_slots <= size:
            return self
        padded = min(_groups_of(size) * _GROUP, n_slots)
        rank, slots = jnp.arange(padded), jnp.arange(n_slots)
        numbers = jnp.where(slots < self.rows.count, jax.random.uniform(key, (n_slots,)), jnp.inf)
        drawn = self.rows.take(jnp.argsort(numbers)[:padded])
        number = jnp.minimum(size, self.rows.count)
        scale = (self.rows.count / number).astype(drawn.weight.dtype) if scaled else 1.0
        weight = jnp.where(rank < number, drawn.weight * scale, 0.0)
        return replace(self, rows=replace(drawn, weight=weight, count=number.astype(jnp.int32)))

    def prior_gradient(self, position: Position) -> Position:
        """Return the gradient of the log prior."""
        return jax.grad(self.prior.log_prob)(position)

    def random_share(self, size: int) -> Scalar:
        """Return which share of the rows `random_rows` draws."""
        return jnp.minimum(size / self.rows.count, 1.0)

    def with_softmax_twice(self) -> "Posterior":
        """Return this with the likelihood that takes probabilities for logits."""
        return replace(self, likelihood=self.likelihood.with_softmax_twice())

    def minibatch_share(self, batch_size: int) -> Scalar:
        """Return which share of the rows a mini-batch has; at most 1, because the last of them may be padding."""
        return jnp.minimum(_groups_of(batch_size) * _GROUP / self.rows.count, 1.0)

    @property
    def _n_groups(self) -> Int[Array, ""]:
        return -(-self.rows.count // _GROUP)

    def n_parts(self, size: int) -> int:
        """Return into how many parts `part` cuts the rows."""
        n_slots = self.rows.y.shape[0]
        return -(-n_slots // min(size, n_slots))

    def part(self, index: Int[Array, ""] | int, size: int) -> "Part":
        """Return the target of `size` consecutive rows with its share of the prior; all parts add up to this."""
        rows, n_parts = self.rows, self.n_parts(size)
        size = min(size, rows.y.shape[0])
        wanted = jnp.asarray(index) * size
        start = jnp.minimum(wanted, rows.y.shape[0] - size)  # the last part overlaps the one before it
        cut = partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=size)
        weight = jnp.where(start + jnp.arange(size) >= wanted, cut(rows.weight), 0.0)
        part = PaddedRows(x=cut(rows.x, axis=1), y=cut(rows.y), weight=weight, count=jnp.asarray(size, jnp.int32))
        return Part(replace(self, rows=part), n_parts)

    def native_step(self, key: Key, position: Position) -> NativeStep | None:
        """Return the native form of one step of `samplers/_mclmc.py` on this posterior, or None.

        The function takes key, state, step size and L and must run on CPU. The kernel draws the bits of JAX's default
        generator.
        """
        spec = native.specify(self.network, self.likelihood, position.dtype, self.rows)
        partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
        default_bits = partitionable and str(jax.random.key_impl(key)) == "threefry2x32"
        prior = self.prior.native_form() if isinstance(self.prior, Accelerated) else None
        if spec is None or not spec.has_head or prior is None or not default_bits:
            return None
        data = _data(self.rows)
        return lambda key, state, step_size, L: native.mclmc_step(spec, key, state, step_size, L, prior, data)


def _groups_of(batch_size: int) -> int:
    return -(-batch_size // _GROUP)


def log_likelihood(network: Network, likelihood: AbstractLikelihood, position: Position, rows: PaddedRows) -> Scalar:
    """Return the weighted sum of the rows' log likelihoods; a row that is not finite makes it so."""
    return _log_likelihood(network, likelihood, position, _data(rows))


def _data(rows: PaddedRows) -> native.Data:
    # A plain tuple, because a derivative has the same fields but not the same types.
    return native.Data(rows.x, rows.y, rows.weight, rows.count)


def _rows(data: native.Data) -> PaddedRows:
    return PaddedRows(x=data.x, y=data.y, weight=data.weight, count=data.count)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _log_likelihood(network: Network, likelihood: AbstractLikelihood, position: Position, data: native.Data) -> Scalar:
    return _on_cpu(_value_by_kernel, value_by_xla, network, likelihood, position, _rows(data))


def _derivative(
    network: Network, likelihood: AbstractLikelihood, primals: tuple, tangents: tuple
) -> tuple[Scalar, Scalar]:
    (position, data), (position_tangent, data_tangent) = primals, tangents
    value, gradient = _value_and_grad(network, likelihood, position, data)
    tangent = jnp.zeros_like(value)
    if not isinstance(position_tangent, SymbolicZero):
        tangent += gradient @ position_tangent  # in the precision of the value
    if not all(isinstance(leaf, SymbolicZero) for leaf in data_tangent):
        data_tangent = jax.tree.map(_materialize, data, data_tangent)

        def of_data(data: native.Data) -> Scalar:
            return _plain(network, likelihood, position, _rows(data))

        tangent += jax.jvp(of_data, (data,), (data_tangent,))[1]
    return value, tangent


_log_likelihood.defjvp(_derivative, symbolic_zeros=True)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _value_and_grad(
    network: Network, likelihood: AbstractLikelihood, position: Position, data: native.Data
) -> tuple[Scalar, Position]:
    return _on_cpu(_value_and_grad_by_kernel, value_and_grad_by_xla, network, likelihood, position, _rows(data))


@_value_and_grad.defjvp
def _second_derivative(network: Network, likelihood: AbstractLikelihood, primals: tuple, tangents: tuple) -> tuple:
    # Nothing in the library needs it, so it has no fast form.
    def plain(position: Position, data: native.Data) -> Scalar:
        return _plain(network, likelihood, position, _rows(data))

    return jax.jvp(jax.value_and_grad(plain), primals, tangents)


def _on_cpu(
    by_kernel: Callable[[native.Specification, AbstractLikelihood, Position, PaddedRows], Value],
    by_xla: Callable[[Network, AbstractLikelihood, Position, PaddedRows], Value],
    network: Network,
    likelihood: AbstractLikelihood,
    position: Position,
    rows: PaddedRows,
) -> Value:
    """Call the native kernel where the program runs on a CPU, and `by_xla` anywhere else."""
    spec = native.specify(network, likelihood, position.dtype, rows)
    if spec is None:
        return by_xla(network, likelihood, position, rows)
    return jax.lax.platform_dependent(
        position,
        rows,
        cpu=lambda position, rows: by_kernel(spec, likelihood, position, rows),
        default=lambda position, rows: by_xla(network, likelihood, position, rows),
    )


def _value_by_kernel(
    spec: native.Specification, likelihood: AbstractLikelihood, position: Position, rows: PaddedRows
) -> Scalar:
    if spec.has_head:
        return native.value(spec, position, _data(rows))

    def function(position: Position, rows: PaddedRows) -> Scalar:
        return native.value_of_outputs(spec, likelihood.log_prob, position, _data(rows))

    return _in_blocks(function, _block_rows(spec.row_floats), position, rows)


def _value_and_grad_by_kernel(
    spec: native.Specification, likelihood: AbstractLikelihood, position: Position, rows: PaddedRows
) -> tuple[Scalar, Position]:
    if spec.has_head:
        return native.value_and_grad(spec, position, _data(rows))

    def function(position: Position, rows: PaddedRows) -> tuple[Scalar, Position]:
        return native.value_and_grad_of_outputs(spec, likelihood.log_prob, position, _data(rows))

    return _in_blocks(function, _block_rows(spec.row_floats), position, rows)


def _materialize(primal: Array, tangent: Array | SymbolicZero) -> Array | np.ndarray:
    if not isinstance(tangent, SymbolicZero):
        return tangent
    exact = not jnp.issubdtype(primal.dtype, jnp.floating)
    return np.zeros(primal.shape, jax.dtypes.float0) if exact else jnp.zeros_like(primal)


def value_by_xla(network: Network, likelihood: AbstractLikelihood, position: Position, rows: PaddedRows) -> Scalar:
    """Return what `log_likelihood` does, without the native kernel."""

    def function(position: Position, rows: PaddedRows) -> Scalar:
        return _plain(network, likelihood, position, rows)

    return _in_blocks(function, _block_rows(network.row_floats), position, rows)


def value_and_grad_by_xla(
    network: Network, likelihood: AbstractLikelihood, position: Position, rows: PaddedRows
) -> tuple[Scalar, Position]:
    """Return the same and its gradient."""

    def function(position: Position, rows: PaddedRows) -> Scalar:
        return _plain(network, likelihood, position, rows)

    return _in_blocks(jax.value_and_grad(function), _block_rows(network.row_floats), position, rows)


def _plain(network: Network, likelihood: AbstractLikelihood, position: Position, rows: PaddedRows) -> Scalar:
    outputs = native.apply(network, position, rows.x)
    return jnp.sum(rows.weight * likelihood.log_prob(outputs, rows.y))


def _in_blocks(
    function: Callable[[Position, PaddedRows], Value], most: int, position: Position, rows: PaddedRows
) -> Value:
    """Sum a function over blocks of a limited number of rows, so that memory is bounded."""
    n_rows = rows.y.shape[0]
    size = min(n_rows & -n_rows, most)  # a power of two that divides the bucket
    if n_rows < _FEWEST_BLOCKS * most or size < most // 16:
        return function(position, rows)

    def add(block: Array, total: Value) -> Value:
        cut = partial(jax.lax.dynamic_slice_in_dim, start_index=block * size, slice_size=size)
        count = jnp.clip(rows.count - block * size, 0, size).astype(rows.count.dtype)
        part = PaddedRows(x=cut(rows.x, axis=1), y=cut(rows.y), weight=cut(rows.weight), count=count)
        return jax.tree.map(jnp.add, total, function(position, part))

    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, position, rows))
    return jax.lax.fori_loop(0, n_rows // size, add, zero)


def _block_rows(row_floats: int) -> int:
    """Return a power of two: rows whose intermediate results, so many for each, fit the cache."""
    fitting = max(_GROUP, _XLA_FLOATS // row_floats)
    return min(_XLA_ROWS, 1 << (fitting.bit_length() - 1))


@dataclass(frozen=True)
class Part(Target):
    """Some rows of a posterior and one of `n_parts` equal shares of its prior, inside compiled code."""

    posterior: Posterior
    n_parts: int

    def logdensity(self, position: Position) -> Scalar:
        """Return the log likelihood of these rows plus a share of the log prior."""
        return self.value_and_grad(position)[0]

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the same and its gradient."""
        whole = self.posterior
        value, gradient = _value_and_grad(whole.network, whole.likelihood, position, _data(whole.rows))
        prior, prior_gradient = jax.value_and_grad(whole.prior.log_prob)(position)
        return value + prior / self.n_parts, gradient + prior_gradient / self.n_parts


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class RescaledTarget(Target):
    """A target with a unit of its own along each coordinate: what it calls x is `scale` times x to the target."""

    target: Target
    scale: Position

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log density."""
        return self.target.logdensity(self.scale * position)

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the same and its gradient in these units."""
        value, gradient = self.target.value_and_grad(self.scale * position)
        return value, self.scale * gradient


@dataclass(frozen=True)
class FunctionTarget(Target):
    """Any JAX log density as a target; it has no rows, so only samplers that need none accept it."""

    function: Callable[[Position], Scalar]

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log density."""
        return self.function(position)

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the unnormalized log density and its gradient."""
        return jax.value_and_grad(self.function)(position)


jax.tree_util.register_static(FunctionTarget)
