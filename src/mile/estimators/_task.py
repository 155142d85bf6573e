"""A learning task: checked rows with their weights, the likelihood of y, the encoder of X."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mile import _registry
from mile._checks import Chosen, check_choice, choose_part
from mile._errors import warn
from mile.estimators._foldings import Folding
from mile.estimators._responses import refuse_masked
from mile.features.accepted import WeightsLike
from mile.features.base import AbstractFeatureEncoder, Encoded, Table
from mile.features.frame import Frame
from mile.features.kinds import KINDS
from mile.fitting.likelihood_choice import AUTO
from mile.likelihoods import AbstractLikelihood
from mile.likelihoods.censored import with_limits
from mile.likelihoods.limits import has_limits

_MOST_REMARKS = 5  # sentences in a warning
_AT_RANDOM = Folding()


class CheckedRows(NamedTuple):
    """What was made of X and y."""

    x: Table
    y: np.ndarray
    encoder: AbstractFeatureEncoder  # the default for such x
    known: np.ndarray | None = None  # the rows whose y is known; None: all of them


class LearningTask(NamedTuple):
    """Checked rows, and how they are encoded."""

    x: Table  # rows first: a table, images or texts
    y: np.ndarray  # as the likelihood has checked it
    likelihood: AbstractLikelihood
    encoder: AbstractFeatureEncoder
    weight: np.ndarray | None  # None: each row counts once
    number: np.ndarray  # where each row was in the user's table
    folding: Folding = _AT_RANDOM

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row's features."""
        return self.x.shape[1:]


def choose_likelihood(
    given: object, usual: str | AbstractLikelihood, task: str, y: object = None
) -> Chosen[AbstractLikelihood]:
    """Return the likelihood that an estimator was given by name or as an object.

    None takes the default, and so does the name of its family: "gaussian" has the preset's link. So does "auto" for
    numbers, until the rows are known. Where y has limits, it is the likelihood of these with that family.

    Raises
    ------
    ValueError
        If there is none of that name, or it is for another kind of response.
    """
    is_open = is_left_open(given) and choose_part(_registry.likelihood, usual, AbstractLikelihood).family.is_numeric
    given = None if is_open else given
    is_usual = given is None or (not isinstance(usual, str) and given == _registry.likelihood.name_of(type(usual)))
    chosen = choose_part(_registry.likelihood, usual if is_usual else given, AbstractLikelihood)
    if chosen.family.task != task:
        names = [name for name, known in _registry.likelihood.classes.items() if known.task == task]
        raise ValueError(f"likelihood must be for {task}, one of {sorted(names)} or such an object; got {given!r}.")
    if not has_limits(y):
        return chosen
    found = with_limits(chosen.family, chosen.given, y, is_named=given is not None)
    return Chosen(type(found), found)


def is_left_open(likelihood: object) -> bool:
    """Say whether the rows shall decide what the likelihood is."""
    return isinstance(likelihood, str) and likelihood == AUTO


def choose_encoder(given: object, usual: AbstractFeatureEncoder) -> AbstractFeatureEncoder:
    """Return the encoder that an estimator was given by name or as an object; None takes the default.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if given is None:
        return usual
    chosen = choose_part(_registry.encoder, given, AbstractFeatureEncoder)
    return chosen.given or chosen.family()


def check_kinds(kinds: object) -> None:
    """Check what the user says of columns.

    Raises
    ------
    ValueError
        If it is not a mapping of names to kinds.
    """
    if kinds is None:
        return
    if not isinstance(kinds, Mapping):
        raise ValueError(f"columns must map names to kinds, such as {{'zip': 'category'}}; got {kinds!r}.")
    for name, kind in kinds.items():
        check_choice(f"columns[{str(name)[:80]!r}]", kind, KINDS)


def take_rows(x: Table, rows: np.ndarray) -> Table:
    """Return some of the rows."""
    return x.take(rows) if isinstance(x, Frame) else x[rows]


def encode_rows(encoder: AbstractFeatureEncoder, x: Table) -> Encoded:
    """Return rows to predict as the network takes them, and warn of what training did not have."""
    encoded, remarks = encoder.transform_and_remark(x)
    if remarks:
        more = f" And {len(remarks) - _MOST_REMARKS} more such remarks." if len(remarks) > _MOST_REMARKS else ""
        warn(" ".join(remarks[:_MOST_REMARKS]) + more)
    return encoded


def check_weights(weight: WeightsLike | None, x: Table) -> np.ndarray | None:
    """Return one finite weight per row that is not negative; None where all rows count once.

    Raises
    ------
    ValueError
        If a weight is missing, NaN, infinite or negative, or all of them are zero.
    """
    if weight is None:
        return None
    refuse_masked("sample_weight", weight)
    try:
        given = np.asarray(weight, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight must be one number for each row: {error}.") from None
    checked = np.full(len(x), given) if given.ndim == 0 else given
    if checked.shape != (len(x),):
        raise ValueError(f"sample_weight must be one number for each of the {len(x)} rows; got shape {given.shape}.")
    wrong = np.flatnonzero(~((checked >= 0) & (checked <= np.finfo(np.float32).max)))
    if wrong.size:
        value = f"{checked[wrong[0]]:g}".replace("nan", "NaN")
        raise ValueError(f"sample_weight must be finite and not negative, but row {wrong[0]} has {value}.")
    if not checked.any():
        raise ValueError(f"sample_weight must not be zero in every row, but all {len(x)} rows have weight 0.")
    return None if (checked == 1.0).all() else checked


def refuse_weightless_classes(weight: np.ndarray, y: np.ndarray) -> None:
    """Refuse weights that leave out a whole class.

    Raises
    ------
    ValueError
        If they do; the message names the class and its first row.
    """
    labels = y.tolist()
    known = {label for label, kept in zip(labels, weight > 0, strict=True) if kept}
    for row, label in enumerate(labels):
        if label not in known:
            raise ValueError(
                f"each class needs a row of positive weight, but all {labels.count(label)} rows of class {label!r} "
                f"have weight 0, the first in row {row}. Remove these rows, or give them weight."
            )
