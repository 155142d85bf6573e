"""Configuration as data: every object that decides a result, as registered names and numbers, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from mile._errors import UntrustedFileError
from mile._registry import IN_FILES, Registry
from mile._types import Json
from mile.networks import FixedArray
from mile.networks.adapters import Adapted, Adapter, adapt, read_signature

FixedArrays: TypeAlias = Mapping[str, FixedArray]  # by hash

_FIXED = "fixed"  # an array, by its hash; the array itself is beside the description
_NO_ARRAYS: FixedArrays = {}
_OWN = "adapted"  # a network of the user's own: its shapes are kept, and its code must be given again
_CUSTOM = "custom"  # an object of the user's: it can be compared, but not built


def describe(value: object) -> Json:
    """Return what JSON can hold of a number, a word, a tuple of those, or an object of a registered class.

    An object of another class becomes its printed form, which is enough to notice that it has changed.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [describe(entry) for entry in value]
    if isinstance(value, np.generic | np.ndarray):
        return describe(value.tolist())
    if isinstance(value, FixedArray):
        return {"kind": _FIXED, "sha256": value.sha256}
    if isinstance(value, Adapter):
        return {"kind": _OWN}
    if isinstance(value, Adapted):
        return {"kind": _OWN, "signature": value.signature, "start": value.start}
    registry = _registry_of(type(value))
    if registry is None or not dataclasses.is_dataclass(value):
        return {"kind": _CUSTOM, "text": repr(value)}
    fields = {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"kind": registry.name_of(type(value)), **fields}


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
    homes = [kind if isinstance(kind, Registry) else _registry_of(kind) for kind in allowed]
    expected = " or ".join(map(_word, allowed))
    try:
        value = _build(description, expected, tuple(home for home in homes if home is not None), fixed)
    except RecursionError:
        raise UntrustedFileError("a description is nested too deeply.") from None
    classes = [tuple(kind.classes.values()) if isinstance(kind, Registry) else kind for kind in allowed]
    if not isinstance(value, tuple(classes)):
        raise UntrustedFileError(f"expected a description of a {expected}; got {str(description)[:80]!r}.")
    return value


def is_custom(description: object) -> bool:
    """Say whether a description is of an object that only its owner can build."""
    if isinstance(description, list):
        return any(map(is_custom, description))
    if not isinstance(description, dict):
        return False
    return description.get("kind") == _CUSTOM or any(map(is_custom, description.values()))


def is_own(description: object) -> bool:
    """Say whether a description is of a network whose code must be given again."""
    return isinstance(description, dict) and description.get("kind") == _OWN


def supply(description: Mapping[str, Any], network: object) -> Adapted:
    """Return a network that is given again as code, for the shapes that a file keeps of it.

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
    if set(description) != {"kind", "signature", "start"} or not isinstance(description["start"], str | None):
        raise UntrustedFileError(f"not a description of a network: {str(description)[:80]!r}.")
    signature = read_signature(description["signature"])
    if network is None:
        raise ValueError(
            f"the network of this model is your own code ({signature}), which no file holds: give it again, as in "
            "mile.load(path, network=...)."
        )
    adapter = adapt(network)
    signature.check_same(adapter.form(signature.input_shape, signature.n_outputs))
    return adapter.sized(signature.input_shape, signature.n_outputs)


def fixed_arrays(value: object) -> dict[str, FixedArray]:
    """Return the arrays that an object holds without being made of them, by hash."""
    if isinstance(value, FixedArray):
        return {value.sha256: value}
    if not dataclasses.is_dataclass(value) or isinstance(value, type | Adapter | Adapted):
        return {}
    found = [fixed_arrays(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return {name: array for part in found for name, array in part.items()}


def _build(description: object, expected: str, registries: tuple[Registry, ...], fixed: FixedArrays) -> object:
    """Return the object; a name is looked for in the registries first and then in all others."""
    if description is None or isinstance(description, bool | int | float | str):
        return description
    if isinstance(description, list):
        return tuple(_build(entry, expected, registries, fixed) for entry in description)
    if not isinstance(description, dict) or not isinstance(description.get("kind"), str):
        raise UntrustedFileError(f"not a description of anything known: {str(description)[:80]!r}.")
    name, arguments = description["kind"], {key: value for key, value in description.items() if key != "kind"}
    if name == _FIXED:
        if set(arguments) != {"sha256"} or arguments["sha256"] not in fixed:
            raise UntrustedFileError("a description names an array that is not there.")
        return fixed[arguments["sha256"]]
    registry = next((known for known in (*registries, *IN_FILES) if name in known), None)
    kind = None if registry is None else registry[name]
    if registry is None or kind is None or not dataclasses.is_dataclass(kind):
        raise UntrustedFileError(
            f"the {expected} {name[:80]!r} is not registered: import the module that registers it, then read the file."
        )
    # A default that stands for a missing name could change from one version to the next.
    wrong = set(arguments) ^ {field.name for field in dataclasses.fields(kind)}
    if wrong:
        raise UntrustedFileError(f"{name} has an unknown or missing {sorted(wrong)[0][:80]!r}.")
    built = {key: _build(value, key, (registry,), fixed) for key, value in arguments.items()}
    try:
        return kind(**built)
    except (TypeError, ValueError, OverflowError) as error:
        raise UntrustedFileError(f"{name}: {error}") from error


def _registry_of(kind: type) -> Registry | None:
    return next((registry for registry in IN_FILES if registry.name_of(kind) is not None), None)


def _word(kind: type | Registry) -> str:
    if isinstance(kind, Registry):
        return kind.kind
    registry = _registry_of(kind)
    return kind.__name__ if registry is None else str(registry.name_of(kind))
