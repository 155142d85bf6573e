"""`mile watch`: how far a run is, and how well it predicts already, from another process."""

import time
from pathlib import Path

from mile._progress import duration
from mile.cli._console import Console
from mile.estimators.watching import RunState, time_left, watch_run


def watch(console: Console, run: Path, every: float, *, once: bool) -> None:
    """Print a line for each look at a run until it is finished."""
    if not every > 0.0:
        raise ValueError(f"--every must be a number of seconds above 0; got {every:g}.")
    if not run.is_dir():
        raise FileNotFoundError(f"There is no run {run}.")
    earlier, looked = None, time.monotonic()
    while True:
        state, now = watch_run(run), time.monotonic()
        left = None if earlier is None else time_left(earlier, state, now - looked)
        if earlier is None or state != earlier:
            console.say(sentence(state, left))
            earlier, looked = state, now
        if once or state.is_finished:
            break
        time.sleep(every)
    console.answer(as_json(state))


def sentence(state: RunState, left: float | None) -> str:
    """Say in a line how far a run is."""
    parts = [time.strftime("%H:%M:%S"), state.stage]
    if state.trained < state.networks:
        parts.append(f"{state.trained} of {state.networks} trained")
    elif not state.is_finished:
        parts.append(f"step {state.step:,} of {state.steps:,}")
    if state.draws:
        parts.append(f"{state.draws:,} draws of each chain")
    if state.score is not None and state.ensemble_score is not None:
        text = f"LPPD {state.score.value:.4g} ± {state.score.standard_error:.2g}"
        if state.draws:
            text += f" (ensemble {state.ensemble_score.value:.4g})"
        parts.append(f"{text} on {state.rows}")
    if left is not None:
        parts.append(f"about {duration(left)} left")
    return "  ".join(parts)


def as_json(state: RunState) -> dict[str, object]:
    """Return a state for programs."""
    known = {"score": state.score, "ensemble_score": state.ensemble_score}
    found: dict[str, object] = dict(state._asdict())
    return found | {name: None if score is None else score._asdict() for name, score in known.items()}
