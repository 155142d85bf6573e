"""What the addresses of one model answer, from bodies to plain values; nothing here knows of HTTP frameworks."""

import asyncio
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from mile._json import Json
from mile.service.answers import Columns, Curve, Effect
from mile.service.drift import Drift
from mile.service.limits import MOST_CURVES, Refused, wrong
from mile.service.memory import Judgement
from mile.service.models import Loaded, ServedModel
from mile.service.rows import (
    Cells,
    Extras,
    Options,
    Payload,
    Rows,
    options_of_query,
    read_csv,
    read_extras,
    read_id,
    read_json,
    read_options,
    read_text,
)

_LARGE_BODY = 1 << 16  # bytes; larger ones are read in a thread


class Predicted(NamedTuple):
    """Predictions of rows."""

    columns: Columns
    remarks: list[str]
    curves: list[Curve]
    ids: Sequence[str] | None
    version: str


class _Asked(NamedTuple):
    rows: Rows
    x: np.ndarray
    places: list[list[int]]  # bins of the cells
    options: Options
    extras: Extras
    remarks: list[str]


class Outcomes(NamedTuple):
    """What came of rows, some by id, some with their cells."""

    ids: list[str | None]
    cells: dict[str, Cells]
    y: Cells


async def predict(model: ServedModel, body: bytes, query: Mapping[str, str], *, is_csv: bool) -> Predicted:
    """Predict rows of JSON or CSV, and count them."""
    loaded, drift = model.loaded, model.memory.drift
    is_large = len(body) > _LARGE_BODY
    arguments = (loaded, drift, body, query, is_csv)
    asked = await asyncio.to_thread(_read, *arguments) if is_large else _read(*arguments)
    rows, extras = asked.rows, asked.extras
    columns, curves = await loaded.gatherer.columns(asked.x, asked.options), []
    if extras.points:
        call = (loaded.answers.density, asked.x, extras.points)
        curves = cast(list[Curve], await loaded.gatherer.apart(*call, rows=rows.n_rows * extras.points))
    ids = extras.ids
    if extras.follow and ids is None:
        ids = [secrets.token_hex(8) for _ in range(rows.n_rows)]
    if drift is model.memory.drift:  # else another model serves by now, and counts its own rows
        if extras.counts:
            model.memory.count(asked.places)
        if ids is not None:
            model.memory.follow(rows.cells, ids)
    elif ids is not None:
        raise Refused(503, "the model was replaced meanwhile, and the rows are not followed: send them again.")
    return Predicted(columns, asked.remarks, curves, ids, loaded.version)


def _read(loaded: Loaded, drift: Drift, body: bytes, query: Mapping[str, str], is_csv: bool) -> _Asked:
    """Return checked and encoded rows, and what is asked of them."""
    options, extras = Options(), Extras()
    if is_csv:
        options = read_options(options_of_query(query))
        rows, _ = loaded.reader.of_csv(read_text(body))
    else:
        payload = read_json(body)
        rows = loaded.reader.of_payload(payload)
        if len(payload) > 1:
            options, extras = read_options(payload), read_extras(payload, rows.n_rows)
    if extras.points and rows.n_rows > MOST_CURVES:
        raise wrong(f"densities are drawn of at most {MOST_CURVES} rows at once; got {rows.n_rows:,}.")
    x, remarks = loaded.answers.encode(rows)
    return _Asked(rows, x, drift.places(rows.cells), options, extras, [*rows.remarks, *remarks])


def prediction_answer(model: ServedModel, found: Predicted) -> dict[str, Json]:
    """Return predictions as JSON: an object for each row."""
    names = list(found.columns)
    lists = [_listed(column) for column in found.columns.values()]
    rows: list[Json] = [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
    for row, curve in zip(rows, found.curves, strict=False):
        cast(dict[str, Json], row)["density"] = {"y": _listed(curve.y), "density": _listed(curve.density)}
    answer: dict[str, Json] = {"model": model.name, "version": found.version, "predictions": rows}
    if found.ids is not None:
        answer["ids"] = cast(Json, list(found.ids))
    if found.remarks:
        answer["remarks"] = cast(Json, found.remarks)
    return answer


async def explain(model: ServedModel, body: bytes) -> dict[str, Json]:
    """Say what moves the prediction of a row."""
    loaded, payload = model.loaded, read_json(body)
    rows = loaded.reader.of_payload(payload)
    if rows.n_rows != 1:
        raise wrong(f"one row is explained at a time; got {rows.n_rows}.")
    x, remarks = loaded.answers.encode(rows)
    n_asked = 2 + len(loaded.reader.names)
    quantities = cast(Columns, await loaded.gatherer.apart(loaded.answers.quantities, x))
    effects = cast(list[Effect], await loaded.gatherer.apart(loaded.answers.effects, x, rows=n_asked))
    described: Json = [
        {
            "column": effect.column,
            "value": cast(Json, rows.cells[effect.column][0]),
            "change": {name: _finite(change) for name, change in effect.change.items()},
        }
        for effect in effects
    ]
    values: Json = {name: _finite(float(value[0])) for name, value in quantities.items()}
    answer: dict[str, Json] = {"model": model.name, "version": loaded.version, "values": values, "effects": described}
    return answer | ({"remarks": cast(Json, [*rows.remarks, *remarks])} if rows.remarks or remarks else {})


async def outcome(model: ServedModel, body: bytes, *, is_csv: bool) -> dict[str, Json]:
    """Take what came of rows, and confirm it once it is on disk."""
    loaded = model.loaded
    given = _outcomes_of_csv(loaded, read_text(body)) if is_csv else _outcomes_of_json(loaded, read_json(body))
    unknown: list[Json] = []
    repeated: list[Json] = []
    kept: list[tuple[str | None, list[object], object]] = []
    seen: set[str] = set()
    for place, (one, y) in enumerate(zip(given.ids, given.y, strict=True)):
        if one is None:
            kept.append((None, [given.cells[name][place] for name in loaded.reader.names], y))
            continue
        row = model.memory.row(one)
        if one in seen or model.memory.is_judged(one):
            repeated.append(one)
        elif row is None:
            unknown.append(one)
        else:
            kept.append((one, row, y))
        seen.add(one)
    if kept:
        cells = {name: [row[at] for _, row, _ in kept] for at, name in enumerate(loaded.reader.names)}
        x, _ = loaded.answers.encode(Rows(cells, len(kept)))
        observed = [y for _, _, y in kept]
        found = cast(Columns, await loaded.gatherer.apart(loaded.answers.outcomes, x, observed, rows=len(kept)))
        # While this was computed, another request may have brought the same outcome.
        judged = [
            (one, judgement)
            for (one, _, _), judgement in zip(kept, _judgements(found), strict=True)
            if one is None or model.memory.row(one) is not None
        ]
        model.memory.judge(judged)
    return {"model": model.name, "accepted": len(kept), "unknown": unknown, "repeated": repeated}


def _judgements(found: Columns) -> list[Judgement]:
    if "pit" in found:
        return [Judgement("pit", float(np.clip(value, 0.0, 1.0))) for value in np.nan_to_num(found["pit"], nan=0.5)]
    pairs = zip(found["confidence"].tolist(), found["hit"].tolist(), strict=True)
    return [Judgement("confidence", confidence, hit) for confidence, hit in pairs]


def _outcomes_of_json(loaded: Loaded, payload: Payload) -> Outcomes:
    listed = payload.get("outcomes")
    if listed is None:
        rows = loaded.reader.of_payload(payload, others=("y",))
        y = payload.get("y")
        if type(y) is not list or len(y) != rows.n_rows:
            raise wrong(f'"y" must be a list with the outcome of each of the {rows.n_rows} rows.')
        return Outcomes([None] * rows.n_rows, rows.cells, [_checked_outcome(one, at) for at, one in enumerate(y)])
    if type(listed) is not list or not listed or set(payload) != {"outcomes"}:
        raise wrong('give {"outcomes": [{"id": ..., "y": ...}, ...]} and nothing else, or rows with their "y".')
    ids: list[str | None] = []
    found: Cells = []
    for place, one in enumerate(listed):
        if type(one) is not dict or set(one) != {"id", "y"}:
            raise wrong(f'outcome {place} must be an object with "id" and "y".')
        ids.append(read_id(one["id"], place))
        found.append(_checked_outcome(one["y"], place))
    return Outcomes(ids, {}, found)


def _outcomes_of_csv(loaded: Loaded, text: str) -> Outcomes:
    target = loaded.answers.target
    header, lines = read_csv(text)
    name = target if target in header else "y"
    if name not in header:
        raise wrong(f"the header must name the outcome: {target!r} or 'y'.")
    if not lines:
        raise wrong("there are no rows.")
    y: Cells = [_outcome_of_text(line[header.index(name)], loaded, place) for place, line in enumerate(lines)]
    if "id" in header and not set(loaded.reader.names) <= set(header):
        ids = [read_id(line[header.index("id")], place) for place, line in enumerate(lines)]
        return Outcomes([*ids], {}, y)
    rows, _ = loaded.reader.of_csv(text)
    return Outcomes([None] * rows.n_rows, rows.cells, y)


def _outcome_of_text(text: str, loaded: Loaded, place: int) -> object:
    """Return a cell as the model knows it: one of its labels, or a number."""
    for label in loaded.answers.classes:
        if str(label) == text.strip():
            return label
    try:
        return text.strip() if loaded.answers.classes else float(text)
    except ValueError:
        raise wrong(f"outcome {place} must be a number; got {text[:60]!r}.") from None


def _checked_outcome(value: object, place: int) -> object:
    if type(value) not in (int, float, str, bool):
        raise wrong(f"outcome {place} must be a number or a label; got {str(value)[:60]!r}.")
    return value


def _listed(column: np.ndarray) -> list[Json]:
    """Return a column for JSON, which has neither NaN nor infinity."""
    found = column.tolist()
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        return [_finite(value) for value in found]
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
