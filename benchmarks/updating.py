"""New rows by `update`, beside a fit from the start on all rows; and what `stop_when="flat"` saves.

    python benchmarks/updating.py [--tables airfoil,yacht] [--rows 2000] [--steps 0.2] [--chains 6]
    python benchmarks/updating.py --flat

The tables need the folder that MILE_DATA names. A fifth of the rows is for tests. Of the others the fit has 80 %, and
`update` brings the rest. `--steps` are the steps of each chain, as a share of those of the preset "default"; `--rows`
are the most rows of a table. Times are processor seconds after one fit and one update of a few steps, so that nothing
is compiled; gradient evaluations on rows do not depend on the machine.
"""

import argparse
import time
import warnings

import numpy as np

import mile
from mile import FitWarning, MileRegressor
from mile.estimators._presets import table_defaults
from mile.samplers import presets_of

TABLES = ("airfoil", "bikesharing", "concrete", "energy", "protein", "yacht")
TEST_SHARE, FIRST_SHARE = 0.2, 0.8
MOST_LOSS, MOST_TIME = 0.02, 0.25  # of LPPD per row, and of the time of a fit from the start
MOST_FLAT_LOSS = 0.01


def table(name, most):
    """Return rows in random order: those to learn from, and those for tests."""
    found = mile.datasets.load(name)
    order = np.random.default_rng(0).permutation(len(found.y))[:most]
    x, y = np.asarray(found.x)[order], np.asarray(found.y)[order]
    n_tests = round(TEST_SHARE * len(y))
    return x[n_tests:], y[n_tests:], x[:n_tests], y[:n_tests]


def budgets(n_rows, share):
    """Return a share of the steps of the preset for a table of so many rows."""
    usual = presets_of("mile")["default"]
    steps = {"warmup_steps": usual.warmup_steps, "sampling_steps": usual.sampling_steps}
    steps |= table_defaults("default", n_rows).steps
    found = {name: max(20, round(share * count)) for name, count in steps.items()}
    return found | {"n_draws": min(1_000, found["sampling_steps"])}


def timed(function):
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        result = function()
    return result, time.process_time() - began


def work(fit, n_rows):
    """Return the gradient evaluations of all chains, in units of a row."""
    return float(fit.chains.gradient_evaluations.sum()) * n_rows


def compare(name, options):
    x, y, x_test, y_test = table(name, options.rows)
    first = round(FIRST_SHARE * len(y))

    def model(share, **arguments):
        return MileRegressor(n_chains=options.chains, random_state=0, **budgets(len(y), share), **arguments)

    tiny = timed(lambda: model(0.005, warm_start=True).fit(x[:first], y[:first]))[0]
    timed(lambda: tiny.update(x[first:], y[first:]))
    timed(lambda: model(0.005).fit(x, y))
    before = timed(lambda: model(options.steps, warm_start=True).fit(x[:first], y[:first]))[0]
    lppd_before = before.lppd(x_test, y_test)
    again, seconds_again = timed(lambda: model(options.steps).fit(x, y))
    updated, seconds = timed(lambda: before.update(x[first:], y[first:]))
    scores = [one.lppd(x_test, y_test) for one in (updated, again)]
    moved = updated.updated_
    gradients = work(updated.fit_, len(y)) / work(again.fit_, len(y))
    is_good = scores[1] - scores[0] <= MOST_LOSS and seconds <= MOST_TIME * seconds_again
    print(
        f"{name:12} {len(y):6,} {lppd_before:9.4f} {scores[0]:9.4f} {scores[1]:9.4f} {scores[0] - scores[1]:+9.4f} "
        f"{seconds:8.1f} {seconds_again:8.1f} {seconds / seconds_again:6.2f} {gradients:6.2f} "
        f"{moved.shift:6.2f} {moved.virial:6.2f}  {'yes' if is_good else 'no'}{' (due)' if moved.is_due else ''}",
        flush=True,
    )
    return is_good


def flat(name, options):
    x, y, x_test, y_test = table(name, options.rows)
    given = {"n_chains": options.chains, "random_state": 0, **budgets(len(y), options.steps)}
    whole = timed(lambda: MileRegressor(**given, warm_start=True).fit(x, y))[0]
    ended = timed(lambda: MileRegressor(**given, stop_when="flat").fit(x, y))[0]
    scores = [one.lppd(x_test, y_test) for one in (ended, whole)]
    asked = given["sampling_steps"]
    is_good = abs(scores[1] - scores[0]) <= MOST_FLAT_LOSS
    print(
        f"{name:12} {len(y):6,} {scores[0]:9.4f} {scores[1]:9.4f} {scores[0] - scores[1]:+9.4f} "
        f"{ended.steps_saved_:6,} of {asked:6,}  {'yes' if is_good else 'no'}",
        flush=True,
    )
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--steps", type=float, default=0.2)
    parser.add_argument("--chains", type=int, default=6)
    parser.add_argument("--flat", action="store_true", help="what ending early saves, and loses")
    options = parser.parse_args()
    names = options.tables.split(",")
    print(f"{options.chains} chains, {options.steps:g} of the steps, at most {options.rows:,} rows")
    if options.flat:
        print("table          rows  LPPD flat     whole      gain  steps saved     within")
        good = sum([flat(name, options) for name in names])
    else:
        print(
            "table          rows    before    update     refit      gain   update    refit   time  grad.  "
            "shift virial  within"
        )
        good = sum([compare(name, options) for name in names])
    print(f"{good} of {len(names)} tables within the bounds")


if __name__ == "__main__":
    main()
