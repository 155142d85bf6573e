"""Random changes of documents, arrays, texts and bytes; the same random numbers make the same change."""

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np

WORDS = ("", "\0", "os:system", "../../x", "NaN", "é" * 40, "x" * 5000, "=1+1", "\x1b[31m", "gaussian", "mile", "1")
NUMBERS = (0, 1, -1, 2, 7, 2**31, 2**53, 2**63, 10**30, -(10**19), 0.0, -0.0, 0.5, 1e-320, 3.4e38, 4e307, -1e308)
OTHERS = (*WORDS, *NUMBERS, None, True, False, [], {}, [None], [[[]]], {"kind": "mile"}, {"kind": "mlp"}, [1, 2, 3])
DTYPES = ("float64", "float32", "int64", "int32", "uint32", "uint8", "bool")
FLOATS = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3.4e38, -3.4e38, 1.0, -1.0, 1e30)
TOKENS = (
    *(b",", b";", b"\t", b"\n", b"\r", b'"', b"'", b"\0", b"NaN", b"inf", b"1e999", b"-", b"", b"9" * 400, b"0x1p3"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xe9", b"1_000", b"=1+1", b"{", b"}", b"[", b"null", b"true", b"01", b" "),
)


def places(value: Any, before: tuple = ()) -> list[tuple]:
    """Return the places of everything inside a document."""
    found = []
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found += [(*before, key), *places(value[key], (*before, key))]
    return found


def changed_document(rng: random.Random, document: Any) -> Any:
    """Return a document with a few places changed, removed, copied or added."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        known = places(document)
        if not known:
            break
        *way, last = rng.choice(known)
        parent = document
        for key in way:
            parent = parent[key]
        action = rng.random()
        if action < 0.6:
            parent[last] = copy.deepcopy(rng.choice(OTHERS))
        elif action < 0.75:
            del parent[last]
        elif action < 0.85 and isinstance(parent, dict):
            parent[rng.choice(WORDS)] = parent[last]
        else:
            parent[last] = _at(document, rng.choice(known))
    return document


def _at(document: Any, place: tuple) -> Any:
    for key in place:
        document = document[key]
    return copy.deepcopy(document)


def changed_arrays(rng: random.Random, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays of which a few have another type, shape or other numbers, or are gone or have another name."""
    found = dict(arrays)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not found:
            break
        name = rng.choice(sorted(found))
        action = rng.random()
        if action < 0.08:
            del found[name]
        elif action < 0.15:
            found[rng.choice((name + "x", *WORDS[:4]))] = found.pop(name)
        elif action < 0.2:
            found[name] = found[rng.choice(sorted(found))]
        else:
            found[name] = changed_array(rng, found[name])
    return found


def changed_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    array = np.array(array)
    action = rng.random()
    with np.errstate(all="ignore"):
        if action < 0.2:
            return array.astype(rng.choice(DTYPES))
        if action < 0.3 and array.ndim:
            return array[: rng.randrange(len(array) + 1)]
        if action < 0.35:
            return array[None]
        if action < 0.4:
            return array.reshape(-1)
        if action < 0.5 and array.ndim:
            return np.concatenate([array, array[:1]])
        if not array.size or array.dtype == bool:
            return ~array if array.dtype == bool else array
        numbers = FLOATS if array.dtype.kind == "f" else (0, 1, 2, 7, 255, 2**31 - 1)
        if array.dtype.kind == "i":
            numbers = (*numbers, -1, -(2**31))
        if action < 0.75:
            array.flat[rng.randrange(array.size)] = np.array(rng.choice(numbers)).astype(array.dtype)
        else:
            array[...] = np.array(rng.choice(numbers)).astype(array.dtype)
    return array


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with a few of them changed, cut, doubled, or replaced by what means something in texts."""
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        data = _changed_once(rng, data)
    return data


def _changed_once(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    until = min(len(data), at + rng.choice((1, 1, 2, 8, 100)))
    actions: tuple[Callable[[], bytes], ...] = (
        lambda: data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
        lambda: data[:at] + rng.choice(TOKENS) + data[until:],
        lambda: data[:at] + rng.choice(TOKENS) + data[at:],
        lambda: data[:at] + data[until:],
        lambda: data[:until] + data[at:],
        lambda: data[:at] if rng.random() < 0.3 else data,
    )
    return rng.choice(actions)()
