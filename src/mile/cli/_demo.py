"""`mile demo`: a small table on which it shows what the draws are worth, beside a ridge regression and an ensemble."""

import time
from pathlib import Path
from typing import cast

import numpy as np

from mile import metrics
from mile._progress import duration
from mile.cli._console import Console, figure, table
from mile.cli._use import out_of_fold_table, write_report
from mile.estimators import MileRegressor
from mile.likelihoods.gaussian import NormalComponents
from mile.storage import inside

_N_TRAIN, _N_TEST, _N_SHOWN = 250, 400, 5
_NOISE = 1.0  # standard deviation
_LEVEL = 0.9
_AS_GOOD = 0.02  # of LPPD, in nats per row
_SHOWN = ("lppd", "crps", "rmse", "coverage_90", "sharpness_90")


def demo(console: Console, out: Path) -> None:
    """Fit, score and report Friedman's function of ten numbers, five of which matter."""
    from sklearn.datasets import make_friedman1

    made = make_friedman1(n_samples=_N_TRAIN + _N_TEST, noise=_NOISE, random_state=0)
    (x, x_test), (y, y_test) = (np.split(part, [_N_TRAIN]) for part in made[:2])
    names = tuple(f"x{column}" for column in range(1, x.shape[1] + 1))
    console.say(
        f"Friedman's function, 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 and noise: {_N_TRAIN} rows to learn "
        f"from, {_N_TEST:,} to test on, {len(names)} columns, of which the last five say nothing.\n"
        "Training 12 networks, then sampling a chain around each (about 20 s on two cores).\n"
    )
    began = time.perf_counter()
    model = MileRegressor(random_state=0, run_dir=out, verbose=int(console.talkative))
    model.fit_columns(x, y, names, "y")
    seconds = time.perf_counter() - began
    ensemble = MileRegressor(sampler="deep_ensemble", n_folds=0, random_state=0).fit(x, y)
    found = {
        "ridge regression": _ridge_scores(x, y, x_test, y_test),
        "deep ensemble": metrics.scores(ensemble.predictive(x_test), y_test),
        "MILE": metrics.scores(model.predictive(x_test), y_test),
        "the best possible": _scores_of_normal(_truth(x_test), np.full(_N_TEST, _NOISE), y_test),
    }
    console.say(
        f"\nOn the {_N_TEST:,} test rows (LPPD: higher is better, CRPS and RMSE: lower):\n{_score_table(found)}"
    )
    console.say(f"\n{_verdict(found)}")
    if model.fit_.out_of_fold is not None:
        console.say(f"\nWhat the fit itself said of that, without any test row:\n{out_of_fold_table(model.fit_)}")
    console.say("\n" + _first_rows(model, x_test, y_test))
    page = inside(out, "report.html")
    write_report(
        model, page, x_test, y_test, title="Friedman's function", rows=f"{_N_TEST:,} test rows", seconds=seconds
    )
    states, counts = np.unique(model.chain_status_, return_counts=True)
    summary = ", ".join(f"{count} {state}" for state, count in zip(states, counts, strict=True))
    console.say(
        f"\nChains: {summary}. {int(model.gradient_evaluations_.sum()):,} gradient evaluations in {duration(seconds)}."
        f"\nRun     {out}\nReport  {page}"
    )
    console.answer({"run": str(out), "report": str(page), "seconds": seconds, "test": found})


def _truth(x: np.ndarray) -> np.ndarray:
    """Return Friedman's function without noise."""
    return 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * np.square(x[:, 2] - 0.5) + 10 * x[:, 3] + 5 * x[:, 4]


def _ridge_scores(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> dict[str, float]:
    from sklearn.linear_model import BayesianRidge

    mean, std = cast(tuple[np.ndarray, np.ndarray], BayesianRidge().fit(x, y).predict(x_test, return_std=True))
    return _scores_of_normal(mean, std, y_test)


def _scores_of_normal(mean: np.ndarray, std: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the scores of a normal distribution for each row."""
    normal = NormalComponents(mean[None], std[None])
    low, high = (normal.quantile(level)[0] for level in ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2))
    return {
        "lppd": float(normal.log_prob(y).mean()),
        "crps": float(normal.crps(lambda at: (normal.cdf(at)[0], normal.density(at)[0]), y).mean()),
        "rmse": float(np.sqrt(np.mean(np.square(y - mean)))),
        "coverage_90": float(np.mean((low <= y) & (y <= high))),
        "sharpness_90": float(np.mean(high - low)),
    }


def _score_table(found: dict[str, dict[str, float]]) -> str:
    rows = []
    for name in _SHOWN:
        score = metrics.SCORES[name]
        written = [
            f"{scores[name]:.0%}" if score.best is not None else figure(scores[name]) for scores in found.values()
        ]
        rows.append((score.label, *written))
    return table(("", *found), rows)


def _verdict(found: dict[str, dict[str, float]]) -> str:
    """Say in one sentence what the draws gained over the ensemble."""
    draws, ensemble = found["MILE"], found["deep ensemble"]
    gain = draws["lppd"] - ensemble["lppd"]
    if gain <= _AS_GOOD:
        return "Here the plain deep ensemble is as good as MILE, at a fraction of the cost: take it."
    narrower = 1.0 - draws["sharpness_90"] / ensemble["sharpness_90"]
    width = f", with 90 % intervals that are {narrower:.0%} narrower" if narrower > 0.0 else ""
    return f"MILE gives what happened {np.exp(gain):.2g} times the density that the deep ensemble gives it{width}."


def _first_rows(model: MileRegressor, x: np.ndarray, y: np.ndarray) -> str:
    predictive = model.predictive(x[:_N_SHOWN])
    half, most = predictive.interval(0.5), predictive.interval(_LEVEL)
    rows = [
        (
            f"row {row + 1}",
            figure(float(predictive.mean[row])),
            *(f"{low:.1f} to {high:.1f}" for low, high in (half[row], most[row])),
            figure(float(y[row])),
        )
        for row in range(_N_SHOWN)
    ]
    return table(("", "mean", "50 % interval", "90 % interval", "observed"), rows)
