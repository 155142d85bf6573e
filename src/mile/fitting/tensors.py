"""What predictions need besides draws, as arrays for a file: encodings of x and y, and fixed arrays."""

import json
from collections.abc import Mapping

import numpy as np

from mile import _registry
from mile._schema import Plain, Tensor, Text, quote, refused, require
from mile.configuration import fixed_arrays
from mile.features.base import AbstractFeatureEncoder
from mile.likelihoods import AbstractLikelihood, AbstractResponse
from mile.likelihoods._labels import NAMES as LABELS
from mile.networks import FixedArray
from mile.storage import schema

Arrays = Mapping[str, np.ndarray]
_FIXED, _ENCODER, _RESPONSE = "fixed.", "encoder.", "response."
_SETTINGS = "encoder"  # JSON in UTF-8: the encoder's name and plain values
_LARGEST_SETTINGS = 1 << 20  # bytes
# Version 0.1 knew three encoders, by what its files held of them.
_OLD_SCALES, _OLD_TOKENIZER = ("x_shift", "x_scale", "y_shift", "y_scale"), "attached.tokenizer"


def prediction_tensors(
    network: object, encoder: AbstractFeatureEncoder, response: AbstractResponse
) -> dict[str, np.ndarray]:
    """Return all of it by name.

    Raises
    ------
    TypeError
        If the encoder is not registered, so that no file could name it.
    """
    name = _registry.encoder.name_of(type(encoder))
    if name is None:
        raise TypeError(
            f"a file cannot hold the encoder {type(encoder).__name__}: register its class with mile._registry.encoder."
        )
    settings = json.dumps({"kind": name} | encoder.settings(), sort_keys=True).encode()
    found = {_SETTINGS: np.frombuffer(settings, np.uint8)}
    found |= {_ENCODER + name: array for name, array in encoder.tensors().items()}
    found |= {_RESPONSE + name: array for name, array in response.tensors().items()}
    return found | {_FIXED + name: array.values for name, array in fixed_arrays(network).items()}


def prediction_names(arrays: Arrays) -> set[str]:
    """Return the names of those among some arrays; a file has the names of one version, never of two."""
    known, prefixes = (_SETTINGS,), (_FIXED, _ENCODER, _RESPONSE)
    if _SETTINGS not in arrays:
        known, prefixes = (*_OLD_SCALES, _OLD_TOKENIZER, *LABELS), (_FIXED,)
    return {name for name in arrays if name in known or name.startswith(prefixes)}


def read_encodings(
    arrays: Arrays, likelihood: AbstractLikelihood, input_shape: tuple[int, ...]
) -> tuple[AbstractFeatureEncoder, AbstractResponse]:
    """Return the encodings of x and y again; `input_shape` is what the network takes.

    Raises
    ------
    UntrustedFileError
        If anything is missing or impossible.
    """
    if _SETTINGS not in arrays:
        arrays = _renamed(arrays, likelihood, input_shape)
    settings = _read_settings(arrays[_SETTINGS])
    name = Text().read(settings.pop("kind", None), place=(_SETTINGS, "kind"))
    require(
        name in _registry.encoder,
        f"{quote(name)} is not an encoder that is known here, one of {sorted(_registry.encoder)}: import the module "
        "that registers it first.",
    )
    kind = _registry.encoder[name]
    assert issubclass(kind, AbstractFeatureEncoder)
    encoder = kind.restore(_below(arrays, _ENCODER), settings, int(np.prod(input_shape)))
    return encoder, likelihood.restore_response(_below(arrays, _RESPONSE))


def read_fixed(arrays: Arrays) -> dict[str, FixedArray]:
    """Return the fixed arrays by hash.

    Raises
    ------
    UntrustedFileError
        If one is not what its name says.
    """
    found = {}
    for wanted, array in _below(arrays, _FIXED).items():
        Tensor("float32", array.shape, is_finite=True).read(array, place=(_FIXED + wanted,))
        found[wanted] = FixedArray(array)
        require(found[wanted].sha256 == wanted, f"{_FIXED}{wanted[:80]} is not the array that its name says.")
    return found


def _below(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _read_settings(text: np.ndarray) -> dict[str, Plain]:
    data = Tensor("uint8", (None,), largest=_LARGEST_SETTINGS).read(text, place=(_SETTINGS,)).tobytes()
    with refused("the settings of the encoder"):
        return schema.ENCODER.read(json.loads(data), place=(_SETTINGS,))


def _renamed(arrays: Arrays, likelihood: AbstractLikelihood, input_shape: tuple[int, ...]) -> Arrays:
    """Return the arrays of a file of version 0.1 under the names that they have now."""
    missing = sorted(set(_OLD_SCALES) - set(arrays))
    require(not missing, f"the file must have {missing}.")
    shift, scale = arrays["x_shift"], arrays["x_scale"]
    settings: dict[str, str | int | float] = {"kind": "standardizer"}
    tensors = {"encoder.shift": shift, "encoder.scale": scale}
    if _OLD_TOKENIZER in arrays:
        tokenizer = arrays[_OLD_TOKENIZER]
        settings = {"kind": "tokens", "context": int(np.prod(input_shape)), "vocabulary": 1 << 31}
        tensors = {"encoder.tokenizer": tokenizer}
    elif len(input_shape) > 1 and shift.size and scale.size:
        low = float(shift.flat[0])
        settings, tensors = {"kind": "pixels", "low": low, "high": low + float(scale.flat[0])}, {}
    kept = likelihood.plain_response().tensors()
    tensors |= {_RESPONSE + name: arrays[f"y_{name}"] for name in kept}
    tensors |= {_RESPONSE + name: arrays[name] for name in LABELS if name in arrays}
    text = np.frombuffer(json.dumps(settings).encode(), np.uint8)
    return tensors | {_SETTINGS: text} | {_FIXED + name: array for name, array in _below(arrays, _FIXED).items()}
