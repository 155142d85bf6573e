"""One network, one chain, the deep ensemble and all chains side by side on one classification problem."""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmark_data import Summary

from mile import Bars, Categorical, Dataset, DeepEnsemble, Fit, fit
from mile.ensemble.training import Training
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.priors import Prior
from mile.sampling.chains import run_chains


def compare(
    summary: Summary,
    name: str,
    split: int,
    dataset: Dataset,
    test: tuple[np.ndarray, np.ndarray],
    network: Any,
    prior: Prior,
    training: Training,
    sampler: Any,
    *,
    method: str,
    n_chains: int,
    before: float = 0.0,
) -> None:
    """Train the ensemble, start a chain from each member, and add a row for each way to predict.

    The seconds of a row are all that its result took, `before` included; those of a single network or chain are its
    share. The standard error of accuracies is printed, not kept: it follows from the number of test rows.
    """
    likelihood = Categorical(network.n_outputs)
    with Bars() as progress:
        began = time.perf_counter()
        options = {"training": training, "n_chains": n_chains, "random_state": split, "progress": progress}
        ensemble = fit(dataset, network, likelihood, prior, DeepEnsemble(), **options)
        trained = before + time.perf_counter() - began
        if not summary.has(dataset=name, method="DE", split=split):
            add(summary, name, "single DNN", split, ensemble, test, trained / n_chains, alone=True)
            add(summary, name, "DE", split, ensemble, test, trained)
        rows = pad_rows(dataset.x_train, dataset.y_train)
        posterior = Posterior(rows=rows, network=network, likelihood=likelihood, prior=prior.bind(network))
        sampler = sampler.with_start(training.learning_rate)
        began = time.perf_counter()
        chains = run_chains(sampler, posterior, ensemble.members.positions, seed=split, progress=progress)
        total = trained + time.perf_counter() - began
    model = replace(ensemble, chains=chains, sampler=sampler, status=chains.status)
    for chain, (step_size, length, status) in enumerate(zip(*chains.tuned[:2], chains.status, strict=True)):
        print(f"{name}: chain {chain} {status.name.lower()}, step size {step_size:.3g}, L {length:.3g}")
    add(summary, name, "single chain", split, model, test, total / n_chains, alone=True)
    add(summary, name, method, split, model, test, total)


def add(
    summary: Summary,
    name: str,
    method: str,
    split: int,
    model: Fit,
    test: tuple[np.ndarray, np.ndarray],
    seconds: float,
    *,
    alone: bool = False,
) -> None:
    """Score a model, or its chains one by one, and write the row."""
    x, y = test
    chosen = [[int(chain)] for chain in np.flatnonzero(model.ok)] if alone else [None]
    predict = model.ensemble_predictive if method in ("DE", "single DNN") else model.predictive
    lppd, accuracy = np.mean([scores(predict(x, chains=chains), y) for chains in chosen], axis=0)
    gradients = int(np.asarray(model.chains.gradient_evaluations, np.int64).sum())
    values = {
        "lppd": f"{lppd:.4f}",
        "accuracy": f"{accuracy:.4f}",
        "seconds": f"{seconds:.0f}",
        "gradient_evaluations": gradients // (len(model.status) if alone else 1),
        "chains": 1 if alone else int(model.ok.sum()),
        "draws": model.chains.draws.shape[1],
    }
    summary.add(dataset=name, method=method, protocol="corrected", split=split, **values)
    error = np.sqrt(accuracy * (1.0 - accuracy) / len(y))
    print(f"{name}: {method} LPPD {lppd:.4f}, accuracy {accuracy:.4f} (s.e. {error:.4f}), {seconds:.0f} s", flush=True)


def scores(predictive: Any, y: np.ndarray) -> tuple[float, float]:
    """Return LPPD and accuracy."""
    return float(np.mean(predictive.log_prob(y))), float(np.mean(predictive.labels == y))


def main(cases: Mapping[str, Any], run: Callable[..., None], documentation: str | None, summary: Path) -> None:
    """Run the cases that the command line names, by `run(name, case, summary, split, data_dir, validation=...)`."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", choices=cases)
    parser.add_argument("--data-dir", help="folder with the data; default: MILE_DATA, or a download")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--summary", type=Path, default=summary)
    parser.add_argument("--validation", action="store_true", help="score on validation rows, to choose settings")
    given = parser.parse_args()
    for name in given.cases:
        for split in range(1, given.splits + 1):
            run(name, cases[name], Summary(given.summary), split, given.data_dir, validation=given.validation)
