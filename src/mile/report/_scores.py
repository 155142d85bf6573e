"""Scores of the prediction beside those of its parts, and the rows that it predicts worst."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np

from mile import metrics
from mile._printable import one_line
from mile.fitting.result import Fit
from mile.fitting.unseen import OutOfFold, show, summarize
from mile.likelihoods import AbstractPredictive
from mile.metrics import Remembered, ScoredNumbers
from mile.plot._style import even_choice
from mile.report._rows import ObservedRows
from mile.samplers import title_of

Cells = dict[str, Sequence[object]]  # of a table: nested lists and texts that the page's template reads
MOST_ALONE = 4  # chains that are scored one by one; each costs as much as its share of the whole
_CRPS_CELLS = 1_200_000  # draws x rows; the score takes far longer than the others
_ERROR_DRAWS = 300  # for the standard error of the CRPS
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
    errors: dict[str, dict[str, float]]  # standard errors of those of the wholes, where rows have such scores


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

    members = fit.ensemble_predictive(rows.x)
    ensemble = predict(fit.ensemble_predictive)
    mile = predict(fit.predictive) if _samples(fit) else ensemble
    errors = {"deep ensemble": _standard_errors(members, y, members)}
    scores = {"single member": mean_alone(fit.ensemble_predictive, good), "deep ensemble": metrics.scores(ensemble, y)}
    if _samples(fit):
        alone = mean_alone(fit.predictive, good[even_choice(len(good), MOST_ALONE)])
        scores |= {"single chain": alone, title(fit): metrics.scores(mile, y)}
        few = fit.thinned(int(np.clip(_ERROR_DRAWS // len(good), 1, fit.chains.logdensity.shape[1])))
        errors[title(fit)] = _standard_errors(fit.predictive(rows.x), y, few.predictive(rows.x))
    return Assessment(y, mile, ensemble, mile.log_prob(y), ensemble.log_prob(y), scores, errors)


def crps_rows(fit: Fit, rows: ObservedRows) -> int:
    """Return for how many of the rows there is time to compute the CRPS."""
    n_draws = int(fit.ok.sum()) * fit.chains.logdensity.shape[1]
    return int(np.clip(_CRPS_CELLS // n_draws, 1, len(rows.x)))


def headline(fit: Fit, assessment: Assessment) -> Cells:
    """Return the table of scores: the ensemble beside all draws, each with its standard error; the best are marked."""
    errors, unit = assessment.errors, fit.response.unit
    columns = {name: assessment.scores[name] for name in errors}
    table = []
    for name in next(iter(columns.values())):
        row = _score_row(name, metrics.SCORES[name], columns)
        cells = zip(cast(list[dict[str, object]], row["cells"]), errors.values(), strict=True)
        row["cells"] = [cell | {"error": _error(name, of_rows.get(name))} for cell, of_rows in cells]
        table.append(row)
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


def parts_alone(assessment: Assessment) -> Cells:
    """Return the table of scores of single members and chains beside those of the wholes."""
    columns = assessment.scores
    table = [_score_row(name, metrics.SCORES[name], columns) for name in next(iter(columns.values()))]
    return {"columns": [*columns], "rows": table}


def _standard_errors(whole: AbstractPredictive, y: np.ndarray, few: AbstractPredictive) -> dict[str, float]:
    """Return standard errors over rows, with the CRPS of fewer draws."""
    with np.errstate(invalid="ignore"):  # a density may be zero
        found = summarize(whole.row_scores(y, few), np.ones(len(y), np.float32))
    return {name: estimate.standard_error for name, estimate in found.items()}


def _error(name: str, error: float | None) -> str:
    if error is None or not np.isfinite(error):
        return ""
    return f" ± {_share(error)}" if metrics.SCORES[name].unit == "share" else f" ± {error:.2g}"


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
    columns = {"row": [_place(place) for place in rows.numbers[worst]]}
    observed, outputs = assessment.y[worst], fit.likelihood.output_names
    if outputs:
        columns |= {f"{name} observed": texts_of(one) for name, one in zip(outputs, observed.T, strict=True)}
    else:
        columns["observed"] = texts_of(observed)
    columns |= {name: texts_of(values, share=name.startswith("probability")) for name, values in brief.items()}
    columns[assessment.mile.log_prob_label] = [f"{value:.2f}" for value in assessment.log_prob[worst]]
    if fit.network.describe_rows() is None:  # no single pixel or word says what is unusual
        columns["most unusual feature"] = [
            f"{names[column]} ({line[column]:+.1f} sd)" for line, column in zip(unusual, feature, strict=True)
        ]
    return {"columns": [*columns], "rows": [list(cells) for cells in zip(*columns.values(), strict=True)]}


def _place(place: object) -> str:
    """Write a row's number, or whatever else the user calls it."""
    return one_line(place, _LONGEST_LABEL)


def texts_of(values: np.ndarray, *, share: bool = False) -> list[str]:
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
