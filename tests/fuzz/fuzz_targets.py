"""What is fuzzed: each target makes an altered file in a folder, and reads it as users do."""

import hashlib
import io
import json
import random
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import mutations
import numpy as np
import runs
from models import N_INPUTS, made_estimator

import mile
from mile.storage import _manifest, read_table, repair
from mile.storage._tensors import _padded, canonical, read_tensors, write_tensors

RESUMED = 0.1  # share of altered runs that are resumed, which takes most of a second
Target = Callable[[random.Random, Path], None]
TARGETS: dict[str, Target] = {}
X = np.linspace(-1.0, 1.0, 2 * N_INPUTS).reshape(2, N_INPUTS)
_good: dict[str, object] = {}


def target(function: Target) -> Target:
    TARGETS[function.__name__] = function
    return function


def prepare(folder: Path) -> None:
    """Make the files that are altered."""
    for name, classes in (("numbers", None), ("classes", ["a", "b", "c"])):
        path = folder / f"{name}.mile"
        made_estimator(classes).save(path)
        _good[name] = path.read_bytes()
    for name, stage in (("sampling", ("sampling", 4)), ("tuning", ("phase I", 4)), ("ensemble", ("ensemble", 3))):
        try:
            with runs.interrupted(*stage):
                runs.begin(folder / name)
        except mile.Interrupted:
            _good[name] = runs.contents(folder / name)
    runs.begin(folder / "finished")
    _good["finished"] = runs.contents(folder / "finished")


def _use(path: Path) -> None:
    model = mile.load(path)
    predictive = model.predictive(X) if hasattr(model, "predictive") else None
    assert predictive is not None


@target
def model_bytes(rng: random.Random, folder: Path) -> None:
    """A model file with other bytes, whose checksum does not hold."""
    path = folder / "model.mile"
    path.write_bytes(mutations.changed_bytes(rng, _good[rng.choice(("numbers", "classes"))]))
    _use(path)


@target
def model_contents(rng: random.Random, folder: Path) -> None:
    """A model file with other settings or arrays and a checksum that holds."""
    path = folder / "model.mile"
    path.write_bytes(_good[rng.choice(("numbers", "classes"))])
    arrays, metadata = read_tensors(path)
    if rng.random() < 0.5:
        metadata = mutations.changed_document(rng, metadata)
    if rng.random() < 0.6:
        arrays = mutations.changed_arrays(rng, arrays)
    write_tensors(path, arrays, metadata)
    _use(path)


@target
def model_header(rng: random.Random, folder: Path) -> None:
    """A model file whose header lies about its tensors, with a checksum that holds."""
    path = folder / "model.mile"
    data = _good[rng.choice(("numbers", "classes"))]
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    signature = header.pop("__metadata__")
    header = mutations.changed_document(rng, header)
    if isinstance(header, dict):
        unsigned = header | {"__metadata__": {"mile": signature["mile"]}}
        digest = hashlib.sha256(canonical(unsigned) + body).hexdigest()
        header |= {"__metadata__": {"mile": signature["mile"], "sha256": digest}}
    text = _padded(header)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    _use(path)


def _written(rng: random.Random, folder: Path) -> Path:
    return runs.write_contents(folder / "run", _good[rng.choice(("sampling", "tuning", "ensemble", "finished"))])


def _use_run(rng: random.Random, run: Path) -> None:
    """Load, repair and sometimes resume; each may refuse, and the next is tried all the same."""
    steps = [lambda: mile.load(run), lambda: repair(run)]
    steps += [lambda: mile.resume(run)] if rng.random() < RESUMED else []
    rng.shuffle(steps)
    refusals = []
    for step in steps:
        try:
            step()
        except ValueError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


@target
def run_bytes(rng: random.Random, folder: Path) -> None:
    """A run in which one file has other bytes, is missing, or has taken the place of another."""
    run = _written(rng, folder)
    names = sorted(runs.contents(run))
    name, other = rng.sample(names, 2)
    action = rng.random()
    if action < 0.7:
        (run / name).write_bytes(mutations.changed_bytes(rng, (run / name).read_bytes()))
    elif action < 0.85:
        (run / name).unlink()
    else:
        shutil.copyfile(run / other, run / f"{name}")
    _use_run(rng, run)


@target
def manifest(rng: random.Random, folder: Path) -> None:
    """A run whose manifest has other fields and a checksum that holds."""
    run = _written(rng, folder)
    content = json.loads((run / _manifest.NAME).read_bytes())["manifest"]
    content = mutations.changed_document(rng, content)
    (run / _manifest.NAME).write_bytes(_manifest._text(content))
    if rng.random() < 0.5:
        (run / _manifest.PREVIOUS).unlink(missing_ok=True)
    _use_run(rng, run)


@target
def record(rng: random.Random, folder: Path) -> None:
    """A run in which some files of tensors are altered, with checksums that hold."""
    run = _written(rng, folder)
    names = sorted(name for name in runs.contents(run) if name.endswith(".safetensors"))
    for name in rng.sample(names, rng.choice((1, 1, 2))):
        arrays, metadata = read_tensors(run / name)
        if rng.random() < 0.4:
            metadata = mutations.changed_document(rng, metadata)
        else:
            arrays = mutations.changed_arrays(rng, arrays)
        write_tensors(run / name, arrays, metadata)
    content = json.loads((run / _manifest.NAME).read_bytes())["manifest"]
    for name, entry in content["files"].items():
        data = (run / name).read_bytes()
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (run / _manifest.NAME).write_bytes(_manifest._text(content))
    _use_run(rng, run)


def _read(path: Path) -> None:
    table = read_table(path)
    assert len(table.columns) == len(table.arrays)
    table.matrix(table.columns[:3], with_gaps=True)


TEXT = b"""age,city,height,when,code
31,Oslo,1.5,2020-01-01,01
,Rome,2.5,2020-02-03,02
40,,1e3,,
51,Bern,-2,2021-01-01,7
"""


@target
def text_table(rng: random.Random, folder: Path) -> None:
    """A text file: other delimiters, quotes, encodings, lines, packed or not."""
    text = TEXT.replace(b",", rng.choice((b",", b";", b"\t", b"|"))) * rng.choice((1, 1, 3))
    data = mutations.changed_bytes(rng, text)
    suffix = rng.choice((".csv", ".tsv", ".txt", ".csv.gz", ".csv.zst", ".csv"))
    if suffix.endswith(".gz"):
        import gzip

        data = mutations.changed_bytes(rng, gzip.compress(data, mtime=0)) if rng.random() < 0.5 else gzip.compress(data)
    path = folder / f"table{suffix}"
    path.write_bytes(data)
    _read(path)


@target
def lines_table(rng: random.Random, folder: Path) -> None:
    """JSON lines."""
    rows = [{"a": 1, "b": "x", "c": None}, {"a": 2.5, "b": "y", "c": True}, {"a": -3, "b": "z", "c": False}]
    data = "\n".join(json.dumps(mutations.changed_document(rng, row)) for row in rows).encode()
    path = folder / "table.jsonl"
    path.write_bytes(mutations.changed_bytes(rng, data) if rng.random() < 0.5 else data)
    _read(path)


@target
def npz_table(rng: random.Random, folder: Path) -> None:
    """NPZ: other arrays, members that are there twice, headers that lie, other bytes."""
    arrays = {"X": np.arange(12.0).reshape(4, 3), "y": np.arange(4), "z": np.array(["a", "b", "", "d"])}
    texts = {"z": arrays.pop("z")}
    arrays = mutations.changed_arrays(rng, arrays) | (texts if rng.random() < 0.5 else {})
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", rng.choice((0, 8))) as archive:
        warnings.simplefilter("ignore")
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array)
            data = member.getvalue()
            if rng.random() < 0.2:
                data = mutations.changed_bytes(rng, data[:128]) + data[128:]
            for _ in range(1 + (rng.random() < 0.05)):
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), data)
    data = buffer.getvalue()
    path = folder / "table.npz"
    path.write_bytes(mutations.changed_bytes(rng, data) if rng.random() < 0.5 else data)
    _read(path)


@target
def arrow_table(rng: random.Random, folder: Path) -> None:
    """Parquet and Feather files with other bytes."""
    import pyarrow as pa
    from pyarrow import feather, parquet

    columns = {"a": [1, 2, None], "b": ["x", None, "z"], "c": [0.5, float("nan"), 1.5], "d": [True, False, None]}
    table, buffer = pa.table(columns), io.BytesIO()
    is_parquet = rng.random() < 0.6
    if is_parquet:
        parquet.write_table(table, buffer, compression=rng.choice(("none", "snappy", "gzip")))
    else:
        feather.write_feather(table, buffer, compression=rng.choice(("uncompressed", "lz4")))
    path = folder / ("table.parquet" if is_parquet else "table.feather")
    path.write_bytes(mutations.changed_bytes(rng, buffer.getvalue()))
    _read(path)
