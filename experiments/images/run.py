"""Convolutional networks on MNIST and Fashion-MNIST: one network, one chain, the deep ensemble, and all chains.

Usage: python experiments/images/run.py mnist fashion_mnist mnist2000 --data-dir FOLDER

Rows are added to summary.csv as they finish, and what stands there is not run again; name another file with
--summary to start from nothing. With --validation the scores are those of the validation images: settings were chosen
by them, the test images were looked at once.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mile import Dataset, FanIn, Mile, Normal, datasets
from mile.ensemble.training import Training
from mile.networks import CNN_V1, LENET5
from mile.priors import Prior
from mile.samplers.stochastic import Stochastic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import Summary
from classifiers import compare, main

N_CHAINS = 4
N_CLASSES = 10


class Case(NamedTuple):
    """One row of the table."""

    dataset: str
    network: Any
    method: str
    sampler: Any
    prior: Prior
    n_images: int = 60_000  # training and validation images
    training: Training = Training(batch_size=64)


CASES = {
    "mnist": Case(
        "mnist",
        CNN_V1,
        "stochastic",
        Stochastic(batch_size=512, warmup_steps=10_000, sampling_steps=15_000, n_draws=50),
        Normal(),
    ),
    "fashion_mnist": Case(
        "fashion_mnist",
        LENET5,
        "stochastic",
        Stochastic(batch_size=512, warmup_steps=2_000, sampling_steps=3_000, n_draws=60),
        Normal(),
    ),
    "mnist2000": Case(
        "mnist", CNN_V1, "MILE", Mile(warmup_steps=12_500, sampling_steps=2_500, n_draws=100), FanIn(), n_images=2_000
    ),
}


def run(name: str, case: Case, summary: Summary, split: int, data_dir: str | None, *, validation: bool) -> None:
    """Fit one row, unless it is there."""
    if summary.has(dataset=name, method=case.method, split=split):
        return
    images: Any = datasets.load(case.dataset, data_dir)
    order = np.random.default_rng(split).permutation(len(images.x_train))[: case.n_images]
    valid, train = np.split(order, [case.n_images // 10])
    x, y = flat(images.x_train), images.y_train.astype(np.int32)
    dataset = Dataset.from_arrays(x[train], y[train], x[valid], y[valid])
    test = (x[valid], y[valid]) if validation else (flat(images.x_test), images.y_test.astype(np.int32))
    network = case.network.sized((28, 28, 1), N_CLASSES)
    parts = (dataset, test, network, case.prior, case.training, case.sampler)
    compare(summary, name, split, *parts, method=case.method, n_chains=N_CHAINS)


def flat(images: np.ndarray) -> np.ndarray:
    """Return images as rows of numbers from 0 to 1."""
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255.0)


if __name__ == "__main__":
    main(CASES, run, __doc__, Path(__file__).with_name("summary.csv"))
