"""Random streams that depend only on seed, stage and chain, so that adding chains changes no other chain's numbers."""

from enum import IntEnum

import jax
import numpy as np
from jaxtyping import Array

from mile._types import Key

RandomState = int | np.random.RandomState | np.random.Generator | None
Name = int | np.unsignedinteger | Array  # of a stream


class Stage(IntEnum):
    """One tag per use of randomness; phase p of a sampler uses SAMPLE + p."""

    INITIALIZE = 1
    OPTIMIZE = 2
    SAMPLE = 16


def draw_seed(random_state: RandomState) -> int:
    """Return the seed of `random_state`; None draws a fresh one from the system.

    Raises
    ------
    ValueError
        If `random_state` is a negative integer or of an unknown type.
    """
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if type(random_state) is not bool and isinstance(random_state, int | np.integer) and 0 <= random_state < 2**32:
        return int(random_state)
    raise ValueError(
        f"random_state must be None, an integer in [0, 2**32), or a numpy random generator; got {random_state!r}."
    )


def stream(seed: Name, stage: Name, chain: Name) -> Key:
    """Return the key of one chain in one stage; in compiled code the three may be arguments (uint32)."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), stage), chain)
