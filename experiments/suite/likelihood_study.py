"""What `likelihood="auto"` chooses, and what that gains on rows that nobody has seen: inner splits of training rows.

    MILE_DATA=... MILE_SUITE=... python likelihood_study.py [--tables T ...] [--split S] [--whole] [--sampled]

appends rows to likelihood_study.csv; what stands there is not run again. Of each table three quarters of the training
rows are fitted, at most 6,000, and the others scored, at most 3,000. First by deep ensembles of twelve members: the
usual family and the choice, with --whole every family that it compared. With --sampled then both by MILE with a quarter
of the steps, for tables where they differ. Scores are those that the choice compares: log densities, or probabilities
of cells where y has few values or zeros.
"""

import argparse
import csv
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from inner_splits import KNOWN, inner_rows, read
from start_study import append

import mile
from mile.fitting.likelihood_choice import paired_gain
from mile.likelihoods.recognition import recognize

ROWS = Path(__file__).with_name("likelihood_study.csv")
_SUITE = csv.DictReader(Path(__file__).with_name("tables.csv").open())
_MORE = ("wine_red", "wine_white", "protein")  # with grades and with several modes
TABLES = [
    *(name for name, task in KNOWN.items() if task == "regression"),
    *_MORE,
    *sorted(row["name"] for row in _SUITE if row["task"] == "regression"),
]
_MOST_FITTED, _MOST_SCORED = 6_000, 3_000
_QUARTER = {0: (12_500, 2_500), 1_000: (5_000, 1_250), 5_000: (1_500, 375)}  # steps of MILE, by the number of rows
_USUAL, _AUTO = "gaussian", "auto"


def main() -> None:
    """Run what is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--sampled", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.tables:
        for row in _rows_of(name, given.split, is_whole=given.whole, is_sampled=given.sampled):
            append(ROWS, row)


def _known(name: str, split: int, stage: str) -> dict[str, dict[str, str]]:
    if not ROWS.exists():
        return {}
    with ROWS.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == name and int(row["split"]) == split]
    return {row["likelihood"]: row for row in rows if row["stage"] == stage}


def _rows_of(name: str, split: int, *, is_whole: bool, is_sampled: bool) -> Iterator[dict[str, object]]:
    stage = "mile" if is_sampled else "ensemble"
    if _known(name, split, stage):
        return
    x, y, learned, scored = _read(name, split)
    options: dict[str, object] = {"sampler": "deep_ensemble", "random_state": split}
    if is_sampled:
        chosen = _known(name, split, "ensemble")[_AUTO]["chosen"]
        warmup, sampling = _QUARTER[max(border for border in _QUARTER if border <= len(learned))]
        options = {"warmup_steps": warmup, "sampling_steps": sampling, "n_draws": 100, "random_state": split}
        families = [] if chosen == _USUAL else [_USUAL, chosen]
    else:
        began = time.perf_counter()
        choice = mile.MileRegressor(likelihood=_AUTO, **options).fit(x.iloc[learned], y[learned]).likelihood_choice_
        seconds, chosen = time.perf_counter() - began, choice.chosen
        compared = [one.likelihood for one in choice.compared]
        families = compared if is_whole and compared else list(dict.fromkeys((_USUAL, chosen)))
    cells, usual, found = recognize(y[learned]).cells, None, []
    for family in families:
        start = time.perf_counter()
        model = mile.MileRegressor(likelihood=family, **options).fit(x.iloc[learned], y[learned])
        scores = cells.log_scores(model.predictive(x.iloc[scored]), y[scored])
        usual = scores if usual is None else usual
        capped, error = paired_gain(scores, usual)
        expected = {} if is_sampled else {one.likelihood: one for one in choice.compared}
        found.append(
            {
                "table": name, "split": split, "rows": len(learned), "stage": stage, "likelihood": family,
                "lppd": float(np.mean(scores)), "gain": float(np.mean(scores - usual)), "capped": capped,
                "error": error, "chosen": chosen,
                "expected": expected[family].gain if family in expected else "",
                "expected_error": expected[family].standard_error if family in expected else "",
                "seconds": time.perf_counter() - start,
            }
        )  # fmt: skip
    yield from found
    if not is_sampled:
        best = next(row for row in found if row["likelihood"] == chosen)
        yield best | {"likelihood": _AUTO, "seconds": seconds}


def _read(name: str, split: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Return a table with a number to predict, the rows to fit and those to score."""
    if name in _MORE:
        frame = pd.read_csv(Path(os.environ["MILE_DATA"]) / f"{name}.csv.gz")
        x, y = frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy(float)
    else:
        x, y, _ = read(name)
    learned, scored = inner_rows(y, "regression", split)
    return x, y, learned[:_MOST_FITTED], scored[:_MOST_SCORED]


if __name__ == "__main__":
    main()
