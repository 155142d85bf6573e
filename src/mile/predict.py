"""Predictive distributions: every kept draw is one component of a mixture, evaluated in blocks of rows.

Nothing is approximated by random numbers except `sample`: moments, densities and quantiles are those of the
mixture. Rows are processed in padded blocks of one fixed size, so a row's numbers do not depend on its
neighbors, and memory does not depend on the number of rows.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import entr, logsumexp, ndtr

from mile import native
from mile._checks import check_count
from mile._random import draw_seed
from mile._types import Features
from mile.data import Standardizer
from mile.execution import InProcess
from mile.likelihoods import Categorical, Gaussian
from mile.storage import FlatDraws

DEFAULT_MEMORY = 1 << 30
# Rows of one block: with many draws more rows are not faster, and one row costs a whole block; with few draws
# the overhead of a block counts.
_SMALLEST_BLOCK, _LARGEST_BLOCK = 64, 1024
_BLOCK_COMPONENTS = 1 << 18  # rows x draws
_COPIES = 8  # float64 arrays of one block's size that a quantile search holds at once
# Sums over draws are made of parts of this many draws, added in order: the numbers of a row depend neither on the
# threads nor on the other rows.
_PART_DRAWS = 1024
_FEWEST_COLUMNS = 8
_SUMMARY_ROWS = 960  # ten tiles of the native kernel
_SQRT_TWO_PI = math.sqrt(2.0 * math.pi)
_TAIL = 8.3  # standard deviations beyond which a normal distribution has nothing that double precision sees
_CRPS_INTERVALS, _CRPS_HALVINGS, _CRPS_TOLERANCE = 32, 5, 1e-5  # the error squares when points double
_MOST_PAIRED = 500  # components; their pairs are as many as points of an integral
_QUANTILE_TOLERANCE = 1e-10  # in standard deviations of the narrowest component, which bounds the error of the cdf
_QUANTILE_ITERATIONS = 200


@dataclass(frozen=True, eq=False)
class _Mixture:
    """Draws of a network, the rows to predict, and the way to walk over them in blocks."""

    network: Any
    likelihood: Gaussian | Categorical
    draws: Float[np.ndarray, "draw d"] | FlatDraws
    x: Float[np.ndarray, "row feature"]
    memory: int

    @cached_property
    def kernel(self) -> native.Specification | None:
        """What the native kernel must know, if it is the one to use."""
        on_cpu = jax.default_backend() == "cpu"
        return native.specify(self.network, self.likelihood, self.draws.dtype) if on_cpu else None

    @property
    def n_rows(self) -> int:
        return len(self.x)

    @property
    def row_bytes(self) -> int:
        return _COPIES * 8 * self.likelihood.n_outputs * len(self.draws)

    @property
    def block_rows(self) -> int:
        """Rows of a block; not by the number of threads, so that results do not depend on that."""
        wanted = int(np.clip(_BLOCK_COMPONENTS // len(self.draws), _SMALLEST_BLOCK, _LARGEST_BLOCK))
        return int(np.clip(self.memory // self.row_bytes, 1, wanted))

    @property
    def backend(self) -> InProcess:
        """As many threads as there are cores and as blocks fit the memory side by side."""
        return InProcess(n_threads=max(1, min(os.cpu_count() or 1, self.memory // (self.block_rows * self.row_bytes))))

    def over_blocks(self, function: Callable[..., Any], *row_arrays: np.ndarray) -> Any:
        """Apply `function(components, *rows)` to each block and put its results, row by row, together.

        `components` has shape (draw, output, row). Results are arrays or tuples of arrays whose last axis is
        the row.
        """
        size = self.block_rows
        kernel = self.kernel
        on_disk = not isinstance(self.draws, np.ndarray)
        draws: Any = self.draws if kernel or on_disk else jnp.asarray(self.draws)
        parts = [slice(start, start + _PART_DRAWS) for start in range(0, len(draws), _PART_DRAWS)]

        def evaluate(draws: Any, x: np.ndarray) -> np.ndarray:
            return native.outputs(kernel, draws, x) if kernel else np.asarray(_forward(self.network, draws, x))

        starts = range(0, max(self.n_rows, 1), size)

        def one_block(start: int) -> Any:
            rows = slice(start, min(start + size, self.n_rows))
            n_real = rows.stop - rows.start
            # XLA's programs have one width. Numpy adds a single column up in another order than several.
            width = max(_FEWEST_COLUMNS, n_real) if kernel else size
            padded = np.zeros((self.x.shape[1], width), np.float32)
            padded[:, :n_real] = self.x[rows].T
            if on_disk:
                components = np.concatenate([evaluate(draws[part], padded) for part in parts])
            else:
                components = evaluate(draws, padded)
            arguments = [_pad_last(array[..., rows], width) for array in row_arrays]
            result = function(components, *arguments)
            return jax.tree.map(lambda leaf: leaf[..., :n_real], result)

        parts = self.backend.map(one_block, list(starts))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *parts)

    def over_draws(self, kernel: native.Specification) -> tuple[np.ndarray, np.ndarray]:
        """Return the native kernel's means over draws, and the center of the first output that they refer to.

        With a single block of rows the parts of the draws run side by side, otherwise the blocks do. One row takes
        less time than starting threads.
        """
        blocks = [slice(start, start + _SUMMARY_ROWS) for start in range(0, self.n_rows, _SUMMARY_ROWS)]
        parts = [slice(start, start + _PART_DRAWS) for start in range(0, len(self.draws), _PART_DRAWS)]
        threads, alone = InProcess(), InProcess(n_threads=1)
        outer, inner = (alone, threads if self.n_rows > 1 else alone) if len(blocks) == 1 else (threads, alone)

        def one_block(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            x = np.ascontiguousarray(self.x[rows].T)
            center = native.outputs(kernel, self.draws[:1], x)[0, 0]
            sums = inner.map(lambda part: native.summarize(kernel, self.draws[part], x, center), parts)
            return center, sum(sums[1:], start=sums[0]) / len(self.draws)

        centers, means = zip(*outer.map(one_block, blocks or [slice(0, 0)]), strict=True)
        return np.concatenate(centers), np.concatenate(means, axis=1)


def _pad_last(array: np.ndarray, size: int) -> np.ndarray:
    missing = size - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)], mode="edge" if array.shape[-1] else "constant")


@partial(jax.jit, static_argnames="network")
def _forward(network: Any, draws: Float[Array, "draw d"], x: Features) -> Float[Array, "draw output row"]:
    return jax.lax.map(lambda position: network.apply(position, x), draws, batch_size=min(len(draws), 256))


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
        self._mixture = _Mixture(network, likelihood, draws, x, memory)
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
            return np.stack([_mixture_quantile(evaluate, location, scale, level) for level in levels])

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
            distance = _mean_distance(location, scale, y)
            return distance - _half_mean_difference(self._evaluator(location, scale), location, scale)

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


def _mixture_quantile(
    evaluate: Callable[[np.ndarray], tuple], location: np.ndarray, scale: np.ndarray, level: float
) -> np.ndarray:
    """Solve cdf(y) = level for each row by Newton's method inside a bracket that only shrinks.

    The bracket starts between the smallest and the largest quantile of any component, which always holds
    the solution; where a Newton step leaves it or is not half as long as the step before, bisection takes over.
    """
    from scipy.special import ndtri

    component_quantiles = location + scale * ndtri(level)
    lower, upper = component_quantiles.min(axis=0), component_quantiles.max(axis=0)
    spread = np.sqrt(np.square(scale).mean(axis=0) + location.var(axis=0))
    y = np.clip(location.mean(axis=0) + spread * ndtri(level), lower, upper)
    step, tolerance = upper - lower, _QUANTILE_TOLERANCE * scale.min(axis=0)
    done = np.zeros(y.shape, bool)
    for _ in range(_QUANTILE_ITERATIONS):
        cdf, slope = evaluate(y)
        error = cdf - level
        lower, upper = np.where(error < 0, y, lower), np.where(error > 0, y, upper)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = y - error / slope
        trusted = (newton > lower) & (newton < upper) & (np.abs(newton - y) < 0.5 * step)
        following = np.where(trusted, newton, 0.5 * (lower + upper))
        following = np.where(done | (error == 0.0), y, following)
        step = np.abs(following - y)
        done |= step <= np.maximum(tolerance, np.spacing(np.abs(y)))
        y = following
        if done.all():
            break
    return y


def _mean_distance(location: np.ndarray, scale: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return E|Y - y| of each row's mixture."""
    z = (y - location) / scale
    return np.mean(scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * np.exp(-0.5 * z * z) / _SQRT_TWO_PI), axis=0)


def _half_mean_difference(
    evaluate: Callable[[np.ndarray], tuple], location: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Return half of E|Y - Y'| of each row's mixture: of few components by all pairs, of many by an integral.

    The integral of F (1 - F) is taken by the trapezoidal rule in t with y = center + spread sinh(t), which reaches
    from the middle to the tails of the widest component with few points. Their distance is halved until that changes
    nothing.
    """
    if len(location) <= _MOST_PAIRED:
        pairs = [
            _mean_distance(location, np.sqrt(np.square(scale) + np.square(one_scale)), one_location)
            for one_location, one_scale in zip(location, scale, strict=True)
        ]
        return 0.5 * np.mean(pairs, axis=0)
    center = np.median(location, axis=0)
    spread = np.median(scale, axis=0) + np.median(np.abs(location - center), axis=0)
    reach = np.arcsinh(np.max(np.abs(location - center) + _TAIL * scale, axis=0) / spread)

    def total(points: np.ndarray) -> np.ndarray:
        found = np.zeros(len(center))
        for point in points:
            t = point * reach
            cdf, _ = evaluate(center + spread * np.sinh(t))
            found += cdf * (1.0 - cdf) * spread * np.cosh(t) * reach
        return found

    step = 2.0 / _CRPS_INTERVALS
    value = step * total(np.arange(-1.0, 1.0 + 0.5 * step, step))
    for _ in range(_CRPS_HALVINGS):
        before = value
        value = 0.5 * value + 0.5 * step * total(np.arange(-1.0 + 0.5 * step, 1.0, step))
        step *= 0.5
        if np.all(np.abs(value - before) <= _CRPS_TOLERANCE * value):
            break
    return value


class ClassPredictive:
    """Predictive distribution of a class for each row."""

    def __init__(
        self,
        network: Any,
        likelihood: Categorical,
        draws: Float[np.ndarray, "draw d"] | FlatDraws,
        x: Float[np.ndarray, "row feature"],
        classes: np.ndarray,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self._mixture = _Mixture(network, likelihood, draws, x, memory)
        self._likelihood = likelihood
        self.classes = classes

    def __len__(self) -> int:
        return self._mixture.n_rows

    @property
    def probs(self) -> Float[np.ndarray, "row class"]:
        """Probability of each class, the mean over draws; a row sums to one."""
        return self._summary[0].T

    @property
    def labels(self) -> np.ndarray:
        """Most probable class of each row."""
        return self.classes[np.argmax(self.probs, axis=1)]

    @property
    def entropy(self) -> Float[np.ndarray, " row"]:
        """Entropy of the predicted class in nats: total uncertainty."""
        return entr(self.probs).sum(axis=1)

    @property
    def mutual_information(self) -> Float[np.ndarray, " row"]:
        """Part of the entropy that knowing the weights would remove, in nats: epistemic uncertainty."""
        return np.maximum(self.entropy - self._summary[1], 0.0)

    @cached_property
    def _summary(self) -> tuple[np.ndarray, np.ndarray]:
        if self._mixture.kernel:
            _, means = self._mixture.over_draws(self._mixture.kernel)
            return means[:-1] / means[:-1].sum(axis=0), means[-1]

        def summarize(components: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            probs = np.exp(self._likelihood.component_log_probs(components))
            mean = probs.mean(axis=0)
            return mean / mean.sum(axis=0), entr(probs).sum(axis=1).mean(axis=0)

        return self._mixture.over_blocks(summarize)

    def log_prob(self, y: np.ndarray) -> Float[np.ndarray, " row"]:
        """Return the log predictive probability of one label per row.

        Raises
        ------
        ValueError
            If a label was not among the classes of the training data.
        """
        codes = self._encode(y)

        def log_probability(components: np.ndarray, codes: np.ndarray) -> np.ndarray:
            log_probs = self._likelihood.component_log_probs(components)
            per_draw = np.take_along_axis(log_probs, codes[None, None], axis=1)[:, 0]
            return logsumexp(per_draw, axis=0) - np.log(len(per_draw))

        return self._mixture.over_blocks(log_probability, codes)

    def sample(self, n: int = 1, random_state: int | None = None) -> np.ndarray:
        """Draw n labels per row, shape (n, row)."""
        rng = np.random.default_rng(draw_seed(random_state))
        uniform = rng.uniform(size=(check_count("n", n), len(self)))
        edges = np.cumsum(self.probs, axis=1)[:, :-1].T
        return self.classes[sum((uniform > edge for edge in edges), start=np.zeros(uniform.shape, int))]

    def quantile(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: classes have no order."""
        raise TypeError("classes have no quantiles; use `probs` for the probability of each class.")

    interval = cdf = quantile

    def _encode(self, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y)
        if y.shape != (len(self),):
            raise ValueError(f"y must have one label per row, shape {(len(self),)}; got shape {y.shape}.")
        known = np.isin(y, self.classes)
        if not known.all():
            raise ValueError(f"y contains the label {y[~known][0]!r}, which is not among classes {self.classes!r}.")
        order = np.argsort(self.classes)
        return order[np.searchsorted(self.classes, y, sorter=order)]
