"""What a run directory costs, and how good the forecast of a fit is, on the airfoil size.

Streaming: whole fits of 12 chains with an ensemble of one epoch and the paper's 10,000 sampling steps and 1,000 draws,
with and without a run directory in turns. Everything counts: chunks, checkpoints, fsync, reading the draws back.

Forecast: one fit at the paper's budget; the total that is announced after the first timed block of the sampler, over
the total that it took.
"""

import re
import tempfile
from pathlib import Path

from _chains import regression_data
from _common import AIRFOIL, N_CHAINS, Row, command_line, interleave, progress, seconds_of

import mile
from mile.ensemble.training import Training

N_ROWS, N_INPUTS = AIRFOIL
NETWORK = mile.MLP(n_inputs=N_INPUTS, hidden=(16, 16))


class Listener:
    """Keeps what the fit says."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None: ...

    def advance(self, amount: int) -> None: ...

    def finish(self) -> None: ...

    def note(self, text: str) -> None: ...

    def say(self, text: str) -> None:
        self.sentences.append(text)


def fit(sampler: mile.Mile, max_epochs: int, run_dir: str | None = None, listener: Listener | None = None) -> mile.Fit:
    """Fit the airfoil size."""
    dataset = mile.Dataset.from_arrays(*regression_data(N_ROWS, N_INPUTS))
    training = Training(max_epochs=max_epochs)
    options = {"training": training, "n_chains": N_CHAINS, "random_state": 0, "run_dir": run_dir, "progress": listener}
    return mile.fit(dataset, NETWORK, mile.Gaussian(), sampler=sampler, **options)


def main(quick: bool = False) -> list[Row]:
    steps = 1_000 if quick else 10_000
    sampler = mile.Mile(warmup_steps=300, sampling_steps=steps, n_draws=steps // 10)
    n_bytes = 0

    def streamed() -> float:
        nonlocal n_bytes
        with tempfile.TemporaryDirectory() as folder:
            seconds = seconds_of(lambda: fit(sampler, 1, f"{folder}/run"))
            n_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        return seconds

    progress("runs: streaming")
    streamed()  # compiles
    plain, stored = interleave(lambda: seconds_of(lambda: fit(sampler, 1)), streamed, repetitions=3 if quick else 7)

    progress("runs: forecast")
    listener = Listener()
    budget = mile.Mile(warmup_steps=10_000, sampling_steps=2_000) if quick else mile.Mile()
    actual = seconds_of(lambda: fit(budget, 30, listener=listener))
    announced = [match for text in listener.sentences if (match := re.search(r"([\d.]+) (s|min) in all", text))]
    forecast = float(announced[0][1]) * (60.0 if announced[0][2] == "min" else 1.0) if announced else float("nan")
    return [
        Row(
            name="fit with a run directory",
            value=1.0 / stored,
            unit="fits/s",
            peer=1.0 / plain,
            ratio=plain / stored,
            low=0.97,
            note=f"{n_bytes / 1e6:.0f} MB written, {stored:.2f} s; peer: the same fit in memory, {plain:.2f} s",
        ),
        Row(
            name="forecast over truth",
            value=forecast,
            unit="s",
            peer=actual,
            ratio=forecast / actual,
            low=0.85,
            high=1.15,
            note="whole fit, announced after the sampler's first timed block; peer: what it took",
        ),
    ]


if __name__ == "__main__":
    command_line(main)
