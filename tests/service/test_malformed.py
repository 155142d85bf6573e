"""Requests that nobody should send: each gets a clear refusal, never a failure of the service, and never a hang."""

import copy
import json

import numpy as np
import pytest

pytest.importorskip("fastapi")
from services import Client

HOUSE = {"size": 61.5, "city": "Oslo", "sold": "yes", "day": "2024-02-03"}
ODD = [
    *(
        None,
        True,
        -1,
        0,
        10**30,
        10**400,
        1e308,
        "",
        "x" * 5000,
        "\ud800",
        "\x00",
        "é😀\u202e",
        [],
        [[]],
        {},
        {"a": {}},
    ),
    *([None] * 50, "NaN", "1e5", "-", "=1+1", "../../etc/passwd", "%s%n", "' or 1=1 --", "<script>", [[1, 2], [3]]),
]
KEYS = [
    "row",
    "rows",
    "columns",
    "interval",
    "quantiles",
    "density",
    "times",
    "ids",
    "follow",
    "count",
    "y",
    "outcomes",
]
ENDS = ["predict", "explain", "outcome"]
PATHS = [
    "/{}",
    "//{}",
    "/models/{}",
    "/models/numbers/../{}",
    "/models/%2e%2e/{}",
    "/models/numbers/{}/",
    "/%00{}",
    "/é/{}",
]


@pytest.fixture(scope="module")
def client(files):
    client = Client({name: files[name] for name in ("numbers", "mixed", "classes")}, rows=200, n_bytes=1 << 16)
    yield client
    client.close()


def changed(rng, body):
    """Return a body with something odd at a random place."""
    body = copy.deepcopy(body)
    holder = body
    for _ in range(rng.integers(1, 4)):
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            break
        key = keys[rng.integers(len(keys))]
        if isinstance(holder[key], dict | list) and rng.random() < 0.6:
            holder = holder[key]
            continue
        what = rng.integers(4)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, dict):
            holder[KEYS[rng.integers(len(KEYS))]] = ODD[rng.integers(len(ODD))]
        else:
            holder[key] = ODD[rng.integers(len(ODD))]
        break
    return body


def body_of(rng, name):
    row = HOUSE if name != "numbers" else {"a": 1.0, "b": 2.0, "c": 3.0}
    columns = {key: [value] * 3 for key, value in row.items()}
    options = {"interval": 0.5, "density": 3, "ids": ["1", "2", "3"], "count": False}
    bodies = [{"row": row}, {"rows": [row] * 3, **options}, {"columns": columns}, {"rows": [row], "y": [1.0]}]
    return [*bodies, {"outcomes": [{"id": "1", "y": 2.0}]}][rng.integers(5)]


def altered_bytes(rng, data):
    found = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        place = rng.integers(len(found))
        what = rng.integers(3)
        if what == 0:
            found[place] = rng.integers(256)
        elif what == 1:
            del found[place:]
        else:
            found[place:place] = rng.bytes(rng.integers(1, 5))
        if not found:
            break
    return bytes(found)


def request_of(rng):
    """Return method, address, headers and body of a request that is most likely wrong."""
    name = ["numbers", "mixed", "classes"][rng.integers(3)]
    path, kind = f"/models/{name}/{ENDS[rng.integers(3)]}", rng.integers(6)
    body = json.dumps(changed(rng, body_of(rng, name))).encode()
    headers = {"content_type": "application/json"}
    method = "POST"
    if kind == 0:
        body = altered_bytes(rng, body)
    elif kind == 1:
        path = PATHS[rng.integers(len(PATHS))].format(ENDS[rng.integers(3)])
    elif kind == 2:
        method = ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"][rng.integers(7)]
    elif kind == 3:
        headers = {"content_type": "text/csv"}
        row = HOUSE if name != "numbers" else {"a": 1.0, "b": 2.0, "c": 3.0}
        lines = [",".join(row), *[",".join(map(str, row.values()))] * 3]
        body = altered_bytes(rng, "\n".join(lines).encode())
        path += ["", "?interval=x", "?quantiles=0.5,", "?nothing=1", "?interval=%ff", "?times=-1"][rng.integers(6)]
    elif kind == 4:
        headers["content_length"] = ["0", "-1", "x", "9" * 30, "70000", ""][rng.integers(6)]
    return method, path, body, headers


def hammer(client, n, seed):
    rng = np.random.default_rng(seed)
    statuses = []
    for _ in range(n):
        method, path, body, headers = request_of(rng)
        reply = client.ask(method, path, body, headers)
        shown = (method, path, body[:300], reply)
        assert reply.status == 200 or 400 <= reply.status < 500, shown
        if reply.status >= 400:
            assert "traceback" not in reply.body.decode().lower(), shown
            said = json.loads(reply.body)
            assert method == "HEAD" or len(said.get("error", "")) > 10 or "unknown" in said, shown
        statuses.append(reply.status)
    assert np.mean(np.array(statuses) >= 400) > 0.7
    assert client.post("/predict", {"row": {"a": 1.0, "b": 2.0, "c": 3.0}}).status == 200


def test_a_thousand_malformed_requests_are_refused(client):
    hammer(client, 1_000, 0)


@pytest.mark.slow
def test_ten_thousand_malformed_requests_are_refused(client):
    hammer(client, 10_000, 1)
