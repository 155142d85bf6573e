"""The tables of the suite as frames, and the rows of each split.

Imports numpy and pandas only, because it is used in the peers' environment and in ours.
"""

import csv
import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mixed_tables"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from export import KINDS, LIST
from tables import MixedTable, Rows

# Files of the data folder with the target last: those of the paper, and of its study of classification.
NUMBERS = ("airfoil", "bikesharing", "concrete", "energy", "protein", "yacht")
CLASSES = ("wine_red", "wine_white", "sonar", "heart", "australian", "ionosphere", "glass", "covertype")
_FILES = {"covertype": "covertype8000"}
_LAST = ""  # the target is the last column
_TEST_EVERY = 5  # a fifth of the rows
_DATE = r"\d{4}-\d{2}-\d{2}"


def _listed() -> dict[str, MixedTable]:
    with LIST.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["name"]: MixedTable(
            file=f"{row['name']}.csv", target=row["target"], is_regression=row["task"] == "regression"
        )
        for row in rows
    }


OF_R = _listed()
OF_THE_PAPER = {
    name: MixedTable(file=f"{_FILES.get(name, name)}.csv.gz", target=_LAST, is_regression=name in NUMBERS)
    for name in (*NUMBERS, *CLASSES)
}
TABLES = OF_R | OF_THE_PAPER


def path_of(name: str, data_dir: str | None, exported: Path) -> Path:
    """Return the file of a table: among those that `export.py` wrote, or in `data_dir` (or MILE_DATA).

    Raises
    ------
    FileNotFoundError
        If it is not there.
    """
    folder = exported if name in OF_R else Path(data_dir or os.environ.get("MILE_DATA") or ".").expanduser()
    path = folder / TABLES[name].file
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}. Name the folder that holds it with --data-dir or MILE_DATA.")
    return path


def load(name: str, data_dir: str | None, exported: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Return features and target of the rows whose target is known; columns are as they are, also those of numbers."""
    path, table = path_of(name, data_dir, exported), TABLES[name]
    frame = _read(path, json.loads((exported / KINDS).read_text())[name]) if name in OF_R else pd.read_csv(path)
    target = table.target or frame.columns[-1]
    frame = frame.dropna(subset=[target], ignore_index=True)
    values = frame.pop(target)
    return frame, values.to_numpy(np.float64) if table.is_regression else values.astype(str).to_numpy(object)


def _read(path: Path, kinds: dict[str, str]) -> pd.DataFrame:
    """Read what `export.py` wrote: an empty cell is missing, and no text is."""
    empty = {name: [""] for name in kinds}
    return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=empty)


def described(name: str, x: pd.DataFrame) -> MixedTable:
    """Return what methods may know of a table: its task, and which texts are dates."""
    texts = [column for column in x if not pd.api.types.is_numeric_dtype(x[column])]
    dates = tuple(column for column in texts if x[column].dropna().astype(str).str.match(_DATE).all())
    table = TABLES[name]
    return MixedTable(file=table.file, target=table.target, is_regression=table.is_regression, dates=dates)


def split_rows(x: pd.DataFrame, y: np.ndarray, split: int) -> Rows:
    """Cut a random order of the rows 80/20; each class by itself, as far as its number of rows allows.

    A class of one row is for training, so that no class of the test rows is unknown.
    """
    order = np.random.default_rng(split).permutation(len(y))
    if y.dtype.kind == "f":
        train, test = np.split(order, [len(order) * 8 // 10])
    else:
        codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
        order = order[np.argsort(codes[order], kind="stable")]
        is_test = (np.arange(len(order)) % _TEST_EVERY == split % _TEST_EVERY) & (counts[codes[order]] > 1)
        train, test = order[~is_test], order[is_test]
    return Rows(x.iloc[train].reset_index(drop=True), y[train], x.iloc[test].reset_index(drop=True), y[test])


def moved(x: pd.DataFrame, x_test: pd.DataFrame, distance: float, most_rows: int = 200) -> pd.DataFrame:
    """Return test rows with all numbers moved up, and moved down, by so many standard deviations of the training rows.

    Texts and flags stay. `most_rows` are moved each way.
    """
    some = x_test.head(most_rows)
    numbers = [name for name in x if pd.api.types.is_numeric_dtype(x[name]) and x[name].dtype != bool]
    steps = {name: distance * float(x[name].std(ddof=0)) for name in numbers}
    both = [some.assign(**{name: some[name] + side * step for name, step in steps.items()}) for side in (1, -1)]
    return pd.concat(both, ignore_index=True)
