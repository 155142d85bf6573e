"""What a student loses against all draws, and how much faster it is, on test rows and five standard deviations outside.

    python benchmarks/distillation.py [--tables diabetes,friedman1] [--models FOLDER]

The tables airfoil, concrete, energy, yacht, bikesharing and protein need the folder that MILE_DATA names. Losses are of
LPPD per row: observed on test rows, and expected if y is as all draws say. Times are of intervals in this process.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from compressing import table
from sklearn.model_selection import train_test_split

import mile

TABLES = ("airfoil", "concrete", "energy", "yacht", "bikesharing", "protein")
AWAY = 5.0  # standard deviations
MOST_ROWS = 1_000
VALUES = 8  # of y for each row


def seconds(function, repetitions):
    """Return the median time of a call."""
    function()
    times = []
    for _ in range(repetitions):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def compared(before, after, y=None):
    """Return losses in LPPD, change of coverage in points, and correlations of both standard deviations."""
    values = before.sample(VALUES, 0)
    found = {"expected": np.mean([before.log_prob(one) - after.log_prob(one) for one in values])}
    if y is not None:
        found["observed"] = np.mean(before.log_prob(y) - after.log_prob(y))
        values = [y]
    shares = [np.mean([one.inside(value) for value in values]) for one in (before, after)]
    found["coverage"] = 100 * (shares[1] - shares[0])
    for name in ("epistemic_std", "aleatoric_std"):
        found[name.removesuffix("_std")] = np.corrcoef(getattr(before, name), getattr(after, name))[0, 1]
    return "  ".join(f"{name} {value:7.3f}" for name, value in found.items())


def onnx_microseconds(student, row):
    """Return the time of one row in onnxruntime, or None without it."""
    try:
        import onnxruntime
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "student.onnx"
        student.export(path, quantiles=(0.05, 0.95))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: row.astype(np.float32)}
    return 1e6 * seconds(lambda: session.run(None, given), 200)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--networks", type=int)
    parser.add_argument("--models", type=Path, help="Folder of fitted models; those that are missing are fitted.")
    given = parser.parse_args()
    for name in given.tables.split(","):
        X, y = table(name)
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=1)
        test, y_test = test[:MOST_ROWS], y_test[:MOST_ROWS]
        kept = given.models and given.models / f"{name}_default.mile"
        if kept and kept.exists():
            model = mile.load(kept)
        else:
            model = mile.MileRegressor(random_state=0).fit(train, y_train)
            if kept:
                model.save(kept)
        began = time.process_time()
        student = model.distill(train, n_networks=given.networks, loss=None)
        cost = time.process_time() - began
        step = np.random.default_rng(0).normal(size=test.shape)
        step *= AWAY * train.std(axis=0) / np.linalg.norm(step, axis=1, keepdims=True)
        draws, networks = (one.predictive(test[:1]).n_draws for one in (model, student))
        print(f"{name}: {networks} networks for {draws:,} draws, {cost:.0f} s of processor time", flush=True)
        print(f"  test rows  {compared(model.predictive(test), student.predictive(test), y_test)}")
        print(f"  {AWAY:g} sd away  {compared(model.predictive(test + step), student.predictive(test + step))}")
        rows = np.resize(test, (1_000, test.shape[1]))
        all_draws = seconds(lambda one=model, rows=rows: one.predict_interval(rows), 3)
        few = seconds(lambda one=student, rows=rows: one.predict_interval(rows), 20)
        single = 1e3 * seconds(lambda one=student, rows=rows: one.predict_interval(rows[:1]), 200)
        print(f"  1,000 rows {1e3 * all_draws:.0f} ms, student {1e3 * few:.2f} ms: {all_draws / few:.0f} times as fast")
        micro = onnx_microseconds(student, rows[:1])
        print(
            f"  one row    {single:.3f} ms" + ("" if micro is None else f", in onnxruntime {micro:.0f} µs"), flush=True
        )


if __name__ == "__main__":
    main()
