"""What a service remembers: drift, rows that are followed, outcomes; also after it was killed."""

import numpy as np
import pytest

pytest.importorskip("fastapi")
from services import Client, unnamed

import mile
from mile import CorruptFileError, RunLockedError
from mile.service import memory
from mile.service.drift import Drift

HOUSE = {"size": 61.5, "city": "Oslo", "sold": "yes", "day": "2024-02-03"}
ROW = {"a": 0.1, "b": 0.2, "c": 0.3}


def column_of(report, name):
    return next(column for column in report["columns"] if column["column"] == name)


@pytest.fixture
def client(files, tmp_path):
    client = Client(files, tmp_path)
    yield client
    client.close()


def test_rows_outside_the_training_range_are_counted(client):
    rows = [HOUSE | {"size": 1e4, "day": "1999-01-01"}, HOUSE | {"city": "Paris"}, HOUSE | {"size": None}, HOUSE]
    client.post("/models/mixed/predict", {"rows": rows})
    client.post("/models/mixed/predict", {"rows": rows, "count": False})
    report = client.get("/models/mixed/drift").json
    assert report["rows"] == 4
    found = {name: column_of(report, name) for name in HOUSE}
    assert found["size"]["outside"] == pytest.approx(1 / 3)
    assert found["size"]["missing"] == 0.25
    assert found["city"]["outside"] == found["day"]["outside"] == 0.25
    assert found["sold"]["outside"] == 0.0
    client.post("/predict", {"rows": [ROW | {"a": 1e3}, ROW]})
    assert column_of(client.get("/drift").json, "a")["outside"] == 0.5


def test_the_stability_index_tells_rows_as_in_training_from_others(files, client):
    encoder = mile.load(files["mixed"]).fit_.encoder
    facts = encoder.facts(None, encoder.n_features)
    city = next(one for one in facts if one.name == "city")
    assert sum(city.shares) == pytest.approx(1.0, abs=1e-5)
    rng = np.random.default_rng(0)
    size = next(one for one in facts if one.name == "size")

    def index(shares, shift):
        drift = Drift(facts)
        cells = {"size": [*(size.center + shift + rng.uniform(-5, 5, 900)), *[None] * 100]}
        cells |= {"city": rng.choice(city.levels, 1000, p=shares).tolist(), "sold": ["yes", "no"] * 500}
        drift.add(drift.places(cells | {"day": ["2024-02-03"] * 1000}))
        return {name: column_of(drift.report(), name)["stability_index"] for name in ("size", "city")}

    same, other = index(np.array(city.shares) / sum(city.shares), 0.0), index([0.9, 0.05, 0.05], 15.0)
    assert max(same.values()) < 0.05
    assert min(other.values()) > 0.25


def test_outcomes_are_judged_once(client):
    reply = client.post("/predict", {"rows": [ROW, ROW], "ids": ["one", "two"]})
    assert reply.json["ids"] == ["one", "two"]
    made = client.post("/predict", {"row": ROW, "follow": True}).json["ids"][0]
    asked = {"outcomes": [{"id": one, "y": 1.0} for one in ("one", "nobody", made, "one")]}
    assert client.post("/outcome", asked).json | {"model": ""} == {
        "model": "",
        "accepted": 2,
        "unknown": ["nobody"],
        "repeated": ["one"],
    }
    assert client.post("/outcome", asked).json["repeated"] == ["one", made, "one"]
    assert client.csv("/outcome", "id,y\ntwo,2.5\n").json["accepted"] == 1
    assert client.csv("/outcome", "id,y\nnobody,2.5\n").status == 404
    assert client.csv("/models/counts/outcome", "x0,x1,x2,y\n0,1,2,3\n0,1,2,4\n").json["accepted"] == 2
    assert client.get("/drift").json["outcomes"] == 3
    for body in (
        {"outcomes": [{"id": "one"}]},
        {"outcomes": []},
        {"row": ROW, "y": ["x"]},
        {"row": ROW},
        {"row": ROW, "y": [10**400]},
    ):
        assert client.post("/outcome", body).status == 422, body


def test_the_distribution_of_pit_tells_right_predictions_from_wrong_ones(files, tmp_path):
    model = unnamed(files["numbers"])
    X = np.random.default_rng(0).normal(size=(400, 3))
    right = model.predictive(X).sample(1, 0)[0]
    columns = dict(zip("abc", X.T.tolist(), strict=True))
    for y, is_right in ((right, True), (right + 2 * model.predictive(X).std, False)):
        client = Client({"numbers": files["numbers"]}, tmp_path / str(is_right))
        assert client.post("/outcome", {"columns": columns, "y": y.tolist()}).json["accepted"] == 400
        found = client.get("/drift").json["pit"]
        assert sum(found["histogram"]) == 400
        assert (found["p_value"] > 1e-6) == is_right  # false one time in a million
        client.close()


def test_classes_are_judged_by_their_probability(client):
    rows = {"columns": {name: [value] * 50 for name, value in HOUSE.items()}}
    predicted = client.post("/models/classes/predict", {"row": HOUSE}).json["predictions"][0]
    other = {"low": "high", "high": "low"}[predicted["label"]]
    client.post("/models/classes/outcome", {**rows, "y": [predicted["label"]] * 25 + [other] * 25})
    found = client.get("/models/classes/drift").json["classes"]
    assert found["hits"] == 25
    assert found["expected_hits"] == pytest.approx(50 * predicted["probability"], rel=1e-5)
    assert client.post("/models/classes/outcome", {**rows, "y": ["middle"] * 50}).status == 422


def test_nothing_that_was_confirmed_is_lost_without_a_farewell(files, tmp_path):
    """As after kill -9: the second service reads what the first one had written when it answered."""
    first = Client({"numbers": files["numbers"]}, tmp_path)
    first.post("/predict", {"rows": [ROW] * 3, "ids": ["one", "two", "three"]})
    first.post("/outcome", {"outcomes": [{"id": "two", "y": 1.0}]})
    before = first.get("/drift").json
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RunLockedError, match="--state"):
        Client({"numbers": files["numbers"]}, tmp_path)
    folder = tmp_path / "after"
    folder.mkdir()
    for name, data in kept.items():
        torn = b'{"rows":[[1,' if name.endswith(".journal") else b""  # a line that was never confirmed
        (folder / name).write_bytes(data + torn)
    for _ in range(2):
        second = Client({"numbers": files["numbers"]}, folder)
        assert second.get("/drift").json == before
        second.models.default.memory._journal.close()  # without a snapshot
        second.loop.close()
    third = Client({"numbers": files["numbers"]}, folder)
    found = third.post("/outcome", {"outcomes": [{"id": one, "y": 1.0} for one in ("one", "two", "three")]}).json
    assert (found["accepted"], found["repeated"]) == (2, ["two"])
    third.close()
    first.close()
    (folder / "numbers.json").write_text("{")
    with pytest.raises(CorruptFileError, match="move it away"):
        Client({"numbers": files["numbers"]}, folder)


def test_what_it_remembers_is_bounded(files, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "MOST_FOLLOWED", 5)
    monkeypatch.setattr(memory, "MOST_JUDGED", 3)
    monkeypatch.setattr(memory, "_LONGEST_JOURNAL", 200)
    client = Client({"numbers": files["numbers"]}, tmp_path)
    for start in range(0, 30, 3):
        ids = [f"row {start + place}" for place in range(3)]
        client.post("/predict", {"rows": [ROW] * 3, "ids": ids})
        client.post("/outcome", {"outcomes": [{"id": ids[0], "y": 1.0}]})
    assert client.get("/drift").json["followed"] == 4  # of five, one was judged
    assert len(client.models.default.memory._judged) == 3
    journal = [path for path in tmp_path.iterdir() if path.suffix == ".journal"]
    assert len(journal) == 1
    assert journal[0].stat().st_size < 1000
    client.close()


def test_a_full_disk_is_said_and_predictions_go_on(files, tmp_path, monkeypatch):
    client = Client({"numbers": files["numbers"]}, tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("mile.storage._journal.os.write", full)
        assert client.post("/predict", {"row": ROW}).status == 200
        assert client.get("/health").json["status"] == "degraded"
        assert client.post("/predict", {"row": ROW, "ids": ["one"]}).status == 503
        assert client.post("/outcome", {"row": ROW, "y": [1.0]}).status == 503
    assert client.post("/predict", {"row": ROW, "ids": ["one"]}).status == 200
    assert client.get("/health").json["status"] == "ok"
    client.close()
