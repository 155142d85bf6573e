"""Files from anywhere: refused with a reason, before they can cost anything or make anything happen (RELIABILITY F)."""

import contextlib
import copy
import gzip
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import time
import tracemalloc
import zipfile
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from cases import case
from models import N_CHAINS, N_DRAWS, N_INPUTS, made_estimator

import mile
from mile import CorruptFileError, FanIn, MileRegressor, PerLayer, UntrustedFileError
from mile.configuration import describe
from mile.storage import _manifest
from mile.storage._tensors import _padded, canonical, read_tensors, write_tensors

REFUSALS = (CorruptFileError, UntrustedFileError)
LONGEST = 2.0  # seconds for one file; the slowest takes 0.3
MEMORY = 100 << 20  # bytes beyond twice the size of the file
X = np.random.default_rng(0).standard_normal((7, N_INPUTS))
CLASSES = ["high", "low", "middle"]


# Files to start from


@cache
def contents(classes=None):
    """Return arrays and metadata of a good file."""
    folder = Path(os.environ["XDG_CACHE_HOME"])  # of this test process; see tests/conftest.py
    path = folder / f"good-{bool(classes)}.mile"
    made_estimator(None if classes is None else list(classes)).save(path)
    return read_tensors(path)


def good(classes=None):
    arrays, metadata = contents(classes)
    return {name: array.copy() for name, array in arrays.items()}, copy.deepcopy(metadata)


def evil(path):
    """Return Python that creates a file beside `path`."""
    return f"open({str(canary(path))!r}, 'w').close()"


def canary(path):
    return path.parent / "canary"


class Payload:
    def __init__(self, path):
        self.command = evil(path)

    def __reduce__(self):
        return exec, (self.command,)


def write_raw(path, header, data=b"", length=None):
    """Write a file from the text of its header."""
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + data)


def write_signed(path, entries, data=b"", text=None):
    """Write entries as they are with a checksum that holds; `text` is the metadata."""
    text = canonical(contents().metadata).decode() if text is None else text
    header = entries | {"__metadata__": {"mile": text}}
    digest = hashlib.sha256(canonical(header) + data).hexdigest()
    write_raw(path, _padded(entries | {"__metadata__": {"mile": text, "sha256": digest}}), data)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


CORPUS = {}


def hostile(function):
    CORPUS[function.__name__] = function
    return function


def add(name, function):
    assert name not in CORPUS, name
    CORPUS[name] = function


# Other kinds of files


@hostile
def pickled(path):
    path.write_bytes(pickle.dumps(Payload(path)))


@hostile
def pickled_object_array(path):
    with path.open("wb") as file:
        np.save(file, np.array([Payload(path)], object), allow_pickle=True)


@hostile
def pickled_object_array_in_an_archive(path):
    with path.open("wb") as file:
        np.savez(file, draws=np.array([Payload(path)], object))


@hostile
def zip_that_leaves_its_folder(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../canary", "here")
        archive.writestr(str(canary(path)), "here")


@hostile
def zip_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("draws.npy", "w") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))


@hostile
def gzip_bomb(path):
    path.write_bytes(gzip.compress(bytes(1 << 26), 9))


@hostile
def python_source(path):
    path.write_text(f"import os\n{evil(path)}\n")


@hostile
def yaml_tag(path):
    path.write_text(f"!!python/object/apply:builtins.exec [{evil(path)!r}]\n")


@hostile
def json_only(path):
    path.write_bytes(canonical(contents().metadata))


@hostile
def another_program_s_safetensors(path):
    safetensors.numpy.save_file({"draws": np.zeros((2, 3), np.float32)}, path)


for _name, _bytes in {
    "empty": b"",
    "one_byte": b"\x00",
    "ten_bytes": b"\x02" + bytes(7) + b"{}",
    "wrong_magic_hdf5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "wrong_magic_elf": b"\x7fELF" + bytes(100),
    "only_zeros": bytes(1 << 16),
    "only_ones": b"\xff" * (1 << 16),
}.items():
    add(_name, lambda path, text=_bytes: path.write_bytes(text))


# Things that are not files


@hostile
def link_to_another_file(path):
    secret = path.with_name("secret.txt")
    secret.write_text("user:x:0:0\n" * 10)
    path.symlink_to(secret)


@hostile
def link_to_a_folder(path):
    path.with_name("elsewhere").mkdir()
    path.symlink_to(path.with_name("elsewhere"))


@hostile
def link_to_an_endless_device(path):
    path.symlink_to("/dev/zero")


@hostile
def link_to_nothing(path):
    path.symlink_to(path.with_name("nothing"))


@hostile
def pipe(path):
    os.mkfifo(path)


@hostile
def folder(path):
    path.mkdir()


@hostile
def folder_with_a_pickle_for_a_manifest(path):
    path.mkdir()
    (path / "MANIFEST.json").write_bytes(pickle.dumps(Payload(path)))


@hostile
def folder_with_a_pipe_for_a_manifest(path):
    path.mkdir()
    os.mkfifo(path / "MANIFEST.json")


@hostile
def folder_with_an_endless_manifest(path):
    path.mkdir()
    (path / "MANIFEST.json").symlink_to("/dev/zero")


# Headers


def _sparse(path, length, size):
    with path.open("wb") as file:
        file.write(length.to_bytes(8, "little"))
        file.truncate(size)


add("header_of_2_to_the_63", partial(_sparse, length=1 << 63, size=1000))
add("header_of_2_to_the_64_less_one", partial(_sparse, length=(1 << 64) - 1, size=1000))
add("header_longer_than_the_file", partial(_sparse, length=1000, size=500))
add("header_of_200_megabytes", partial(_sparse, length=200 << 20, size=300 << 20))
add("header_just_too_long", partial(_sparse, length=(1 << 20) + 1, size=2 << 20))
add("header_of_zeros", partial(_sparse, length=1 << 20, size=2 << 20))

_DEEP = 100_000
for _name, _text in {
    "header_not_utf8": b'{"\xff\xfe":1}',
    "header_a_list": b"[1,2,3]",
    "header_a_number": b"7       ",
    "header_cut": b'{"__metadata__":{"mile"',
    "header_deep_lists": b"[" * _DEEP + b"]" * _DEEP,
    "header_deep_objects": b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    "header_deep_and_open": b"[" * (1 << 20),
    "header_nan": b'{"a":NaN}',
    "header_infinity": b'{"a":-Infinity}',
    "header_overflowing_float": b'{"a":1e999}',
    "header_huge_integer": b'{"a":' + b"9" * 500_000 + b"}",
    "header_name_twice": b'{"a":1,"a":2}',
    "header_no_metadata": canonical({"a": entry(offsets=(0, 8))}),
    "header_metadata_a_list": b'{"__metadata__":[]}',
    "header_metadata_of_numbers": b'{"__metadata__":{"mile":1,"sha256":2}}',
    "header_metadata_with_more": b'{"__metadata__":{"mile":"{}","sha256":"0","os:system":"x"}}',
}.items():
    add(_name, lambda path, text=_text: write_raw(path, text, bytes(8)))


for _name, _text in {
    "metadata_a_list": "[]",
    "metadata_a_word": '"os:system"',
    "metadata_not_json": "os.system('x')",
    "metadata_name_twice": '{"format":1,"format":1}',
    "metadata_nan": '{"format":NaN}',
    "metadata_infinity": '{"format":Infinity}',
    "metadata_overflowing_float": '{"format":1e999}',
    "metadata_deep": '{"format":' + "[" * _DEEP + "]" * _DEEP + "}",
    "metadata_rather_deep": '{"format":' + "[" * 900 + "]" * 900 + "}",
    "metadata_huge_integer": '{"format":' + "9" * 100_000 + "}",
    "metadata_large_integer": '{"format":' + "9" * 4000 + "}",
    "metadata_lone_surrogate": '{"format":"\ud800"}',
    "metadata_empty": "{}",
    "metadata_yaml": "!!python/object/apply:os.system ['true']",
}.items():
    add(_name, lambda path, text=_text: write_signed(path, {}, text=text))


@hostile
def header_with_other_spaces(path):
    write_tensors(path, *good())
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    text = json.dumps(json.loads(data[8 : 8 + length])).encode()
    write_raw(path, text, data[8 + length :])


# Tensors, with a checksum that holds

for _name, (_entries, _n_bytes) in {
    "shape_negative": ({"a": entry(shape=(-1, -2))}, 8),
    "shape_of_booleans": ({"a": entry(shape=(True, 2))}, 8),
    "shape_of_floats": ({"a": entry(shape=(2.0,))}, 8),
    "shape_of_words": ({"a": entry(shape=("2",))}, 8),
    "shape_overflowing": ({"a": entry(shape=(1 << 61, 8))}, 8),
    "shape_overflowing_to_the_right_size": ({"a": entry(shape=(1 << 32, 1 << 32, 1 << 32))}, 8),
    "shape_huge_and_empty": ({"a": entry(shape=(0, 1 << 61), offsets=(0, 0))}, 0),
    "shape_beyond_any_integer": ({"a": entry(shape=(10**30,))}, 8),
    "shape_of_nine_axes": ({"a": entry(shape=(1,) * 8 + (2,))}, 8),
    "shape_a_number": ({"a": entry() | {"shape": 2}}, 8),
    "offsets_negative": ({"a": entry(offsets=(-8, 0))}, 8),
    "offsets_reversed": ({"a": entry(offsets=(8, 0))}, 8),
    "offsets_out_of_range": ({"a": entry(offsets=(1 << 40, (1 << 40) + 8))}, 8),
    "offsets_beyond_the_end": ({"a": entry(offsets=(4, 12))}, 8),
    "offsets_of_floats": ({"a": entry(offsets=(0.0, 8.0))}, 8),
    "offsets_too_many": ({"a": entry(offsets=(0, 8, 8))}, 8),
    "offsets_overlapping": ({"a": entry(), "b": entry(offsets=(4, 12))}, 12),
    "offsets_twice_the_same": ({"a": entry(), "b": entry()}, 8),
    "offsets_with_a_gap": ({"a": entry(), "b": entry(offsets=(16, 24))}, 24),
    "offsets_not_from_the_start": ({"a": entry(offsets=(8, 16))}, 16),
    "offsets_not_aligned": ({"a": entry("U8", (1,), (0, 1)), "b": entry(offsets=(1, 9))}, 9),
    "data_left_over": ({"a": entry()}, 16),
    "data_without_tensors": ({}, 8),
    "dtype_of_objects": ({"a": entry("O")}, 8),
    "dtype_of_numpy": ({"a": entry("<f4")}, 8),
    "dtype_module_path": ({"a": entry("os:system")}, 8),
    "dtype_half": ({"a": entry("F16", (4,))}, 8),
    "dtype_a_list": ({"a": entry(["F32"])}, 8),
    "entry_a_list": ({"a": []}, 0),
    "entry_without_shape": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, 8),
    "entry_with_more": ({"a": entry() | {"loader": "os:system"}}, 8),
    "too_many_tensors": ({f"{number:x}": entry(shape=(0,), offsets=(0, 0)) for number in range(10_001)}, 0),
    "many_empty_tensors": ({f"{number:x}": entry(shape=(0,), offsets=(0, 0)) for number in range(9_000)}, 0),
}.items():
    add(_name, lambda path, entries=_entries, n_bytes=_n_bytes: write_signed(path, entries, bytes(n_bytes)))


add("boolean_that_is_neither", lambda path: write_signed(path, {"a": entry("BOOL", (2,), (0, 2))}, b"\x01\x02"))


# Damage: the checksum does not hold


def _damaged(path, damage):
    write_tensors(path, *good())
    path.write_bytes(damage(path.read_bytes()))


def _flipped(place):
    return lambda data: data[: (at := int(place * len(data)))] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _other_checksum(data):
    at = data.index(b'"sha256":"') + 10
    return data[:at] + b"0" * 64 + data[at + 64 :]


def _upper_checksum(data):
    at = data.index(b'"sha256":"') + 10
    return data[:at] + data[at : at + 64].upper() + data[at + 64 :]


for _name, _damage in {
    "cut_by_a_byte": lambda data: data[:-1],
    "cut_in_half": lambda data: data[: len(data) // 2],
    "cut_to_the_header": lambda data: data[: 8 + int.from_bytes(data[:8], "little")],
    "longer_by_a_byte": lambda data: data + b"\0",
    "bit_flipped_in_the_header": _flipped(0.2),
    "bit_flipped_in_the_data": _flipped(0.9),
    "last_bit_flipped": _flipped(1 - 1e-9),
    "another_checksum": _other_checksum,
    "checksum_in_capitals": _upper_checksum,
    "a_weight_changed": lambda data: data[:-4] + np.float32(7.0).tobytes(),
    "one_file_after_another": lambda data: data + data,
}.items():
    add(_name, partial(_damaged, damage=_damage))


# Altered by somebody who knows the format: the checksum holds


def altered(path, change, classes=None):
    arrays, metadata = good(classes)
    change(arrays, metadata)
    write_tensors(path, arrays, metadata)


def set_at(metadata, place, value):
    for name in place[:-1]:
        metadata = metadata[name]
    metadata[place[-1]] = value


def metadata_with(name, place, value, classes=None):
    add(name, partial(altered, change=lambda arrays, metadata: set_at(metadata, place, value), classes=classes))


def arrays_with(name, change, classes=None):
    add(name, partial(altered, change=lambda arrays, metadata: change(arrays), classes=classes))


def put(name, index, value):
    return lambda arrays: arrays[name].__setitem__(index, value)


def instead(name, value):
    return lambda arrays: arrays.__setitem__(name, np.asarray(value))


def leaves(value, place=()):
    """Yield the places of all values in a document that are neither objects nor lists."""
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*place, name))
    else:
        yield place, value


def objects(value, place=()):
    """Yield the places of all objects in a document."""
    if isinstance(value, dict):
        yield place, value
        for name, part in value.items():
            yield from objects(part, (*place, name))


def dotted(place):
    return ".".join(map(str, place))


KINDS = ("network", "likelihood", "prior", "sampler", "training")
TRAINED = ("configuration", "training")
PARAMETERS = ("extra", "parameters")

for _number in (0, -1, 3, 10**9, True, 1.0, "1", None, [1]):
    metadata_with(f"format {_number!r}", ("format",), _number)
for _number in (-1, 2**32, 10**300, True, 0.0, "0", None):
    metadata_with(f"seed {_number!r}", ("seed",), _number)
for _kind in KINDS:
    metadata_with(f"{_kind} missing", ("configuration", _kind), None)
    metadata_with(f"{_kind} a word", ("configuration", _kind), "os:system")
    metadata_with(f"{_kind} custom", ("configuration", _kind), {"kind": "custom", "text": "os:system"})
    metadata_with(f"{_kind} with a list for a kind", ("configuration", _kind, "kind"), ["mlp"])
    metadata_with(f"{_kind} of a class name", ("configuration", _kind, "kind"), "MLP")
    metadata_with(f"{_kind} nested", ("configuration", _kind), json.loads("[" * 400 + "]" * 400))
    _another = KINDS[KINDS.index(_kind) - 1]
    metadata_with(f"{_kind} is a {_another}", ("configuration", _kind), contents().metadata["configuration"][_another])
metadata_with("1e12 parameters", ("configuration", "network", "hidden"), [10**6, 10**6])
metadata_with("1e300 parameters", ("configuration", "network", "hidden"), [10**300])
metadata_with("many layers", ("configuration", "network", "hidden"), [1] * 100_000)
metadata_with("layers of fractions", ("configuration", "network", "hidden"), [4.0])
metadata_with("a layer of -4", ("configuration", "network", "hidden"), [-4])
metadata_with("huge n_inputs", ("configuration", "network", "n_inputs"), 10**12)
metadata_with("huge n_outputs", ("configuration", "network", "n_outputs"), 10**12)
metadata_with("huge n_classes", ("configuration", "likelihood", "n_classes"), 10**12, tuple(CLASSES))
metadata_with("two n_classes", ("configuration", "likelihood", "n_classes"), 2, tuple(CLASSES))
metadata_with("negative n_classes", ("configuration", "likelihood", "n_classes"), -3, tuple(CLASSES))
metadata_with("open step size", ("configuration", "sampler", "step_size"), None)
metadata_with("step size beyond floats", ("configuration", "sampler", "step_size"), 10**400)
metadata_with("negative prior scale", ("configuration", "prior", "scale"), -1.0)
metadata_with("a scale for each of 3 layers", ("configuration", "prior"), describe(PerLayer(scales=(1.0, 1.0, 1.0))))
metadata_with(
    "a prior nested in its family", ("configuration", "prior"), describe(FanIn()) | {"family": describe(FanIn())}
)
for _number in (0.0, -1.0, True, "1", None, [1.0], 10**400, {"kind": "normal", "scale": 1.0}):
    metadata_with(f"temperature {str(_number)[:20]}", ("configuration", "temperature"), _number)
metadata_with("no stopping rule", (*TRAINED, "stopping"), 5)
metadata_with("schedule for a stopping rule", (*TRAINED, "stopping"), {"kind": "linear", "start": 0.5, "end": 0.1})
metadata_with("kind with a full-width letter", ("configuration", "network", "kind"), "\uff4dlp")
metadata_with("kind with a right-to-left mark", ("configuration", "network", "kind"), "mlp\u202e")
metadata_with("kind with a NUL", ("configuration", "network", "kind"), "mlp\0")
metadata_with("extra a list", ("extra",), [1])
metadata_with("extra a word", ("extra",), "os:system")
metadata_with("estimator for classes", ("extra", "estimator"), "classifier")
metadata_with("estimator for numbers", ("extra", "estimator"), "regressor", tuple(CLASSES))
metadata_with("estimator a list", ("extra", "estimator"), ["regressor"])
metadata_with("too few feature names", ("extra", "feature_names"), ["a", "b"])
metadata_with("too many feature names", ("extra", "feature_names"), ["a"] * 100)
metadata_with("feature names of numbers", ("extra", "feature_names"), [1, 2, 3])
metadata_with("feature names a word", ("extra", "feature_names"), "abc")
metadata_with("a folder to write to", (*PARAMETERS, "run_dir"), "/tmp/anywhere")
metadata_with("an unknown argument", (*PARAMETERS, "on_load"), "os:system")
for _name, _value in {
    "n_chains": 0,
    "prior": "uniform",
    "prior_scale": 10**400,
    "temperature": 0.0,
    "learning_rate": 0.0,
    "weight_decay": -1,
    "batch_size": 1.5,
    "max_epochs": True,
    "patience": [10],
    "validation_fraction": 2,
    "hidden_layer_sizes": 4,
    "activation": ["relu"],
    "preset": 7,
    "warmup_steps": "60",
    "sampling_steps": -20,
    "n_draws": 1000,
    "network": 3,
    "sampler": None,
    "store_data": 1,
    "time_limit": -5,
    "random_state": 1,
    "verbose": "loud",
}.items():
    metadata_with(f"impossible {_name}", (*PARAMETERS, _name), _value)
metadata_with("random_state a word", (*PARAMETERS, "random_state"), "os:system")
metadata_with("prior a training", (*PARAMETERS, "prior"), contents().metadata["configuration"]["training"])
metadata_with("sampler a training", (*PARAMETERS, "sampler"), contents().metadata["configuration"]["training"])

# Every word, every name.
_SPELLS = ("os:system", "os.system", "__import__('os').system('true')", "!!python/name:os.system")
for _place, _value in leaves(contents().metadata):
    if isinstance(_value, str):
        for _spell in _SPELLS:
            metadata_with(f"{dotted(_place)} = {_spell}", _place, _spell)
for _place, _object in objects(contents().metadata):
    _where = dotted(_place) or "metadata"
    metadata_with(f"{_where} with one name more", (*_place, "os:system"), "os:system")
    for _key in _object:

        def _renamed(arrays, metadata, place=_place, key=_key):
            for part in place:
                metadata = metadata[part]
            metadata["\u200b" + key] = metadata.pop(key)

        def _without(arrays, metadata, place=_place, key=_key):
            for part in place:
                metadata = metadata[part]
            del metadata[key]

        add(f"{_where} with {_key} renamed", partial(altered, change=_renamed))
        if (*_place, _key) not in (
            (*PARAMETERS, "network"),
            ("kernel",),
            ("extra", "parameters", "stop_when"),
        ):  # files of earlier versions do not name them
            add(f"{_where} without {_key}", partial(altered, change=_without))

# Every array.
for _name, _array in contents().arrays.items():
    arrays_with(f"{_name} with one axis more", instead(_name, _array[None]))
    arrays_with(f"{_name} of bytes", instead(_name, np.zeros(_array.shape, np.uint8)))
    if _array.ndim:
        arrays_with(f"{_name} of one chain more", instead(_name, np.repeat(_array, 2, axis=0)))
        arrays_with(f"{_name} of nothing", instead(_name, _array[:0]))
    if not _name.startswith("info.") or _name in ("info.sampling.step_size", "info.sampling.L"):
        arrays_with(f"no {_name}", lambda arrays, name=_name: arrays.pop(name))
for _name in ("os:system", "dr\u0430ws", "draws\u200b", "info", "info.x", "info.phase I.os:system", "history.x.y"):
    arrays_with(f"with an array {_name!r}", instead(_name, np.zeros(N_CHAINS, np.float32)))
arrays_with("report of a phase of another sampler", instead("info.members.L", np.zeros(N_CHAINS, np.float32)))
arrays_with(
    "report of a phase with an invisible letter", instead("info.sampling\u200b.L", np.zeros(N_CHAINS, np.float32))
)
arrays_with("history of unknown fields", instead("history.phase I.other", np.zeros((N_CHAINS, 5), np.float32)))
for _value in (np.nan, np.inf, -np.inf):
    arrays_with(f"{_value} for a weight", put("draws", (1, N_DRAWS - 1, 3), _value))
    arrays_with(f"{_value} for a weight of a member", put("member", (1, 3), _value))
    for _name in ("encoder.shift", "encoder.scale", "response.shift", "response.scale"):
        arrays_with(f"{_value} for {_name}", put(_name, ..., _value))
arrays_with("a scale of zero", put("encoder.scale", 1, 0.0))
arrays_with("a scale below zero", put("response.scale", ..., -1.0))
for _name in ("status", "chain_status", "member_status"):
    for _code in (99, -1, 1):
        arrays_with(f"{_name} {_code}", put(_name, 0, _code))
arrays_with("status of fractions", instead("status", np.zeros(N_CHAINS)))
arrays_with("status infinite", instead("status", np.full(N_CHAINS, np.inf, np.float32)))
arrays_with("all chains failed", lambda arrays: [arrays[name].fill(4) for name in ("status", "chain_status")])
arrays_with("two chains of one name", put("chain_ids", ..., 1))
arrays_with("a chain of a negative name", put("chain_ids", 0, -1))


def text(value):
    return np.frombuffer(value if isinstance(value, bytes) else json.dumps(value).encode(), np.uint8)


for _name, _value in {
    "twice the same": text(["high", "low", "low"]),
    "too few": text(["high", "low"]),
    "too many": text([*CLASSES, "top"]),
    "none": text([]),
    "not JSON": text(b"['high', 'low', 'middle']"),
    "not text": text(b"\xff\xfe\x00"),
    "pickled": text(pickle.dumps(CLASSES)),
    "an object": text({"high": 0, "low": 1, "middle": 2}),
    "numbers among words": text(["high", 1, "middle"]),
    "lists": text([["high"], ["low"], ["middle"]]),
    "nested": text(b"[" * _DEEP + b"]" * _DEEP),
    "that end in a NUL": text(["high", "low", "low\0"]),
    "of which one makes room for many": text(["x" * 200_000, *map(str, range(1000))]),
    "too long": text(["x" * (1 << 20), "y", "z"]),
    "of very many numbers": text(b"[" + b"0," * (1 << 23) + b"0]"),
    "of very many empty lists": text(b"[" + b"[]," * (1 << 22) + b"[]]"),
    "of two axes": text(CLASSES)[None],
    "of wide letters": text(CLASSES).astype(np.uint32),
}.items():
    arrays_with(f"labels {_name}", instead("response.labels_text", _value), tuple(CLASSES))
arrays_with("labels missing", lambda arrays: arrays.pop("response.labels_text"), tuple(CLASSES))
arrays_with("labels of both kinds", instead("response.labels", np.arange(3)), tuple(CLASSES))
arrays_with("labels of numbers", instead("response.labels_text", text(CLASSES)))
for _name, _value in {
    "NaN": [0.0, 1.0, np.nan],
    "twice the same number": [0, 1, 1],
    "table": np.arange(3)[None],
    "two numbers": [0, 1],
}.items():
    arrays_with(
        f"labels {_name}",
        lambda arrays, value=_value: (
            arrays.update({"response.labels": np.asarray(value)}) or arrays.pop("response.labels_text")
        ),
        tuple(CLASSES),
    )


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """Load good files once: imports and first calls are not what is timed."""
    path = tmp_path_factory.mktemp("warm") / "good.mile"
    for classes in (None, tuple(CLASSES)):
        write_tensors(path, *good(classes))
        mile.load(path).predict(X)


def test_the_files_that_are_altered_are_good_ones(tmp_path):
    path = tmp_path / "good.mile"
    for classes in (None, tuple(CLASSES)):
        altered(path, lambda arrays, metadata: None, classes)
        np.testing.assert_array_equal(
            mile.load(path).predict(X), made_estimator(None if classes is None else CLASSES).predict(X)
        )
    assert len(CORPUS) >= 40


def test_every_hostile_file_is_refused_by_name_at_once_and_within_memory(tmp_path):
    for number, (name, write) in enumerate(CORPUS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "hostile.mile"
        with case(name):
            write(path)
            size = path.stat().st_size if path.is_file() else 0
            check_refusal(path, 2 * size + MEMORY, FileNotFoundError if name == "link_to_nothing" else REFUSALS)
        shutil.rmtree(folder)


def check_refusal(path, largest, refusals=REFUSALS):
    began = time.process_time()  # others may use the machine
    with pytest.raises(refusals, match="hostile") as caught:
        mile.load(path)
    assert time.process_time() - began <= LONGEST
    tracemalloc.start()  # takes several times as long, so the time was measured before
    try:
        with pytest.raises(refusals, match="hostile"):
            mile.load(path)
        assert tracemalloc.get_traced_memory()[1] <= largest
    finally:
        tracemalloc.stop()
    assert type(caught.value) in (*REFUSALS, FileNotFoundError)
    assert not canary(path).exists()


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        mile.load(tmp_path / "nothing.mile")


def test_any_other_value_anywhere_is_accepted_or_refused_but_never_crashes(tmp_path):
    path = tmp_path / "hostile.mile"
    others = (None, True, -1, 10**19, 10**400, 5e-324, "\0", [], [None], {"kind": "mile"})
    arrays, _ = contents()
    for place, _ in leaves(contents().metadata):
        for other in others:
            _, metadata = good()
            set_at(metadata, place, other)
            write_tensors(path, arrays, metadata)
            with contextlib.suppress(*REFUSALS):  # what is not refused is a model like any other
                assert np.isfinite(mile.load(path).predict(X)).all(), (place, other)


def test_no_altered_byte_is_ever_accepted(tmp_path):
    path = tmp_path / "hostile.mile"
    write_tensors(path, *good())
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(len(data), size=500):
        path.write_bytes(data[:at] + bytes([data[at] ^ rng.integers(1, 256)]) + data[at + 1 :])
        with pytest.raises(REFUSALS):
            mile.load(path)


def test_no_file_that_was_cut_is_ever_accepted(tmp_path):
    path = tmp_path / "hostile.mile"
    write_tensors(path, *good())
    data = path.read_bytes()
    for length in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(REFUSALS):
            mile.load(path)


def test_names_and_labels_that_look_like_code_are_only_words(tmp_path):
    path = tmp_path / "model.mile"
    words = [*_SPELLS[:2], f"{evil(path)}"]
    model = made_estimator(sorted(words), feature_names=words)
    model.save(path)
    loaded = mile.load(path)
    assert loaded.classes_.tolist() == sorted(words)
    assert loaded.feature_names_in_.tolist() == words
    assert not canary(path).exists()


# Run directories


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, N_INPUTS))
    model = MileRegressor(
        (4,), n_chains=2, warmup_steps=60, sampling_steps=20, max_epochs=3, run_dir=folder, random_state=0
    ).fit(x, x[:, 0] + 0.1 * rng.standard_normal(30))
    return folder, model.predict(X)


def resign(folder, change=lambda manifest: None):
    """Change a manifest and give it a checksum that holds."""
    content = json.loads((folder / _manifest.NAME).read_bytes())["manifest"]
    change(content)
    (folder / _manifest.NAME).write_bytes(_manifest._text(content))


def rewrite(folder, name, change):
    """Change a file of tensors and enter it in the manifest."""
    arrays, metadata = read_tensors(folder / name)
    change(arrays, metadata)
    enter(folder, name, write_tensors(folder / name, arrays, metadata))


def enter(folder, name, digest=None):
    digest = digest or hashlib.sha256((folder / name).read_bytes()).hexdigest()
    size = (folder / name).stat().st_size
    resign(folder, lambda manifest: manifest["files"].__setitem__(name, {"bytes": size, "sha256": digest}))


def manifest_at(*place, value):
    return lambda folder: resign(folder, lambda manifest: set_at(manifest, place, value))


FINAL, MEMBER, SCALES = "chains/0000/final.safetensors", "chains/0000/member.safetensors", "scales.safetensors"
CHUNK = "draws.zarr/posterior/weights/c.0.0.0"


def record_with(name, change):
    return lambda folder: rewrite(folder, name, change)


def chunk_elsewhere(folder):
    shutil.move(folder / CHUNK, folder.with_name("chunk"))
    (folder / CHUNK).symlink_to(folder.with_name("chunk"))


def folder_elsewhere(folder):
    shutil.move(folder / "chains", folder.with_name("chains"))
    (folder / "chains").symlink_to(folder.with_name("chains"))


def endless_chunk(folder):
    (folder / CHUNK).unlink()
    (folder / CHUNK).symlink_to("/dev/zero")
    resign(folder, lambda manifest: manifest["files"][CHUNK].update(bytes=0))


def pipe_for_a_chunk(folder):
    (folder / CHUNK).unlink()
    os.mkfifo(folder / CHUNK)
    resign(folder, lambda manifest: manifest["files"][CHUNK].update(bytes=0))


def chunk_of_another_size(folder):
    (folder / CHUNK).write_bytes((folder / CHUNK).read_bytes() + bytes(8))
    enter(folder, CHUNK)


def chunk_of_nan(folder):
    values = np.full((folder / CHUNK).stat().st_size // 4 - 1, np.nan, np.float32).tobytes()
    (folder / CHUNK).write_bytes(values + bytes(4))
    enter(folder, CHUNK)


def scalar_chunk_without_its_crc(folder):
    name = "draws.zarr/sample_stats/lp/c.1.2"
    (folder / name).write_bytes(bytes((folder / name).stat().st_size - 1) + b"\1")
    enter(folder, name)


def pickle_for_a_record(folder):
    (folder / FINAL).write_bytes(pickle.dumps(Payload(folder)))
    enter(folder, FINAL)


def deep_manifest(folder):
    resign(folder, lambda manifest: manifest.update(origin=json.loads("[" * 300 + "]" * 300)))


def file_outside(name):
    def change(manifest):
        manifest["files"][name] = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
        manifest["chains"]["0"]["final"] = name

    return lambda folder: resign(folder, change)


RUNS = {
    "a file above the run": file_outside("../hostile"),
    "an absolute file": file_outside("/etc/hostname"),
    "a file with a NUL": file_outside("chains/\0"),
    "a record above the run": manifest_at("chains", "0", "final", value="../../final.safetensors"),
    "a record that is a number": manifest_at("chains", "0", "final", value=7),
    "a chain that is a word": manifest_at("chains", "os:system", value={}),
    "chains a list": manifest_at("chains", value=[]),
    "files a number": manifest_at("files", value=7),
    "a file without a size": manifest_at("files", CHUNK, value={}),
    "format a word": manifest_at("format", value="1"),
    "format of the future": manifest_at("format", value=2),
    "seed a word": manifest_at("seed", value="0"),
    "seed negative": manifest_at("seed", value=-1),
    "configuration a list": manifest_at("configuration", value=[]),
    "configuration of another network": manifest_at("configuration", "network", "hidden", value=[10**6, 10**6]),
    "configuration of nothing known": manifest_at("configuration", "network", "kind", value="os:system"),
    "no chains": manifest_at("configuration", "n_chains", value=0),
    "1e12 chains": manifest_at("configuration", "n_chains", value=10**12),
    "n_chains a word": manifest_at("configuration", "n_chains", value="2"),
    "an origin that is no estimator": manifest_at("origin", value={"os": "system"}),
    "an origin with a folder": manifest_at("origin", "parameters", "run_dir", value="/tmp"),
    "an impossible plan": manifest_at("plan", value={"warmup_steps": 0}),
    "an unknown plan": manifest_at("plan", value={"os:system": 1}),
    "layout a list": manifest_at("layout", value=[]),
    "layout without a chunk": manifest_at("layout", value={"n_draws": 3}),
    "layout of objects": manifest_at("layout", "dtype", value="O"),
    "layout of chunks of 1e15": manifest_at("layout", "chunk", value=10**15),
    "layout of chunks of 0": manifest_at("layout", "chunk", value=0),
    "layout of chunks of 1": manifest_at("layout", "chunk", value=1),
    "layout of dimension 1e15": manifest_at("layout", "dimension", value=10**15),
    "layout of other chains": manifest_at("layout", "chain_ids", value=[5, 6]),
    "layout of one chain twice": manifest_at("layout", "chain_ids", value=[0, 0]),
    "layout of fewer draws": manifest_at("layout", "n_draws", value=2),
    "a field more": manifest_at("on_load", value="os:system"),
    "nested deeply": deep_manifest,
    "a chunk elsewhere": chunk_elsewhere,
    "a folder elsewhere": folder_elsewhere,
    "an endless chunk": endless_chunk,
    "a pipe for a chunk": pipe_for_a_chunk,
    "a chunk of another size": chunk_of_another_size,
    "a chunk of NaN": chunk_of_nan,
    "a chunk without its CRC": scalar_chunk_without_its_crc,
    "a missing chunk": lambda folder: (folder / CHUNK).unlink(),
    "a chunk not in the manifest": lambda folder: resign(folder, lambda manifest: manifest["files"].pop(CHUNK)),
    "an altered chunk": lambda folder: (folder / CHUNK).write_bytes(bytes((folder / CHUNK).stat().st_size)),
    "a missing scale": lambda folder: (folder / SCALES).unlink(),
    "a pickle for a record": pickle_for_a_record,
    "1e15 draws": record_with(FINAL, lambda arrays, metadata: metadata.update(n_draws=10**15)),
    "draws counted in words": record_with(FINAL, lambda arrays, metadata: metadata.update(n_draws="20")),
    "a stage that is a list": record_with(FINAL, lambda arrays, metadata: metadata.update(stage=[])),
    "chains in different stages": record_with(FINAL, lambda arrays, metadata: metadata.update(stage="sampling")),
    "a record with more fields": record_with(FINAL, lambda arrays, metadata: metadata.update(arrays=1)),
    "a record without a status": record_with(FINAL, lambda arrays, metadata: arrays.pop("status")),
    "a status of 99": record_with(FINAL, lambda arrays, metadata: arrays.update(status=np.array(99, np.int32))),
    "a status of two": record_with(FINAL, lambda arrays, metadata: arrays.update(status=np.zeros(2, np.int32))),
    "a report less": record_with(FINAL, lambda arrays, metadata: arrays.pop("info.sampling.L")),
    "a report of another shape": record_with(FINAL, lambda arrays, metadata: arrays.update({"info.sampling.L": X})),
    "a member without weights": record_with(MEMBER, lambda arrays, metadata: arrays.pop("position")),
    "a member of NaN": record_with(MEMBER, lambda arrays, metadata: arrays["position"].fill(np.nan)),
    "a member of another size": record_with(MEMBER, lambda arrays, metadata: arrays.update(position=np.zeros(3))),
    "a scale of zero": record_with(SCALES, lambda arrays, metadata: arrays["encoder.scale"].fill(0)),
    "a scale more": record_with(SCALES, lambda arrays, metadata: arrays.update(other=np.zeros(1))),
    "a scale less": record_with(SCALES, lambda arrays, metadata: arrays.pop("encoder.shift")),
}


def test_the_run_that_is_altered_is_a_good_one(finished_run, tmp_path):
    folder, prediction = finished_run
    copied = shutil.copytree(folder, tmp_path / "hostile")
    resign(copied)
    rewrite(copied, FINAL, lambda arrays, metadata: None)
    np.testing.assert_array_equal(mile.load(copied).predict(X), prediction)


def test_every_hostile_run_is_refused_by_name_at_once_and_within_memory(finished_run, tmp_path):
    for number, (name, alter) in enumerate(RUNS.items()):
        copied = shutil.copytree(finished_run[0], tmp_path / str(number) / "hostile")
        with case(name):
            alter(copied)
            check_refusal(copied, MEMORY)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, metadata: arrays.update(other=X),
        lambda arrays, metadata: arrays.pop("y_train"),
        lambda arrays, metadata: arrays["x_train"].fill(np.nan),
        lambda arrays, metadata: arrays.update(y_train=arrays["y_train"][:-1]),
    ],
    ids=["an array more", "an array less", "NaN", "a row less"],
)
def test_a_run_with_hostile_data_is_not_resumed(change, finished_run, tmp_path):
    copied = shutil.copytree(finished_run[0], tmp_path / "hostile")
    rewrite(copied, "data.safetensors", change)
    with pytest.raises(REFUSALS, match="hostile"):
        mile.resume(copied)


# What loading does


def in_another_process(script, *arguments, **environment):
    """Run a script and return what it prints as JSON."""
    kept = {name: value for name, value in os.environ.items() if name not in environment}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)]
    chosen = kept | {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run(command, capture_output=True, text=True, env=chosen, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


WATCH = """
    import json, sys
    from pathlib import Path
    import mile

    events, watching = [], False

    def watch(event, arguments):
        if watching:
            events.append((event, [str(argument) for argument in arguments[:3]]))

    sys.addaudithook(watch)
    for path in sys.argv[1:]:
        mile.load(path)
    modules = set(sys.modules)
    watching = True
    for path in sys.argv[1:]:
        mile.load(path)
    watching = False
    print(json.dumps({"events": events, "imported": sorted(set(sys.modules) - modules)}))
"""


def test_loading_only_reads_the_file_itself(tmp_path, finished_run):
    paths = [tmp_path / "numbers.mile", tmp_path / "classes.mile", finished_run[0]]
    made_estimator().save(paths[0])
    made_estimator(CLASSES).save(paths[1])
    seen = in_another_process(WATCH, *paths)
    assert seen["imported"] == []
    opened = [arguments for event, arguments in seen["events"] if event == "open"]
    assert {Path(path) for path, *_ in opened if Path(path).is_relative_to(tmp_path)} == set(paths[:2])
    for path, mode, flags in opened:
        assert any(Path(path).is_relative_to(known) for known in paths), path
        assert mode in ("r", "rb", "None"), (path, mode)  # None: opened by the flags alone
        assert not int(flags) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT), (path, flags)
    listed = [path for event, (path, *_) in seen["events"] if event == "os.listdir"]
    assert listed
    assert all(Path(path).is_relative_to(finished_run[0]) for path in listed), listed
    others = {event for event, _ in seen["events"]} - {"open", "os.listdir"}
    forbidden = {"exec", "compile", "import", "subprocess", "socket", "pickle", "os", "ctypes", "marshal", "shutil"}
    assert not [event for event in others if event.split(".")[0] in forbidden], others


ALONE = """
    import json, os, socket, sys
    from pathlib import Path

    def refuse(*_, **__):
        raise OSError("there is no network")

    class Offline(socket.socket):
        __init__ = refuse

    socket.socket = Offline
    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        setattr(socket, name, refuse)

    import numpy as np
    import mile

    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def protect(event, arguments):
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & writes:
            raise PermissionError(f"read-only: {arguments[0]}")
        if event in ("os.mkdir", "os.rename", "os.remove", "os.symlink", "os.link", "shutil.rmtree"):
            raise PermissionError(f"read-only: {arguments}")
        if event.startswith("socket."):
            raise OSError("there is no network")

    sys.addaudithook(protect)
    path, rows = sys.argv[1], np.array(json.loads(sys.argv[2]))
    model = mile.load(path)
    predictive = model.predictive(rows)
    print(json.dumps([predictive.mean.tolist(), predictive.quantile(0.9).tolist()]))
"""


@pytest.mark.parametrize("home", [None, "/proc/none"])
def test_a_model_predicts_without_home_network_or_anywhere_to_write(home, tmp_path):
    model = made_estimator()
    folder = tmp_path / "read-only"
    model.save(folder / "model.mile")
    folder.chmod(0o555)
    try:
        expected = [model.predict(X).tolist(), model.predictive(X).quantile(0.9).tolist()]
        environment = {"HOME": home, "XDG_CACHE_HOME": None, "USERPROFILE": home, "JAX_COMPILATION_CACHE_DIR": None}
        found = in_another_process(ALONE, folder / "model.mile", json.dumps(X.tolist()), **environment)
    finally:
        folder.chmod(0o755)
    assert found == expected
    assert [path.name for path in folder.iterdir()] == ["model.mile"]


WITHOUT_JAX = """
    import hashlib, json, sys

    sys.modules["jax"] = sys.modules["mile"] = None
    from safetensors import safe_open

    with safe_open(sys.argv[1], framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}
        metadata = json.loads(file.metadata()["mile"])
    digests = {
        name: [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
        for name, array in arrays.items()
    }
    print(json.dumps([digests, metadata]))
"""


def test_other_programs_read_the_same_numbers_without_jax(tmp_path):
    path = tmp_path / "model.mile"
    made_estimator(CLASSES).save(path)
    arrays, metadata = read_tensors(path)
    digests, described = in_another_process(WITHOUT_JAX, path)
    assert described == metadata
    assert digests == {
        name: [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
        for name, array in arrays.items()
    }
    assert arrays["draws"].tobytes() == made_estimator(CLASSES).fit_.chains.draws.tobytes()
