"""What a file says of a network that it cannot hold: the library, the shapes of its arrays, and no code."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from mile._errors import UntrustedFileError

LIBRARIES = ("flax linen", "flax nnx", "equinox", "init and apply")
_MOST_ARRAYS = 100_000  # more than any network that can be sampled has
_MOST_NUMBERS = 2**31 - 1  # JAX counts the entries of an array with 32 bits
_MOST_AXES = 32
_LONGEST_PATH = 1000
_MOST_SHOWN = 5  # differences in a message


class Leaf(NamedTuple):
    """One array of a network."""

    path: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of parameters."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The shapes of a network; two networks of one signature read the same flat vector."""

    library: str
    input_shape: tuple[int, ...]
    n_outputs: int
    leaves: tuple[Leaf, ...]

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return sum(leaf.size for leaf in self.leaves)

    def __str__(self) -> str:
        arrays = "1 array" if len(self.leaves) == 1 else f"{len(self.leaves)} arrays"
        return f"{self.library}, {arrays}, {self.dimension:,} weights"

    def describe(self) -> dict[str, Any]:
        """Return what JSON can hold of it."""
        arrays = [{"path": leaf.path, "shape": list(leaf.shape), "dtype": leaf.dtype} for leaf in self.leaves]
        return {
            "library": self.library,
            "input_shape": list(self.input_shape),
            "n_outputs": self.n_outputs,
            "arrays": arrays,
        }

    def check_same(self, given: "Signature") -> None:
        """Raise unless a network given as code has the signature that a file keeps.

        Raises
        ------
        ValueError
            If it does not; the message names the differences.
        """
        found = list(_differences(self, given))
        if found:
            more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
            raise ValueError(
                f"the network you gave is not the one of the file: {'; '.join(found[:_MOST_SHOWN])}{more}. Give the "
                "network that was fitted."
            )


def read_signature(description: Any) -> Signature:
    """Return the signature that a file describes.

    Raises
    ------
    UntrustedFileError
        If it is not one.
    """
    if not isinstance(description, dict) or set(description) != {"library", "input_shape", "n_outputs", "arrays"}:
        raise _wrong(description)
    library, arrays = description["library"], description["arrays"]
    if library not in LIBRARIES or not isinstance(arrays, list) or not 1 <= len(arrays) <= _MOST_ARRAYS:
        raise _wrong(description)
    n_outputs = description["n_outputs"]
    if not _is_size(n_outputs):
        raise _wrong(n_outputs)
    signature = Signature(
        library=library,
        input_shape=_read_shape(description["input_shape"]),
        n_outputs=n_outputs,
        leaves=tuple(map(_read_leaf, arrays)),
    )
    if not signature.input_shape or len({leaf.path for leaf in signature.leaves}) < len(arrays):
        raise _wrong(description)
    return signature


def _read_leaf(entry: Any) -> Leaf:
    if not isinstance(entry, dict) or set(entry) != {"path", "shape", "dtype"}:
        raise _wrong(entry)
    path, dtype = entry["path"], entry["dtype"]
    if not isinstance(path, str) or not isinstance(dtype, str) or len(path) > _LONGEST_PATH or len(dtype) > 20:
        raise _wrong(entry)
    return Leaf(path, _read_shape(entry["shape"]), dtype)


def _read_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > _MOST_AXES or not all(map(_is_size, shape)):
        raise _wrong(shape)
    if math.prod(shape) > _MOST_NUMBERS:
        raise _wrong(shape)
    return tuple(shape)


def _is_size(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MOST_NUMBERS


def _wrong(value: Any) -> UntrustedFileError:
    return UntrustedFileError(f"not the signature of a network: {str(value)[:80]!r}.")


def _differences(kept: Signature, given: Signature) -> Any:
    for name, words in (("library", "library"), ("input_shape", "shape of a row"), ("n_outputs", "number of outputs")):
        was, now = getattr(kept, name), getattr(given, name)
        if was != now:
            yield f"the {words} is {was} in the file but {now} in the network you gave"
    before, after = ({leaf.path: leaf for leaf in signature.leaves} for signature in (kept, given))
    for path, leaf in before.items():
        other = after.get(path)
        if other is None:
            yield f"{path} is in the file but not in the network you gave"
        elif leaf.shape != other.shape:
            yield f"{path} has shape {leaf.shape} in the file but {other.shape} in the network you gave"
        elif leaf.dtype != other.dtype:
            yield f"{path} is {leaf.dtype} in the file but {other.dtype} in the network you gave"
    yield from (f"{path} is in the network you gave but not in the file" for path in after if path not in before)
    if list(before) != list(after) and set(before) == set(after):
        yield "the arrays come in another order"
