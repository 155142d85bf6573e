"""Convolutional networks on MNIST and Fashion-MNIST: one network, one chain, the deep ensemble, and all chains.

Usage: python experiments/images/run.py mnist fashion_mnist mnist2000 --data-dir FOLDER

Rows are added to summary.csv as they finish, and what stands there is not run again; name another file with
--summary to start from nothing. With --validation the scores are those of the validation images: settings were chosen
by them, the test images were looked at once.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mile import Bars, Categorical, Dataset, DeepEnsemble, Fit, Mile, Normal, datasets, fit
from mile.networks import CNN_V1, LENET5
from mile.optimize import Training
from mile.posterior import Posterior, pad_rows
from mile.samplers.stochastic import Stochastic
from mile.sampling import run_chains

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import Summary

N_CHAINS = 4
N_CLASSES = 10


class Case(NamedTuple):
    """One row of the table."""

    dataset: str
    network: Any
    method: str
    sampler: Any
    prior: Normal
    n_images: int = 60_000  # training and validation images
    training: Training = Training(batch_size=64)


CASES = {
    "mnist": Case(
        "mnist",
        CNN_V1,
        "stochastic",
        Stochastic(batch_size=512, warmup_steps=4_000, sampling_steps=4_000, n_draws=50),
        Normal(),
    ),
    "fashion_mnist": Case(
        "fashion_mnist",
        LENET5,
        "stochastic",
        Stochastic(batch_size=512, warmup_steps=3_000, sampling_steps=3_000, n_draws=50),
        Normal(scale=0.1),  # paper, appendix on priors, as its code has it: a standard deviation
    ),
    "mnist2000": Case(
        "mnist", CNN_V1, "MILE", Mile(warmup_steps=12_500, sampling_steps=2_500, n_draws=100), Normal(), n_images=2_000
    ),
}


def run(name: str, case: Case, summary: Summary, split: int, data_dir: str | None, *, validation: bool) -> None:
    """Train the ensemble, start a chain from each member, and score both."""
    if summary.has(dataset=name, method=case.method, split=split):
        return
    images = datasets.load(case.dataset, data_dir)
    order = np.random.default_rng(split).permutation(len(images.x_train))[: case.n_images]
    valid, train = np.split(order, [case.n_images // 10])
    x, y = flat(images.x_train), images.y_train.astype(np.int32)
    dataset = Dataset.from_arrays(x[train], y[train], x[valid], y[valid])
    x_test, y_test = (x[valid], y[valid]) if validation else (flat(images.x_test), images.y_test.astype(np.int32))
    network, likelihood = case.network.sized((28, 28, 1), N_CLASSES), Categorical(N_CLASSES)
    with Bars() as progress:
        began = time.perf_counter()
        options = {"training": case.training, "n_chains": N_CHAINS, "random_state": split, "progress": progress}
        ensemble = fit(dataset, network, likelihood, case.prior, DeepEnsemble(), **options)
        trained = time.perf_counter() - began
        if not summary.has(dataset=name, method="DE", split=split):
            add(summary, name, "single DNN", split, ensemble, x_test, y_test, trained / N_CHAINS, alone=True)
            add(summary, name, "DE", split, ensemble, x_test, y_test, trained)
        rows = pad_rows(dataset.x_train, dataset.y_train)
        posterior = Posterior(rows=rows, network=network, likelihood=likelihood, prior=case.prior)
        sampler = case.sampler.with_start(case.training.learning_rate)
        began = time.perf_counter()
        chains = run_chains(sampler, posterior, ensemble.members.positions, seed=split, progress=progress)
        sampled = time.perf_counter() - began
    model = replace(ensemble, chains=chains, sampler=sampler, status=chains.status)
    for chain, report in enumerate(zip(*chains.tuned[:2], chains.status, strict=True)):
        print(name, "chain", chain, *map(str, report))
    add(summary, name, "single chain", split, model, x_test, y_test, (trained + sampled) / N_CHAINS, alone=True)
    add(summary, name, case.method, split, model, x_test, y_test, trained + sampled)


def flat(images: np.ndarray) -> np.ndarray:
    """Return images as rows of numbers from 0 to 1."""
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255.0)


def add(
    summary: Summary,
    name: str,
    method: str,
    split: int,
    model: Fit,
    x: np.ndarray,
    y: np.ndarray,
    seconds: float,
    *,
    alone: bool = False,
) -> None:
    """Score a model, or its chains one by one, and write the row."""
    chosen = [[int(chain)] for chain in np.flatnonzero(model.ok)] if alone else [None]
    predict = model.ensemble_predictive if method in ("DE", "single DNN") else model.predictive
    found = [scores(predict(x, chains=chains), y) for chains in chosen]
    lppd, accuracy = np.mean(found, axis=0)
    gradients = int(np.asarray(model.chains.gradient_evaluations, np.int64).sum())
    n_chains = 1 if alone else int(model.ok.sum())
    values = {"lppd": f"{lppd:.4f}", "accuracy": f"{accuracy:.4f}", "seconds": f"{seconds:.0f}"}
    values |= {"gradient_evaluations": gradients // (len(model.status) if alone else 1), "chains": n_chains}
    summary.add(
        dataset=name, method=method, protocol="corrected", split=split, draws=model.chains.draws.shape[1], **values
    )
    print(name, method, split, values)


def scores(predictive: Any, y: np.ndarray) -> tuple[float, float]:
    """Return LPPD and accuracy."""
    return float(np.mean(predictive.log_prob(y))), float(np.mean(predictive.labels == y))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--data-dir", help="folder with the images; default: MILE_DATA, or a download")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--summary", type=Path, default=Path(__file__).with_name("summary.csv"))
    parser.add_argument("--validation", action="store_true", help="score on validation images, to choose settings")
    arguments = parser.parse_args()
    for name in arguments.cases:
        for split in range(1, arguments.splits + 1):
            run(
                name,
                CASES[name],
                Summary(arguments.summary),
                split,
                arguments.data_dir,
                validation=arguments.validation,
            )


if __name__ == "__main__":
    main()
