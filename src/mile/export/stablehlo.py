"""StableHLO: the program of the network with all draws, which JAX and other users of XLA run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import export as jax_export
from jaxtyping import Array, Float

from mile import _registry
from mile.export._exact import ByClass
from mile.export.base import AbstractExporter, Exported
from mile.likelihoods import AbstractLikelihood, AbstractResponse, Categorical, Gaussian
from mile.likelihoods._links import LINKS, SMALLEST_SCALE
from mile.storage import write_binary

_Mean = Callable[[Array], Array]  # over draws, the first axis
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_MOST_DRAWS = 256  # that are worked on together


@_registry.exporter("stablehlo")
@dataclass(frozen=True, kw_only=True)
class StableHlo(AbstractExporter):
    """A program for XLA, for any network: encoded features in, moments or probabilities out.

    Features are those that `model.fit_.encoder.transform` returns, float32 of shape (rows, features). A normal response
    has mean, std, aleatoric_std and epistemic_std, classes have probabilities; other likelihoods have the network's
    outputs, shape (draws, outputs, rows). `jax.export.deserialize` reads the file.
    """

    def write(self, model: Exported, path: Path) -> None:
        """Write the program."""
        rows = jax_export.symbolic_shape("rows")
        features = jax.ShapeDtypeStruct((*rows, int(np.prod(model.network.input_shape))), jnp.float32)
        program = jax_export.export(jax.jit(partial(_predict, model)), platforms=_PLATFORMS)(features)
        write_binary(path, bytes(program.serialize()))


def _predict(model: Exported, features: Float[Array, "row feature"]) -> Mapping[str, Float[Array, "..."]]:
    most = min(len(model.draws), _MOST_DRAWS)
    outputs = jax.lax.map(lambda draw: model.network.apply(draw, features.T), jnp.asarray(model.draws), batch_size=most)
    weights = model.weights.values
    shares = (
        jnp.full(len(model.draws), 1.0 / len(model.draws)) if weights is None else jnp.asarray(weights, jnp.float32)
    )
    return _summary(model.likelihood, outputs, lambda of_draws: jnp.tensordot(shares, of_draws, axes=1), model.response)


@ByClass
def _summary(
    likelihood: AbstractLikelihood, outputs: Float[Array, "draw output row"], mean: _Mean, response: AbstractResponse
) -> Mapping[str, Float[Array, "..."]]:
    return {"outputs": outputs}


@_summary.of(Gaussian)
def _(likelihood: Gaussian, outputs: Array, mean: _Mean, response: AbstractResponse) -> Mapping[str, Array]:
    floor = SMALLEST_SCALE if likelihood.floor is None else float(likelihood.floor)
    location, log_scale = outputs[:, 0], LINKS[likelihood.link](jnp, outputs[:, 1], floor)
    center, noise = mean(location), mean(jnp.exp(2.0 * log_scale))
    ignorance = mean(jnp.square(location - center))
    shift, unit = float(response.decode(np.zeros(1))[0]), response.unit
    variances = {"std": noise + ignorance, "aleatoric_std": noise, "epistemic_std": ignorance}
    return {"mean": shift + unit * center} | {name: unit * jnp.sqrt(value) for name, value in variances.items()}


@_summary.of(Categorical)
def _(likelihood: Categorical, outputs: Array, mean: _Mean, response: AbstractResponse) -> Mapping[str, Array]:
    return {"probabilities": mean(jax.nn.softmax(outputs, axis=1)).T}
