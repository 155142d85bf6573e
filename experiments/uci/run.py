"""Reproduce the UCI regression table: LPPD and RMSE of MILE and of two deep ensembles.

Usage: python experiments/uci/run.py airfoil yacht energy concrete --data-dir FOLDER

Rows are added to summary.csv as they finish, and what stands there is not run again; name another file with
--summary to start from nothing.
"""

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np

from mile import MLP, Bars, Dataset, DeepEnsemble, Fit, Gaussian, Mile, fit, metrics
from mile.optimize import Patience, Training

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import REGRESSION, load

COLUMNS = [
    "dataset", "method", "protocol", "split", "lppd", "rmse", "accuracy", "calibration_error",
    "gradient_evaluations", "seconds", "chains", "draws",
]  # fmt: skip
# "DE" are the members that start the chains. The paper's own DE row comes from another training configuration
# in its code: ten times the learning rate and twice the patience; here it is "DE-0.01".
METHODS = ("DE", "DE-0.01", "MILE")
TABLE_TRAINING = Training(learning_rate=0.01, stopping=Patience(epochs=20))
# The paper's table: LPPD with its standard error, and RMSE.
PAPER = {
    "airfoil": {"DE-0.01": (0.024, 0.024, 0.309), "MILE": (0.612, 0.011, 0.206)},
    "concrete": {"DE-0.01": (-0.072, 0.018, 0.304), "MILE": (0.336, 0.054, 0.250)},
    "energy": {"DE-0.01": (1.227, 0.037, 0.120), "MILE": (2.300, 0.066, 0.034)},
    "yacht": {"DE-0.01": (1.623, 0.101, 0.081), "MILE": (2.859, 0.199, 0.033)},
}


def paper_split(x: np.ndarray, y: np.ndarray, split: int) -> tuple[Dataset, np.ndarray, np.ndarray]:
    """Standardize with all rows, as the reference does, then cut a random order 70/10/20."""
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = (y - y.mean()) / y.std()
    order = np.random.default_rng(split).permutation(len(x))
    train, valid, test = np.split(order, [len(x) * 7 // 10, len(x) * 8 // 10])
    return Dataset.from_arrays(x[train], y[train], x[valid], y[valid]), x[test], y[test]


def run(name: str, split: int, methods: list[str], data_dir: str | None) -> list[dict]:
    """Fit one split with the paper's defaults and score the methods asked for."""
    dataset, x_test, y_test = paper_split(*load(name, data_dir), split)
    rows = []
    if "MILE" in methods:
        model, seconds = _fit(dataset, split, sampler=Mile())
        if "DE" in methods:
            rows.append(_row(name, "DE", split, model, model.ensemble_predictive(x_test), y_test, ""))
        rows.append(_row(name, "MILE", split, model, model.predictive(x_test), y_test, seconds))
    elif "DE" in methods:
        model, seconds = _fit(dataset, split, sampler=DeepEnsemble())
        rows.append(_row(name, "DE", split, model, model.predictive(x_test), y_test, seconds))
    if "DE-0.01" in methods:
        model, seconds = _fit(dataset, split, sampler=DeepEnsemble(), training=TABLE_TRAINING)
        rows.append(_row(name, "DE-0.01", split, model, model.predictive(x_test), y_test, seconds))
    return rows


def _fit(dataset: Dataset, split: int, **options) -> tuple[Fit, float]:
    began = time.perf_counter()
    with Bars() as bars:
        network = MLP(n_inputs=dataset.n_features)
        model = fit(dataset, network, Gaussian(), random_state=split, progress=bars, **options)
    return model, round(time.perf_counter() - began, 1)


def _row(name, method, split, model, predictive, y, seconds) -> dict:
    sampled = method == "MILE"
    return {
        "dataset": name,
        "method": method,
        "protocol": "paper",
        "split": split,
        "lppd": round(metrics.lppd(predictive, y), 4),
        "rmse": round(metrics.rmse(predictive, y), 4),
        "accuracy": "",
        "calibration_error": round(metrics.calibration_error(predictive, y), 4),
        "gradient_evaluations": int(model.chains.gradient_evaluations.sum()) if sampled else 0,
        "seconds": seconds,
        "chains": int(model.ok.sum()),
        "draws": model.sampler.n_draws if sampled else 1,
    }


def append(path: Path, rows: list[dict]) -> None:
    """Add finished rows at once, so that an interrupted run loses at most the split under way."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerows(rows)


def print_table(path: Path, names: list[str]) -> None:
    """Print means and standard errors over splits beside the paper's."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    print(f"{'data':<10}{'method':<9}{'LPPD':>15}{'paper':>16}{'RMSE':>9}{'paper':>8}{'CalE':>8}")
    for name in names:
        for method in METHODS:
            ours = [row for row in rows if row["dataset"] == name and row["method"] == method]
            if not ours:
                continue
            lppd = np.array([float(row["lppd"]) for row in ours])
            error = lppd.std(ddof=1) / np.sqrt(len(lppd)) if len(lppd) > 1 else np.nan
            mean = {key: np.mean([float(row[key]) for row in ours]) for key in ("rmse", "calibration_error")}
            paper = ("", "")
            if method in PAPER[name]:
                paper_lppd, paper_error, paper_rmse = PAPER[name][method]
                paper = (f"{paper_lppd:.3f} ± {paper_error:.3f}", f"{paper_rmse:.3f}")
            print(
                f"{name:<10}{method:<9}{f'{lppd.mean():.3f} ± {error:.3f}':>15}{paper[0]:>16}"
                f"{mean['rmse']:>9.3f}{paper[1]:>8}{mean['calibration_error']:>8.3f}"
            )


def main() -> None:
    """Run the splits that are not in the summary yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", metavar="DATA", help=f"any of {', '.join(REGRESSION)}; default all")
    parser.add_argument("--data-dir", help="folder with NAME.csv.gz; default MILE_DATA, else download from OpenML")
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--summary", type=Path, default=Path(__file__).with_name("summary.csv"))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    arguments = parser.parse_args()
    names = arguments.datasets or list(REGRESSION)
    if unknown := set(names) - set(REGRESSION):
        parser.error(f"unknown data: {', '.join(sorted(unknown))}; choose from {', '.join(REGRESSION)}")
    done = set()
    if arguments.summary.exists():
        with arguments.summary.open() as file:
            done = {(row["dataset"], int(row["split"]), row["method"]) for row in csv.DictReader(file)}
    for name in names:
        for split in arguments.splits:
            missing = [method for method in arguments.methods if (name, split, method) not in done]
            if missing:
                print(f"{name}, split {split}: {', '.join(missing)}", flush=True)
                append(arguments.summary, run(name, split, missing, arguments.data_dir))
            else:
                print(f"{name}, split {split}: already in {arguments.summary.name}", flush=True)
    print_table(arguments.summary, names)


if __name__ == "__main__":
    main()
