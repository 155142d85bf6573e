"""The joint predictive distribution of several numbers for each row, and that of each of them alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from mile._checks import check_count
from mile._random import draw_seed
from mile.likelihoods.base import (
    AbstractPredictive,
    Evaluate,
    Explained,
    Mixture,
    OutputsOfDraws,
    PerDraw,
    PerRow,
    Result,
    Uncertainty,
)
from mile.likelihoods.numbers import Predictive
from mile.likelihoods.weights import EQUAL, DrawWeights
from mile.metrics import OF_OUTPUT

if TYPE_CHECKING:
    from mile.likelihoods.outputs import AbstractSeveral, SeveralResponse

_SHOWN = ("lppd", "rmse", "crps", "calibration_error", "coverage_90", "accuracy")  # scores of each output

Columns = Float[np.ndarray, "row output"]


@dataclass(frozen=True, eq=False)
class SomeOutputs:
    """A mixture of which a likelihood sees some outputs of the network."""

    whole: Mixture
    places: Int[np.ndarray, " place"]

    @property
    def n_rows(self) -> int:
        """Rows to predict."""
        return self.whole.n_rows

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return self.whole.n_draws

    @property
    def weights(self) -> DrawWeights:
        """How much each draw counts."""
        return self.whole.weights

    def head(self, n: int) -> "SomeOutputs":
        """Return the same draws with the first rows to predict."""
        return SomeOutputs(self.whole.head(n), self.places)

    def over_blocks(self, function: Callable[..., Result], *row_arrays: np.ndarray) -> Result:
        """Apply a function to these outputs of each block."""
        return self.whole.over_blocks(lambda outputs, *rows: function(outputs[:, self.places], *rows), *row_arrays)

    def native_means(self) -> None:
        """Return nothing: the kernel's head is of other outputs."""
        return

    def native_normals(self, location: PerDraw, scale: PerDraw, weight: PerDraw | None = None) -> Evaluate | None:
        """Return what the whole mixture has."""
        return self.whole.native_normals(location, scale, weight)


@dataclass(frozen=True, eq=False)
class KnownOutputs:
    """A mixture whose outputs are there already: those of a block, each draw counted once."""

    outputs: OutputsOfDraws
    weights: DrawWeights = EQUAL

    @property
    def n_rows(self) -> int:
        """Rows of the block."""
        return self.outputs.shape[-1]

    @property
    def n_draws(self) -> int:
        """Draws of the block."""
        return len(self.outputs)

    def head(self, n: int) -> "KnownOutputs":
        """Return the first rows."""
        return KnownOutputs(self.outputs[..., :n], self.weights)

    def over_blocks(self, function: Callable[..., Result], *row_arrays: np.ndarray) -> Result:
        """Apply a function to all of it."""
        return function(self.outputs, *row_arrays)

    def native_means(self) -> None:
        """Return nothing."""
        return

    def native_normals(self, location: PerDraw, scale: PerDraw, weight: PerDraw | None = None) -> None:
        """Return nothing."""
        return


class JointPredictive(AbstractPredictive):
    """Joint predictive distribution of several numbers for each row: a mixture over draws, on the scale of y.

    Log densities, samples and correlations are of all outputs together. Everything else is of each output alone, with
    one more axis than a single output has: `mean` has shape (row, output), `interval` (row, output, 2).
    """

    score_names: ClassVar[tuple[str, ...]] = ("lppd",)
    figure_names = ("several_outputs", "residual_correlation", "uncertainty")
    caution_names = ()
    log_prob_label = "log density"
    _likelihood: "AbstractSeveral"

    def __init__(self, mixture: Mixture, likelihood: "AbstractSeveral", response: "SeveralResponse") -> None:
        self._mixture, self._weights = mixture, mixture.weights
        self._likelihood, self._response = likelihood, response
        self._parts = response.parts

    def __len__(self) -> int:
        return self._mixture.n_rows

    @property
    def names(self) -> tuple[str, ...]:
        """What the outputs are called."""
        return self._likelihood.output_names

    @cached_property
    def outputs(self) -> tuple[Predictive, ...]:
        """The predictive distribution of each output alone."""
        pairs = zip(self._likelihood.marginals, self._parts, strict=True)
        found = [one.predictive(SomeOutputs(self._mixture, places), part) for (one, places), part in pairs]
        return tuple(cast(Predictive, one) for one in found)

    @property
    def part_score_names(self) -> tuple[str, ...]:
        """Names of the scores of single outputs: that of the score, two underscores, and what the output is called."""
        pairs = zip(self._likelihood.keys, self.outputs, strict=True)
        return tuple(f"{name}{OF_OUTPUT}{key}" for key, one in pairs for name in _SHOWN if name in one.score_names)

    def part(self, key: str) -> tuple[int, Predictive]:
        """Return place and distribution of the output that names of scores call so."""
        place = self._likelihood.keys.index(key)
        return place, self.outputs[place]

    @property
    def point(self) -> Columns:
        """The one value to predict of each output."""
        return self._stack("point")

    @property
    def mean(self) -> Columns:
        """Mean of each output."""
        return self._stack("mean")

    @property
    def std(self) -> Columns:
        """Standard deviation of each output, noise and ignorance together."""
        return self._stack("std")

    @property
    def aleatoric_std(self) -> Columns:
        """Noise of each output: the root of the mean of the draws' variances."""
        return self._stack("aleatoric_std")

    @property
    def epistemic_std(self) -> Columns:
        """Ignorance of each output: the standard deviation of the draws' means."""
        return self._stack("epistemic_std")

    def _stack(self, name: str) -> Columns:
        return np.stack([getattr(one, name) for one in self.outputs], axis=1)

    @cached_property
    def covariance(self) -> Float[np.ndarray, "row output output"]:
        """Covariance of the outputs in each row: what draws say of the noise, and how their means vary together."""
        n_outputs, likelihood, mean_of = len(self.names), self._likelihood, self._weights.mean

        def block(outputs: np.ndarray) -> np.ndarray:
            pairs = zip(likelihood.marginals, self._parts, strict=True)
            alone = [one.predictive(KnownOutputs(outputs[:, places]), part) for (one, places), part in pairs]
            moments = [cast(Predictive, one).moments_per_draw() for one in alone]
            away = [mean - mean_of(mean) for mean, _ in moments]
            found = np.empty((n_outputs, n_outputs, outputs.shape[-1]))
            for one in range(n_outputs):
                for other in range(one + 1):
                    noise = moments[one][1] * moments[other][1]
                    if one != other:
                        noise = noise * likelihood.noise_correlation(outputs, one, other)
                    found[one, other] = found[other, one] = mean_of(noise + away[one] * away[other])
            return found

        return np.moveaxis(self._over_blocks(block), -1, 0)

    @property
    def correlation(self) -> Float[np.ndarray, "row output output"]:
        """Correlation of the outputs in each row."""
        spread = np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))
        return self.covariance / (spread[:, :, None] * spread[:, None, :])

    def log_prob(self, y: Columns) -> PerRow:
        """Return the log density of all outputs of a row together, on the scale of y."""

        def log_density(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
            return self._weights.log_mean_exp(self._likelihood.joint_log_prob(outputs, self._parts, y))

        return self._over_blocks(log_density, self._columns(y))

    def log_prob_per_draw(self, y: Columns) -> PerDraw:
        """Return the same under each draw alone."""

        def log_density(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
            return self._likelihood.joint_log_prob(outputs, self._parts, y)

        return self._over_blocks(log_density, self._columns(y))

    @property
    def draw_weights(self) -> Float[np.ndarray, " draw"] | None:
        """How much each draw counts in the mixture; None if all count the same."""
        return self._weights.values

    def cdf(self, y: Columns) -> Columns:
        """Return P(Y <= y) of each output alone."""
        return self._each("cdf", y)

    def pit(self, y: Columns) -> Columns:
        """Return numbers that are uniform between 0 and 1 if the prediction is right, for each output alone."""
        return self._each("pit", y)

    def crps(self, y: Columns) -> Columns:
        """Return the continuous ranked probability score of each output alone."""
        return self._each("crps", y)

    def _each(self, name: str, y: Columns) -> Columns:
        pairs = zip(self.outputs, self._columns(y), strict=True)
        return np.stack([getattr(one, name)(column) for one, column in pairs], axis=1)

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Return the q-quantile of each output: (row, output) for one level, (row, output, level) for several."""
        return np.stack([one.quantile(cast(float, q)) for one in self.outputs], axis=1)

    def interval(self, level: float = 0.9) -> Float[np.ndarray, "row output 2"]:
        """Return the central interval of each output alone."""
        return np.stack([one.interval(level) for one in self.outputs], axis=1)

    def sample(self, n: int = 1, random_state: int | None = None) -> Float[np.ndarray, "sample row output"]:
        """Draw n responses per row, all outputs of one together."""
        rng = np.random.default_rng(draw_seed(random_state))
        chosen = self._weights.choose(rng, self._mixture.n_draws, (check_count("n", n), len(self)))

        def pick(outputs: np.ndarray, chosen: np.ndarray) -> np.ndarray:
            return np.take_along_axis(outputs, chosen[:, None, :], axis=0)

        picked = self._over_blocks(pick, chosen)  # (sample, output of the network, row)
        flat = np.moveaxis(picked, 1, 0).reshape(1, picked.shape[1], -1)
        return np.moveaxis(self._likelihood.joint_sample(flat, self._parts, rng).reshape(-1, n, len(self)), 0, -1)

    def columns(self, interval: float = 0.9, quantiles: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return the columns of each output, after its name and an underscore."""
        pairs = zip(self.names, self.outputs, strict=True)
        return {
            f"{name}_{key}": cells for name, one in pairs for key, cells in one.columns(interval, quantiles).items()
        }

    def brief(self, rows: Int[np.ndarray, " chosen"]) -> dict[str, np.ndarray]:
        """Return the short cells of each output, after its name."""
        pairs = zip(self.names, self.outputs, strict=True)
        return {f"{name} {key}": cells for name, one in pairs for key, cells in one.brief(rows).items()}

    def uncertainty(self) -> Uncertainty:
        """Return noise and ignorance in standard deviations of the outputs, and their mean share."""
        found = [one.uncertainty() for one in self.outputs]
        units = [part.unit for part in self._parts]

        def together(values: list[PerRow]) -> PerRow:
            scaled = [np.square(one / unit) for one, unit in zip(values, units, strict=True)]
            return np.sqrt(np.mean(scaled, axis=0))

        return Uncertainty(
            together([one.noise for one in found]),
            together([one.ignorance for one in found]),
            np.asarray(np.mean([one.share for one in found], axis=0)),
            "variance",
            "noise, in standard deviations of the outputs",
            "ignorance, in the same unit",
        )

    def followed(self) -> dict[str, PerDraw]:
        """Return the quantities of each output."""
        pairs = zip(self.names, self.outputs, strict=True)
        return {f"{key} of {name}": values for name, one in pairs for key, values in one.followed().items()}

    def explained(self, label: object = None) -> Explained:
        """Return what is followed of one output, the first or the one that `label` names."""
        place = self._place(label)
        found = self.outputs[place].explained()
        return found._replace(label=f"{found.label} of {self.names[place]}")

    def row_quantities(self, label: object = None) -> dict[str, PerRow]:
        """Return what a single prediction of one output is explained by."""
        return self.outputs[self._place(label)].row_quantities()

    def row_scores(self, y: Columns, thinned: AbstractPredictive | None = None) -> dict[str, PerRow]:
        """Return the joint log density, and scores of each output alone."""
        found, columns = {"lppd": self.log_prob(y)}, self._columns(y)
        few = self.outputs if thinned is None else cast(JointPredictive, thinned).outputs
        for key, one, quick, column in zip(self._likelihood.keys, self.outputs, few, columns, strict=True):
            own = one.row_scores(column, quick)
            found |= {f"{name}{OF_OUTPUT}{key}": values for name, values in own.items()}
        return found

    def _place(self, label: object) -> int:
        if label is not None and label not in self.names:
            raise ValueError(f"label must be one of the outputs {list(self.names)}; got {label!r}.")
        return 0 if label is None else self.names.index(cast(str, label))

    def _columns(self, y: np.ndarray) -> Float[np.ndarray, "output row"]:
        given = np.asarray(y, np.float64)
        if given.shape != (len(self), len(self.names)):
            raise ValueError(
                f"y must have one value for each row and output, shape {(len(self), len(self.names))}; got shape "
                f"{given.shape}."
            )
        return given.T

    def _over_blocks(self, function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
        return cast(np.ndarray, self._mixture.over_blocks(function, *arrays))
