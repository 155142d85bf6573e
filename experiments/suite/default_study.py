"""The study behind the preset `default`: priors, links and folds on inner splits of training rows.

Usage: MILE_SUITE=FOLDER python experiments/suite/default_study.py "layer, 6 folds" --tables yacht Traffic

MILE_SUITE is a folder with the suite's tables as NAME.csv, target last. Of each table four fifths are training rows; an
inner split fits three quarters of them, at most 6,000, and scores the others, at most 3,000. Twelve chains take a
quarter of the default's steps. Rows are added to default_study.csv; what stands there is not run again.
"""

import argparse
import csv
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

import mile
from mile import MLP, Categorical, FanIn, Gaussian, Hierarchical, Normal
from mile.data.dataset import prepare
from mile.features.frame import Frame
from mile.features.table import TableEncoder
from mile.priors import Prior
from mile.samplers import configure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from summaries import Summary

COLUMNS = (
    "table", "setting", "rows", "features", "lppd", "ensemble", "out_of_fold", "crps", "largest_std", "std_5_sd_away",
    "good_chains", "cpu_seconds",
)  # fmt: skip
_TABLES = {row["name"]: row for row in csv.DictReader(Path(__file__).with_name("tables.csv").open())}
_CLASSES = ("sonar", "heart", "australian", "ionosphere", "glass", "wine_red", "wine_white", "covertype8000")
_MOST_FITTED, _MOST_SCORED = 6_000, 3_000
_FEWEST_OF_A_CLASS = 4
_SHARE_OF_STEPS, _N_DRAWS, _N_CHAINS = 0.25, 100, 12
_AWAY = 5.0  # standard deviations by which rows are moved


class Setting(NamedTuple):
    """What is tried."""

    prior: Prior
    n_folds: int | None = None  # None: an eighth of the rows is set aside
    link: str = "bounded"
    squash: str = "smooth"


SETTINGS = {
    "before": Setting(Normal(), link="exponential"),
    "normal, 4 folds": Setting(Normal(), 4),
    "fan-in, 4 folds": Setting(FanIn(), 4),
    "layer": Setting(Hierarchical()),
    "layer, 4 folds": Setting(Hierarchical(), 4),
    "layer, 6 folds": Setting(Hierarchical(), 6),
    "layer, 6 folds, standardized": Setting(Hierarchical(), 6, squash="none"),
    "layer, 12 folds": Setting(Hierarchical(), 12),
    "layer, scale 0.3, 12 folds": Setting(Hierarchical(scale=0.3), 12),
    "unit, 12 folds": Setting(Hierarchical(groups="unit"), 12),
    "input, 4 folds": Setting(Hierarchical(groups="input"), 4),
}


class InnerRows(NamedTuple):
    """Rows to fit and rows to score, both of them training rows."""

    x: pd.DataFrame
    y: np.ndarray
    x_scored: pd.DataFrame
    y_scored: np.ndarray
    is_regression: bool


def main() -> None:
    """Run the rows that are not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="+", choices=SETTINGS)
    parser.add_argument("--tables", nargs="+", default=list(_TABLES))
    parser.add_argument("--data-dir", default=os.environ.get("MILE_DATA"))
    given = parser.parse_args()
    summary = Summary(Path(__file__).with_name("default_study.csv"), COLUMNS)
    for setting in given.settings:
        for table in given.tables:
            if not summary.has(table=table, setting=setting):
                row = measure(inner_rows(table, given.data_dir), SETTINGS[setting])
                summary.add(table=table, setting=setting, **row)
                print(table, setting, row, flush=True)


def inner_rows(table: str, data_dir: str | None) -> InnerRows:
    """Return the inner split of a table's training rows."""
    if table in _TABLES:
        frame = pd.read_csv(Path(os.environ["MILE_SUITE"]) / f"{table}.csv")
        is_regression = _TABLES[table]["task"] == "regression"
    elif table == "diabetes":
        frame, is_regression = load_diabetes(as_frame=True).frame, True
    else:
        frame, is_regression = pd.read_csv(Path(data_dir or "") / f"{table}.csv.gz"), table not in _CLASSES
    x, y = frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy()
    y = y.astype(float) if is_regression else np.array([str(label) for label in y])
    if not is_regression:
        labels, counts = np.unique(y, return_counts=True)
        known = np.isin(y, labels[counts >= _FEWEST_OF_A_CLASS])
        x, y = x[known].reset_index(drop=True), y[known]
    train, _ = _cut(len(y), 5, 1, None if is_regression else y)
    x, y = x.iloc[train].reset_index(drop=True), y[train]
    fitted, scored = _cut(len(y), 4, 101, None if is_regression else y)
    if len(fitted) > _MOST_FITTED:
        fitted = fitted[np.random.default_rng(5).permutation(len(fitted))[:_MOST_FITTED]]
    scored = scored[:_MOST_SCORED]
    parts = [(x.iloc[rows].reset_index(drop=True), y[rows]) for rows in (fitted, scored)]
    return InnerRows(*parts[0], *parts[1], is_regression)


def measure(rows: InnerRows, setting: Setting) -> dict[str, object]:
    """Fit one setting and score it on standardized targets."""
    likelihood = Gaussian(link=setting.link) if rows.is_regression else Categorical(len(np.unique(rows.y)))
    encoder = TableEncoder(squash=setting.squash)
    data = prepare(Frame.of(rows.x), likelihood.check(rows.y), likelihood, encoder, seed=1, n_folds=setting.n_folds)
    is_larger = len(rows.y) >= 1_000  # sizes and steps of the preset
    hidden = (32, 32, 32) if len(rows.y) >= 5_000 else (16, 16, 16) if is_larger else (16, 16)
    warmup, sampling = (6_000, 1_500) if len(rows.y) >= 5_000 else (20_000, 5_000) if is_larger else (40_000, 10_000)
    steps = {"warmup_steps": int(warmup * _SHARE_OF_STEPS), "sampling_steps": int(sampling * _SHARE_OF_STEPS)}
    network = MLP(n_inputs=data.n_features, hidden=hidden, n_outputs=likelihood.n_outputs, activation="gelu")
    began = time.process_time()
    fit = mile.fit(
        data,
        network,
        likelihood,
        setting.prior,
        configure("mile", "default", n_draws=_N_DRAWS, **steps),
        n_chains=_N_CHAINS,
        random_state=1,
    )
    seconds = time.process_time() - began
    y_scored, encoded, unit = rows.y_scored, fit.for_encoded, fit.response.unit
    x_scored = data.encoder.transform(Frame.of(rows.x_scored))
    log_unit = float(np.log(unit)) if rows.is_regression else 0.0
    chains, ensemble = encoded.predictive(x_scored), encoded.ensemble_predictive(x_scored)
    found = {
        "rows": len(rows.y),
        "features": data.n_features,
        "lppd": float(np.mean(chains.log_prob(y_scored))) + log_unit,
        "ensemble": float(np.mean(ensemble.log_prob(y_scored))) + log_unit,
        "good_chains": int(fit.ok.sum()),
        "cpu_seconds": round(seconds, 1),
    }
    if data.folds is not None:
        found["out_of_fold"] = _out_of_fold(fit, data) + log_unit
    if rows.is_regression:
        numeric = rows.x.select_dtypes("number").columns
        away = rows.x_scored.assign(**{name: rows.x_scored[name] + _AWAY * rows.x[name].std() for name in numeric})
        far = encoded.predictive(data.encoder.transform(Frame.of(away)))
        found["crps"] = float(np.mean(chains.row_scores(y_scored)["crps"])) / unit
        found["largest_std"], found["std_5_sd_away"] = chains.std.max() / unit, far.std.max() / unit
    return {name: round(value, 4) for name, value in found.items()}


def _out_of_fold(fit: mile.Fit, data: mile.Dataset) -> float:
    """Return the mean log density of training rows under the chains that left them out."""
    y, folds = fit.response.decode(data.train.y), data.folds
    density = np.empty(len(y))
    for fold in range(folds.max() + 1):
        places = [place for place in np.flatnonzero(fit.ok).tolist() if place % (folds.max() + 1) == fold]
        unseen = np.flatnonzero(folds == fold)
        density[unseen] = fit.for_encoded.predictive(data.train.x[unseen], chains=places).log_prob(y[unseen])
    return float(density.mean())


def _cut(n_rows: int, every: int, seed: int, classes: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return all but every so manieth row, and these, drawn with the seed; classes have equal shares."""
    order = np.random.default_rng(seed).permutation(n_rows)
    if classes is None:
        first = round((1.0 - 1.0 / every) * n_rows)
        return np.sort(order[:first]), np.sort(order[first:])
    order = order[np.argsort(np.unique(classes, return_inverse=True)[1][order], kind="stable")]
    taken = np.sort(order[every // 2 :: every])
    return np.setdiff1d(np.arange(n_rows), taken), taken


if __name__ == "__main__":
    main()
