"""What the addresses of a service answer."""

import json
import os
import time

import numpy as np
import pytest

pytest.importorskip("fastapi")
from services import Client, unnamed

import mile

HOUSE = {"size": 61.5, "city": "Oslo", "sold": "yes", "day": "2024-02-03"}


@pytest.fixture(scope="module")
def client(files):
    client = Client(files)
    yield client
    client.close()


@pytest.fixture
def numbers(files, tmp_path):
    """The light model alone, with a state on disk."""
    client = Client({"numbers": files["numbers"]}, tmp_path)
    yield client
    client.close()


def test_numbers_are_those_of_the_estimator(client, files):
    model = unnamed(files["numbers"])
    rows = np.random.default_rng(0).normal(size=(5, 3))
    records = [dict(zip("abc", row.tolist(), strict=True)) for row in rows]
    asked = {"interval": 0.8, "quantiles": [0.25, 0.5], "density": 20}
    found = client.post("/predict", {"rows": records, **asked}).json["predictions"]
    by_column = client.post("/predict", {"columns": {key: rows[:, i].tolist() for i, key in enumerate("abc")}, **asked})
    assert by_column.json["predictions"] == found
    predictive = model.predictive(rows)
    wanted = predictive.columns(0.8, (0.25, 0.5))
    for name, column in wanted.items():
        assert np.allclose([one[name] for one in found], column, rtol=1e-4, atol=1e-4 * predictive.std.max()), name
    curve = found[2]["density"]
    many = model.predictive(np.repeat(rows[2:3], 20, axis=0))
    assert np.allclose(curve["density"], np.exp(many.log_prob(np.array(curve["y"]))), rtol=1e-3)
    assert np.trapezoid(curve["density"], curve["y"]) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("name", ["mixed", "classes", "counts", "times"])
def test_every_kind_of_model_predicts_explains_and_describes_itself(client, files, name):
    path, model = f"/models/{name}", mile.load(files[name])
    schema = client.get(f"{path}/schema").json
    row = HOUSE if name in ("mixed", "classes") else {"x0": 0.1, "x1": -0.3, "x2": 2.0}
    assert set(schema["typical_row"]) == set(row) == set(schema["row"]["required"])
    reply = client.post(f"{path}/predict", {"row": row, "density": True} if schema["has_density"] else {"row": row})
    assert reply.status == 200, reply.body
    found = reply.json["predictions"][0]
    curve = found.pop("density", None)
    assert (curve is not None) == (name != "classes")
    if name == "counts":
        assert curve["y"] == list(map(float, range(len(curve["y"]))))
        assert sum(curve["density"]) == pytest.approx(1.0, abs=0.02)
    X = {key: [value] for key, value in row.items()} if name in ("mixed", "classes") else [list(row.values())]
    for key, column in model.predictive(X).columns().items():
        value = column.tolist()[0]
        assert found[key] == (pytest.approx(value, rel=1e-5) if not isinstance(value, str) else value), key
    explained = client.post(f"{path}/explain", {"row": row}).json
    assert {effect["column"] for effect in explained["effects"]} == set(row)
    firsts = [abs(next(iter(effect["change"].values()))) for effect in explained["effects"]]
    assert firsts == sorted(firsts, reverse=True)
    same = client.post(f"{path}/explain", {"row": schema["typical_row"]}).json
    for effect in same["effects"]:
        assert all(abs(change) < 1e-5 for change in effect["change"].values() if change is not None)


def test_gaps_and_new_texts_are_taken_with_a_remark(client):
    reply = client.post("/models/mixed/predict", {"row": HOUSE | {"size": None, "city": "Paris", "color": 3}})
    assert reply.status == 200
    assert "color" in reply.json["remarks"][0]
    assert "city" in reply.json["remarks"][1]


def test_a_table_as_csv_comes_back_as_csv(client):
    text = "city;sold;day;size\nOslo;yes;2024-01-02;50\nRome;no;2024-01-03;\n"
    reply = client.csv("/models/mixed/predict?interval=0.5&quantiles=0.1", text)
    assert reply.headers["content-type"].startswith("text/csv")
    lines = reply.body.decode().splitlines()
    assert lines[0] == "mean,std,lower_50,upper_50,q0.1"
    assert len(lines) == 3
    as_json = client.ask(
        "POST", "/models/classes/predict", text.encode(), {"content_type": "text/csv", "accept": "application/json"}
    )
    assert {"label", "p_low", "p_high"} <= set(as_json.json["predictions"][0])


WRONG = [
    ("numbers", {"row": {"a": 1, "b": "x", "c": 3}}, 422, ["row 0", "'b'", "'x'"]),
    ("numbers", {"rows": [{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2}]}, 422, ["row 1", "'c'"]),
    ("numbers", {"columns": {"a": [1, 2], "b": [1], "c": [1, 2]}}, 422, ["'b'", "1", "2"]),
    ("numbers", {"row": {"a": 1, "b": 2, "c": 3}, "interval": 2}, 422, ["interval"]),
    ("numbers", {"row": {"a": 1, "b": 2, "c": 3}, "intervall": 0.5}, 422, ["intervall"]),
    ("numbers", {"row": {"a": 1, "b": 2, "c": 10**400}}, 422, ["row 0", "'c'", "too large"]),
    ("numbers", {"row": {"a": 1, "b": 2, "c": True}}, 422, ["row 0", "'c'", "True"]),
    ("numbers", {"row": {"a": 1, "b": 2, "c": 3}, "times": [1]}, 422, ["times"]),
    ("numbers", {"rows": []}, 422, ["no rows"]),
    ("numbers", [1], 400, ["object"]),
    ("numbers", b"{", 400, ["JSON"]),
    ("numbers", b'{"row": {"a": NaN}}', 400, ["NaN"]),
    ("numbers", b"[" * 100_000, 400, ["nested"]),
    ("numbers", b"\xff", 400, ["UTF-8"]),
    ("mixed", {"row": HOUSE | {"day": "yesterday"}}, 422, ["row 0", "'day'", "yesterday"]),
    ("mixed", {"row": HOUSE | {"size": "big"}}, 422, ["row 0", "'size'", "big"]),
    ("mixed", {"row": HOUSE | {"city": ["Oslo"]}}, 422, ["row 0", "'city'"]),
    ("classes", {"row": HOUSE, "density": True}, 422, ["probabilities"]),
    ("classes", {"row": HOUSE, "quantiles": [0.5]}, 422, ["quantiles"]),
    ("nothing", {"row": {}}, 404, ["numbers, mixed"]),
]


def test_what_is_wrong_is_named(client):
    for name, body, status, words in WRONG:
        reply = client.post(f"/models/{name}/predict", body)
        assert reply.status == status, (body, reply.body)
        assert all(word in reply.json["error"] for word in words), reply.body
    for text, words in (
        ("a,b\n1,2\n", ["'c'", "missing"]),
        ("a,b,c\n1,2\n", ["row 0", "2 cells"]),
        ("a,a\n", ["twice"]),
    ):
        reply = client.csv("/predict", text)
        assert 400 <= reply.status < 500
        assert all(word in reply.json["error"] for word in words)
    reply = client.csv("/predict", "a,b,c\n1,2,3\n1,2,three\n")
    assert "row 1, column 'c'" in reply.json["error"]


def test_other_addresses_and_methods_are_refused(client):
    for path in (
        "/../etc/passwd",
        "/models/..%2f..%2fetc/predict",
        "/models//predict",
        "/predict/",
        "/page.js/..",
        "/%00",
    ):
        assert client.post(path, {}).status in (404, 405)
        assert client.get(path).status in (404, 405), path
    assert client.get("/predict").status == 405


def test_limits_hold(files):
    client = Client({"numbers": files["numbers"]}, rows=2, n_bytes=200, waiting=1)
    row = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert client.post("/predict", {"rows": [row] * 2}).status == 200
    assert client.post("/predict", {"rows": [row] * 3}).status == 413
    assert client.csv("/predict", "a,b,c\n" + "1,2,3\n" * 3).status == 413
    assert client.post("/predict", b" " * 201).status == 413
    assert client.post("/predict", b" " * 201, content_length="3").status == 413
    assert client.post("/predict", {"row": row}, content_length="-1").status == 400
    assert client.post("/predict", {"row": row}, content_encoding="gzip").status == 415
    replies = client.loop.run_until_complete(client.all(*[("/predict", {"row": row})] * 3))
    assert sorted(reply.status for reply in replies) == [200, 429, 429]
    client.close()
    slow = Client({"numbers": files["numbers"]}, seconds=0.05)
    loaded = slow.models.default.loaded
    loaded.gatherer._cost = loaded.gatherer._cost._replace(first=1.0)  # so that it goes to a thread
    answers, columns = loaded.answers, loaded.answers.columns
    answers.columns = lambda x, options: time.sleep(0.3) or columns(x, options)
    reply = slow.post("/predict", {"row": row})
    assert reply.status == 503
    assert "0.05 seconds" in reply.json["error"]
    slow.close()


def test_a_token_is_asked_of_all_that_tell_of_the_model(files):
    client = Client({"numbers": files["numbers"]}, token="secret")
    for path in ("/schema", "/drift", "/models", "/metrics", "/openapi.json", "/models/numbers/schema"):
        assert client.get(path).status == 401, path
        assert client.get(path, authorization="Bearer secre").status == 401
        assert client.get(path, authorization="Bearer s\xe9cret").status == 401
        assert client.get(path, authorization="Bearer secret").status == 200
    assert client.post("/predict", {}).headers["www-authenticate"] == "Bearer"
    for path in ("/", "/page.js", "/page.css", "/health"):
        assert client.get(path).status == 200
    client.close()


def test_pages_of_other_sites_may_not_ask(client):
    body = {"row": {"a": 1, "b": 2, "c": 3}}
    assert client.post("/predict", body, sec_fetch_site="cross-site").status == 403
    assert client.post("/predict", body, sec_fetch_site="same-origin").status == 200
    assert client.get("/", sec_fetch_site="cross-site").status == 200  # a link


def test_the_page_may_load_nothing_from_elsewhere(client):
    for path in ("/", "/page.js", "/page.css"):
        reply = client.get(path)
        assert reply.status == 200
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert b"http" not in reply.body.replace(b"http://www.w3.org/2000/svg", b"").replace(b"http-equiv", b"")


def test_openapi_names_the_columns(client):
    paths = client.get("/openapi.json").json["paths"]
    schema = paths["/models/mixed/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["row"]["required"] == list(HOUSE)
    assert schema["properties"]["row"]["properties"]["city"]["examples"] == ["Bern", "Oslo", "Rome"]
    assert "/predict" in paths
    assert "/models/times/explain" in paths


def test_metrics_count_what_happened(numbers):
    numbers.post("/predict", {"rows": [{"a": 1, "b": 2, "c": 3}] * 4})
    numbers.post("/predict", b"{")
    numbers.get("/models/x/y/z?\n")
    text = numbers.get("/metrics").body.decode()
    for line in (
        'mile_requests_total{endpoint="/predict",status="200"} 1',
        'mile_errors_total{endpoint="/predict",status="400"} 1',
        'mile_requests_total{endpoint="other",status="404"} 1',
        'mile_rows_total{model="numbers"} 4',
        'mile_request_seconds_count{endpoint="/predict"} 2',
        'mile_outside_ratio{model="numbers",column="a"} 0.0',
    ):
        assert line in text.splitlines(), text


def test_requests_at_once_get_the_answers_of_requests_alone(client):
    for model in ("numbers", "counts"):
        names = client.get(f"/models/{model}/schema").json["row"]["required"]
        rows = [dict(zip(names, row, strict=True)) for row in np.random.default_rng(3).normal(size=(20, 3)).tolist()]
        asked = [
            (f"/models/{model}/predict", {"row": row, "interval": 0.5 + 0.1 * (place % 2)})
            for place, row in enumerate(rows)
        ]
        together = client.loop.run_until_complete(client.all(*asked))
        for (path, body), reply in zip(asked, together, strict=True):
            alone = client.post(path, body).json["predictions"][0]
            assert reply.json["predictions"][0] == pytest.approx(alone, rel=1e-6)


def test_a_changed_file_is_taken_over_and_a_damaged_one_is_not(files, tmp_path):
    path = tmp_path / "model.mile"
    path.write_bytes(files["numbers"].read_bytes())
    client = Client({"model": path}, tmp_path, reloads=True)
    row = {"row": {"a": 1, "b": 2, "c": 3}}
    before = client.post("/predict", row).json

    def look():
        for _ in range(2):  # a file counts as written once two looks find the same
            client.loop.run_until_complete(client.models.look(_in_thread))
        return client.post("/predict", row).json

    path.write_bytes(b"not a model")
    assert look() == before
    health = client.get("/health").json
    assert health["status"] == "degraded"
    assert "cannot be used" in health["models"]["model"]["trouble"][0]
    path.unlink()
    assert look() == before
    text = "x0,x1,x2\n1,2,3\n"
    path.write_bytes(files["counts"].read_bytes())
    os.utime(path, ns=(1, 1))
    client.loop.run_until_complete(client.models.look(_in_thread))
    client.loop.run_until_complete(client.models.look(_in_thread))
    assert client.get("/health").json["status"] == "ok"
    assert client.csv("/predict", text).status == 200
    assert client.get("/drift").json["rows"] == 1
    assert client.get("/schema").json["version"] != before["version"]
    client.close()


async def _in_thread(function, *arguments):
    return function(*arguments)


def test_json_has_no_numbers_that_json_lacks(client):
    reply = client.post("/models/times/predict", {"row": {"x0": 1e6, "x1": -1e6, "x2": 1e6}})
    assert reply.status == 200
    json.loads(reply.body, parse_constant=pytest.fail)
