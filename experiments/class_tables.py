"""The two tables of classes in the paper, with the inputs that its parameter counts tell of."""

import numpy as np
from benchmark_data import load_classes
from protocols import PROTOCOLS, Split

from mile import datasets

# Columns of income that were text and are codes in its file; in some, code 0 is "?", a value that nobody knows.
_TEXTS = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country")
_WITH_UNKNOWN = ("workclass", "occupation", "native_country")
# A weight of the census for each row, and a number that says the same as `education`.
_LEFT_OUT = ("fnlwgt", "education_num")


def load(name: str, data_dir: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return features and class codes of a table as the paper's networks take them.

    The paper's 850 parameters on ionosphere are those of 33 inputs, all columns but the constant one; its 2,386 on
    income those of 95, for which `income_columns` is one recipe.
    """
    x, y = load_classes(name, data_dir)
    if name == "income":
        return income_columns(x, datasets.load(name, data_dir).features), y
    return x[:, np.ptp(x, axis=0) > 0.0], y


def income_columns(x: np.ndarray, features: tuple[str, ...]) -> np.ndarray:
    """Return one column for each level of a text but its first, and four numbers as they are.

    An unknown value has zeros in all columns of its text.
    """
    found = []
    for name, column in zip(features, x.T, strict=True):
        if name in _LEFT_OUT:
            continue
        if name not in _TEXTS:
            found.append(column[:, None])
            continue
        n_levels = int(column.max()) + 1
        first = 2 if name in _WITH_UNKNOWN else 1
        found.append(column[:, None] == np.arange(first, n_levels))
    return np.concatenate(found, axis=1, dtype=np.float64)


def split_of(name: str, split: int, protocol: str, data_dir: str | None = None) -> Split:
    """Return one split of a table by the protocol of that name."""
    return PROTOCOLS[protocol](*load(name, data_dir), split)
