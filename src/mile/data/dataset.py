"""A data set as the pipeline wants it: encoded by its training rows, split once, order fixed."""

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mile.data.folds import FEWEST_ROWS_OF_A_FOLD, check_folds, rotating_folds, split_rows
from mile.data.rows import Rows
from mile.features.base import AbstractFeatureEncoder, Table
from mile.features.numbers import Standardizer
from mile.likelihoods import AbstractLikelihood, AbstractResponse


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Training and validation rows, ready for the network, with the encodings to apply and undo at prediction.

    Build one with `prepare`, or with `from_arrays` from arrays that need no encoding (paper protocols do). The
    posterior uses the training rows only; validation rows decide when training stops.
    """

    train: Rows
    valid: Rows
    encoder: AbstractFeatureEncoder
    response: AbstractResponse | None = None  # None: y is encoded already, and stays as it is
    folds: Int[np.ndarray, " row"] | None = None  # of the training rows, which rotate then; None: all chains see all

    @classmethod
    def from_arrays(
        cls,
        x_train: np.ndarray,
        y_train: np.ndarray,
        x_valid: np.ndarray | None = None,
        y_valid: np.ndarray | None = None,
        *,
        weight_train: np.ndarray | None = None,
        weight_valid: np.ndarray | None = None,
        row_train: np.ndarray | None = None,
        row_valid: np.ndarray | None = None,
        fold_train: np.ndarray | None = None,
    ) -> "Dataset":
        """Take arrays as they are; integer `y` are class codes, anything else is a number.

        Parameters
        ----------
        x_train, y_train, x_valid, y_valid
            Rows for training and for validation.
        weight_train, weight_valid
            How many times each row counts; None: once.
        row_train, row_valid
            Where each row was in the table that it comes from; None: as they come.
        fold_train
            Fold of each training row, from 0; chains leave them out in turn. None: all chains see all rows.

        Raises
        ------
        ValueError
            If shapes do not fit together, there are no rows, or a value is not finite.
        """
        train = Rows.checked(x_train, y_train, "train", weight_train, row_train)
        if (x_valid is None) != (y_valid is None):
            raise ValueError("x_valid and y_valid must be given together.")
        if x_valid is None or y_valid is None:
            x_valid, y_valid = train.x[:0], train.y[:0]
        valid = Rows.checked(x_valid, y_valid, "valid", weight_valid, row_valid)
        if valid.x.shape[1] != train.x.shape[1]:
            raise ValueError(f"x_valid has {valid.x.shape[1]} columns but x_train has {train.x.shape[1]}.")
        if not len(train):
            raise ValueError("x_train has no rows.")
        folds = None if fold_train is None else check_folds(fold_train, len(train), len(valid))
        return cls(train=train, valid=valid, encoder=Standardizer.identity(train.x.shape[1]), folds=folds)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the rows by name, as `from_arrays` takes them; weights only where a row counts other than once."""
        found = self._identity()
        if len(self.train.number):
            found |= {"row_train": self.train.number, "row_valid": self.valid.number}
        return found

    def _identity(self) -> dict[str, np.ndarray]:
        found = {"x_train": self.x_train, "y_train": self.y_train, "x_valid": self.x_valid, "y_valid": self.y_valid}
        if self.train.is_weighted or self.valid.is_weighted:
            found |= {"weight_train": self.train.weight, "weight_valid": self.valid.weight}
        return found if self.folds is None else found | {"fold_train": self.folds}

    def sha256(self) -> str:
        """Return a hash of all that a fit depends on: types, shapes and bytes."""
        digest = hashlib.sha256()
        for name, array in self._identity().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def n_features(self) -> int:
        """Number of encoded features."""
        return self.train.x.shape[1]

    @property
    def x_train(self) -> Float[np.ndarray, "row feature"]:
        """Features of the training rows."""
        return self.train.x

    @property
    def y_train(self) -> Float[np.ndarray, " row"] | Int[np.ndarray, " row"] | Float[np.ndarray, "row part"]:
        """Encoded response of the training rows."""
        return self.train.y

    @property
    def x_valid(self) -> Float[np.ndarray, "row feature"]:
        """Features of the validation rows."""
        return self.valid.x

    @property
    def y_valid(self) -> Float[np.ndarray, " row"] | Int[np.ndarray, " row"] | Float[np.ndarray, "row part"]:
        """Encoded response of the validation rows."""
        return self.valid.y


def prepare(
    x: Table,
    y: np.ndarray,
    likelihood: AbstractLikelihood,
    encoder: AbstractFeatureEncoder | None = None,
    *,
    validation_fraction: float = 0.125,
    seed: int,
    weight: Float[np.ndarray, " row"] | None = None,
    number: Int[np.ndarray, " row"] | None = None,
    n_folds: int | None = None,
    groups: Int[np.ndarray, " row"] | None = None,
    order: np.ndarray | None = None,
) -> Dataset:
    """Split checked rows into training and validation parts and encode both by what the training rows teach.

    With folds all rows are for training, and chains leave the folds out in turn.

    Parameters
    ----------
    x, y
        Rows of features, and a response that the likelihood has checked.
    likelihood
        Encodes y and says which groups a split must have in equal shares.
    encoder
        Encodes x; default: standardizes it.
    validation_fraction
        Share of the rows that is set aside; under 20 rows there is none.
    seed
        Of the split.
    weight
        How many times each row counts.
    number
        Where each row was in the user's table.
    n_folds
        Into how many folds to cut the rows; None or too few rows: set rows aside instead.
    groups
        A number for each row; rows with the same one stay in one fold.
    order
        By what rows follow each other; each fold is one stretch of them.
    """
    strata = likelihood.strata(y)
    rotates = n_folds is not None and len(x) >= FEWEST_ROWS_OF_A_FOLD * n_folds
    folds = None
    if n_folds is not None and rotates:
        folds = rotating_folds(len(x), n_folds, seed, strata=strata, groups=groups, order=order)
    validation = split_rows(len(x), 0.0 if rotates else validation_fraction, seed, strata)
    train, valid = np.flatnonzero(~validation), np.flatnonzero(validation)
    response = likelihood.learn(y, train, weight)
    encoded = response.encode(y)
    # What an encoder learns from y must not show a training row its own y.
    encoder, x_train = (encoder or Standardizer()).fit_and_transform(x, train, weight, encoded)

    def part(rows: np.ndarray, features: np.ndarray) -> Rows:
        return Rows(
            x=features,
            y=encoded[rows],
            weight=np.ones(len(rows), np.float32) if weight is None else weight[rows].astype(np.float32),
            number=rows if number is None else number[rows],
        )

    x_valid = encoder.transform(x, valid)
    rows = {"train": part(train, x_train), "valid": part(valid, x_valid)}
    return Dataset(**rows, encoder=encoder, response=response, folds=folds)
