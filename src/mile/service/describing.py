"""What clients must know of a model: its columns as JSON Schema, and all addresses as OpenAPI."""

from collections.abc import Mapping

from mile._json import Json
from mile.features.base import ColumnFacts
from mile.service.answers import AbstractAnswers, KernelAnswers
from mile.service.limits import MOST_CURVES, MOST_QUANTILES, Limits

_MOST_LEVELS = 200  # of a category, in a schema


def schema_of(name: str, version: str, answers: AbstractAnswers) -> dict[str, Json]:
    """Return what /schema answers."""
    typical: Json = {key: value for key, value in answers.typical().items()}  # pyright: ignore  plain values
    columns: Json = [_column(one) for one in answers.facts]
    found: dict[str, Json] = {"model": name, "version": version, "task": answers.task, "target": answers.target}
    found |= {"draws": answers.n_draws, "columns": columns, "typical_row": typical}
    if answers.classes:
        found["classes"] = [_plain(label) for label in answers.classes]
    found["has_density"] = not answers.classes
    found["needs_jax"] = not isinstance(answers, KernelAnswers)
    return found | {"row": row_schema(answers)}


def row_schema(answers: AbstractAnswers) -> Json:
    """Return the JSON Schema of a row."""
    used = [one for one in answers.facts if not one.reason]
    properties: Json = {one.name: _property(one) for one in used}
    required: Json = [one.name for one in used]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": True}


def openapi(models: Mapping[str, AbstractAnswers], limits: Limits, *, has_token: bool) -> dict[str, Json]:
    """Return the OpenAPI document of all models; the first one has the short addresses too."""
    paths: dict[str, Json] = {}
    for place, (name, answers) in enumerate(models.items()):
        for prefix in ([""] if place == 0 else []) + [f"/models/{name}"]:
            paths |= _paths(prefix, answers, limits)
    plain: Json = {"200": {"description": "Done."}}
    for path, summary in (
        ("/health", "Whether all models serve, and what went wrong with changed files"),
        ("/metrics", "Counts for Prometheus"),
        ("/models", "Names and versions of the models"),
    ):
        paths[path] = {"get": {"summary": summary, "responses": plain}}
    found: dict[str, Json] = {"openapi": "3.1.0", "info": {"title": "mile serve", "version": "1"}, "paths": paths}
    if has_token:
        schemes: Json = {"token": {"type": "http", "scheme": "bearer"}}
        security: Json = [{"token": []}]
        found |= {"components": {"securitySchemes": schemes}, "security": security}
    return found


def _paths(prefix: str, answers: AbstractAnswers, limits: Limits) -> dict[str, Json]:
    row = row_schema(answers)
    rows: Json = {"type": "array", "items": row, "minItems": 1, "maxItems": limits.rows}
    level: Json = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    options: dict[str, Json] = {
        "interval": {"default": 0.9, "description": "Probability that the interval shall hold.", **_object(level)},
        "quantiles": {"type": "array", "items": level, "maxItems": MOST_QUANTILES},
        "density": {
            "description": f"true, or a number of points; of at most {MOST_CURVES} rows.",
            "type": ["boolean", "integer"],
        },
        "ids": {"type": "array", "items": {"type": "string"}, "description": "One for each row, for /outcome."},
        "follow": {"type": "boolean", "description": "Whether the service shall make ids."},
        "count": {"type": "boolean", "default": True, "description": "Whether the drift monitor counts the rows."},
    }
    given: dict[str, Json] = {"row": row, "rows": rows, "columns": {"type": "object"}}
    body: Json = {"type": "object", "properties": {**given, **options}}
    csv: Json = {"schema": {"type": "string"}}
    outcome: Json = {
        "type": "object",
        "properties": {
            "outcomes": {
                "type": "array",
                "items": {"type": "object", "properties": {"id": {"type": "string"}, "y": {}}, "required": ["id", "y"]},
            },
            **given,
            "y": {"type": "array"},
        },
    }
    one: Json = {"type": "object", "properties": {"row": row}, "required": ["row"]}
    return {
        f"{prefix}/predict": _post("Predict rows", {"application/json": {"schema": body}, "text/csv": csv}),
        f"{prefix}/explain": _post("Say what moves the prediction of a row", {"application/json": {"schema": one}}),
        f"{prefix}/outcome": _post("Say what came of rows", {"application/json": {"schema": outcome}}),
        f"{prefix}/schema": {"get": {"summary": "Columns", "responses": {"200": {"description": "Done."}}}},
        f"{prefix}/drift": {"get": {"summary": "Drift", "responses": {"200": {"description": "Done."}}}},
    }


def _post(summary: str, content: Json) -> Json:
    answers: Json = {
        "200": {"description": "Done."},
        "400": {"description": "The body cannot be read."},
        "413": {"description": "Too many rows or bytes."},
        "422": {"description": "A row, a column or an option is wrong; the error names it."},
    }
    return {"post": {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": answers}}


def _object(given: Json) -> dict[str, Json]:
    return given if type(given) is dict else {}


def _column(one: ColumnFacts) -> Json:
    found: dict[str, Json] = {"name": one.name, "kind": one.kind, "used": not one.reason}
    if one.reason:
        return found | {"reason": one.reason}
    found |= {"low": one.low, "high": one.high, "center": one.center, "spread": one.spread, "missing": one.missing}
    levels: Json = list(one.levels[:_MOST_LEVELS])
    return found | ({"levels": levels, "n_levels": len(one.levels)} if one.levels else {})


def _property(one: ColumnFacts) -> Json:
    if one.kind == "number":
        found: dict[str, Json] = {"type": ["number", "null"]}
        if one.low is not None:
            found["description"] = f"{one.low:g} to {one.high:g} in training"
        return found
    if one.kind == "date":
        return {"type": ["string", "null"], "format": "date"}
    some: Json = list(one.levels[:_MOST_LEVELS])
    return {"type": ["string", "number", "boolean", "null"], "examples": some}


def _plain(value: object) -> Json:
    return value if type(value) in (str, int, float, bool) else str(value)  # pyright: ignore[reportReturnType]
