"""What a hundredth of the draws loses: chosen by `compress`, evenly spaced, and at random, 20 times each.

    python benchmarks/compressing.py [--tables diabetes,friedman1] [--repetitions 20]

The tables airfoil, concrete, energy and yacht need the folder that MILE_DATA names. The expected loss is that of the
log density on test rows if y is as all draws say, which has little noise; the observed one is that of LPPD.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import train_test_split

import mile
from mile.fitting._herding import expected_loss
from mile.fitting.candidates import flat_draws, weighted_draws
from mile.likelihoods.weights import EQUAL
from mile.predict import predict

TABLES = ("diabetes", "friedman1", "airfoil", "concrete", "energy", "yacht")
N_DRAWS = 128
VALUES = 16  # of y for each test row


def table(name):
    if name == "diabetes":
        return load_diabetes(return_X_y=True)
    if name == "friedman1":
        return make_friedman1(n_samples=500, noise=1.0, random_state=0)
    found = mile.datasets.load(name)
    return found.x, found.y


def of_draws(fit):
    """Return the draws that count, and their weights."""
    if fit.weights is None:
        draws, weights = flat_draws(fit.chains.draws, fit.ok), EQUAL
    else:
        draws, weights = weighted_draws(fit.chains.draws, fit.members.positions, fit.weights)
    draws = np.asarray(draws[0 : len(draws)])
    return draws, np.full(len(draws), 1 / len(draws)) if weights.values is None else weights.values, weights


class Judge:
    """Measures a choice of draws on test rows."""

    def __init__(self, fit, x, y):
        self.fit, self.x, self.y = fit, x, y
        self.draws, self.shares, self.weights = of_draws(fit)
        rng = np.random.default_rng(1)
        self.repeated = np.repeat(x[rng.permutation(len(x))[:100]], VALUES, axis=0)
        whole = self.predictive(self.draws, self.repeated, self.weights)
        self.values = whole.sample(1, 0)[0]
        self.whole = whole.log_prob(self.values)
        self.lppd = self.predictive(self.draws, x, self.weights).log_prob(y).mean()

    def predictive(self, draws, x, weights=EQUAL):
        return predict(self.fit.network, self.fit.likelihood, draws, x, self.fit.response, weights=weights)

    def losses(self, draws):
        """Return the expected and the observed loss of draws that count the same."""
        ratios = np.exp(self.predictive(draws, self.repeated).log_prob(self.values) - self.whole)
        observed = self.lppd - self.predictive(draws, self.x).log_prob(self.y).mean()
        return expected_loss(ratios[None], np.array([0])).value, observed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--models", type=Path, help="Folder of fitted models; those that are missing are fitted.")
    given = parser.parse_args()
    print(f"{'table':10} {'draws':>18} {'seconds':>8} {'expected loss':>17} {'largest':>8} {'observed loss':>17}")
    for name in given.tables.split(","):
        X, y = table(name)
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=1)
        kept = given.models and given.models / f"{name}_default.mile"
        if kept and kept.exists():
            model = mile.load(kept)
        else:
            model = mile.MileRegressor(random_state=0).fit(train, y_train)
            if kept:
                model.save(kept)
        fit = model.fit_
        judge = Judge(fit, fit.encoder.transform(test), y_test)
        rng, edges = np.random.default_rng(0), np.cumsum(judge.shares)

        found, seconds = {"chosen": [], "evenly spaced": [], "at random": []}, []
        for seed in range(given.repetitions):
            began = time.perf_counter()
            small = model.compress(train, n_draws=N_DRAWS, random_state=seed)
            seconds.append(time.perf_counter() - began)
            found["chosen"].append(judge.losses(small.fit_.chains.draws[:, 0]))
            spaced = np.searchsorted(edges, (np.arange(N_DRAWS) + rng.random()) / N_DRAWS)
            found["evenly spaced"].append(judge.losses(judge.draws[np.minimum(spaced, len(edges) - 1)]))
            drawn = rng.choice(len(edges), N_DRAWS, p=judge.shares / judge.shares.sum())
            found["at random"].append(judge.losses(judge.draws[drawn]))
        with tempfile.TemporaryDirectory() as folder:
            small.save(Path(folder) / "small.mile")
            size = (Path(folder) / "small.mile").stat().st_size
        for way, losses in found.items():
            expected, observed = np.array(losses).T
            took = f"{np.median(seconds):8.1f}" if way == "chosen" else " " * 8
            print(
                f"{name:10} {way:>18} {took} {expected.mean():8.4f} ± {expected.std():.4f} {expected.max():8.4f} "
                f"{observed.mean():8.4f} ± {observed.std():.4f}",
                flush=True,
            )
        print(f"{name:10} {len(edges):,} draws became {N_DRAWS}: {size / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    main()
