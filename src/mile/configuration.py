"""Configuration as data: every object that decides a result, as registered names and numbers, and back."""

import dataclasses
from collections.abc import Mapping
from functools import singledispatch
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mile._errors import UntrustedFileError
from mile._json import Json
from mile._registry import ABSENT, IN_FILES, Registry
from mile._schema import Fields, Nullable, Plain, Text, Unchecked, quote, refused, require
from mile.networks import FixedArray
from mile.networks.adapters import Adapted, Adapter, adapt, read_signature

FixedArrays: TypeAlias = Mapping[str, FixedArray]  # by hash

_FIXED = "fixed"  # an array, by its hash; the array itself is beside the description
_NO_ARRAYS: FixedArrays = {}
_OWN = "adapted"  # a network of the user's own: its shapes are kept, and its code must be given again
_CUSTOM = "custom"  # an object of the user's: it can be compared, but not built
_OWN_NETWORK = Fields(dict, {"kind": Text(), "signature": Unchecked(), "start": Nullable(Text())})


@singledispatch
def describe(value: object) -> Json:
    """Describe a number, a word, a tuple of those, or an object of a registered class, as JSON can hold it.

    An object of another class becomes its printed form, which is enough to notice that it has changed.
    """
    registry = _registry_of(type(value))
    if registry is None or not dataclasses.is_dataclass(value):
        return {"kind": _CUSTOM, "text": repr(value)}
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    absent = _absent(type(value))
    fields = {name: describe(entry) for name, entry in given.items() if name not in absent or entry != absent[name]}
    return {"kind": registry.name_of(type(value)), **fields}


@describe.register
def _(value: Plain) -> Json:
    return value


@describe.register(tuple)
@describe.register(list)
def _(value: tuple[object, ...] | list[object]) -> Json:
    return [describe(entry) for entry in value]


@describe.register
def _(value: np.generic | np.ndarray) -> Json:
    return describe(value.tolist())


@describe.register
def _(value: FixedArray) -> Json:
    return {"kind": _FIXED, "sha256": value.sha256}


@describe.register
def _(value: Adapter) -> Json:
    return {"kind": _OWN}


@describe.register
def _(value: Adapted) -> Json:
    return {"kind": _OWN, "signature": value.signature, "start": value.start}


def build(description: object, *allowed: type | Registry, fixed: FixedArrays = _NO_ARRAYS) -> Any:  # one of the allowed
    """Return the object that a description stands for; its class must be allowed.

    Parameters
    ----------
    description
        As `describe` returns it.
    allowed
        Classes, and registries whose classes are all allowed.
    fixed
        The arrays that descriptions may name.

    Raises
    ------
    UntrustedFileError
        If the description names a class that is not registered or not allowed, or a number is impossible.
    """
    kinds = [_allowed(kind) for kind in allowed]
    expected = " or ".join(kind.word for kind in kinds)
    homes = tuple(kind.registry for kind in kinds if kind.registry is not None)
    classes = tuple(one for kind in kinds for one in kind.classes)
    with refused("a description"):  # one that is nested too deeply, for example
        value = _build(description, expected, homes, fixed)
    require(isinstance(value, classes), f"expected a description of a {expected}; got {quote(description)}.")
    return value


def is_custom(description: Json) -> bool:
    """Say whether a description is of an object that only the user's code can build."""
    if isinstance(description, dict):
        return description.get("kind") == _CUSTOM or any(map(is_custom, description.values()))
    return isinstance(description, list) and any(map(is_custom, description))


def is_own(description: Json) -> bool:
    """Say whether a description is of a network whose code the user must pass again."""
    return isinstance(description, dict) and description.get("kind") == _OWN


def supply(description: Json, network: object) -> Adapted:
    """Return a network that the user passes again as code, checked against the shapes that a file keeps.

    Parameters
    ----------
    description
        As `describe` returns it for a network of the user's own.
    network
        What `adapt` takes; None if it was not given.

    Raises
    ------
    UntrustedFileError
        If the description is not of such a network.
    ValueError
        If the code is missing or has other shapes; the message names them.
    """
    signature = read_signature(_OWN_NETWORK.read(description, place=("network",))["signature"])
    if network is None:
        raise ValueError(
            f"the network of this model is your own code ({signature}), which no file holds: give it again, as in "
            "mile.load(path, network=...)."
        )
    adapter = adapt(network)
    signature.check_same(adapter.form(signature.input_shape, signature.n_outputs))
    return adapter.sized(signature.input_shape, signature.n_outputs)


@singledispatch
def fixed_arrays(value: object) -> dict[str, FixedArray]:
    """Return the fixed arrays that an object holds, by hash."""
    if not dataclasses.is_dataclass(value):
        return {}
    found = [fixed_arrays(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return {name: array for part in found for name, array in part.items()}


@fixed_arrays.register
def _(value: FixedArray) -> dict[str, FixedArray]:
    return {value.sha256: value}


@fixed_arrays.register
def _(value: type | Adapter | Adapted) -> dict[str, FixedArray]:
    return {}


@singledispatch
def _build(description: object, expected: str, registries: tuple[Registry, ...], fixed: FixedArrays) -> object:
    """Return the object; a name is looked for in the registries first and then in all others."""
    require(False, f"expected a description of a {expected}; got {quote(description)}.")


@_build.register
def _(description: Plain, expected: str, registries: tuple[Registry, ...], fixed: FixedArrays) -> object:
    return description


@_build.register
def _(description: list, expected: str, registries: tuple[Registry, ...], fixed: FixedArrays) -> object:
    return tuple(_build(entry, expected, registries, fixed) for entry in description)


@_build.register
def _(description: dict, expected: str, registries: tuple[Registry, ...], fixed: FixedArrays) -> object:
    name = Text().read(description.get("kind"), place=(expected, "kind"))
    arguments: dict[str, Any] = {key: value for key, value in description.items() if key != "kind"}  # of any class
    if name == _FIXED:
        is_there = set(arguments) == {"sha256"} and Text().read(arguments["sha256"]) in fixed
        require(is_there, "a description names an array that is not in the file.")
        return fixed[arguments["sha256"]]
    registry = next((known for known in (*registries, *IN_FILES) if name in known), None)
    kind = object if registry is None else registry[name]
    if not dataclasses.is_dataclass(kind):
        raise UntrustedFileError(
            f"the {expected} {quote(name)} is not registered: import the module that registers it, then read the file."
        )
    arguments = _absent(kind) | arguments
    # A default that stands for any other missing name could change from one version to the next.
    wrong = sorted(set(arguments) ^ {field.name for field in dataclasses.fields(kind)})
    require(not wrong, f"{name} has an unknown or missing {quote(wrong)}.")
    homes = () if registry is None else (registry,)
    built = {key: _build(value, key, homes, fixed) for key, value in arguments.items()}
    with refused(name):
        return kind(**built)


def _absent(kind: type) -> dict[str, Any]:  # fields have any type
    """Return the fields that a file may lack, with the values that it then stands for."""
    return {field.name: field.metadata[ABSENT] for field in dataclasses.fields(kind) if ABSENT in field.metadata}


def _registry_of(kind: type) -> Registry | None:
    return next((registry for registry in IN_FILES if registry.name_of(kind) is not None), None)


class _Allowed(NamedTuple):
    """What `build` may return: a class, or all classes of a registry."""

    registry: Registry | None
    classes: tuple[type, ...]
    word: str


def _allowed(kind: type | Registry) -> _Allowed:
    if isinstance(kind, Registry):
        return _Allowed(kind, tuple(kind.classes.values()), kind.kind)
    registry = _registry_of(kind)
    return _Allowed(registry, (kind,), kind.__name__ if registry is None else str(registry.name_of(kind)))
