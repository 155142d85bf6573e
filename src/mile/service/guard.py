"""What stands before every endpoint: the token, the limits, the counts, and an answer whatever happens."""

import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping

from mile.service.counters import Counters
from mile.service.limits import Limits, is_token

Message = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_OPEN = ("/", "/page.js", "/page.css", "/health")  # without a token: they hold nothing of the models
_ENDPOINTS = frozenset(
    ("predict", "explain", "outcome", "schema", "drift", "health", "metrics", "models", "openapi.json", "")
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_log = logging.getLogger(__name__)


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, limits: Limits, token: str | None, counters: Counters) -> None:
        self._app, self._limits, self._token, self._counters = app, limits, token, counters
        self.under_way = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(str(message["status"]))
                message["headers"] = [*_pairs(message["headers"]), *_HEADERS]
            await send(message)

        self.under_way += 1
        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, receive, answer)
            else:
                await _say(answer, *refusal)
        except Exception:
            _log.exception("a request failed")
            if status:
                raise  # half an answer is out: the connection is closed
            await _say(answer, 500, "the service failed; its log says why.")
        finally:
            self.under_way -= 1
            self._counters.request(_endpoint(str(scope["path"])), status, time.perf_counter() - began)

    def _refusal(self, scope: Message) -> tuple[int, str] | None:
        """Return why a request is not let in."""
        headers = dict(_pairs(scope["headers"]))
        if self._token is not None and scope["path"] not in _OPEN:
            given = headers.get(b"authorization")
            if not is_token(None if given is None else given.decode("latin-1"), self._token):
                return 401, "a token is needed: send the header Authorization: Bearer TOKEN."
        if scope["method"] != "GET" and headers.get(b"sec-fetch-site") == b"cross-site":
            return 403, "pages of other sites may not ask this service."  # a browser would, and count rows
        if self.under_way > self._limits.waiting:
            return 429, "too many requests are under way: try again in a second."
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            return 400, "Content-Length must be a whole number."
        if len(length) > 18 or int(length) > self._limits.n_bytes:
            return 413, f"at most {self._limits.n_bytes:,} bytes are taken at once; got {length.decode()[:30]}."
        if headers.get(b"content-encoding", b"identity") != b"identity":
            return 415, "send the body as it is, without Content-Encoding."
        return None


def _pairs(headers: object) -> list[tuple[bytes, bytes]]:
    return list(headers)  # pyright: ignore[reportArgumentType, reportReturnType]: as ASGI has them


def _endpoint(path: str) -> str:
    """Return one of few names, whatever the address is."""
    parts = path.strip("/").split("/")
    last = parts[-1] if len(parts) == 1 or (len(parts) == 3 and parts[0] == "models") else "?"
    return "/" + last if last in _ENDPOINTS else "other"


async def _say(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status in (429, 503):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
