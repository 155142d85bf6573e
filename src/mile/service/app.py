"""The service as an ASGI application: addresses, bodies, and statuses of HTTP."""

import asyncio
import contextlib
import json
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, cast

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from mile._json import Json
from mile.service import describing, endpoints
from mile.service.counters import TYPE
from mile.service.guard import Guard
from mile.service.limits import Limits, Refused
from mile.service.models import Models, ServedModel
from mile.storage._table_writing import csv_lines  # the package needs JAX for its other names

_LOOK = 1.0  # seconds between two looks at the files
_PAGES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_CSV = "text/csv"
_WORDS = {
    404: "there is nothing at this address; /openapi.json lists what there is.",
    405: "this address takes another method.",
}
Answer = dict[str, Json]
_Handler = Callable[[Request], Awaitable[Response]]


class Settings(NamedTuple):
    """How a service is run."""

    limits: Limits
    token: str | None = None
    reloads: bool = False
    look: float = _LOOK


class Service:
    """The endpoints of some models."""

    def __init__(self, models: Models, settings: Settings) -> None:
        self._models, self._settings = models, settings
        self.guard: Guard | None = None

    def routes(self) -> dict[str, tuple[str, _Handler]]:
        """Return handlers by address, each with its method."""
        found: dict[str, tuple[str, _Handler]] = {path: ("GET", self._page) for path in _PAGES}
        found |= {"/health": ("GET", self._health), "/metrics": ("GET", self._metrics)}
        found |= {"/models": ("GET", self._names), "/openapi.json": ("GET", self._openapi)}
        for prefix in ("", "/models/{name}"):
            found |= {f"{prefix}/{word}": ("POST", handler) for word, handler in self._posts().items()}
            found |= {f"{prefix}/schema": ("GET", self._schema), f"{prefix}/drift": ("GET", self._drift)}
        return found

    def _posts(self) -> dict[str, _Handler]:
        return {"predict": self._predict, "explain": self._explain, "outcome": self._outcome}

    async def look_at_files(self) -> None:
        """Take over changed files until this is cancelled."""
        while True:
            await asyncio.sleep(self._settings.look)
            await self._models.look(asyncio.to_thread)

    async def _predict(self, request: Request) -> Response:
        model, body, is_csv = self._model(request), await self._body(request), _is_csv(request)
        async with self._time():
            found = await endpoints.predict(model, body, request.query_params, is_csv=is_csv)
        self._models.counters.rows[model.name] += len(next(iter(found.columns.values())))
        if is_csv and "json" not in request.headers.get("accept", ""):
            return Response("\n".join([*csv_lines(found.columns), ""]), media_type=f"{_CSV}; charset=utf-8")
        return _json(endpoints.prediction_answer(model, found))

    async def _explain(self, request: Request) -> Response:
        model, body = self._model(request), await self._body(request)
        async with self._time():
            return _json(await endpoints.explain(model, body))

    async def _outcome(self, request: Request) -> Response:
        model, body = self._model(request), await self._body(request)
        async with self._time():
            answer = await endpoints.outcome(model, body, is_csv=_is_csv(request))
        self._models.counters.outcomes[model.name] += cast(int, answer["accepted"])
        is_known = answer["accepted"] or answer["repeated"]
        return _json(answer, 200 if is_known else 404)

    async def _schema(self, request: Request) -> Response:
        model = self._model(request)
        return _json(describing.schema_of(model.name, model.loaded.version, model.loaded.answers))

    async def _drift(self, request: Request) -> Response:
        model = self._model(request)
        report = model.memory.drift.report() | {"followed": model.memory.n_followed}
        return _json({"model": model.name, "version": model.loaded.version, **report})

    async def _health(self, request: Request) -> Response:
        models: Answer = {}
        for one in self._models.by_name.values():
            found: dict[str, Json] = {"version": one.loaded.version}
            troubles: list[Json] = [trouble for trouble in (one.trouble, one.memory.trouble) if trouble]
            models[one.name] = {**found, "trouble": troubles} if troubles else found  # pyright: ignore[reportArgumentType]: JSON
        has_trouble = any(one.trouble or one.memory.trouble for one in self._models.by_name.values())
        return _json({"status": "degraded" if has_trouble else "ok", "models": models})

    async def _names(self, request: Request) -> Response:
        names: list[Json] = [{"name": one.name, "version": one.loaded.version} for one in self._models.by_name.values()]
        return _json({"models": names, "default": self._models.default.name})

    async def _metrics(self, request: Request) -> Response:
        models = self._models.by_name
        followed = {name: one.memory.n_followed for name, one in models.items()}
        outside = {name: one.memory.drift.outside() for name, one in models.items()}
        under_way = 0 if self.guard is None else self.guard.under_way
        return Response(self._models.counters.text(under_way, followed, outside), media_type=TYPE)

    async def _openapi(self, request: Request) -> Response:
        answers = {name: one.loaded.answers for name, one in self._models.by_name.items()}
        has_token = self._settings.token is not None
        return _json(describing.openapi(answers, self._settings.limits, has_token=has_token))

    async def _page(self, request: Request) -> Response:
        name, kind = _PAGES[request.url.path]
        return Response(pkgutil.get_data("mile.service", name), media_type=f"{kind}; charset=utf-8")

    def _model(self, request: Request) -> ServedModel:
        name = request.path_params.get("name")
        if name is None:
            return self._models.default
        if name not in self._models.by_name:
            raise Refused(404, f"there is no model of that name; there are {', '.join(self._models.by_name)}.")
        return self._models.by_name[name]

    async def _body(self, request: Request) -> bytes:
        """Read a body that is neither too long nor too slow."""
        limits, parts, n_bytes = self._settings.limits, [], 0
        try:
            async with asyncio.timeout(limits.seconds):
                async for part in request.stream():
                    n_bytes += len(part)
                    if n_bytes > limits.n_bytes:
                        raise Refused(413, f"at most {limits.n_bytes:,} bytes are taken at once.")
                    parts.append(part)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {limits.seconds:g} seconds.") from None
        return b"".join(parts)

    @contextlib.asynccontextmanager
    async def _time(self) -> AsyncIterator[None]:
        limit = self._settings.limits.seconds
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise Refused(503, f"this took longer than {limit:g} seconds: send fewer rows.") from None


def build_app(models: Models, settings: Settings) -> Guard:
    """Return the application for a server such as uvicorn."""
    service = Service(models, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(service.look_at_files()) if settings.reloads else None
        yield
        if task is not None:
            task.cancel()
        models.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for path, (method, handler) in service.routes().items():
        app.add_route(path, handler, methods=[method])
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(ClientDisconnect, _gone)
    service.guard = Guard(app, settings.limits, settings.token, models.counters)  # pyright: ignore[reportArgumentType]
    return service.guard


async def _refused(request: Request, error: Exception) -> Response:
    status, message = (error.status, error.message) if isinstance(error, Refused) else (500, "")
    headers = {"retry-after": "1"} if status == 503 else None
    return _json({"error": message}, status, headers)


async def _unknown(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else None
    return _json({"error": _WORDS.get(status, "the request cannot be answered.")}, status, headers)


async def _gone(request: Request, error: Exception) -> Response:
    return _json({"error": "the client has gone."}, 400)


def _is_csv(request: Request) -> bool:
    return request.headers.get("content-type", "").strip().lower().startswith(_CSV)


def _json(answer: Answer, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(answer, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status, headers, media_type="application/json")
