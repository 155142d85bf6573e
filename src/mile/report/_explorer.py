"""The part of a page that answers: rows to hover over and to pick, a slider for the level; its data and its script."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from mile._printable import one_line
from mile.fitting.result import Fit
from mile.plot._style import even_choice
from mile.report._rows import ObservedRows
from mile.report._scores import texts_of
from mile.report._templates import template

_MOST_ROWS = 120
_DRAWS = 600  # that the distributions of these rows are made of
_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of intervals that the slider goes through
_USUAL = 8  # 90 %
_MOST_CLASSES = 8
_NAME = 60  # characters
_DIGITS = 5


class Explorer(NamedTuple):
    """What the page's template needs."""

    data: str  # JSON
    label: str  # of the slider
    most: int
    start: int


@cache
def script() -> str:
    """Return the script, which makes no request and writes texts only."""
    return template("page.js").render().strip()


@cache
def script_hash() -> str:
    """Return how a content-security policy names the script."""
    digest = hashlib.sha256(script().encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def explorer(fit: Fit, rows: ObservedRows, target: str) -> Explorer | None:
    """Return the data of at most 120 rows, evenly chosen; None if there is nothing to explore."""
    if rows.y is None or len(rows.x) < 2:
        return None
    chosen = even_choice(len(rows.x), _MOST_ROWS)
    few = fit.thinned(int(np.clip(-(-_DRAWS // max(1, int(fit.ok.sum()))), 1, fit.chains.draws.shape[1])))
    predictive, y = few.predictive(rows.x[chosen]), rows.y[chosen]
    names = [one_line(place, _NAME) for place in rows.numbers[chosen]]
    seen = texts_of(y)
    shares = predictive.shares()
    if shares is not None:
        return _of_classes(shares, [str(one) for one in predictive.point], names, seen)
    strips = predictive.strips(_quantiles().tolist())
    if strips is None or strips.dtype.kind != "f":
        return None
    values = np.asarray(predictive.point, np.float64)
    known = y.astype(np.float64) if y.dtype.kind in "fiu" else np.full(len(y), np.nan)
    order = np.argsort(values, kind="stable")
    cells = [
        {
            "id": names[place],
            "seen": seen[place],
            "value": _short(float(values[place])),
            "y": _short(float(known[place])),
        }
        | {"q": [_short(value) for value in strips[place].tolist()]}
        for place in order.tolist()
    ]
    found = {"rows": cells, "levels": _LEVELS, "quantiles": _quantiles().tolist(), "usual": _USUAL}
    return Explorer(_json(found | {"axis": f"rows, by predicted {one_line(target, 30)}"}), "Interval", 10, _USUAL)


def _of_classes(shares: dict[str, np.ndarray], points: list[str], names: list[str], seen: list[str]) -> Explorer:
    probs = np.stack([*shares.values()], axis=1)
    labels = [one_line(label, _NAME) for label in shares]
    order = np.argsort(probs.max(axis=1), kind="stable")
    cells = []
    for place in order.tolist():
        largest = np.argsort(-probs[place], kind="stable")[:_MOST_CLASSES].tolist()
        likely = [(labels[one], round(float(probs[place, one]), 4)) for one in largest]
        point = one_line(points[place], _NAME)
        cells.append({"id": names[place], "seen": seen[place], "point": point, "p": likely, "value": likely[0][1]})
        cells[-1] |= {"right": point == seen[place]}
    found = {"rows": cells, "levels": (), "quantiles": (), "usual": 0, "axis": "rows, by confidence"}
    return Explorer(_json(found), "At least so sure", 100, 0)


def _quantiles() -> np.ndarray:
    ends = 0.5 * np.array(_LEVELS)
    return np.concatenate([0.5 - ends[::-1], [0.5], 0.5 + ends]).round(4)


def _short(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None


def _json(found: Mapping[str, object]) -> str:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
