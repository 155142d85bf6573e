"""Compare path-guided particle sampling with MILE and the deep ensemble on small classification tables.

Usage: python experiments/pgps/run.py sonar glass heart --data-dir FOLDER

Rows are added to summary.csv as they finish, and what stands there is not run again; name another file with
--summary to start from nothing.
"""

import argparse
import math
import sys
import time
from pathlib import Path

import numpy as np

from mile import MLP, Categorical, Dataset, Fit, FitFailedError, Mile, Normal, fit, metrics
from mile.optimize import Training
from mile.samplers.pgps import Pgps

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import Summary, load_classes

TABLES = ("glass", "heart", "sonar")
PRIOR = Normal(scale=math.sqrt(0.5))  # the original's, for all methods
N_CHAINS = 12
UNTRAINED = Training(max_epochs=1)  # particles do not start from a trained network
# Method and protocol -> sampler. The original leaves a batch's likelihood as it is, which tempers it, and does not
# bound the drift; "corrected" does both.
SAMPLERS = {
    ("PGPS", "paper"): Pgps(rescale_batches=False, limit_drift=False),
    ("MILE", "corrected"): Mile(warmup_steps=10_000, sampling_steps=5_000, n_draws=500),
    ("PGPS", "corrected"): Pgps(),
    ("PGPS-0.01", "corrected"): Pgps(step_size=0.01),
}
# The training rows of these are one batch and no drift is so long as to be bounded: both protocols are the same.
ONE_BATCH = ("sonar", "glass")
# The paper's table: NLL and accuracy.
PAPER = {
    "sonar": {"PGPS": (0.536, 0.798), "MILE": (0.979, 0.779)},
    "glass": {"PGPS": (1.685, 0.585), "MILE": (1.160, 0.643)},
    "heart": {"PGPS": (0.943, 0.256), "MILE": (1.440, 0.591)},
}


def halves(name: str, split: int, data_dir: str | None) -> tuple[np.ndarray, ...]:
    """Cut a random order in two, standardized by the first half, as the original does."""
    x, y = load_classes(name, data_dir)
    order = np.random.default_rng(split).permutation(len(x))
    train, test = np.split(order, [len(x) // 2])
    scale = x[train].std(axis=0)
    x = (x - x[train].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    return x[train], y[train], x[test], y[test]


def run(name: str, split: int, method: str, protocol: str, data_dir: str | None, summary: Summary) -> None:
    """Fit one method to one split and write its rows; MILE's members are the deep ensemble."""
    x, y, x_test, y_test = halves(name, split, data_dir)
    is_mile = method == "MILE"
    # MILE's members need rows to stop at: a fifth of the training rows, as in the paper's comparison.
    n_train = len(x) - len(x) // 5 if is_mile else len(x)
    valid = (x[n_train:], y[n_train:]) if is_mile else ()
    dataset = Dataset.from_arrays(x[:n_train], y[:n_train], *valid)
    n_classes = int(load_classes(name, data_dir)[1].max()) + 1
    network = MLP(n_inputs=x.shape[1], hidden=(32,), n_outputs=n_classes, activation="sigmoid")
    options = {"n_chains": N_CHAINS} if is_mile else {"n_chains": 1, "training": UNTRAINED}
    sampler, began = SAMPLERS[method, protocol], time.perf_counter()
    row = {"dataset": name, "method": method, "protocol": protocol, "split": split}
    try:
        model = fit(dataset, network, Categorical(n_classes), PRIOR, sampler, random_state=split, **options)
    except FitFailedError as error:
        print(f"    {error}", flush=True)
        summary.add(**row, chains=0, seconds=round(time.perf_counter() - began, 1))
        return
    cost = {
        "gradient_evaluations": int(model.chains.gradient_evaluations.sum()),
        "seconds": round(time.perf_counter() - began, 1),
        "chains": int(model.ok.sum()),
        "draws": model.sampler.n_draws,
    }
    predictive = model.predictive(x_test)
    summary.add(**row, **scores(predictive, y_test), **cost)
    if not is_mile:
        _print_moves(model)
        return
    # What the paper's table calls NLL of MILE is that of one draw, on average.
    per_draw = scores(predictive, y_test) | {"lppd": round(-metrics.mean_draw_nll(predictive, y_test), 4)}
    summary.add(**row | {"protocol": "paper"}, **per_draw, **cost)
    ensemble = scores(model.ensemble_predictive(x_test), y_test)
    summary.add(**row | {"method": "DE"}, **ensemble, gradient_evaluations=0, chains=cost["chains"], draws=1)


def scores(predictive, y: np.ndarray) -> dict[str, float]:
    """Return what the summary has columns for."""
    return {
        "lppd": round(metrics.lppd(predictive, y), 4),
        "accuracy": round(metrics.accuracy(predictive, y), 4),
        "calibration_error": round(metrics.expected_calibration_error(predictive, y), 4),
    }


def _print_moves(model: Fit) -> None:
    """Say how often Langevin steps had to be cut or taken back: a measure of whether the step suits the posterior."""
    for phase in ("path", "langevin"):
        report = model.chains.info[phase]
        print(
            f"    {phase}: {report['limited_steps'].sum():.0f} moves limited, {report['bad_steps'].sum():.0f} reverted"
        )


def print_table(summary: Summary, names: list[str]) -> None:
    """Print means and standard errors over splits beside the paper's."""
    kinds = dict.fromkeys((row["method"], row["protocol"]) for row in summary.rows)
    print(
        f"{'data':<8}{'method':<11}{'protocol':<11}{'NLL':>15}{'paper':>8}{'accuracy':>16}{'paper':>8}{'ECE':>8}{'runs':>6}"
    )
    for name in names:
        for method, protocol in kinds:
            wanted = {"dataset": name, "method": method, "protocol": protocol}
            rows = [row for row in summary.rows if all(row[key] == value for key, value in wanted.items())]
            if not rows or not all(row["lppd"] for row in rows):
                print(f"{name:<8}{method:<11}{protocol:<11} failed in a run" if rows else "", end="\n" if rows else "")
                continue
            lppd, lppd_error, n_runs = summary.mean("lppd", **wanted)
            accuracy, accuracy_error, _ = summary.mean("accuracy", **wanted)
            paper = PAPER[name].get(method, ("", ""))
            print(
                f"{name:<8}{method:<11}{protocol:<11}{f'{-lppd:.3f} ± {lppd_error:.3f}':>15}{paper[0]:>8}"
                f"{f'{accuracy:.3f} ± {accuracy_error:.3f}':>16}{paper[1]:>8}"
                f"{summary.mean('calibration_error', **wanted)[0]:>8.3f}{n_runs:>6}"
            )


def main() -> None:
    """Run what is not in the summary yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", metavar="DATA", help=f"any of {', '.join(TABLES)}; default all")
    parser.add_argument("--data-dir", help="folder with NAME.csv.gz; default MILE_DATA")
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--summary", type=Path, default=Path(__file__).with_name("summary.csv"))
    arguments = parser.parse_args()
    names = arguments.datasets or list(TABLES)
    if unknown := set(names) - set(TABLES):
        parser.error(f"unknown data: {', '.join(sorted(unknown))}; choose from {', '.join(TABLES)}")
    summary = Summary(arguments.summary)
    for split in arguments.splits:
        for name in names:
            for method, protocol in SAMPLERS:
                if (method, protocol) == ("PGPS", "corrected") and name in ONE_BATCH:
                    continue
                if not summary.has(dataset=name, method=method, protocol=protocol, split=split):
                    print(f"{name}, split {split}: {method} ({protocol})", flush=True)
                    run(name, split, method, protocol, arguments.data_dir, summary)
    print_table(summary, names)


if __name__ == "__main__":
    main()
