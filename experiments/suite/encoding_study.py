"""Do more features of each number help MILE? LPPD and processor time on inner splits of training rows.

    MILE_DATA=... MILE_SUITE=... python encoding_study.py SETTING ... [--tables T ...] [--split S]

appends a row per table and setting to encoding_study.csv: four chains, 8,000 and 2,000 steps, the hierarchical prior
and the bounded link, members trained as start_study.py recommends.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from inner_splits import TABLES, InnerSplit, Problem, inner_split, problem
from start_study import SETTINGS as TRAININGS
from start_study import append

import mile
from mile import Hierarchical, Mile
from mile.ensemble.training import Training
from mile.execution import InProcess
from mile.features.piecewise import Piecewise
from mile.features.table import TableEncoder

ROWS = Path(__file__).with_name("encoding_study.csv")
_TRAINING = "coslog, batches"
_CHAINS = 4
_FREQUENCIES = (0.25, 0.5)  # turns in a standard deviation
_FEWEST_VALUES = 10  # of a number that gets waves


def _pieces(inner: InnerSplit, split: int, pieces: int) -> Problem:
    encoder = Piecewise(pieces=pieces) if isinstance(inner.x, np.ndarray) else TableEncoder(pieces=pieces)
    return problem(inner, encoder, seed=split)


def _periodic(inner: InnerSplit, split: int) -> Problem:
    """Add sine and cosine of each number at fixed frequencies."""
    plain = problem(inner, seed=split)
    counts = [len(np.unique(column)) for column in plain.dataset.x_train.T]
    places = [place for place, count in enumerate(counts) if count >= _FEWEST_VALUES]

    def waves(x: np.ndarray) -> np.ndarray:
        turns = [2.0 * np.pi * frequency * x[:, places] for frequency in _FREQUENCIES]
        parts = [wave(turn) for turn in turns for wave in (np.sin, np.cos)]
        return np.concatenate([x, *parts], axis=1).astype(np.float32)

    train, valid = plain.dataset.train, plain.dataset.valid
    dataset = replace(plain.dataset, train=replace(train, x=waves(train.x)), valid=replace(valid, x=waves(valid.x)))
    network = replace(plain.network, n_inputs=dataset.n_features)
    return plain._replace(dataset=dataset, network=network, x_scored=waves(plain.x_scored))


SETTINGS = {
    "plain": lambda inner, split: problem(inner, seed=split),
    "4 pieces": lambda inner, split: _pieces(inner, split, 4),
    "8 pieces": lambda inner, split: _pieces(inner, split, 8),
    "periodic": _periodic,
}


def chain_scores(given: Problem, training: Training, seed: int) -> dict[str, object]:
    """Return LPPD per row on the scale of standardized y, of MILE and of its start, and seconds with compiling."""
    began = time.process_time()
    fitted = mile.fit(
        given.dataset,
        given.network,
        given.likelihood,
        Hierarchical(),
        Mile(warmup_steps=8_000, sampling_steps=2_000, n_draws=200),
        training=training,
        n_chains=_CHAINS,
        random_state=seed,
        backend=InProcess(n_threads=1),
    ).for_encoded
    seconds = time.process_time() - began
    scores = [
        float(np.mean(predictive(given.x_scored).log_prob(given.y_scored))) + given.log_unit
        for predictive in (fitted.predictive, fitted.ensemble_predictive)
    ]
    return {"lppd": scores[0], "lppd_start": scores[1], "weights": given.network.dimension, "seconds": seconds}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="+", choices=SETTINGS)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--training", default=_TRAINING, choices=TRAININGS)
    arguments = parser.parse_args()
    for name in arguments.tables:
        inner = inner_split(name, arguments.split)
        for setting in arguments.settings:
            given = SETTINGS[setting](inner, arguments.split)
            row = {"table": name, "split": arguments.split, "rows": len(inner.y), "setting": setting}
            row |= {"training": arguments.training}
            append(ROWS, row | chain_scores(given, TRAININGS[arguments.training](len(inner.y)), arguments.split))


if __name__ == "__main__":
    main()
