"""Sampling throughput as a share of the machine's sgemm peak.

Time of the sampling phase inside the library's own loop, divided into the arithmetic of its gradients (two per step and
chain); peak and ours take turns.
"""

from _chains import SamplingTimer
from _common import AIRFOIL, N_CHAINS, Row, command_line, interleave, progress, sgemm_peak

# Name, training rows (70 % of the data set), inputs, hidden layers, share of the peak that is asked for.
SIZES = [
    ("airfoil", *AIRFOIL, (16, 16), 0.45),
    ("bikesharing", 12_165, 12, (16, 16), 0.52),
    ("protein", 32_011, 9, (16, 16), 0.52),
    ("64-64", 8_000, 12, (64, 64), 0.52),
    ("128-128-128", 8_000, 12, (128, 128, 128), 0.52),
]


def main(quick: bool = False) -> list[Row]:
    rows = []
    for name, n_rows, n_inputs, hidden, bar in SIZES:
        progress(f"throughput: {name}")
        timer = SamplingTimer(n_rows, n_inputs, hidden, N_CHAINS, seconds=0.2 if quick else 1.5)
        timer.step_seconds()  # compiles
        peak, ours = interleave(sgemm_peak, timer.gflops, repetitions=3 if quick else 7)
        rows.append(
            Row(
                name=f"sampling, {name}",
                value=ours,
                unit="GFLOP/s",
                peer=peak,
                ratio=ours / peak,
                low=bar,
                note=f"{n_rows:,} rows, {n_inputs} inputs, {timer.dimension:,} parameters, {N_CHAINS} chains, "
                f"{timer.n_steps:,} steps a run; peer: sgemm",
            )
        )
    return rows


if __name__ == "__main__":
    command_line(main)
