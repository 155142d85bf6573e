"""Configuration as data: every object that decides a result, as names from a closed list and numbers, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from mile._errors import UntrustedFileError
from mile.likelihoods import Categorical, Gaussian
from mile.networks import MLP, Attention, ConvNet, Convolution, FixedArray
from mile.networks.adapters import Adapted, Adapter, adapt, read_signature
from mile.optimize import Patience, Training
from mile.priors import FAMILIES, FanIn, Laplace, Normal, PerLayer, StudentT
from mile.samplers import KINDS as SAMPLER_KINDS
from mile.samplers.mile import Geometric, Linear

# A file can ask for these and for nothing else.
_KINDS: dict[str, Any] = {
    "mlp": MLP,
    "conv_net": ConvNet,
    "convolution": Convolution,
    "attention": Attention,
    "gaussian": Gaussian,
    "categorical": Categorical,
    "normal": Normal,
    "laplace": Laplace,
    "student_t": StudentT,
    "fan_in": FanIn,
    "per_layer": PerLayer,
    "training": Training,
    "patience": Patience,
    "linear": Linear,
    "geometric": Geometric,
    **SAMPLER_KINDS,
}
# Fields that hold an object, and the classes it may be of.
_NESTED: dict[str, tuple[Any, ...]] = {
    "stopping": (Patience,),
    "schedule": (Linear, Geometric),
    "family": FAMILIES,
    "full": (SAMPLER_KINDS["mile"],),
    "stochastic": (SAMPLER_KINDS["stochastic"],),
}
_NAMES: dict[Any, str] = {kind: name for name, kind in _KINDS.items()}
_FIXED = "fixed"  # an array, by its hash; the array itself is beside the description
FixedArrays = Mapping[str, FixedArray]  # by hash
_NO_ARRAYS: FixedArrays = {}
_OWN = "adapted"  # a network of the user's own: its shapes are kept, and its code must be given again
_CUSTOM = "custom"  # an object of the user's: it can be compared, but not built


def describe(value: Any) -> Any:
    """Return what JSON can hold of a number, a word, a tuple of those, or a known object.

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
    name = _NAMES.get(type(value))
    if name is None:
        return {"kind": _CUSTOM, "text": repr(value)}
    return {"kind": name} | {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}


def build(description: Any, *allowed: Any, fixed: FixedArrays = _NO_ARRAYS) -> Any:
    """Return the object that a description stands for; it must be one of the allowed classes.

    Parameters
    ----------
    description
        As `describe` returns it.
    allowed
        Classes.
    fixed
        The arrays that descriptions may name.

    Raises
    ------
    UntrustedFileError
        If the description is not of a known kind, or a number is impossible.
    """
    try:
        value = _build(description, fixed)
    except RecursionError:
        raise UntrustedFileError("a description is nested too deeply.") from None
    if not isinstance(value, allowed):
        names = " or ".join(_NAMES.get(kind, str(kind)) for kind in allowed)
        raise UntrustedFileError(f"expected a description of {names}; got {str(description)[:80]!r}.")
    return value


def is_custom(description: Any) -> bool:
    """Say whether a description is of an object that only its owner can build."""
    if isinstance(description, list):
        return any(map(is_custom, description))
    if not isinstance(description, dict):
        return False
    return description.get("kind") == _CUSTOM or any(map(is_custom, description.values()))


def is_own(description: Any) -> bool:
    """Say whether a description is of a network whose code must be given again."""
    return isinstance(description, dict) and description.get("kind") == _OWN


def supply(description: Any, network: Any) -> Adapted:
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


def fixed_arrays(value: Any) -> dict[str, FixedArray]:
    """Return the arrays that an object holds without being made of them, by hash."""
    if isinstance(value, FixedArray):
        return {value.sha256: value}
    if not dataclasses.is_dataclass(value) or isinstance(value, type | Adapter | Adapted):
        return {}
    found = [fixed_arrays(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return {name: array for part in found for name, array in part.items()}


def _build(description: Any, fixed: FixedArrays) -> Any:
    if description is None or isinstance(description, bool | int | float | str):
        return description
    if isinstance(description, list):
        return tuple(_build(entry, fixed) for entry in description)
    if not isinstance(description, dict) or not isinstance(description.get("kind"), str):
        raise UntrustedFileError(f"not a description of anything known: {str(description)[:80]!r}.")
    if description["kind"] == _FIXED:
        if set(description) != {"kind", "sha256"} or description["sha256"] not in fixed:
            raise UntrustedFileError("a description names an array that is not there.")
        return fixed[description["sha256"]]
    kind = _KINDS.get(description["kind"])
    if kind is None:
        raise UntrustedFileError(f"{description['kind'][:80]!r} is not one of {sorted(_KINDS)}.")
    arguments = {name: value for name, value in description.items() if name != "kind"}
    # A default that stands for a missing name could change from one version to the next.
    wrong = set(arguments) ^ {field.name for field in dataclasses.fields(kind)}
    if wrong:
        raise UntrustedFileError(f"{description['kind']} has an unknown or missing {sorted(wrong)[0][:80]!r}.")
    built = {
        name: build(value, *_NESTED[name], fixed=fixed) if name in _NESTED else _build(value, fixed)
        for name, value in arguments.items()
    }
    try:
        return kind(**built)
    except (TypeError, ValueError, OverflowError) as error:
        raise UntrustedFileError(f"{description['kind']}: {error}") from error
