"""Mini-batches against all rows: covertype, where both can be had, and a million rows, where only one can.

Usage: python experiments/stochastic/run.py covertype million --data-dir FOLDER

Rows are added to summary.csv as they finish, and what stands there is not run again; name another file with
--summary to start from nothing.
"""

import argparse
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from mile import MLP, Categorical, Dataset, DeepEnsemble, Fit, FitWarning, Gaussian, Mile, Normal, fit, metrics
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.predict import ClassPredictive
from mile.samplers.stochastic import Stochastic
from mile.sampling.chains import run_chains

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import Summary, load_classes

N_CHAINS = 4
# A step has a fixed cost, so that batches of a fifth of the rows are the better use of a fifth of the time.
COVERTYPE = {"MILE": Mile(), "stochastic": Stochastic(batch_size=1_024, warmup_steps=10_000, sampling_steps=5_000)}
TIME_LIMIT = 600.0
N_TEST, N_FEATURES = 20_000, 50
# Relaxation takes half an epoch whatever the batch size, and larger batches waste less time between calls.
MILLION = Stochastic(batch_size=1_024, warmup_steps=200_000, sampling_steps=100_000, n_draws=100)


def covertype(summary: Summary, split: int, data_dir: str | None) -> None:
    """Start both samplers from the same trained ensemble; the seconds are those of sampling, compilation included."""
    x, y = load_classes("covertype8000", data_dir)
    train, valid, test = np.split(np.random.default_rng(split).permutation(len(x)), [5_600, 6_400])
    spread = x[train].std(axis=0)
    x = (x - x[train].mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    dataset = Dataset.from_arrays(x[train], y[train], x[valid], y[valid])
    network, likelihood = MLP(n_inputs=x.shape[1], n_outputs=7), Categorical(7)
    began = time.perf_counter()
    ensemble = fit(dataset, network, likelihood, sampler=DeepEnsemble(), n_chains=N_CHAINS, random_state=split)
    seconds = time.perf_counter() - began
    if not summary.has(dataset="covertype8000", method="DE", split=split):
        add(summary, "covertype8000", "DE", split, ensemble, x[test], y[test], seconds)
    rows = pad_rows(dataset.x_train, dataset.y_train)
    posterior = Posterior(rows=rows, network=network, likelihood=likelihood, prior=Normal())
    for method, sampler in COVERTYPE.items():
        if summary.has(dataset="covertype8000", method=method, split=split):
            continue
        started = sampler.with_start(ensemble.training.learning_rate)
        began = time.perf_counter()
        chains = run_chains(started, posterior, ensemble.members.positions, seed=split)
        seconds = time.perf_counter() - began
        model = replace(ensemble, chains=chains, sampler=started, status=chains.status)
        add(summary, "covertype8000", method, split, model, x[test], y[test], seconds)


def million(summary: Summary, split: int, n_rows: int) -> None:
    """Fit within the time limit, and score the ensemble that started the chains beside them."""
    name = f"synthetic{n_rows}"
    if summary.has(dataset=name, method="stochastic", split=split):
        return
    x, y = synthetic(n_rows + N_TEST, split)
    n_valid = n_rows // 100
    dataset = Dataset.from_arrays(
        x[N_TEST + n_valid :], y[N_TEST + n_valid :], x[N_TEST:][:n_valid], y[N_TEST:][:n_valid]
    )
    x, y = x[:N_TEST].copy(), y[:N_TEST].astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("always", FitWarning)  # the limit cuts budgets, and says by how much
        began = time.perf_counter()
        network = MLP(n_inputs=N_FEATURES)
        model = fit(
            dataset, network, Gaussian(), sampler=MILLION, n_chains=N_CHAINS, random_state=split, time_limit=TIME_LIMIT
        )
        seconds = time.perf_counter() - began
    add(summary, name, "DE", split, model, x, y, "", ensemble=True)
    add(summary, name, "stochastic", split, model, x, y, seconds)


def synthetic(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and a response whose mean and spread are nonlinear in a few directions; unit variance."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, N_FEATURES), np.float32)
    directions = rng.standard_normal((N_FEATURES, 4), np.float32) / np.float32(np.sqrt(N_FEATURES))
    first, second, third, fourth = (x @ directions).T
    mean = np.sin(2.0 * first) + second * third + 0.5 * np.abs(fourth)
    spread = 0.1 + 0.3 / (1.0 + np.exp(-2.0 * fourth))
    y = mean + spread * rng.standard_normal(n_rows, np.float32)
    return x, ((y - y.mean()) / y.std()).astype(np.float32)


def add(
    summary: Summary, dataset: str, method: str, split: int, model: Fit, x, y, seconds, *, ensemble: bool = False
) -> None:
    """Score a model and write its row."""
    predictive = model.ensemble_predictive(x) if ensemble else model.predictive(x)
    sampled = method != "DE"
    if isinstance(predictive, ClassPredictive):
        figures = {
            "accuracy": round(metrics.accuracy(predictive, y), 4),
            "calibration_error": round(metrics.expected_calibration_error(predictive, y), 4),
        }
    else:
        figures = {
            "rmse": round(metrics.rmse(predictive, y), 4),
            "calibration_error": round(metrics.calibration_error(predictive, y), 4),
        }
    row = {
        "dataset": dataset,
        "method": method,
        "protocol": "corrected",
        "split": split,
        "lppd": round(metrics.lppd(predictive, y), 4),
        **figures,
        "gradient_evaluations": int(model.chains.gradient_evaluations.sum()) if sampled else 0,
        "seconds": seconds if seconds == "" else round(seconds, 1),
        "chains": int(model.ok.sum()),
        "draws": model.chains.logdensity.shape[1] if sampled else 1,
    }
    summary.add(**row)
    print(row, flush=True)
    if sampled:
        report = {
            name: np.round(values, 4) for name, values in model.chains.info["sampling"].items() if values.ndim == 1
        }
        print({name: values.tolist() for name, values in report.items()}, flush=True)


def main() -> None:
    """Run what is not in the summary yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="*", choices=["covertype", "million"], default=["covertype", "million"])
    parser.add_argument("--data-dir", help="folder with covertype8000.csv.gz; default MILE_DATA")
    parser.add_argument("--splits", type=int, nargs="+", default=[1])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the synthetic table")
    parser.add_argument("--summary", type=Path, default=Path(__file__).with_name("summary.csv"))
    arguments = parser.parse_args()
    summary = Summary(arguments.summary)
    for split in arguments.splits:
        if "covertype" in arguments.datasets:
            covertype(summary, split, arguments.data_dir)
        if "million" in arguments.datasets:
            million(summary, split, arguments.rows)


if __name__ == "__main__":
    main()
