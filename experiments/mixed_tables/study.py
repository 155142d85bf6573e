"""How to encode tables, decided on training rows: MILE with other encodings on inner splits of the training rows.

Usage: python experiments/mixed_tables/study.py --dataset ames --data-dir FOLDER

Training rows are those of split 1 of the experiment, of which an inner split takes 2,000 to fit and up to 4,000 others
to score; its test rows are not looked at. Four chains take a fifth of the default's steps. Rows are added to study.csv
as they finish, and what stands there is not run again.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from mile import MileClassifier, MileRegressor, TableEncoder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from ours import scaled_steps, scored
from summaries import Summary
from tables import TABLES, MixedTable, Rows, load, split_rows

COLUMNS = (
    "dataset", "variant", "inner_split", "lppd", "crps", "log_loss", "features", "rows_train", "rows_valid", "seconds",
)  # fmt: skip
N_TRAIN, MOST_VALID = 2_000, 4_000
N_CHAINS, SCALE = 4, 0.2
_CLIP = 3.0  # as the library's

# Tables with a running number, beside those of the experiment; diamonds with the column that it leaves out there.
RUNNING = {
    "diamonds+rownames": MixedTable(file="mixed/diamonds.csv.gz", target="price", is_regression=True),
    "bikesharing": MixedTable(file="bikesharing.csv.gz", target="cnt", is_regression=True),
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """An encoding: arguments of the `TableEncoder`, and what is done to numbers before it; or another prior."""

    squash: str = "smooth"
    most_levels: int = 30
    kinds: Mapping[str, str] = field(default_factory=dict)
    form: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None  # of training numbers and those to transform
    prior: str = "normal"

    def numbers(self, x: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
        """Return `other` with its numbers transformed by what the training rows `x` say."""
        if self.form is None:
            return other
        names = [name for name in x if pd.api.types.is_numeric_dtype(x[name]) and x[name].nunique() > 1]
        return other.assign(**{name: self.form(x[name].to_numpy(float), other[name].to_numpy(float)) for name in names})

    def encoder(self) -> TableEncoder:
        """Return the encoder."""
        return TableEncoder(squash=self.squash, most_levels=self.most_levels, kinds=self.kinds)


def tanh(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return 3 tanh(z / 3) of values scaled by quartiles, or by half the range where these are one."""
    first, median, third = np.nanquantile(known, (0.25, 0.5, 0.75))
    scale = (third - first) or (np.nanmax(known) - np.nanmin(known)) / 2
    return _CLIP * np.tanh((values - median) / scale / _CLIP)


def normal_quantiles(known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the quantiles of a normal distribution at the ranks among the training rows."""
    from sklearn.preprocessing import QuantileTransformer

    ranks = QuantileTransformer(n_quantiles=min(1_000, len(known)), output_distribution="normal", random_state=0)
    return ranks.fit(known[:, None]).transform(values[:, None])[:, 0]


BASE = {"smooth, 30 levels": Variant()}
SQUASH = {
    "standardized": Variant(squash="none"),
    "tanh": Variant(squash="none", form=tanh),
    "normal quantiles": Variant(squash="none", form=normal_quantiles),
}
FEWER = {"10 levels": Variant(most_levels=10)}
MORE = {"100 levels": Variant(most_levels=100)}
WITHOUT_ROWNAMES = {"without running number": Variant(kinds={"rownames": "ignore"})}
# Not an encoding: what the many features of categories ask of the prior.
PRIOR = {"fan-in prior": Variant(prior="fan_in")}
PLAN: dict[str, dict[str, Variant]] = {
    "ames": BASE | SQUASH | FEWER | WITHOUT_ROWNAMES | PRIOR,  # no column has more than 30 levels
    "flights": BASE | SQUASH | FEWER | MORE | WITHOUT_ROWNAMES | PRIOR,
    "income_raw": BASE | SQUASH | FEWER | MORE | PRIOR,
    "diamonds": BASE | SQUASH,
    "titanic": BASE | SQUASH,
    "diamonds+rownames": BASE | WITHOUT_ROWNAMES,
    "bikesharing": BASE | {"without running number": Variant(kinds={"instant": "ignore"})},
}


def main() -> None:
    """Run the rows that are not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", nargs="+", choices=PLAN, default=list(PLAN))
    parser.add_argument("--variants", nargs="+", help="default all")
    parser.add_argument("--inner-splits", type=int, default=2)
    parser.add_argument("--data-dir")
    parser.add_argument("--summary", type=Path, default=Path(__file__).resolve().parent / "study.csv")
    given = parser.parse_args()
    summary = Summary(given.summary, COLUMNS)
    for inner in range(1, 1 + given.inner_splits):
        for name in given.dataset:
            for title, variant in PLAN[name].items():
                cell = {"dataset": name, "variant": title, "inner_split": inner}
                if title in (given.variants or PLAN[name]) and not summary.has(**cell):
                    row = measure(name, variant, inner, given.data_dir)
                    summary.add(**cell, **row)
                    print(name, title, inner, row, flush=True)


def measure(name: str, variant: Variant, inner: int, data_dir: str | None = None) -> dict[str, object]:
    """Fit one encoding on an inner split, and score the other training rows."""
    table = (TABLES | RUNNING)[name]
    rows = inner_rows(split_rows(*load(table, data_dir), split=1), inner)
    estimator = MileRegressor if table.is_regression else MileClassifier
    steps = scaled_steps(SCALE, len(rows.y))
    model = estimator(n_chains=N_CHAINS, random_state=inner, encoder=variant.encoder(), prior=variant.prior, **steps)
    began = time.perf_counter()
    model.fit(variant.numbers(rows.x, rows.x), rows.y)
    scores = scored(model, variant.numbers(rows.x, rows.x_test))
    found = scores(rows.y_test, float(rows.y.std()) if table.is_regression else 1.0)
    seconds = {"seconds": round(time.perf_counter() - began, 1)}
    sizes = {"features": model.fit_.network.n_inputs, "rows_train": len(rows.y), "rows_valid": len(rows.y_test)}
    kept = {column: round(value, 4) for column, value in found.items() if column in COLUMNS and value is not None}
    return kept | sizes | seconds


def inner_rows(outer: Rows, inner: int) -> Rows:
    """Return training rows only: some to fit, at most four fifths, and others to score."""
    order = np.random.default_rng(100 + inner).permutation(len(outer.y))
    n_train = min(N_TRAIN, len(order) * 8 // 10)
    train, valid = order[:n_train], order[n_train : n_train + MOST_VALID]
    x, y = outer.x, outer.y
    return Rows(x.iloc[train].reset_index(drop=True), y[train], x.iloc[valid].reset_index(drop=True), y[valid])


if __name__ == "__main__":
    main()
