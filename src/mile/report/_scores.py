"""Scores of the prediction beside those of its parts, and the rows that it predicts worst."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mile import metrics
from mile.likelihoods import Categorical
from mile.plot._style import even_choice
from mile.predict import ClassPredictive, Predictive
from mile.report._rows import Rows
from mile.results import Fit
from mile.samplers import TITLES

MOST_ALONE = 4  # chains that are scored one by one; each costs as much as its share of the whole
_CRPS_CELLS = 1_200_000  # draws x rows; the score takes far longer than the others
_N_WORST = 10


class Remembered:
    """A `Predictive` of some rows and their observed values that works out each answer once."""

    def __init__(self, predict: Callable[[np.ndarray], Predictive], rows: Rows, n_crps_rows: int) -> None:
        self._predictive, self._y = predict(rows.x), np.asarray(rows.y, float)
        chosen = even_choice(len(self._y), n_crps_rows)
        self._for_crps = lambda: predict(rows.x[chosen]).crps(self._y[chosen])
        self._intervals: dict[float, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._predictive)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._predictive, name)

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """Return the log density at the observed values."""
        return self._log_prob

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Return the distribution function at the observed values."""
        return self._cdf

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the scores of those rows that there is time for."""
        return self._for_crps()

    def interval(self, level: float = 0.9) -> np.ndarray:
        """Return central intervals."""
        if level not in self._intervals:
            self._intervals[level] = self._predictive.interval(level)
        return self._intervals[level]

    @cached_property
    def _log_prob(self) -> np.ndarray:
        return self._predictive.log_prob(self._y)

    @cached_property
    def _cdf(self) -> np.ndarray:
        return self._predictive.cdf(self._y)


class Assessment(NamedTuple):
    """Predictions of observed rows by the fit and by the deep ensemble it started from, and the scores of all."""

    y: np.ndarray
    mile: Any
    ensemble: Any
    log_prob: np.ndarray
    ensemble_log_prob: np.ndarray
    scores: dict[str, dict[str, float]]  # by the name of the method; the last is the one that was fitted


class Score(NamedTuple):
    """A row of the headline table."""

    name: str
    label: str
    hint: str
    text: Callable[[float], str]
    goodness: Callable[[float], float] | None  # larger is better; None if that is no question


def assess(fit: Fit, rows: Rows) -> Assessment:
    """Predict the rows and score the predictions, and those of single members and chains."""
    y = np.asarray(rows.y)

    good = np.flatnonzero(fit.ok)
    n_crps_rows = crps_rows(fit, rows)

    def predict(method: Callable[..., Any], chains: list[int] | None = None) -> Any:
        if isinstance(fit.likelihood, Categorical):
            return method(rows.x, chains=chains)
        return Remembered(lambda x: method(x, chains=chains), rows, n_crps_rows)

    def mean_alone(method: Callable[..., Any], slots: np.ndarray) -> dict[str, float]:
        found = [metrics.scores(predict(method, [int(slot)]), y) for slot in slots]
        return {name: float(np.mean([scores[name] for scores in found])) for name in found[0]}

    ensemble = predict(fit.ensemble_predictive)
    mile = predict(fit.predictive) if _samples(fit) else ensemble
    scores = {"single member": mean_alone(fit.ensemble_predictive, good), "deep ensemble": metrics.scores(ensemble, y)}
    if _samples(fit):
        alone = mean_alone(fit.predictive, good[even_choice(len(good), MOST_ALONE)])
        scores |= {"single chain": alone, title(fit): metrics.scores(mile, y)}
    return Assessment(y, mile, ensemble, mile.log_prob(y), ensemble.log_prob(y), scores)


def crps_rows(fit: Fit, rows: Rows) -> int:
    """Return how many of the rows there is time to work out the CRPS of."""
    n_draws = int(fit.ok.sum()) * fit.chains.logdensity.shape[1]
    return int(np.clip(_CRPS_CELLS // n_draws, 1, len(rows.x)))


def headline(fit: Fit, assessment: Assessment) -> dict[str, Any]:
    """Return the table of scores: names of the columns, and rows of texts of which the best are marked."""
    columns = assessment.scores
    if isinstance(assessment.mile, ClassPredictive):
        return {"columns": [*columns], "rows": [_score_row(score, columns) for score in _CLASS_SCORES]}
    y_std = float(fit.y_scale.scale)
    standardized = {name: metrics.standardized(scores, y_std) for name, scores in columns.items()}
    table = [_score_row(score, columns) for score in _NUMBER_SCORES]
    table += [_score_row(score, standardized) for score in _STANDARDIZED_SCORES]
    return {"columns": [*columns], "rows": table}


def _score_row(score: Score, columns: dict[str, dict[str, float]]) -> dict[str, Any]:
    values = [scores[score.name] for scores in columns.values()]
    texts, best = [score.text(value) for value in values], None
    known = [value for value in values if not np.isnan(value)]
    if score.goodness is not None and len(set(texts)) > 1 and known:
        best = score.text(max(known, key=score.goodness))
    cells = [{"text": text, "best": text == best} for text in texts]
    return {"label": score.label, "hint": score.hint, "cells": cells}


def worst_rows(fit: Fit, rows: Rows, assessment: Assessment, names: list[str]) -> dict[str, Any]:
    """Return a table of the rows with the lowest log density, each with its most unusual feature if it is a table's."""
    worst = np.argsort(assessment.log_prob, kind="stable")[:_N_WORST]
    unusual = fit.x_scale.apply(rows.x[worst])
    feature = np.argmax(np.abs(unusual), axis=1)
    y, log_prob = assessment.y[worst], assessment.log_prob[worst]
    strange = [f"{names[column]} ({line[column]:+.1f} sd)" for line, column in zip(unusual, feature, strict=True)]
    if isinstance(assessment.mile, ClassPredictive):
        labels = assessment.mile.labels[worst]
        probability = assessment.mile.probs.max(axis=1)[worst]
        columns = ["row", "observed", "predicted", "probability of it", "log probability of the observed"]
        middle = [(str(a), str(b), f"{100 * p:.1f} %") for a, b, p in zip(y, labels, probability, strict=True)]
    else:
        mean, interval = assessment.mile.mean[worst], assessment.mile.interval(0.9)[worst]
        columns = ["row", "observed", "mean", "90 % interval", "log density"]
        middle = [
            (number(a), number(b), f"{number(low)} to {number(high)}")
            for a, b, (low, high) in zip(y, mean, interval, strict=True)
        ]
    lines = [
        [f"{place:,}", *cells, f"{density:.2f}", what]
        for place, cells, density, what in zip(rows.numbers[worst], middle, log_prob, strange, strict=True)
    ]
    if hasattr(fit.network, "reads"):  # no single pixel or word says what is unusual
        return {"columns": columns, "rows": [line[:-1] for line in lines]}
    return {"columns": [*columns, "most unusual feature"], "rows": lines}


def title(fit: Fit) -> str:
    """Return what a page calls the sampler."""
    return TITLES.get(fit.sampler.name, fit.sampler.name)


def _samples(fit: Fit) -> bool:
    return fit.sampler.gradient_evaluations() > 0


def number(value: float) -> str:
    """Write a number with four significant digits."""
    value = float(value)
    if not np.isfinite(value):
        return "–" if np.isnan(value) else "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:#.4g}".rstrip(".")


def _density(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else number(value)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %" if np.isfinite(value) else number(value)


def _high(value: float) -> float:
    return value


def _low(value: float) -> float:
    return -value


def _covers(level: int) -> Score:
    return Score(
        f"coverage_{level}",
        f"Inside {level} % interval",
        f"{level} % is right",
        _share,
        lambda v: -abs(v - level / 100),
    )


_HIGHER, _LOWER = "higher is better", "lower is better"
_NUMBER_SCORES = (
    Score("lppd", "LPPD", _HIGHER, _density, _high),
    Score("rmse", "RMSE", _LOWER, number, _low),
    Score("crps", "CRPS", _LOWER, number, _low),
    Score("calibration_error", "Calibration error", _LOWER, _density, _low),
    *(_covers(level) for level in (50, 75, 90, 95)),
    Score("sharpness_90", "Width of the 90 % interval", "narrow is good if coverage is right", number, None),
    Score("interval_score_90", "Interval score at 90 %", _LOWER, number, _low),
)
_STANDARDIZED_SCORES = (
    Score("lppd", "LPPD, standardized", f"{_HIGHER}; y divided by its standard deviation", _density, _high),
    Score("rmse", "RMSE, standardized", f"{_LOWER}; likewise", number, _low),
)
_CLASS_SCORES = (
    Score("lppd", "LPPD", _HIGHER, _density, _high),
    Score("accuracy", "Accuracy", _HIGHER, _share, _high),
    Score("brier", "Brier score", _LOWER, _density, _low),
    Score("expected_calibration_error", "Expected calibration error", _LOWER, _density, _low),
)
