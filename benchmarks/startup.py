"""Start-up: a second process with a warm compilation cache, a second fit in one process, and `import mile`.

The first sampler step counts as made when the sampling loop first reports, after its first block of steps. Our own
share is what neither the imports nor the training of the ensemble take.
"""

import json
import statistics
import subprocess
import sys
import tempfile

from _common import Row, command_line, progress, run_child

# The ensemble is kept short: it is not what is measured. The steps suffice for every phase.
SETTINGS = {
    "n_validation": 132,
    "epochs": 5,
    "batch_size": 32,
    "warmup_steps": 1_000,
    "sampling_steps": 100,
    "n_draws": 10,
}
IMPORT = "import time; began = time.perf_counter(); import mile; print(time.perf_counter() - began)"


def main(quick: bool = False) -> list[Row]:
    repetitions = 2 if quick else 5
    with tempfile.TemporaryDirectory() as cache:
        environment = {"XDG_CACHE_HOME": cache}  # the library keeps its compiled programs there
        progress("start-up: filling the compilation cache")
        first = run_child("_fit_child.py", json.dumps({"n_fits": 1} | SETTINGS), environment=environment)
        runs = []
        for index in range(repetitions):
            progress(f"start-up: process {index + 1} of {repetitions} with a warm cache")
            runs.append(run_child("_fit_child.py", json.dumps({"n_fits": 2} | SETTINGS), environment=environment))

    def median(part: str) -> float:
        return statistics.median(run[part] for run in runs)

    for run in runs:
        run["ensemble"] = run["fits"][0]["stages"]["ensemble"]
        run["ours"] = run["first_step"] - run["imports"] - run["ensemble"]
        run["again"] = run["fits"][1]["seconds"]
    second = runs[0]["fits"][0]
    return [
        Row(
            name="process start to first sampler step",
            value=median("first_step"),
            unit="s",
            high=4.0,
            note=f"of which imports {median('imports'):.2f} s and a short ensemble {median('ensemble'):.2f} s; "
            f"compiled {second['compiled']:.0f}, loaded {second['loaded']:.0f} programs; "
            f"with an empty cache {first['first_step']:.1f} s and {first['fits'][0]['compiled']:.0f} compiled",
        ),
        Row(name="our share of it", value=median("ours"), unit="s", high=1.5, note="without imports and ensemble"),
        Row(
            name="programs compiled by a second fit",
            value=max(run["fits"][1]["compiled"] + run["fits"][1]["loaded"] for run in runs),
            unit="",
            high=0,
            note=f"same shapes, other data and seed, loads from the cache included; it took {median('again'):.2f} s",
        ),
        Row(
            name="import mile",
            value=statistics.median(
                float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True).stdout)
                for _ in range(repetitions)
            ),
            unit="s",
            high=0.3,
            note="fresh process",
        ),
    ]


if __name__ == "__main__":
    command_line(main)
