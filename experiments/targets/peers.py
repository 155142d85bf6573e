"""Generalized linear models of statsmodels; runs in the peers' environment and prints its scores as JSON.

Usage: peers.py FAMILY TABLE SPLIT DATA_DIR
"""

import json
import sys
import time

import numpy as np
import statsmodels.api as sm
import statsmodels.formula.api as smf
from rows import TABLES, split_rows
from scipy import stats

_MOST_ITERATIONS = 500


def main(family: str, table: str, split: str, data_dir: str) -> None:
    """Fit all columns without interactions, categories as indicators, and score the test rows."""
    rows, target = split_rows(table, int(split), data_dir or None), TABLES[table].target
    formula = f"{target} ~ {' + '.join(rows.x.columns)}"
    train = rows.x.assign(**{target: rows.y})
    began = time.process_time()
    if family == "poisson":
        mean = smf.glm(formula, train, family=sm.families.Poisson()).fit().predict(rows.x_test).to_numpy()
        known = stats.poisson(mean)
    else:
        model = smf.negativebinomial(formula, train).fit(disp=0, maxiter=_MOST_ITERATIONS)
        mean, size = model.predict(rows.x_test).to_numpy(), 1.0 / model.params["alpha"]
        known = stats.nbinom(size, size / (size + mean))
    inside = (rows.y_test >= known.ppf(0.05)) & (rows.y_test <= known.ppf(0.95))
    scores = {
        "lppd": known.logpmf(rows.y_test).mean(),
        "rmse": np.sqrt(np.mean(np.square(mean - rows.y_test))),
        "coverage_closed_90": inside.mean(),
        "cpu_seconds": time.process_time() - began,
    }
    print(json.dumps({name: float(value) for name, value in scores.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
