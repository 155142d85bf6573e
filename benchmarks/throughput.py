"""Sampling throughput as a share of the machine's sgemm peak.

Time of the sampling phase inside the library's own loop, divided into the arithmetic of its gradients (two per step and
chain); peak and ours take turns.
"""

from _chains import SamplingTimer
from _common import AIRFOIL, N_CHAINS, Row, command_line, interleave, progress, sgemm_peak

from mile import native

# Name, training rows (70 % of the data set), inputs, hidden layers, activation, share of the peak that is asked for.
SIZES = [
    ("airfoil", *AIRFOIL, (16, 16), "relu", 0.75),
    ("bikesharing", 12_165, 12, (16, 16), "relu", 0.75),
    ("protein", 32_011, 9, (16, 16), "relu", 0.78),
    ("64-64", 8_000, 12, (64, 64), "relu", 0.82),
    ("128-128-128", 8_000, 12, (128, 128, 128), "relu", 0.93),
    # What the default preset takes for tables below 1,000 rows, below 5,000, and from there on; then the others that
    # users may ask for.
    ("default, small", 700, 8, (16, 16), "gelu", None),
    ("default, medium", 1_052, 8, (16, 16, 16), "gelu", 0.62),
    ("default, large", 6_000, 12, (32, 32, 32), "gelu", 0.72),
    ("silu", 1_052, 8, (16, 16, 16), "silu", None),
    ("tanh", 1_052, 8, (16, 16, 16), "tanh", None),
    ("sigmoid", 1_052, 8, (16, 16, 16), "sigmoid", None),
]


def main(quick: bool = False) -> list[Row]:
    rows = []
    for name, n_rows, n_inputs, hidden, activation, bar in SIZES:
        progress(f"throughput: {name}")
        timer = SamplingTimer(n_rows, n_inputs, hidden, N_CHAINS, seconds=0.2 if quick else 1.5, activation=activation)
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
                note=f"{activation}, {n_rows:,} rows, {n_inputs} inputs, {timer.dimension:,} parameters, "
                f"{N_CHAINS} chains, {timer.n_steps:,} steps a run, {native.kernel_name()}; peer: sgemm",
            )
        )
    return rows


if __name__ == "__main__":
    command_line(main)
