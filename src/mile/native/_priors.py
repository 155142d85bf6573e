"""Priors as the kernel's step takes them: a family, and a coefficient for all parameters or for each."""

from typing import NamedTuple

import numpy as np

from mile.priors import NativePrior

_FAMILIES = {"normal": 0, "laplace": 1, "student_t": 2, "grouped": 3}
_GROUPINGS = {"normal": 0, "whole": 1, "rows": 2, "columns": 3}
_MULTIPLE = 16  # to which the kernel pads vectors of parameters


class PriorArguments(NamedTuple):
    """What a custom call gets of a prior; priors.hpp says what the coefficients are."""

    coefficients: np.ndarray
    attributes: dict[str, np.ndarray | np.int64 | np.float64]


def prior_arguments(prior: NativePrior, dimension: int) -> PriorArguments:
    """Return the arguments for a vector of this number of parameters."""
    blocks = [(_GROUPINGS[kind], rows, columns) for kind, rows, columns in prior.blocks]
    return PriorArguments(
        _coefficients(prior, dimension).astype(np.float32),
        {
            "family": np.int64(_FAMILIES[prior.family]),
            "degrees": np.float64(prior.degrees),
            "power": np.float64(prior.power),
            "blocks": np.array(blocks, np.int64).ravel(),
        },
    )


def _coefficients(prior: NativePrior, dimension: int) -> np.ndarray:
    if prior.family == "grouped":
        of_weights, of_biases = prior.scale
        return np.array([of_weights**-2 / prior.degrees, of_biases**-2])
    if prior.family == "normal" and len(prior.scale) == 1:
        return prior.scale**-2
    found = {
        "normal": lambda scale: scale**-2,
        "laplace": lambda scale: 1.0 / scale,
        "student_t": lambda scale: scale**-2 / prior.degrees,
    }[prior.family](np.broadcast_to(prior.scale, dimension))
    return np.pad(found, (0, -dimension % _MULTIPLE))
