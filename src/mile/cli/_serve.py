"""`mile serve`: models as an HTTP service."""

import logging
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mile.cli._console import Console
from mile.service.limits import Limits
from mile.service.models import Models, ServedModel

_THREADS = 2  # of predictions that take longer than a few milliseconds; the kernel has threads of its own
_SHUTDOWN_SECONDS = 10
_BACKLOG = 2048  # connections that wait to be accepted
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def serve(
    console: Console,
    models: Sequence[str],
    host: str,
    port: int,
    token: str | None,
    bounds: tuple[int, int, float],
    reload: bool,
    state: Path | None,
) -> None:
    """Load models, listen, and answer until a signal comes; `bounds` are rows, bytes and seconds of a request."""
    try:
        import uvicorn

        from mile.service.app import Settings, build_app
    except ImportError as error:
        raise ImportError(f"mile serve needs {error.name}: pip install 'mile-bnn[serve]'.") from error
    if not 0 <= port < 1 << 16:
        raise ValueError(f"--port must lie between 0 and 65535; got {port}.")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token and token):
        raise ValueError("--token must be printable ASCII characters without spaces around them.")
    limits, named = Limits(rows=bounds[0], n_bytes=bounds[1], seconds=bounds[2]), _named(models)
    with _listening(host, port) as listener, ThreadPoolExecutor(_THREADS) as pool:
        found = [ServedModel(name, path, _state_file(name, path, state), limits, pool) for name, path in named.items()]
        app = build_app(Models(found), Settings(limits, token, reload))
        listener.listen(_BACKLOG)  # who connects from now on waits until the server runs
        address = f"[{host}]" if ":" in host else host
        names = ", ".join(f"{one.name} ({one.loaded.answers.n_draws:,} draws)" for one in found)
        console.say(f"Serving  {names}\nAddress  http://{address}:{listener.getsockname()[1]}/")
        if token is None and host not in _LOOPBACK:
            logging.getLogger(__name__).warning("Anyone who reaches %s may ask: --token would keep others out.", host)
        sys.stdout.flush()
        uvicorn.Server(
            uvicorn.Config(
                app,  # pyright: ignore[reportArgumentType]: an ASGI application
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            )
        ).run(sockets=[listener])


def _named(models: Sequence[str]) -> dict[str, Path]:
    """Return models by name: the one given, or that of the file without its suffix."""
    found: dict[str, Path] = {}
    for given in models:
        name, sign, text = given.partition("=")
        path = Path(text) if sign and not Path(given).exists() else Path(given)
        name = name if path == Path(text) and sign else path.absolute().name.split(".")[0]
        if not name or not set(name) <= _NAME_CHARACTERS:
            raise ValueError(f"a model's name may have letters, digits and . _ -; give NAME={path}, got {name[:80]!r}.")
        if name in found:
            raise ValueError(f"two models are called {name!r}: give one of them another name, NAME={path}.")
        found[name] = path
    return found


def _state_file(name: str, path: Path, state: Path | None) -> Path:
    return (
        path.absolute().with_name(f"{path.absolute().name}.service.json") if state is None else state / f"{name}.json"
    )


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket with its address: that the port is taken is known before models are loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen at {host}, port {port}: {error.strerror}.") from error
    return listener
