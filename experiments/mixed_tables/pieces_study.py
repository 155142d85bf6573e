"""How finely to cut numbers, and how wide a network then has to be, decided on training rows of large tables.

Usage: python experiments/mixed_tables/pieces_study.py --dataset income_raw --data-dir FOLDER [--ensembles]

Training rows are those of split 1 of the experiment: 20,000 of them to fit, the last 10,000 of their random order to
score; its test rows are not looked at. Six chains take the default's steps; with `--ensembles` only the networks that
chains start from are fitted, which takes seconds. Rows are added to pieces_study.csv, and what stands there is not run
again.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from mile import MileClassifier, MileRegressor, TableEncoder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "alternatives"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from ours import scored
from summaries import Summary
from tables import TABLES, Rows, load, split_rows

COLUMNS = (
    "dataset", "sampler", "pieces", "hidden", "likelihood", "lppd", "crps", "rmse", "accuracy", "features", "seconds",
)  # fmt: skip
N_TRAIN, N_VALID, N_CHAINS, ORDER = 20_000, 10_000, 6, 101
HIDDEN = {"32-32-32": (32, 32, 32), "16-16-16": (16, 16, 16), "16-16": (16, 16), "16": (16,)}


def main() -> None:
    """Run the rows that are not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", nargs="+", choices=("flights", "income_raw", "diamonds"), default=["income_raw"])
    parser.add_argument("--pieces", nargs="+", type=int, default=[0, 16, 32, 64])
    parser.add_argument("--hidden", nargs="+", choices=HIDDEN, default=["32-32-32", "16-16-16"])
    parser.add_argument("--likelihood", nargs="+", default=["default"], help="of numbers: also mixture and others")
    parser.add_argument("--ensembles", action="store_true", help="only the networks that chains start from")
    parser.add_argument("--data-dir")
    parser.add_argument("--summary", type=Path, default=Path(__file__).resolve().parent / "pieces_study.csv")
    given = parser.parse_args()
    summary = Summary(given.summary, COLUMNS)
    sampler = "deep_ensemble" if given.ensembles else "mile"
    settings = [(p, h, lk) for p in given.pieces for h in given.hidden for lk in given.likelihood]
    for name in given.dataset:
        for pieces, hidden, likelihood in settings:
            cell = {"dataset": name, "sampler": sampler, "pieces": pieces, "hidden": hidden, "likelihood": likelihood}
            if not summary.has(**cell):
                row = measure(name, sampler, pieces, HIDDEN[hidden], likelihood, given.data_dir)
                summary.add(**cell, **row)
                print(*cell.values(), row, flush=True)


def measure(
    name: str, sampler: str, pieces: int, hidden: tuple[int, ...], likelihood: str, data_dir: str | None = None
) -> dict[str, object]:
    """Fit one setting, and score rows that it has not seen."""
    table = TABLES[name]
    rows = inner_rows(split_rows(*load(table, data_dir), split=1))
    estimator = MileRegressor if table.is_regression else MileClassifier
    model = estimator(
        hidden,
        n_chains=N_CHAINS,
        random_state=1,
        sampler=sampler,
        encoder=TableEncoder(pieces=pieces),
        likelihood=None if likelihood == "default" else likelihood,
        **({"warmup_steps": 6_000, "sampling_steps": 1_500} if sampler == "mile" else {}),
    )
    began = time.perf_counter()
    model.fit(rows.x, rows.y)
    found = scored(model, rows.x_test)(rows.y_test, float(rows.y.std()) if table.is_regression else 1.0)
    kept = {column: round(value, 4) for column, value in found.items() if column in COLUMNS and value is not None}
    return kept | {"features": model.fit_.network.n_inputs, "seconds": round(time.perf_counter() - began, 1)}


def inner_rows(outer: Rows) -> Rows:
    """Return training rows only: some to fit, and others to score."""
    order = np.random.default_rng(ORDER).permutation(len(outer.y))
    train = order[: min(N_TRAIN, len(order) * 8 // 10)]
    valid = order[max(len(train), len(order) - N_VALID) :]
    x, y = outer.x, outer.y
    return Rows(x.iloc[train].reset_index(drop=True), y[train], x.iloc[valid].reset_index(drop=True), y[valid])


if __name__ == "__main__":
    main()
