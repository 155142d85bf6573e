"""Arrays that belong to a network but are not sampled, such as pretrained embeddings."""

import hashlib
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class FixedArray:
    """A float32 array that compares and hashes by its contents, so that networks which hold one stay static.

    Files keep it as a tensor named by its hash; the description of the network names the hash only.
    """

    values: np.ndarray
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        values = np.array(self.values, np.float32, order="C")
        if not np.isfinite(values).all():
            raise ValueError("a fixed array must be finite.")
        values.flags.writeable = False
        digest = hashlib.sha256(f"{values.shape}".encode() + values.tobytes()).hexdigest()
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "sha256", digest)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedArray) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"FixedArray(shape={self.shape}, sha256={self.sha256[:12]})"
