"""`mile serve` as a process: its start, its end, and what it knows after it was killed."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi")
from typer.testing import CliRunner

from mile.cli import app

COMMAND = [sys.executable, "-c", "from mile.cli import app; app()", "serve"]
ROW = {"a": 0.1, "b": 0.2, "c": 0.3}


@contextmanager
def serving(*arguments, **variables):
    """Yield a process that serves, and its port."""
    environment = {**os.environ, **variables}
    command = [*COMMAND, *map(str, arguments), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("Serving"), process.stderr.read()
            yield process, int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
        finally:
            if process.poll() is None:
                process.kill()


def ask(port, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def test_a_killed_service_knows_all_that_it_confirmed(files, tmp_path):
    """Clients predict and send outcomes until the service is killed amid their requests."""
    arguments = (files["numbers"], "--state", tmp_path)
    followed, judged = [], []
    with serving(*arguments) as (process, port):
        assert ask(port, "GET", "/schema")[1]["needs_jax"] is False

        def work(name):
            try:
                for place in range(10_000):
                    one = f"{name} {place}"
                    if ask(port, "POST", "/predict", {"row": ROW, "ids": [one]})[0] == 200:
                        followed.append(one)
                    if place % 2 and ask(port, "POST", "/outcome", {"outcomes": [{"id": one, "y": 1.0}]})[0] == 200:
                        judged.append(one)
            except (OSError, http.client.HTTPException):
                return  # the service is gone

        threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        while len(judged) < 30:
            threads[0].join(0.01)
            assert threads[0].is_alive()
        process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join()
    with serving(*arguments) as (process, port):
        report = ask(port, "GET", "/drift")[1]
        assert report["rows"] >= len(followed)
        assert report["outcomes"] >= len(judged)
        again = ask(port, "POST", "/outcome", {"outcomes": [{"id": one, "y": 1.0} for one in followed]})[1]
        assert again["unknown"] == []
        assert set(judged) <= set(again["repeated"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
        assert process.stderr.read() == ""
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".journal"]


def test_a_token_may_come_from_the_environment(files, tmp_path):
    with serving(files["numbers"], "--state", tmp_path, MILE_SERVE_TOKEN="secret") as (_, port):
        assert ask(port, "POST", "/predict", {"row": ROW})[0] == 401
        assert ask(port, "POST", "/predict", {"row": ROW}, Authorization="Bearer secret")[0] == 200
        with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
            raw.sendall(b"NONSENSE\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400")


def test_what_cannot_be_served_is_said_in_one_line(files, tmp_path):
    numbers, damaged = files["numbers"], tmp_path / "damaged.mile"
    damaged.write_bytes(numbers.read_bytes()[:-5])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for arguments, words in (
            ([tmp_path / "none.mile"], "There is no run or model"),
            ([damaged], "damaged.mile"),
            ([numbers, numbers], "two models are called 'numbers'"),
            ([f"a/b={numbers}"], "letters, digits"),
            ([numbers, "--port", "70000"], "65535"),
            ([numbers, "--max-rows", "0"], "max_rows"),
            ([numbers, "--token", " x"], "--token"),
            ([numbers, "--port", str(taken.getsockname()[1])], "cannot listen"),
        ):
            state = ["--state", str(tmp_path / "state"), "--port", "0"]
            found = CliRunner().invoke(app, ["serve", *state, *map(str, arguments)])
            assert found.exit_code == 1, found.output
            assert words in found.stderr
            assert found.stderr.count("\n") == 1


def test_a_missing_package_is_named(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    found = CliRunner().invoke(app, ["serve", str(files["numbers"])])
    assert found.exit_code == 1
    assert "pip install 'mile-bnn[serve]'" in found.stderr
