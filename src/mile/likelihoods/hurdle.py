"""Amounts that are zero with a chance of their own, and positive numbers else, such as rain and insurance claims."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile import _registry
from mile._checks import check_number
from mile._types import Outputs
from mile.features.numbers import Standardizer
from mile.likelihoods._masses import with_zeros
from mile.likelihoods._quantiles import mixture_quantile
from mile.likelihoods._zeros import WithZeros, start_of
from mile.likelihoods.atoms import AtomPredictive
from mile.likelihoods.base import (
    AbstractResponse,
    Encoded,
    Evaluate,
    Mixture,
    OutputsOfDraws,
    PerDraw,
    PerRow,
    Tensors,
)
from mile.likelihoods.gamma import Gamma, GammaComponents
from mile.likelihoods.lognormal import LogNormal, LogNormalComponents
from mile.likelihoods.positive import AbstractPositive, PositivePredictive, unshifted

PositiveComponents = LogNormalComponents | GammaComponents


@dataclass(frozen=True)
class AmountResponse(AbstractResponse):
    """Amounts divided by their standard deviation, so that zero stays zero."""

    scale: Standardizer

    def encode(self, y: np.ndarray) -> Encoded:
        """Return scaled amounts in float32."""
        return unshifted(self.scale).encode(y)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """Return amounts."""
        return unshifted(self.scale).decode(encoded)

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which entries are finite and not negative."""
        y = np.asarray(y, float)
        return np.isfinite(y) & (y >= 0.0)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the scale, with a shift of zero."""
        return unshifted(self.scale).tensors()


@dataclass(frozen=True)
class AbstractHurdle(AbstractPositive):
    """What a hurdle adds to the positive family that stands after it among the bases of a class."""

    allows_zero = True
    takes_limits = False

    zeros: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.zeros is not None:
            check_number("zeros", self.zeros)

    @property
    def n_outputs(self) -> int:
        """Both of the family, and the log odds of zero."""
        return 3

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn the standard deviation from the training rows."""
        return AmountResponse(Standardizer.learn(y, rows, weight))

    def restore_response(self, tensors: Tensors) -> AbstractResponse:
        """Return the scale that a file has kept."""
        return AmountResponse(Standardizer.read(tensors, ()))

    def fitted(self, y: Encoded) -> AbstractPositive:
        """Return this likelihood with what it takes from the response."""
        zeros = start_of(float(np.mean(y == 0))) if self.zeros is None and len(y) else self.zeros
        return super(AbstractHurdle, replace(self, zeros=zeros)).fitted(y[y > 0])

    def log_prob(self, outputs: Outputs, y: Float[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of zero, or the log density of another value, of each row."""
        density = super().log_prob(outputs, jnp.where(y > 0, y, 1.0))
        return with_zeros(jnp, outputs[2] + (self.zeros or 0.0), y, jnp.where(y > 0, density, -jnp.inf))

    def components(self, outputs: OutputsOfDraws) -> "HurdleComponents":
        """Return the distributions of outputs."""
        logit = outputs[:, 2].astype(np.float64) + (self.zeros or 0.0)
        return HurdleComponents(logit, cast(PositiveComponents, super().components(outputs[:, :2])))

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> "HurdlePredictive":
        """Return the predictive distribution of an amount."""
        return HurdlePredictive(mixture, self, response)


@_registry.likelihood("hurdle_lognormal")
@dataclass(frozen=True)
class HurdleLogNormal(AbstractHurdle, LogNormal):
    """Zero with a chance of its own, else lognormal: outputs as those of `LogNormal`, and the log odds of zero.

    Parameters
    ----------
    center, spread, below, above, floor
        As those of `LogNormal`, of the positive rows.
    zeros
        Log odds of zero where the third output is zero. None: learned, as those of the zeros in y.
    """


@_registry.likelihood("hurdle_gamma")
@dataclass(frozen=True)
class HurdleGamma(AbstractHurdle, Gamma):
    """Zero with a chance of its own, else gamma: outputs as those of `Gamma`, and the log odds of zero.

    Parameters
    ----------
    center, spread, below, above, floor
        As those of `Gamma`, of the positive rows.
    zeros
        Log odds of zero where the third output is zero. None: learned, as those of the zeros in y.
    """


@dataclass(frozen=True, eq=False)
class HurdleComponents(WithZeros[PositiveComponents]):
    """Amounts of each row under each draw that may be zero."""

    def quantile(self, level: float) -> PerDraw:
        """Return the quantiles at one level: zero up to the chance of it."""
        chance = self.chance
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = np.clip((level - chance) / (1.0 - chance), 0.0, level)
        return np.where(rest > 0.0, self.base.quantile(np.where(rest > 0.0, rest, level)), 0.0)

    def brackets(self, level: float) -> np.ndarray:
        """Return zero and numbers beyond which no quantile is: zeros only make it smaller."""
        highest = self.base.brackets(level).max(axis=0)
        return np.stack([np.zeros_like(highest), highest])

    def solve(self, evaluate: Evaluate, spread: PerDraw, guess: tuple[PerRow, PerRow], level: float) -> PerRow:
        """Return the quantile of each row's mixture, which is zero up to the probability of it."""
        nothing = np.zeros(spread.shape[-1])
        is_zero = evaluate(nothing)[0] >= level
        brackets = np.where(is_zero, 0.0, self.brackets(level))
        return np.where(is_zero, 0.0, mixture_quantile(evaluate, brackets, spread, guess, level))


class HurdlePredictive(AtomPredictive, PositivePredictive):
    """Predictive distribution of an amount that may be zero; its log score at zero is that of a probability."""

    log_prob_label = "log density, or probability of 0"
    _likelihood: AbstractHurdle

    def __init__(self, mixture: Mixture, likelihood: AbstractHurdle, response: AbstractResponse) -> None:
        super().__init__(mixture, likelihood, response)
        # The response has no unit: scores of zeros do not change with the scale, so there are no standardized ones.
        self._scale = float(response.decode(np.ones(1))[0])

    def log_prob(self, y: PerRow) -> PerRow:
        """Return the log predictive probability of zero, or density of another value, of one response per row."""
        return super().log_prob(y) + self._without_unit(y)

    def log_prob_per_draw(self, y: PerRow) -> PerDraw:
        """Return the same under each draw alone."""
        return super().log_prob_per_draw(y) + self._without_unit(y)

    def columns(self, interval: float = 0.9, quantiles: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return mean, standard deviation, ends of an interval, quantiles, and the probability of zero."""
        return super().columns(interval, quantiles) | {"p_0": self.cdf(np.zeros(len(self)))}

    def _without_unit(self, y: PerRow) -> PerRow:
        """Undo the change of scale of a density where there is a probability."""
        return np.where(np.asarray(y) == 0.0, np.log(self._scale), 0.0)
