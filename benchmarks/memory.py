"""Peak resident memory of a fit of a million rows above imports and the caller's own arrays.

Each fit runs in a fresh process with tiny budgets: memory depends on rows, chains and batch, not on the number of
steps. By default the native kernel computes where it is available; the last case forces the XLA path. The bar is three
times the data in float32 plus 200 MB.
"""

import tempfile

from _common import Row, command_line, progress, run_child

N_INPUTS = 20
# Value of MILE_NATIVE and precision of the caller's array.
CASES = [("", "float64"), ("", "float32"), ("0", "float64")]


def main(quick: bool = False) -> list[Row]:
    n_rows = 100_000 if quick else 1_000_000
    data = 4e-6 * n_rows * N_INPUTS
    rows = []
    for native, dtype in CASES:
        progress(f"memory: {'XLA' if native == '0' else 'default path'}, {dtype}")
        # With an empty compilation cache, so that every case pays for compiling.
        with tempfile.TemporaryDirectory() as cache:
            environment = {"MILE_NATIVE": native, "XDG_CACHE_HOME": cache}
            result = run_child("_memory_child.py", n_rows, N_INPUTS, dtype, environment=environment)
        rows.append(
            Row(
                name=f"memory of a fit, {result['kernel']}, {dtype} input",
                value=result["above"],
                unit="MB",
                high=5 * data + 250 if native == "0" else 3 * data + 200,  # our own bound on XLA's path
                note=f"{n_rows:,} x {N_INPUTS} rows, 2 chains; the fit took {result['seconds']:.0f} s",
            )
        )
    return rows


if __name__ == "__main__":
    command_line(main)
