"""Compare symmetric split HMC with MILE and the deep ensemble on shrunken Fashion-MNIST images and a small network.

Usage: python experiments/split_hmc/run.py --data-dir FOLDER

Rows are added to summary.csv as they finish, and what stands there is not run again; name another file with
--summary to start from nothing.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from mile import MLP, Categorical, Dataset, Mile, fit, metrics
from mile.samplers.split_hmc import SplitHmc

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import Summary, load_images

N_TRAIN, N_VALID, N_TEST = 4_096, 1_000, 5_000
POOL = 4  # 28 x 28 pixels become 7 x 7
N_CLASSES = 10
HIDDEN = (16,)
# Method -> sampler and chains. Step size, steps and mass are the published ones, and so is the single chain; the
# ensemble of four is as MILE's.
METHODS = {
    "split HMC 1024": (SplitHmc(), 1),
    "split HMC 64": (SplitHmc(part_size=64), 1),
    "split HMC x 4": (SplitHmc(), 4),
    "MILE": (Mile(warmup_steps=5_000, sampling_steps=2_500, n_draws=250), 4),
}
# The paper's table, with 54,000 images and a convolutional network: accuracy and LPPD.
PAPER = {"split HMC 1024": (0.820, -0.525), "split HMC 64": (0.818, -0.548), "MILE": (0.925, -0.216)}


def images(name: str, split: int, data_dir: str | None) -> tuple[Dataset, np.ndarray, np.ndarray]:
    """Return average-pooled images, pixels from 0 to 1: random rows to train and validate, the first to test."""
    arrays = load_images(name, data_dir)

    def pool(pictures: np.ndarray) -> np.ndarray:
        side = pictures.shape[1] // POOL
        return pictures.reshape(-1, side, POOL, side, POOL).mean(axis=(2, 4)).reshape(-1, side**2) / 255.0

    order = np.random.default_rng(split).permutation(len(arrays["x_train"]))[: N_TRAIN + N_VALID]
    x, y = pool(arrays["x_train"][order]), arrays["y_train"][order].astype(np.int32)
    dataset = Dataset.from_arrays(x[:N_TRAIN], y[:N_TRAIN], x[N_TRAIN:], y[N_TRAIN:])
    return dataset, pool(arrays["x_test"][:N_TEST]), arrays["y_test"][:N_TEST].astype(np.int32)


def run(name: str, split: int, method: str, data_dir: str | None, summary: Summary) -> None:
    """Fit one method and write its row; MILE's members are the deep ensemble."""
    dataset, x_test, y_test = images(name, split, data_dir)
    network = MLP(n_inputs=x_test.shape[1], hidden=HIDDEN, n_outputs=N_CLASSES)
    (sampler, n_chains), began = METHODS[method], time.perf_counter()
    model = fit(dataset, network, Categorical(N_CLASSES), sampler=sampler, n_chains=n_chains, random_state=split)
    seconds = round(time.perf_counter() - began, 1)
    last = model.chains.info["sampling"]
    if "acceptance" in last:
        print(f"    acceptance {last['acceptance'].mean():.3f}, {int(last['n_parts'][0])} parts", flush=True)
    row = {"dataset": name, "protocol": "paper", "split": split, "chains": int(model.ok.sum())}
    cost = {"gradient_evaluations": int(model.chains.gradient_evaluations.sum()), "seconds": seconds}
    summary.add(method=method, draws=model.sampler.n_draws, **row, **cost, **scores(model.predictive(x_test), y_test))
    if method == "MILE":
        ensemble = scores(model.ensemble_predictive(x_test), y_test)
        summary.add(method="DE", draws=1, gradient_evaluations=0, **row, **ensemble)
    elif method == "split HMC 1024":
        # The one network from which the chain started.
        member = scores(model.ensemble_predictive(x_test), y_test)
        summary.add(method="start", draws=1, gradient_evaluations=0, **row, **member)


def scores(predictive, y: np.ndarray) -> dict[str, float]:
    """Return what the summary has columns for."""
    found = metrics.scores(predictive, y)
    columns = {"lppd": "lppd", "accuracy": "accuracy", "calibration_error": "expected_calibration_error"}
    return {column: round(found[score], 4) for column, score in columns.items()}


def print_table(summary: Summary, name: str) -> None:
    """Print means over splits beside the paper's."""
    print(f"{'method':<16}{'accuracy':>10}{'paper':>8}{'LPPD':>9}{'paper':>8}{'ECE':>8}{'gradients':>11}{'seconds':>9}")
    for method in dict.fromkeys(row["method"] for row in summary.rows):
        wanted = {"dataset": name, "method": method}
        columns = ("accuracy", "lppd", "calibration_error", "gradient_evaluations")
        accuracy, lppd, error, gradients = (summary.mean(column, **wanted)[0] for column in columns)
        timed = summary.mean("seconds", **wanted)[0] if method in METHODS else np.nan
        paper = PAPER.get(method, ("", ""))
        print(
            f"{method:<16}{accuracy:>10.3f}{paper[0]:>8}{lppd:>9.3f}{paper[1]:>8}"
            f"{error:>8.3f}{gradients:>11,.0f}{timed:>9.0f}"
        )


def main() -> None:
    """Run what is not in the summary yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", nargs="?", default="fashion_mnist", choices=["fashion_mnist", "mnist"])
    parser.add_argument("--data-dir", help="folder with fashion_mnist.npz; default MILE_DATA")
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--summary", type=Path, default=Path(__file__).with_name("summary.csv"))
    arguments = parser.parse_args()
    summary = Summary(arguments.summary)
    for split in arguments.splits:
        for method in METHODS:
            if not summary.has(dataset=arguments.dataset, method=method, split=split):
                print(f"{arguments.dataset}, split {split}: {method}", flush=True)
                run(arguments.dataset, split, method, arguments.data_dir, summary)
    print_table(summary, arguments.dataset)


if __name__ == "__main__":
    main()
