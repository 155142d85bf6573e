"""Likelihoods of numbers: how y is scaled, and the predictive distribution of a number on the scale of y."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
from jaxtyping import Bool, Float, Int

from mile._checks import check_count
from mile._random import draw_seed
from mile.features.numbers import Standardizer
from mile.likelihoods._resolution import few_values
from mile.likelihoods._rounding import refuse_extreme, refuse_rounded
from mile.likelihoods._shown import STRIP_LEVELS
from mile.likelihoods.base import (
    AbstractLikelihood,
    AbstractPredictive,
    AbstractResponse,
    Encoded,
    Explained,
    Mixture,
    OutputsOfDraws,
    PerDraw,
    PerRow,
    Table,
    Tensors,
    Uncertainty,
)
from mile.likelihoods.components import AbstractComponents

# How narrow a predicted scale must be to count as a spike on a value of a response that has few.
_SPIKE_WIDTH = 0.1  # of the median gap between values
_SPIKE_SMALLEST_SHARE = 0.1  # of the predictions


@dataclass(frozen=True)
class ScaledResponse(AbstractResponse):
    """Numbers, shifted and scaled so that they have mean zero and standard deviation one in the training rows."""

    scale: Standardizer

    def encode(self, y: np.ndarray) -> Encoded:
        """Return standardized values in float32."""
        return self.scale.apply(y)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """Return standardized values on the scale of y."""
        return self.scale.undo(encoded)

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which entries are finite numbers."""
        return np.isfinite(np.asarray(y, float))

    def tensors(self) -> dict[str, np.ndarray]:
        """Return shift and scale."""
        return {"shift": np.asarray(self.scale.shift), "scale": np.asarray(self.scale.scale)}

    @property
    def unit(self) -> float:
        """Standard deviation of y in the training rows."""
        return float(self.scale.scale)


class AbstractNumberLikelihood(AbstractLikelihood):
    """A continuous response with any distribution: derive from it, and say outputs, density and components."""

    task = "regression"

    @abstractmethod
    def components(self, outputs: OutputsOfDraws) -> AbstractComponents:
        """Return the distributions of the outputs of draws, in float64."""

    @classmethod
    def check(cls, y: np.ndarray) -> np.ndarray:
        """Return the response in float64; that it is finite has been checked."""
        given = np.asarray(y)
        refuse_rounded(given)
        refuse_extreme(given)
        return np.asarray(y, np.float64)

    @classmethod
    def parse(cls, values: np.ndarray, name: str) -> np.ndarray:
        """Return numbers."""
        return values.astype(np.float64)

    @classmethod
    def read(cls, table: Table, name: str) -> np.ndarray:
        """Return a column of numbers; whole numbers that float64 would round are left to the estimator's check."""
        column = table.column(name)
        if column.dtype.kind in "iu":
            return column
        try:
            return table.matrix([name])[:, 0]
        except ValueError as error:
            raise ValueError(f"The target must be a number in every row for regression: {error}") from None

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn mean and standard deviation from the training rows."""
        return ScaledResponse(Standardizer.learn(y, rows, weight))

    def plain_response(self) -> AbstractResponse:
        """Return the scale that changes nothing."""
        return ScaledResponse(Standardizer.identity())

    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse class codes where numbers are needed."""
        if y.dtype.kind != "f":
            raise ValueError(f"{name} must hold floating-point numbers for a {type(self).__name__}; it has {y.dtype}.")

    def restore_response(self, tensors: Tensors) -> AbstractResponse:
        """Return the scale that a file has kept."""
        return ScaledResponse(Standardizer.read(tensors, ()))

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> "Predictive":
        """Return the predictive distribution of a number."""
        return Predictive(mixture, self, response)

    def aim(self, target: str) -> str:
        """Say that a number is predicted with its noise."""
        return f"{target} and its noise"

    def remarks(self, outputs: Callable[[], OutputsOfDraws], y: Encoded) -> list[str]:
        """Warn when the predicted noise falls below the spacing of a response with few distinct values.

        The density of such a response can be driven up without limit by placing a spike on each value, so a high
        LPPD then says little.
        """
        values = few_values(y)
        if values is None:
            return []
        spacing = float(np.median(np.diff(values)))
        share = float(np.mean(self.components(outputs()).spread < _SPIKE_WIDTH * spacing))
        if share <= _SPIKE_SMALLEST_SHARE:
            return []
        return [
            f"y has only {len(values)} distinct values and for {share:.0%} of the predictions the noise is below a "
            "tenth of the gap between them: the model puts spikes on the values, and LPPD rewards that without "
            "limit. Judge the fit by RMSE and coverage, or use a classifier if the values are categories."
        ]


class Predictive(AbstractPredictive):
    """Predictive distribution of a number for each row: a mixture over draws, on the scale of y."""

    score_names: ClassVar[tuple[str, ...]] = (
        *("lppd", "rmse", "crps", "calibration_error", "interval_score_90", "sharpness_90"),
        *("coverage_50", "coverage_75", "coverage_90", "coverage_95"),
    )
    figure_names = ("intervals", "coverage", "pit", "uncertainty")
    caution_names = ("coverage", "spread")
    log_prob_label = "log density"
    _likelihood: AbstractNumberLikelihood

    def __init__(self, mixture: Mixture, likelihood: AbstractNumberLikelihood, response: AbstractResponse) -> None:
        self._mixture, self._weights = mixture, mixture.weights
        self._likelihood = likelihood
        self._response = response
        self._shift, self._scale = float(response.decode(np.zeros(1))[0]), response.unit

    def __len__(self) -> int:
        return self._mixture.n_rows

    @property
    def point(self) -> PerRow:
        """Mean of each row."""
        return self.mean

    @property
    def mean(self) -> PerRow:
        """Mean of each row."""
        return self._shift + self._scale * self._moments[0]

    @property
    def std(self) -> PerRow:
        """Standard deviation of each row, noise and ignorance together."""
        return self._scale * np.sqrt(self._moments[1] + self._moments[2])

    @property
    def aleatoric_std(self) -> PerRow:
        """Noise: the root of the mean of the draws' variances."""
        return self._scale * np.sqrt(self._moments[1])

    @property
    def epistemic_std(self) -> PerRow:
        """Ignorance: the standard deviation of the draws' means."""
        return self._scale * np.sqrt(self._moments[2])

    @cached_property
    def _moments(self) -> tuple[PerRow, PerRow, PerRow]:
        found = self._mixture.native_means()
        if found is not None:
            center, (away, square, variance) = found
            return center + away, variance, np.maximum(square - np.square(away), 0.0)

        def moments(outputs: np.ndarray) -> tuple[PerRow, PerRow, PerRow]:
            return self._moments_of_mixture(self._likelihood.components(outputs))

        return cast(tuple[PerRow, PerRow, PerRow], self._mixture.over_blocks(moments))

    def _moments_of_mixture(self, components: AbstractComponents) -> tuple[PerRow, PerRow, PerRow]:
        """Return mean, mean variance and variance of means."""
        weights, mean = self._weights, components.mean
        return weights.mean(mean), weights.mean(np.square(components.std)), weights.variance(mean)

    def log_prob(self, y: PerRow) -> PerRow:
        """Return the log predictive density of one response per row, on the scale of y."""

        def log_density(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
            return self._weights.log_mean_exp(self._likelihood.components(outputs).log_prob(y))

        return self._over_blocks(log_density, self._standardize(y)) - np.log(self._scale)

    def log_prob_per_draw(self, y: PerRow) -> PerDraw:
        """Return the log density of one response per row under each draw alone, on the scale of y."""

        def log_density(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
            return self._likelihood.components(outputs).log_prob(y)

        return self._over_blocks(log_density, self._standardize(y)) - np.log(self._scale)

    @property
    def draw_weights(self) -> Float[np.ndarray, " draw"] | None:
        """How much each draw counts in the mixture; None if all count the same."""
        return self._weights.values

    def moments_per_draw(self) -> tuple[PerDraw, PerDraw]:
        """Return mean and standard deviation of each row under each draw alone."""

        def moments(outputs: np.ndarray) -> tuple[PerDraw, PerDraw]:
            components = self._likelihood.components(outputs)
            return components.mean, components.std

        mean, std = self._mixture.over_blocks(moments)
        return self._shift + self._scale * mean, self._scale * std

    def followed(self) -> dict[str, PerDraw]:
        """Return location and log scale of each row under each draw."""
        mean, std = self.moments_per_draw()
        return {"location": mean, "log scale": np.log(std)}

    def explained(self, label: object = None) -> Explained:
        """Return mean and standard deviation under each draw."""
        return Explained(*self.moments_per_draw(), "mean")

    def row_quantities(self, label: object = None) -> dict[str, PerRow]:
        """Return mean and standard deviation, and the two parts of the latter."""
        parts = {"noise": self.aleatoric_std, "ignorance": self.epistemic_std}
        return {"mean": self.mean, "standard deviation": self.std} | parts

    def cdf(self, y: PerRow) -> PerRow:
        """Return P(Y <= y) for one value per row."""

        def probability(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
            return self._weights.mean(self._likelihood.components(outputs).cdf(y))

        return self._over_blocks(probability, self._standardize(y))

    def pit(self, y: PerRow) -> PerRow:
        """Return numbers that are uniform between 0 and 1 if the prediction is right: here P(Y <= y)."""
        return self.cdf(y)

    def inside(self, y: PerRow, level: float = 0.9) -> Bool[np.ndarray, " row"]:
        """Return whether the central interval holds y, for one value per row."""
        return np.abs(self.cdf(y) - 0.5) <= level / 2

    def quantile(self, q: "float | Sequence[float] | np.ndarray") -> np.ndarray:
        """Return the q-quantile of each row: (row,) for one level, (row, level) for several.

        Raises
        ------
        ValueError
            If a level is not strictly between 0 and 1.
        """
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if levels.ndim != 1 or not levels.size or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"q must be one or more levels strictly between 0 and 1; got {q!r}.")

        def quantiles(outputs: np.ndarray) -> np.ndarray:
            components = self._likelihood.components(outputs)
            evaluate, spread = components.evaluator(self._mixture), components.spread
            center, noise, ignorance = self._moments_of_mixture(components)
            guess = center, np.sqrt(noise + ignorance)
            return np.stack([components.solve(evaluate, spread, guess, one) for one in levels])

        result = self._shift + self._scale * self._over_blocks(quantiles).T
        return result[:, 0] if np.ndim(q) == 0 else result

    def crps(self, y: PerRow) -> PerRow:
        """Return the continuous ranked probability score of one response per row, on the scale of y; lower is better.

        It is the mean distance of the prediction to y less half the mean distance between two predictions.
        """

        def score(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
            components = self._likelihood.components(outputs)
            return components.crps(components.evaluator(self._mixture), y, self._weights)

        return self._scale * self._over_blocks(score, self._standardize(y))

    def row_scores(self, y: PerRow, thinned: "Predictive | None" = None) -> dict[str, PerRow]:
        """Return log density, CRPS, squared error of the mean, and 1 where the 90 % interval holds y."""
        inside = np.abs(self.pit(y) - 0.5) <= 0.45
        squared_error = np.square(self.mean - y)
        found = super().row_scores(y)
        crps = (self if thinned is None else thinned).crps(y)
        return found | {"crps": crps, "squared_error": squared_error, "coverage_90": inside.astype(float)}

    def row_values(self, y: PerRow) -> dict[str, PerRow]:
        """Return mean, standard deviation, and the distance of the mean to y."""
        return {"mean": self.mean, "std": self.std, "distance": np.abs(self.mean - y)}

    def interval(self, level: float = 0.9) -> Float[np.ndarray, "row 2"]:
        """Return the central interval that holds y with probability `level`, lower and upper end.

        Raises
        ------
        ValueError
            If the level is not strictly between 0 and 1.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie strictly between 0 and 1; got {level!r}.")
        return self.quantile(np.array([0.5 - level / 2, 0.5 + level / 2]))

    def strips(self, levels: Sequence[float] = STRIP_LEVELS) -> Float[np.ndarray, "row level"]:
        """Return quantiles to draw each row by."""
        return self.quantile(levels)

    def points(self, y: PerRow) -> np.ndarray:
        """Return where to draw the density between the first and the last y, in order: there, or where y can be."""
        return y

    def possible(self, ends: np.ndarray) -> np.ndarray:
        """Return ends of intervals (row, 2) that were found otherwise, moved to values that y can have."""
        return ends

    def sample(self, n: int = 1, random_state: int | None = None) -> Float[np.ndarray, "sample row"]:
        """Draw n responses per row."""
        rng = np.random.default_rng(draw_seed(random_state))
        chosen = self._weights.choose(rng, self._mixture.n_draws, (check_count("n", n), len(self)))

        def pick(outputs: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, ...]:
            return self._likelihood.components(outputs).take(chosen).parameters()

        some = self._likelihood.components(np.zeros((1, self._likelihood.n_outputs, 1)))
        return self._shift + self._scale * some.with_parameters(self._mixture.over_blocks(pick, chosen)).sample(rng)

    def columns(self, interval: float = 0.9, quantiles: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return mean, standard deviation, ends of an interval, and quantiles."""
        lower, upper = self.interval(interval).T
        name = f"{100 * interval:g}"
        found = {"mean": self.mean, "std": self.std, f"lower_{name}": lower, f"upper_{name}": upper}
        if len(quantiles):
            found |= {
                f"q{level:g}": column for level, column in zip(quantiles, self.quantile(quantiles).T, strict=True)
            }
        return found

    def brief(self, rows: Int[np.ndarray, " chosen"]) -> dict[str, np.ndarray]:
        """Return mean and interval."""
        return {"mean": self.mean[rows], "90 % interval": self.interval(0.9)[rows]}

    def uncertainty(self) -> Uncertainty:
        """Return the two standard deviations."""
        epistemic = self.epistemic_std
        share = np.square(epistemic) / np.maximum(np.square(self.std), np.finfo(float).tiny)
        labels = ("noise, standard deviation of {target}", "ignorance, standard dev.")
        return Uncertainty(self.aleatoric_std, epistemic, share, "variance", *labels)

    def _over_blocks(self, function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
        return cast(np.ndarray, self._mixture.over_blocks(function, *arrays))

    def _standardize(self, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, np.float64)
        if y.shape != (len(self),):
            raise ValueError(f"y must have one value per row, shape {(len(self),)}; got shape {y.shape}.")
        return (y - self._shift) / self._scale
