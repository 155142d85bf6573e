"""What an estimator has to learn: checked rows with their weights, the likelihood of y, the encoder of X."""

from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import _check_sample_weight

from mile import _registry
from mile.features.base import AbstractFeatureEncoder
from mile.likelihoods import AbstractLikelihood


class LearningTask(NamedTuple):
    """Checked rows, and how they are encoded."""

    x: np.ndarray  # rows first: a table, images or texts
    y: np.ndarray  # as the likelihood has checked it
    likelihood: AbstractLikelihood
    encoder: AbstractFeatureEncoder
    weight: np.ndarray | None  # None: each row counts once
    number: np.ndarray  # where each row was in the user's table

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row's features."""
        return self.x.shape[1:]


def choose_likelihood(given: object, usual: str, task: str) -> type[AbstractLikelihood] | AbstractLikelihood:
    """Return the family of likelihoods, or the one, that an estimator was given; None takes the usual one.

    Raises
    ------
    ValueError
        If there is none of that name, or it is for another kind of response.
    """
    kind = usual if given is None else given
    if isinstance(kind, str):
        kind = _registry.likelihood[kind]
    family = kind if isinstance(kind, type) else type(kind)
    if not issubclass(family, AbstractLikelihood) or family.task != task:
        names = [name for name, known in _registry.likelihood.classes.items() if known.task == task]
        raise ValueError(f"likelihood must be for {task}, one of {sorted(names)} or such an object; got {given!r}.")
    return kind  # pyright: ignore[reportReturnType]


def choose_encoder(given: object, usual: AbstractFeatureEncoder) -> AbstractFeatureEncoder:
    """Return the encoder that an estimator was given by name or as an object; None takes the usual one.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if given is None:
        return usual
    encoder = _registry.encoder[given]() if isinstance(given, str) else given
    if not isinstance(encoder, AbstractFeatureEncoder):
        raise ValueError(f"encoder must be one of {sorted(_registry.encoder)} or an encoder; got {given!r}.")
    return encoder


def check_weights(weight: object, x: np.ndarray) -> np.ndarray | None:
    """Return one finite weight per row that is not negative; None where all rows count once.

    Raises
    ------
    ValueError
        If a weight is missing, not a number, negative, or all of them are zero.
    """
    if weight is None:
        return None
    checked = np.asarray(_check_sample_weight(weight, x, dtype=np.float64))
    wrong = np.flatnonzero(~((checked >= 0) & (checked <= np.finfo(np.float32).max)))
    if wrong.size:
        raise ValueError(
            f"sample_weight must be finite and not negative, but row {wrong[0]} has {checked[wrong[0]]:g}."
        )
    return None if (checked == 1.0).all() else checked
