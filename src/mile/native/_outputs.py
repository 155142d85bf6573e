"""Log likelihoods that the kernel does not know: it computes the network, and JAX the likelihood of the outputs.

The kernel goes forward, JAX gives the log density of each row and its derivative with respect to the outputs, and the
kernel goes backward. What it needs of the hidden layers it keeps in between; of convolutions it computes it again.
"""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float

from mile._types import Outputs, Position, Response, Scalar
from mile.native._ops import Data, Specification, _ffi, _floats, _one_chain

_MOST_KEPT = 1 << 23  # floats of a chain; with more, the kernel computes the hidden layers again
LogProb = Callable[[Outputs, Response], Float[Array, " row"]]  # `log_prob` of a likelihood


def value_of_outputs(spec: Specification, log_prob: LogProb, position: Position, data: Data) -> Scalar:
    """Return the weighted log likelihood of all rows."""

    def call(chains: tuple[Array], data: Data) -> Array:
        (positions,) = chains
        outputs, _ = _forward(spec, positions, data, keeps=False)
        return _total(jax.lax.map(lambda outputs: _terms(log_prob, outputs, data.y), outputs), data)

    return _one_chain(call)((position,), data)


def value_and_grad_of_outputs(
    spec: Specification, log_prob: LogProb, position: Position, data: Data
) -> tuple[Scalar, Position]:
    """Return the same and its gradient."""

    def terms_and_slopes(outputs: Outputs, data: Data) -> tuple[Array, Array]:
        terms, pull_back = jax.vjp(lambda outputs: _terms(log_prob, outputs, data.y), outputs)
        return terms, *pull_back(data.weight)

    def call(chains: tuple[Array], data: Data) -> tuple[Array, Array]:
        (positions,) = chains
        outputs, kept = _forward(spec, positions, data, keeps=True)
        # One after the other: batched, XLA may round a chain otherwise when it has other company.
        terms, slopes = jax.lax.map(lambda outputs: terms_and_slopes(outputs, data), outputs)
        return _total(terms, data), _backward(spec, positions, slopes, kept, data)

    return _one_chain(call)((position,), data)


def _terms(log_prob: LogProb, outputs: Outputs, y: Response) -> Float[Array, " row"]:
    return log_prob(outputs, y).astype(outputs.dtype)


def _forward(
    spec: Specification, positions: Float[Array, "chain d"], data: Data, *, keeps: bool
) -> tuple[Float[Array, "chain output row"], Float[Array, "chain kept"]]:
    n_chains, n_rows = len(positions), data.x.shape[1]
    n_kept = spec.kept_floats(n_rows) if keeps else 0
    shapes = (
        _floats(n_chains, spec.sizes[-1], n_rows),
        _floats(n_chains, n_kept if n_kept <= _MOST_KEPT else 0),
    )
    return _ffi("mile_forward", shapes)(positions, data.x, data.count[None], **spec.network_attributes)


def _backward(
    spec: Specification,
    positions: Float[Array, "chain d"],
    slopes: Float[Array, "chain output row"],
    kept: Float[Array, "chain kept"],
    data: Data,
) -> Float[Array, "chain d"]:
    call = _ffi("mile_backward", _floats(*positions.shape))
    return call(positions, slopes, kept, data.x, data.count[None], **spec.network_attributes)


def _total(terms: Float[Array, "chain row"], data: Data) -> Float[Array, " chain"]:
    # In double precision: what is lost would drown the energy change of a step.
    return _ffi("mile_weighted_sum", _floats(len(terms)))(terms, data.weight, data.count[None])
