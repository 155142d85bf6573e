"""Scores of the prediction beside those of its parts, and the rows that it predicts worst."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np

from mile import metrics
from mile._printable import one_line
from mile.fitting.result import Fit
from mile.fitting.unseen import OutOfFold, show
from mile.likelihoods import AbstractPredictive
from mile.metrics import Remembered, ScoredNumbers
from mile.plot._style import even_choice
from mile.report._rows import ObservedRows
from mile.samplers import title_of

Cells = dict[str, Sequence[object]]  # of a table: nested lists and texts that the page's template reads
MOST_ALONE = 4  # chains that are scored one by one; each costs as much as its share of the whole
_CRPS_CELLS = 1_200_000  # draws x rows; the score takes far longer than the others
_N_WORST = 10
_LONGEST_LABEL = 80  # characters


class Assessment(NamedTuple):
    """Predictions of observed rows by the fit and by the deep ensemble it started from, and the scores of all."""

    y: np.ndarray
    mile: Remembered
    ensemble: Remembered
    log_prob: np.ndarray
    ensemble_log_prob: np.ndarray
    scores: dict[str, dict[str, float]]  # by the name of the method; the last is the one that was fitted


def assess(fit: Fit, rows: ObservedRows) -> Assessment:
    """Predict the rows and score the predictions, and those of single members and chains."""
    y = np.asarray(rows.y)

    good = np.flatnonzero(fit.ok)
    n_crps_rows = crps_rows(fit, rows)

    chosen = even_choice(len(y), n_crps_rows)

    def predict(method: Callable[..., AbstractPredictive], chains: list[int] | None = None) -> Remembered:
        def some_crps() -> np.ndarray:
            return cast(ScoredNumbers, method(rows.x[chosen], chains=chains)).crps(y[chosen])

        return Remembered(method(rows.x, chains=chains), y, some_crps)

    def mean_alone(method: Callable[..., AbstractPredictive], slots: np.ndarray) -> dict[str, float]:
        found = [metrics.scores(predict(method, [int(slot)]), y) for slot in slots]
        return {name: float(np.mean([scores[name] for scores in found])) for name in found[0]}

    ensemble = predict(fit.ensemble_predictive)
    mile = predict(fit.predictive) if _samples(fit) else ensemble
    scores = {"single member": mean_alone(fit.ensemble_predictive, good), "deep ensemble": metrics.scores(ensemble, y)}
    if _samples(fit):
        alone = mean_alone(fit.predictive, good[even_choice(len(good), MOST_ALONE)])
        scores |= {"single chain": alone, title(fit): metrics.scores(mile, y)}
    return Assessment(y, mile, ensemble, mile.log_prob(y), ensemble.log_prob(y), scores)


def crps_rows(fit: Fit, rows: ObservedRows) -> int:
    """Return for how many of the rows there is time to compute the CRPS."""
    n_draws = int(fit.ok.sum()) * fit.chains.logdensity.shape[1]
    return int(np.clip(_CRPS_CELLS // n_draws, 1, len(rows.x)))


def headline(fit: Fit, assessment: Assessment) -> Cells:
    """Return the table of scores: names of the columns, and rows of texts of which the best are marked."""
    columns, unit = assessment.scores, fit.response.unit
    table = [_score_row(name, metrics.SCORES[name], columns) for name in next(iter(columns.values()))]
    if unit != 1.0:
        standardized = {name: metrics.standardized(scores, unit) for name, scores in columns.items()}
        table += [
            _score_row(
                name, metrics.SCORES[name], standardized, ", standardized", "; y divided by its standard deviation"
            )
            for name in _STANDARDIZED
            if name in next(iter(columns.values()))
        ]
    return {"columns": [*columns], "rows": table}


def out_of_fold_table(fit: Fit, unseen: OutOfFold) -> Cells:
    """Return the table of scores of left-out rows with standard errors, beside those of the starting ensemble."""
    columns = {"deep ensemble": unseen.scores_of_ensemble} | ({title(fit): unseen.scores} if _samples(fit) else {})
    table = []
    for name in next(iter(columns.values())):
        values = {kind: {name: scores[name].value} for kind, scores in columns.items()}
        row = _score_row(name, metrics.SCORES[name], values)
        cells = zip(cast(list[dict[str, object]], row["cells"]), columns.values(), strict=True)
        row["cells"] = [cell | {"text": show(name, scores[name])} for cell, scores in cells]
        table.append(row)
    return {"columns": [*columns], "rows": table}


def _score_row(
    name: str, score: metrics.Score, columns: dict[str, dict[str, float]], suffix: str = "", remark: str = ""
) -> dict[str, object]:
    values = [scores[name] for scores in columns.values()]
    text = _TEXTS[score.unit]
    texts, best = [text(value) for value in values], None
    known = [value for value in values if not np.isnan(value)]
    goodness = _goodness(score)
    if goodness is not None and len(set(texts)) > 1 and known:
        best = text(max(known, key=goodness))
    cells = [{"text": text, "best": text == best} for text in texts]
    hint = f"{100 * score.best:g} % is right" if score.best is not None else _HINTS.get(score.better, "")
    return {"label": score.label[0].upper() + score.label[1:] + suffix, "hint": hint + remark, "cells": cells}


def _goodness(score: metrics.Score) -> Callable[[float], float] | None:
    """Return a function that is larger for a better score; None for a score that is not better high or low."""
    best = score.best
    if best is not None:
        return lambda value: -abs(value - best)
    return {"higher": lambda value: value, "lower": lambda value: -value}.get(score.better or "")


def worst_rows(fit: Fit, rows: ObservedRows, assessment: Assessment, names: list[str]) -> Cells:
    """Return a table of the rows with the lowest log density, each with its most unusual feature if it is a table's."""
    worst = np.argsort(assessment.log_prob, kind="stable")[:_N_WORST]
    unusual = rows.x[worst]
    feature = np.argmax(np.abs(unusual), axis=1)
    brief = assessment.mile.brief(worst)
    columns = {"row": [f"{place:,}" for place in rows.numbers[worst]], "observed": _texts(assessment.y[worst])}
    columns |= {name: _texts(values, share=name.startswith("probability")) for name, values in brief.items()}
    columns[assessment.mile.log_prob_label] = [f"{value:.2f}" for value in assessment.log_prob[worst]]
    if fit.network.describe_rows() is None:  # no single pixel or word says what is unusual
        columns["most unusual feature"] = [
            f"{names[column]} ({line[column]:+.1f} sd)" for line, column in zip(unusual, feature, strict=True)
        ]
    return {"columns": [*columns], "rows": [list(cells) for cells in zip(*columns.values(), strict=True)]}


def _texts(values: np.ndarray, *, share: bool = False) -> list[str]:
    """Return cells of a table: numbers, shares, the ends of intervals, or labels."""
    if values.dtype.names is not None:
        return [one_line(" ".join(map(str, value)), _LONGEST_LABEL) for value in values.tolist()]
    if values.ndim == 2:
        return [f"{number(low)} to {number(high)}" for low, high in values]
    if values.dtype.kind != "f":
        return [one_line(value, _LONGEST_LABEL) for value in values]
    return [_share(value) if share else number(value) for value in values]


def title(fit: Fit) -> str:
    """Return what a page calls the sampler."""
    return title_of(fit.sampler.name)


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


_TEXTS: dict[str, Callable[[float], str]] = {"y": number, "share": _share, "log y": _density, "none": _density}
_HINTS: dict[str | None, str] = {
    "higher": "higher is better",
    "lower": "lower is better",
    "narrower": "narrow is good if coverage is right",
}
_STANDARDIZED, _DIVIDED = ("lppd", "rmse"), "; y divided by its standard deviation"
