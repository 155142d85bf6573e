"""Scores of predictive distributions; each takes a predictive and the observed y.

A score of numbers is on the scale of y. `standardized` turns one into the scale of y divided by its standard deviation,
on which the paper reports.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int

from mile._scored import Scored, ScoredClasses, ScoredNumbers, ScoredOutputs, ScoredTimes
from mile.kaplan_meier import censoring_curve, kaplan_meier

CALIBRATION_LEVELS = (0.5, 0.75, 0.9, 0.95)  # paper, definition of the calibration error
_TIED = 1e-8  # relative distance of medians that count as equal
_SMALLEST_SHARE = 1e-6  # of rows that are not lost from sight
OF_OUTPUT = "__"  # between the name of a score and the output that it is of, where there are several


def lppd(predictive: Scored, y: np.ndarray) -> float:
    """Return the log pointwise predictive density, the mean over rows of the log predictive density."""
    return float(np.mean(predictive.log_prob(y)))


def nll(predictive: Scored, y: np.ndarray) -> float:
    """Return the negative log likelihood of a row under the predictive distribution, which is -LPPD."""
    return -lppd(predictive, y)


def mean_draw_nll(predictive: Scored, y: np.ndarray) -> float:
    """Return the negative log likelihood of a row under one draw, on average; what the reference calls NLL.

    It bounds `nll` from above: averaging before the logarithm can only help.
    """
    per_draw, weights = predictive.log_prob_per_draw(y), predictive.draw_weights
    return -float(np.mean(per_draw) if weights is None else np.average(per_draw.mean(axis=1), weights=weights))


def rmse(predictive: ScoredNumbers, y: np.ndarray) -> float:
    """Return the root mean squared error of the predictive means."""
    return float(np.sqrt(np.mean(np.square(predictive.mean - _one_per_row(predictive, y)))))


def crps(predictive: ScoredNumbers, y: np.ndarray) -> float:
    """Return the mean continuous ranked probability score, an error in the unit of y; lower is better."""
    return float(np.mean(predictive.crps(y)))


def coverage(predictive: ScoredNumbers, y: np.ndarray, levels: Sequence[float] = CALIBRATION_LEVELS) -> np.ndarray:
    """Return the share of rows inside the central interval of each level.

    A row lies inside exactly when its cdf value lies inside, so no quantile is needed. Where y may be the end of an
    interval with positive probability, as with counts, such a row is inside with the probability that makes a right
    prediction cover as much as it says.
    """
    distance = np.abs(predictive.pit(np.asarray(y)) - 0.5)
    return np.array([np.mean(distance <= level / 2) for level in _check_levels(levels)])


def calibration_error(predictive: ScoredNumbers, y: np.ndarray, levels: Sequence[float] = CALIBRATION_LEVELS) -> float:
    """Return the root mean square, over levels, of coverage minus level."""
    return float(np.sqrt(np.mean(np.square(coverage(predictive, y, levels) - np.asarray(levels)))))


def interval_score(predictive: ScoredNumbers, y: np.ndarray, level: float = 0.9) -> float:
    """Return the mean width of the central intervals, each widened by 2 / (1 - level) times what it misses y by.

    Proper: the best intervals to state are those of the true distribution (Gneiting and Raftery 2007). Lower is better.
    """
    lower, upper = predictive.interval(level).T
    missed = np.maximum(lower - _one_per_row(predictive, y), 0.0) + np.maximum(y - upper, 0.0)
    return float(np.mean(upper - lower + 2.0 / (1.0 - level) * missed))


def sharpness(predictive: ScoredNumbers, level: float = 0.9) -> float:
    """Return the mean width of the central intervals: how precise the prediction claims to be."""
    return float(np.mean(np.diff(predictive.interval(level), axis=1)))


def residual_correlation(predictive: ScoredOutputs, y: np.ndarray) -> Float[np.ndarray, "output output"]:
    """Return the correlation over rows of the residuals of several outputs, each in its predicted standard deviation.

    If the prediction is right, it is about the mean of `predictive.correlation`; zero for independent outputs.
    """
    return np.asarray(np.corrcoef((np.asarray(y, np.float64) - predictive.mean) / predictive.std, rowvar=False))


def accuracy(predictive: ScoredClasses, y: np.ndarray) -> float:
    """Return the share of rows whose most probable class is the right one."""
    return float(np.mean(predictive.labels == _one_per_row(predictive, y)))


def brier(predictive: ScoredClasses, y: np.ndarray) -> float:
    """Return the mean squared distance of the class probabilities to the truth, from 0 (best) to 2."""
    truth = _one_per_row(predictive, y)[:, None] == predictive.classes
    return float(np.mean(np.sum(np.square(predictive.probs - truth), axis=1)))


def expected_calibration_error(predictive: ScoredClasses, y: np.ndarray, n_bins: int = 15) -> float:
    """Return the mean distance between confidence and accuracy, over bins of confidence of equal width.

    The confidence of a row is the probability of its most probable class (Guo et al. 2017).
    """
    confidence, right, counts = reliability(predictive, y, n_bins)
    return float(np.sum(counts * np.abs(confidence - right)) / max(np.sum(counts), 1))


def reliability(
    predictive: ScoredClasses, y: np.ndarray, n_bins: int = 15
) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
    """Return mean confidence, accuracy and number of rows of each bin of confidence; empty bins are zero."""
    probabilities = predictive.probs.max(axis=1)
    right = predictive.labels == _one_per_row(predictive, y)
    bins = np.minimum((probabilities * n_bins).astype(int), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins).astype(float)
    sums = [np.bincount(bins, weights=values, minlength=n_bins) for values in (probabilities, right.astype(float))]
    confidence, accurate = (np.divide(total, counts, out=np.zeros(n_bins), where=counts > 0) for total in sums)
    return confidence, accurate, counts


def concordance(predictive: ScoredTimes, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the share of pairs whose predicted medians have the order of the values (Harrell's C).

    A pair counts if its order is known: the upper end of one lies below the lower end of the other, or both are the
    same and the second value is known to be larger. Equal medians count one half. A weight multiplies those of a pair.
    """
    lower, upper = predictive.limits(y)
    median, exact = predictive.median, lower == upper
    weight = np.ones(len(lower)) if weight is None else weight
    right = total = 0.0
    for row in np.flatnonzero(np.isfinite(upper)):
        later = (lower > upper[row]) | ((lower == upper[row]) & ~exact)
        counted = weight[row] * weight[later]
        ahead = median[later] - median[row]
        close = np.abs(ahead) <= _TIED * np.abs(median[row])
        right += float(counted @ np.where(close, 0.5, ahead > 0.0))
        total += float(counted.sum())
    return right / total if total else np.nan


def integrated_brier(
    predictive: ScoredTimes, y: np.ndarray, times: np.ndarray | None = None, train: np.ndarray | None = None
) -> float:
    """Return the squared error of survival probabilities, averaged over a span of time; lower is better.

    Rows lost from sight before a time do not count for it, and those that stay count for them too, by one divided by
    the probability of not being lost (Graf et al. 1999). NaN where y has other limits than these.

    Parameters
    ----------
    predictive, y
        A prediction, and what was observed.
    times
        At least two increasing times; the score is the trapezoidal integral divided by their span. None: twenty
        between the tenth and the ninetieth percentile of the observed times.
    train
        The response of the training rows, from which the probability of being lost is estimated; None: from y.
    """
    lower, upper = predictive.limits(y)
    if not _are_times(lower, upper):
        return np.nan
    times = evaluation_times(lower) if times is None else np.asarray(times, np.float64)
    seen = (lower, upper) if train is None else predictive.limits(train)
    kept = censoring_curve(seen[0], seen[0] == seen[1])
    survival, event = predictive.survival(times), lower == upper
    had = (lower[:, None] <= times) & event[:, None]
    alive = lower[:, None] > times
    with np.errstate(divide="ignore", invalid="ignore"):
        weight_of_had = np.where(had, 1.0 / np.maximum(kept.at(lower), _SMALLEST_SHARE)[:, None], 0.0)
        weight_of_alive = np.where(alive, 1.0 / np.maximum(kept.at(times), _SMALLEST_SHARE), 0.0)
    scores = np.mean(np.square(survival) * weight_of_had + np.square(1.0 - survival) * weight_of_alive, axis=0)
    return float(np.trapezoid(scores, times) / (times[-1] - times[0]))


def survival_calibration(
    predictive: ScoredTimes, y: np.ndarray, time: float | None = None, n_groups: int = 5
) -> tuple[Float[np.ndarray, " group"], Float[np.ndarray, " group"], Int[np.ndarray, " group"]]:
    """Return predicted survival of one time, what was observed (Kaplan and Meier), and rows, of groups of rows.

    Groups have the same number of rows, from the lowest prediction to the highest. The time is by default the median
    of the observed ones.
    """
    lower, upper = predictive.limits(y)
    time = float(np.median(lower)) if time is None else time
    survival = predictive.survival(np.array([time]))[:, 0]
    groups = [rows for rows in np.array_split(np.argsort(survival, kind="stable"), n_groups) if len(rows)]
    observed = [kaplan_meier(lower[rows], (lower == upper)[rows]).at(np.array([time]))[0] for rows in groups]
    return np.array([survival[rows].mean() for rows in groups]), np.array(observed), np.array(list(map(len, groups)))


def survival_calibration_error(predictive: ScoredTimes, y: np.ndarray) -> float:
    """Return the mean distance of predicted to observed survival of the median time; NaN where y has other limits."""
    if not _are_times(*predictive.limits(y)):
        return np.nan
    predicted, observed, rows = survival_calibration(predictive, y)
    return float(np.average(np.abs(predicted - observed), weights=rows))


def evaluation_times(observed: Float[np.ndarray, " row"]) -> Float[np.ndarray, " time"]:
    """Return twenty times between the tenth and the ninetieth percentile of the observed ones."""
    first, last = np.quantile(observed, [0.1, 0.9])
    return np.linspace(first, last if last > first else first + 1.0, 20)


def _are_times(lower: np.ndarray, upper: np.ndarray) -> bool:
    """Say whether every row ends with an event, or is lost from sight."""
    return bool(len(lower)) and bool(np.all(np.isfinite(lower) & ((lower == upper) | np.isinf(upper))))


class Score(NamedTuple):
    """A score: how it is computed, its name in tables, and when it is good."""

    label: str
    function: Callable[..., float]  # of a prediction and the observed values
    better: Literal["higher", "lower", "narrower"] | None = None
    best: float | None = None  # the right value of a score that is neither better high nor low
    unit: Literal["none", "y", "log y", "share"] = "none"  # what it is measured in


def _coverage_of(level: float) -> Score:
    return Score(
        f"inside the {100 * level:g} % interval",
        lambda predictive, y: float(coverage(predictive, y, (level,))[0]),
        best=level,
        unit="share",
    )


class _Scores(dict[str, Score]):
    """Scores by name; also those of single outputs, such as "rmse__width"."""

    def __missing__(self, name: str) -> Score:
        base, mark, output = name.partition(OF_OUTPUT)
        if not mark or base not in self:
            raise KeyError(name)
        score = self[base]

        def of_output(predictive: Remembered, y: np.ndarray) -> float:
            return score.function(*predictive.part_and_column(output))

        return score._replace(label=f"{score.label} of {output}", function=of_output)


_KNOWN: dict[str, Score] = {
    "lppd": Score("LPPD", lppd, "higher", unit="log y"),
    "rmse": Score("RMSE", rmse, "lower", unit="y"),
    "crps": Score("CRPS", crps, "lower", unit="y"),
    "calibration_error": Score("calibration error", calibration_error, "lower"),
    "interval_score_90": Score("score of 90 % intervals", interval_score, "lower", unit="y"),
    "sharpness_90": Score("width of 90 % intervals", lambda predictive, y: sharpness(predictive), "narrower", unit="y"),
    **{f"coverage_{100 * level:g}": _coverage_of(level) for level in CALIBRATION_LEVELS},
    "concordance": Score("concordance", concordance, "higher"),
    "integrated_brier": Score("integrated Brier score", integrated_brier, "lower"),
    "survival_calibration": Score("calibration error at the median time", survival_calibration_error, "lower"),
    "accuracy": Score("accuracy", accuracy, "higher", unit="share"),
    "brier": Score("Brier score", brier, "lower"),
    "expected_calibration_error": Score("expected calibration error", expected_calibration_error, "lower"),
}
SCORES: dict[str, Score] = _Scores(_KNOWN)


def scores(predictive: "Scored | Remembered", y: np.ndarray) -> dict[str, float]:
    """Return all scores that suit a prediction, by name."""
    y = np.asarray(y)
    once = Remembered(predictive, y)
    names = (*predictive.score_names, *predictive.part_score_names)
    return {name: SCORES[name].function(once, y) for name in names}


class Remembered:
    """A prediction of observed rows that computes each answer once and passes on everything else.

    `crps` gives that score for some of the rows, where all would take too long.
    """

    def __init__(
        self,
        predictive: "Scored | Remembered",
        y: np.ndarray,
        crps: Callable[[], Float[np.ndarray, " row"]] | None = None,
    ) -> None:
        self._predictive, self._y, self._crps = predictive, y, crps
        self._known: dict[tuple[object, ...], np.ndarray] = {}
        self._parts: dict[str, tuple[Remembered, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self._predictive)

    def __getattr__(self, name: str) -> Any:  # it stands in for predictions of any kind
        return getattr(self._predictive, name)

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """Return the log density at the observed values."""
        return self._answer("log_prob", y)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Return the distribution function at the observed values."""
        return self._answer("cdf", y)

    def pit(self, y: np.ndarray) -> np.ndarray:
        """Return the numbers that are uniform if the prediction is right."""
        return self._answer("pit", y)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability scores of the observed values, or of those that were chosen."""
        if self._crps is None:
            return self._answer("crps", y)
        if ("crps", "some") not in self._known:
            self._known["crps", "some"] = self._crps()
        return self._known["crps", "some"]

    def part_and_column(self, output: str) -> "tuple[Remembered, np.ndarray]":
        """Return the prediction of one of several outputs, and what was observed of it."""
        if output not in self._parts:
            place, alone = cast(ScoredOutputs | Remembered, self._predictive).part(output)
            column = self._y[:, place]
            self._parts[output] = Remembered(alone, column, lambda: self.crps(self._y)[:, place]), column
        return self._parts[output]

    def interval(self, level: float = 0.9) -> np.ndarray:
        """Return central intervals."""
        return self._answer("interval", level)

    def _answer(self, name: str, argument: np.ndarray | float) -> np.ndarray:
        observed = argument is self._y
        key = (name, "observed" if observed else argument) if observed or np.ndim(argument) == 0 else None
        if key is None:  # of other values nothing is kept
            return getattr(self._predictive, name)(argument)
        if key not in self._known:
            self._known[key] = getattr(self._predictive, name)(argument)
        return self._known[key]


def roc(score: Float[np.ndarray, " row"], positive: Bool[np.ndarray, " row"]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return shares of hits and of false alarms as the limit of a score falls, and the area below.

    The area is the probability that a positive row has the larger score of two; rows that tie count half.
    """
    order = np.argsort(-score, kind="stable")
    is_last = np.r_[np.diff(score[order]) != 0.0, True]  # of rows with the same score
    hits = np.r_[0.0, np.cumsum(positive[order])[is_last] / max(int(positive.sum()), 1)]
    alarms = np.r_[0.0, np.cumsum(~positive[order])[is_last] / max(int((~positive).sum()), 1)]
    area = float(np.sum(np.diff(alarms) * 0.5 * (hits[1:] + hits[:-1])))
    return hits, alarms, area


def standardized(scores: dict[str, float], y_std: float) -> dict[str, float]:
    """Return scores as they would be if y had been divided by `y_std` first."""
    change = {"log y": lambda value: value + float(np.log(y_std)), "y": lambda value: value / y_std}
    return {name: change.get(SCORES[name].unit, float)(value) for name, value in scores.items()}


def _check_levels(levels: Sequence[float]) -> Sequence[float]:
    if not len(levels) or not all(0.0 < level < 1.0 for level in levels):
        raise ValueError(f"levels must lie strictly between 0 and 1; got {levels!r}.")
    return levels


def _one_per_row(predictive: Scored, y: np.ndarray) -> np.ndarray:
    y = np.asarray(y)
    if y.shape != (len(predictive),):
        raise ValueError(f"y must have one entry per row, shape {(len(predictive),)}; got shape {y.shape}.")
    return y
