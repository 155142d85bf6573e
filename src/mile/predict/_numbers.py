"""The predictive distribution of a number, on the scale of y."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from mile import native
from mile._checks import check_count
from mile._random import draw_seed
from mile.data import Standardizer
from mile.likelihoods import Gaussian
from mile.predict._mixture import DEFAULT_MEMORY, Mixture
from mile.predict._quantiles import half_mean_difference, mean_distance, mixture_quantile
from mile.storage import FlatDraws


class Predictive:
    """Predictive distribution of a number for each row: a mixture over draws, on the scale of y."""

    def __init__(
        self,
        network: Any,
        likelihood: Gaussian,
        draws: Float[np.ndarray, "draw d"] | FlatDraws,
        x: Float[np.ndarray, "row feature"],
        y_scale: Standardizer,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self._mixture = Mixture(network, likelihood, draws, x, memory)
        self._likelihood = likelihood
        self._shift = float(y_scale.shift)
        self._scale = float(y_scale.scale)

    def __len__(self) -> int:
        return self._mixture.n_rows

    @property
    def mean(self) -> Float[np.ndarray, " row"]:
        """Mean of each row."""
        return self._shift + self._scale * self._moments[0]

    @property
    def std(self) -> Float[np.ndarray, " row"]:
        """Standard deviation of each row, noise and ignorance together."""
        return self._scale * np.sqrt(self._moments[1] + self._moments[2])

    @property
    def aleatoric_std(self) -> Float[np.ndarray, " row"]:
        """Noise: the root of the mean of the draws' variances."""
        return self._scale * np.sqrt(self._moments[1])

    @property
    def epistemic_std(self) -> Float[np.ndarray, " row"]:
        """Ignorance: the standard deviation of the draws' means."""
        return self._scale * np.sqrt(self._moments[2])

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self._mixture.kernel:
            center, (away, square, variance) = self._mixture.over_draws(self._mixture.kernel)
            return center + away, variance, np.maximum(square - np.square(away), 0.0)

        def moments(components: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            location, scale = self._likelihood.moments(components)
            return location.mean(axis=0), np.square(scale).mean(axis=0), location.var(axis=0)

        return self._mixture.over_blocks(moments)

    def log_prob(self, y: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """Return the log predictive density of one response per row, on the scale of y."""
        standardized = self._standardize(y)

        def log_density(components: np.ndarray, y: np.ndarray) -> np.ndarray:
            per_draw = self._likelihood.component_log_prob(components, y)
            return logsumexp(per_draw, axis=0) - np.log(len(per_draw))

        return self._mixture.over_blocks(log_density, standardized) - np.log(self._scale)

    def log_prob_per_draw(self, y: Float[np.ndarray, " row"]) -> Float[np.ndarray, "draw row"]:
        """Return the log density of one response per row under each draw alone, on the scale of y."""
        standardized = self._standardize(y)
        per_draw = self._mixture.over_blocks(self._likelihood.component_log_prob, standardized)
        return per_draw - np.log(self._scale)

    def moments_per_draw(self) -> tuple[Float[np.ndarray, "draw row"], Float[np.ndarray, "draw row"]]:
        """Return mean and standard deviation of each row under each draw alone."""
        location, scale = self._mixture.over_blocks(self._likelihood.moments)
        return self._shift + self._scale * location, self._scale * scale

    def cdf(self, y: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """Return P(Y <= y) for one value per row."""
        standardized = self._standardize(y)

        def probability(components: np.ndarray, y: np.ndarray) -> np.ndarray:
            return self._likelihood.cdf(*self._likelihood.moments(components), y).mean(axis=0)

        return self._mixture.over_blocks(probability, standardized)

    def quantile(self, q: Any) -> np.ndarray:
        """Return the q-quantile of each row: (row,) for one level, (row, level) for several.

        Raises
        ------
        ValueError
            If a level is not strictly between 0 and 1.
        """
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if levels.ndim != 1 or not levels.size or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"q must be one or more levels strictly between 0 and 1; got {q!r}.")

        def quantiles(components: np.ndarray) -> np.ndarray:
            location, scale = self._likelihood.moments(components)
            evaluate = self._evaluator(location, scale)
            return np.stack([mixture_quantile(evaluate, location, scale, level) for level in levels])

        result = self._shift + self._scale * self._mixture.over_blocks(quantiles).T
        return result[:, 0] if np.ndim(q) == 0 else result

    def _evaluator(self, location: np.ndarray, scale: np.ndarray) -> Callable[[np.ndarray], tuple]:
        """Return a function of y that gives the mixture's distribution function and density."""
        if self._mixture.kernel is None:
            return lambda y: (
                self._likelihood.cdf(location, scale, y).mean(axis=0),
                self._likelihood.density(location, scale, y).mean(axis=0),
            )
        by_row, precision = np.ascontiguousarray(location.T), np.ascontiguousarray(1.0 / scale.T)
        return lambda y: native.mixture(by_row, precision, y)

    def crps(self, y: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """Return the continuous ranked probability score of one response per row, on the scale of y; lower is better.

        It is the mean distance of the prediction to y less half the mean distance between two predictions. The first
        has a closed form; of the second only the sum over all pairs of draws has one, so it is the integral of
        F (1 - F) instead.
        """
        standardized = self._standardize(y)

        def score(components: np.ndarray, y: np.ndarray) -> np.ndarray:
            location, scale = self._likelihood.moments(components)
            distance = mean_distance(location, scale, y)
            return distance - half_mean_difference(self._evaluator(location, scale), location, scale)

        return self._scale * self._mixture.over_blocks(score, standardized)

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

    def sample(self, n: int = 1, random_state: int | None = None) -> Float[np.ndarray, "sample row"]:
        """Draw n responses per row."""
        rng = np.random.default_rng(draw_seed(random_state))
        shape = (check_count("n", n), len(self))
        chosen = rng.integers(len(self._mixture.draws), size=shape)

        def pick(components: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            location, scale = self._likelihood.moments(components)
            return np.take_along_axis(location, chosen, axis=0), np.take_along_axis(scale, chosen, axis=0)

        location, scale = self._mixture.over_blocks(pick, chosen)
        return self._shift + self._scale * self._likelihood.sample(rng, location, scale)

    def _standardize(self, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, np.float64)
        if y.shape != (len(self),):
            raise ValueError(f"y must have one value per row, shape {(len(self),)}; got shape {y.shape}.")
        return (y - self._shift) / self._scale
