"""A service in this process, and a client that needs no network: requests go to the application as ASGI has them."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import mile
from mile.service.app import Settings, build_app
from mile.service.limits import Limits
from mile.service.models import Models, ServedModel


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def unnamed(path: Path) -> Any:
    """Return a model that takes arrays although its columns have names."""
    model = mile.load(path)
    del model.feature_names_in_
    return model


class Client:
    """Asks a service; each call is one request in its own event loop."""

    def __init__(self, paths: dict[str, Path], state: Path | None = None, **given: Any) -> None:
        limits = Limits(**{key: given.pop(key) for key in list(given) if key in Limits.__dataclass_fields__})
        self.pool = ThreadPoolExecutor(1)
        files = {name: None if state is None else state / f"{name}.json" for name in paths}
        self.models = Models([ServedModel(name, path, files[name], limits, self.pool) for name, path in paths.items()])
        self.app = build_app(self.models, Settings(limits, **given))
        self.loop = asyncio.new_event_loop()

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, data, headers)

    def csv(self, path: str, text: str) -> Reply:
        return self.ask("POST", path, text.encode(), {"content_type": "text/csv"})

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, b"", headers)

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        return self.loop.run_until_complete(self._ask(method, path, body, headers))

    async def all(self, *asked: tuple[str, Any]) -> list[Reply]:
        """Post several requests at once."""
        return await asyncio.gather(*(self._ask("POST", path, json.dumps(body).encode(), {}) for path, body in asked))

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        where, _, query = path.partition("?")
        pairs = [(b"content-length", str(len(body)).encode()), (b"host", b"service")]
        pairs += [(key.replace("_", "-").encode(), value.encode("latin-1")) for key, value in headers.items()]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
        scope |= {"path": unquote(where), "raw_path": where.encode("utf-8", "replace"), "root_path": ""}
        scope |= {"query_string": query.encode("utf-8", "replace"), "headers": pairs, "client": None, "server": None}
        parts = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await asyncio.wait_for(self.app(scope, receive, send), 60)
        found = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))

    def close(self) -> None:
        while rest := asyncio.all_tasks(self.loop):
            self.loop.run_until_complete(asyncio.wait(rest))
        self.models.close()
        self.loop.close()
        self.pool.shutdown()
