"""One job, in a process of its own: read the rows, fit one method, predict the test rows, write the scores.

Used by `peers.py` and `ours.py`. Imports nothing that only one of the two environments has.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a method may know besides the rows."""

    seed: int
    threads: int
    scale: float  # multiplies the step budgets of our sampler; peers stay at their defaults
    chains: int  # of ours; 0: as the estimator has it


# A method imports its packages when it is called with options, and gives a function that fits the training rows,
# predicts the test rows and returns a function of the test targets and a unit: their scores.
Scores = Callable[[np.ndarray, float], dict[str, float | None]]
Method = Callable[[Options], Callable[[np.ndarray, np.ndarray, np.ndarray], Scores]]


def command_line(methods: Mapping[str, Method]) -> None:
    """Run the job that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=methods)
    parser.add_argument("rows", type=Path, help="npz with x, y, x_test, y_test")
    parser.add_argument("result", type=Path, help="JSON file to write")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--chains", type=int, default=0)
    arguments = parser.parse_args()
    use_cores(arguments.threads)
    options = Options(**{field.name: getattr(arguments, field.name) for field in fields(Options)})
    rows = dict(np.load(arguments.rows))
    result = run(methods[arguments.method], options, **rows)
    arguments.result.write_text(json.dumps(result))


def run(
    method: Method, options: Options, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray
) -> dict[str, Any]:
    """Return scores in standard deviations of the training targets, and the seconds of fitting and predicting.

    The seconds of all cores together are less disturbed by what else the machine is doing.
    """
    fit_and_predict = method(options)
    began, busy = time.perf_counter(), time.process_time()
    scores = fit_and_predict(x, y, x_test)
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - busy}
    return scores(y_test, float(y.std())) | seconds


def use_cores(n: int) -> None:
    """Leave this process n of the cores it may use, so that libraries with threads of their own keep to them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n])
