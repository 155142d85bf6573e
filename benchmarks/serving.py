"""What a saved model costs to use: time and memory to the first interval, one row, many rows, and the share of sgemm.

    python benchmarks/serving.py [--rows 100000]

12,000 draws of a network with two layers of 16 units and 8 inputs, and the same compressed to 128. Times are medians on
this machine; the goals beside them are of issue 25 and hold for an idle one with two cores.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CHILD = """
import sys, time
began = time.perf_counter()
import numpy as np
X = np.load(sys.argv[2])
def most_memory():  # kB; getrusage would count the parent's
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = most_memory()
import mile
model = mile.load(sys.argv[1])
model.predict_interval(X[:1])
first = time.perf_counter() - began
memory = most_memory() - before
heavy = sorted({"jax", "sklearn", "scipy"} & set(sys.modules))
def median(f, n):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), min(times)
print(first, memory / 1024, *median(lambda: model.predict_interval(X[:1]), 100),
      *median(lambda: model.predict_interval(X[:1000]), 3), ",".join(heavy) or "none")
if len(sys.argv) > 3:
    rows = np.resize(X, (int(sys.argv[3]), X.shape[1]))
    start = time.perf_counter()
    model.predict_interval(rows)
    model_seconds = time.perf_counter() - start
    side = np.ones((2048, 2048), np.float32)
    side @ side
    peak = 2 * 2048**3 / median(lambda: side @ side, 5)[1]
    print(model_seconds, 2 * 12_000 * len(rows) * (8 * 16 + 16 * 16 + 16 * 2) / model_seconds / peak)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=0, help="Also so many rows at once, beside sgemm.")
    given = parser.parse_args()
    import mile

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 8))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * rng.normal(size=1000)
    model = mile.MileRegressor(hidden_layer_sizes=(16, 16), preset="quick", n_draws=1000, random_state=0).fit(X, y)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "rows.npy", X)
        model.save(folder / "all.mile")
        model.compress(X, n_draws=128).save(folder / "few.mile")
        for label, file, goal in (("all draws", "all.mile", 2.0), ("128 draws", "few.mile", 0.4)):
            large = [str(given.rows)] if given.rows and file == "all.mile" else []
            began = time.perf_counter()
            arguments = [sys.executable, "-c", CHILD, str(folder / file), str(folder / "rows.npy"), *large]
            lines = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.splitlines()
            first, memory, one, least, many, _, heavy = lines[0].split()
            print(
                f"{label}: {(folder / file).stat().st_size / 1e6:.2f} MB, process {time.perf_counter() - began:.2f} s"
            )
            print(f"  first interval  {float(first):8.3f} s   (goal 0.6), heavy imports: {heavy}")
            print(f"  memory          {float(memory):8.1f} MB  (goal 150)")
            print(f"  one row         {1e3 * float(one):8.3f} ms  (goal {goal}; best {1e3 * float(least):.3f})")
            print(f"  1,000 rows      {float(many):8.3f} s   (goal 0.5)")
            for line in lines[1:]:
                seconds, share = map(float, line.split())
                print(f"  {given.rows:,} rows  {seconds:.1f} s, {share:.0%} of sgemm (goal 40 %)")


if __name__ == "__main__":
    main()
