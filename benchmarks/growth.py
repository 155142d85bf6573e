"""How the time of a step grows with rows and with parameters: exponents of power laws, by least squares in logarithms.

Two chains, time of the sampling phase inside the library's own loop; sizes take turns. The time should grow in
proportion to the rows.
"""

from collections.abc import Sequence

import numpy as np
from _chains import SamplingTimer
from _common import Row, command_line, interleave, progress

from mile.networks import MLP

N_CHAINS = 2
ROWS = (1_000, 5_600, 32_000, 180_000, 1_000_000)
WIDTHS = (12, 32, 64, 128, 218)  # 6-w-w-2: 266 to 49,706 parameters
WIDTH_ROWS = 2_000


def main(quick: bool = False) -> list[Row]:
    n_points = 3 if quick else None
    counts, widths = ROWS[:n_points], WIDTHS[:n_points]
    by_rows = _step_seconds([(n_rows, 8, 16) for n_rows in counts], quick)
    by_width = _step_seconds([(WIDTH_ROWS, 6, width) for width in widths], quick)
    parameters = [MLP(n_inputs=6, hidden=(width, width)).dimension for width in widths]
    return [
        _row("growth with rows", counts, by_rows, "8-16-16-2", low=0.95, high=1.05),
        _row("growth with parameters", parameters, by_width, f"6-w-w-2, {WIDTH_ROWS:,} rows"),
    ]


def _step_seconds(sizes: Sequence[tuple[int, int, int]], quick: bool) -> list[float]:
    """Return the time of one step of all chains for each number of rows, inputs and width."""
    timers = []
    for n_rows, n_inputs, width in sizes:
        progress(f"growth: compiling for {n_rows:,} rows, {n_inputs}-{width}-{width}-2")
        timers.append(SamplingTimer(n_rows, n_inputs, (width, width), N_CHAINS, seconds=0.1 if quick else 0.5))
        timers[-1].step_seconds()
    progress("growth: taking turns")
    return interleave(*(timer.step_seconds for timer in timers), repetitions=3 if quick else 7)


def _row(
    name: str,
    sizes: Sequence[int],
    seconds: Sequence[float],
    what: str,
    low: float | None = None,
    high: float | None = None,
) -> Row:
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    points = ", ".join(f"{size:,}: {1e3 * value:.3g}" for size, value in zip(sizes, seconds, strict=True))
    return Row(
        name=name,
        value=float(exponent),
        unit="(exponent)",
        low=low,
        high=high,
        note=f"{what}, {N_CHAINS} chains; ms per step at {points}",
    )


if __name__ == "__main__":
    command_line(main)
