"""What a file says of a network that it cannot hold: the library, the shapes of its arrays, and no code."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mile._json import Json
from mile._schema import Count, Fields, Several, Text, require

LIBRARIES = ("flax linen", "flax nnx", "equinox", "init and apply")
_MOST_ARRAYS = 100_000  # more than any network that can be sampled has
_MOST_NUMBERS = 2**31 - 1  # JAX counts the entries of an array with 32 bits
_MOST_AXES = 32
_LONGEST_PATH = 1000
_LONGEST_DTYPE = 20
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

    def describe(self) -> dict[str, Json]:
        """Return it as JSON."""
        arrays: list[Json] = [
            {"path": leaf.path, "shape": list(leaf.shape), "dtype": leaf.dtype} for leaf in self.leaves
        ]
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
                f"the network you gave is not the one in the file: {'; '.join(found[:_MOST_SHOWN])}{more}. Give the "
                "network that was fitted."
            )


def read_signature(description: object) -> Signature:
    """Return the signature that a file describes.

    Raises
    ------
    UntrustedFileError
        If it is not the description of a signature.
    """
    signature = _SIGNATURE.read(description, _WRONG)
    for shape in (signature.input_shape, *(leaf.shape for leaf in signature.leaves)):
        require(math.prod(shape) <= _MOST_NUMBERS, f"shape {shape} is too large.", _WRONG)
    paths = {leaf.path for leaf in signature.leaves}
    require(len(paths) == len(signature.leaves), "two arrays have one path.", _WRONG)
    return signature


def _made(library: str, input_shape: tuple[int, ...], n_outputs: int, arrays: tuple[Leaf, ...]) -> Signature:
    return Signature(library=library, input_shape=input_shape, n_outputs=n_outputs, leaves=arrays)


_WRONG = "not the signature of a network"
_SIZE = Count(1, _MOST_NUMBERS)
_LEAF = Fields(
    Leaf,
    {
        "path": Text(longest=_LONGEST_PATH),
        "shape": Several(_SIZE, most=_MOST_AXES),
        "dtype": Text(longest=_LONGEST_DTYPE),
    },
)
_SIGNATURE = Fields(
    _made,
    {
        "library": Text(choices=LIBRARIES),
        "input_shape": Several(_SIZE, fewest=1, most=_MOST_AXES),
        "n_outputs": _SIZE,
        "arrays": Several(_LEAF, fewest=1, most=_MOST_ARRAYS),
    },
)


def _differences(kept: Signature, given: Signature) -> Iterator[str]:
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
