"""Reproduce the UCI regression table: LPPD and RMSE of MILE and of the deep ensemble that starts its chains.

Usage: python experiments/uci/run.py airfoil yacht energy concrete --data-dir FOLDER
"""

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np

from mile import MLP, Bars, Dataset, Gaussian, Mile, fit, metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import REGRESSION, load

COLUMNS = [
    "dataset", "method", "protocol", "split", "lppd", "rmse", "accuracy", "calibration_error",
    "gradient_evaluations", "seconds", "chains", "draws",
]  # fmt: skip
# The paper's table: LPPD with its standard error, and RMSE.
PAPER = {
    "airfoil": {"DE": (0.024, 0.024, 0.309), "MILE": (0.612, 0.011, 0.206)},
    "concrete": {"DE": (-0.072, 0.018, 0.304), "MILE": (0.336, 0.054, 0.250)},
    "energy": {"DE": (1.227, 0.037, 0.120), "MILE": (2.300, 0.066, 0.034)},
    "yacht": {"DE": (1.623, 0.101, 0.081), "MILE": (2.859, 0.199, 0.033)},
}


def paper_split(x: np.ndarray, y: np.ndarray, split: int) -> tuple[Dataset, np.ndarray, np.ndarray]:
    """Standardize with all rows, as the reference does, then cut a random order 70/10/20."""
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y = (y - y.mean()) / y.std()
    order = np.random.default_rng(split).permutation(len(x))
    train, valid, test = np.split(order, [len(x) * 7 // 10, len(x) * 8 // 10])
    return Dataset.from_arrays(x[train], y[train], x[valid], y[valid]), x[test], y[test]


def run(name: str, split: int, data_dir: str | None) -> list[dict]:
    """Fit one split with the paper's defaults and score both methods."""
    dataset, x_test, y_test = paper_split(*load(name, data_dir), split)
    began = time.perf_counter()
    with Bars() as bars:
        model = fit(
            dataset,
            MLP(n_inputs=dataset.n_features),
            Gaussian(),
            sampler=Mile(),
            random_state=split,
            progress=bars,
        )
    seconds = time.perf_counter() - began
    used = int(model.ok.sum())
    gradients = int(model.chains.gradient_evaluations.sum())
    return [
        _row(name, "DE", split, model.ensemble_predictive(x_test), y_test, 0, "", used, 1),
        _row(name, "MILE", split, model.predictive(x_test), y_test, gradients, round(seconds, 1), used, 1000),
    ]


def _row(name, method, split, predictive, y, gradients, seconds, chains, draws) -> dict:
    return {
        "dataset": name,
        "method": method,
        "protocol": "paper",
        "split": split,
        "lppd": round(metrics.lppd(predictive, y), 4),
        "rmse": round(metrics.rmse(predictive, y), 4),
        "accuracy": "",
        "calibration_error": round(metrics.calibration_error(predictive, y), 4),
        "gradient_evaluations": gradients,
        "seconds": seconds,
        "chains": chains,
        "draws": draws,
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
    print(f"{'data':<10}{'method':<8}{'LPPD':>16}{'paper':>16}{'RMSE':>8}{'paper':>8}{'CalE':>8}")
    for name in names:
        for method in ("DE", "MILE"):
            ours = [row for row in rows if row["dataset"] == name and row["method"] == method]
            lppd = np.array([float(row["lppd"]) for row in ours])
            error = lppd.std(ddof=1) / np.sqrt(len(lppd)) if len(lppd) > 1 else np.nan
            mean = {key: np.mean([float(row[key]) for row in ours]) for key in ("rmse", "calibration_error")}
            paper_lppd, paper_error, paper_rmse = PAPER[name][method]
            print(
                f"{name:<10}{method:<8}{lppd.mean():>8.3f} ± {error:<5.3f}{paper_lppd:>8.3f} ± {paper_error:<5.3f}"
                f"{mean['rmse']:>8.3f}{paper_rmse:>8.3f}{mean['calibration_error']:>8.3f}"
            )


def main() -> None:
    """Run the splits that are not in the summary yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=list(REGRESSION), choices=[*REGRESSION, []])
    parser.add_argument("--data-dir", help="folder with NAME.csv.gz; default MILE_DATA, else download from OpenML")
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--summary", type=Path, default=Path(__file__).with_name("summary.csv"))
    arguments = parser.parse_args()
    names = arguments.datasets or list(REGRESSION)
    done = set()
    if arguments.summary.exists():
        with arguments.summary.open() as file:
            done = {(row["dataset"], int(row["split"])) for row in csv.DictReader(file)}
    for name in names:
        for split in arguments.splits:
            if (name, split) not in done:
                print(f"{name}, split {split}", flush=True)
                append(arguments.summary, run(name, split, arguments.data_dir))
    print_table(arguments.summary, names)


if __name__ == "__main__":
    main()
