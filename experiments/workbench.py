"""Where fits and rows are kept. A fit has a run directory: it can be interrupted, and once finished it is loaded."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from catalog import Experiment

from mile import Dataset, Fit, fit, load
from mile._progress import Progress, show_progress
from mile.ensemble.training import Training
from mile.storage import has_run, read_manifest

# A chain needs some steps to be a chain, however small the scale.
_FEWEST_WARMUP_STEPS, _FEWEST_SAMPLING_STEPS = 20, 10


class Fitted(NamedTuple):
    """A fit and all the seconds that it took, interruptions left out; None if they were not measured."""

    model: Fit
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """Where fits and rows are kept, and at what size they are made.

    `runs` is the folder of all run directories; None keeps nothing. Fits with other steps or chains than planned are
    kept apart, in folders and files whose names say it. `again` keeps rows out of the repository's files.
    """

    runs: Path | None = None
    data_dir: str | None = None
    scale: float = 1.0
    chains: int = 12
    planned_chains: int = 12
    again: bool = False

    @property
    def size(self) -> str:
        """What sets names of files apart; empty at the size that the experiment asks for."""
        if self.scale == 1.0 and self.chains == self.planned_chains:
            return ""
        return f".scale-{self.scale:g}.chains-{self.chains}"

    def summary_of(self, experiment: Experiment) -> Path:
        """Return the file of an experiment's rows: the repository's, or one beside the runs for all other rows."""
        if self.runs is not None and (self.again or self.size):
            return self.runs / experiment.name / f"summary{self.size}.csv"
        return experiment.summary.path

    def run_dir(self, group: str, name: str) -> Path | None:
        """Return the run directory of a fit."""
        return None if self.runs is None else self.runs / f"{group}{self.size}" / f"{name}.run"

    def is_finished(self, group: str, name: str) -> bool:
        """Say whether a fit need not be computed any more."""
        folder = self.run_dir(group, name)
        return folder is not None and has_run(folder) and read_manifest(folder).finished

    def scaled(self, sampler: Any) -> Any:
        """Return a sampler with its steps multiplied by the scale; of the draws as many as there are steps for."""
        if self.scale == 1.0 or not hasattr(sampler, "warmup_steps"):
            return sampler
        warmup = max(_FEWEST_WARMUP_STEPS, round(self.scale * sampler.warmup_steps))
        sampling = max(_FEWEST_SAMPLING_STEPS, round(self.scale * sampler.sampling_steps))
        n_draws = min(sampler.n_draws, sampling)
        return replace(sampler, warmup_steps=warmup, sampling_steps=sampling, n_draws=n_draws)

    def fit(
        self,
        group: str,
        name: str,
        dataset: Dataset,
        network: Any,
        likelihood: Any,
        *,
        sampler: Any,
        seed: int,
        training: Training | None = None,
        chains: int | None = None,
        observe: Callable[[Progress], Progress] | None = None,
        **options: Any,
    ) -> Fitted:
        """Return a fit: the finished one in its run directory, or a new one, or the rest of one that was stopped.

        `sampler` is scaled here. `observe` may put something between the fit and the progress that is shown. `options`
        are those of `mile.fit`.

        Raises
        ------
        ValueError
            If the finished run is of other data or settings.
        """
        folder, sampler = self.run_dir(group, name), self.scaled(sampler)
        training, n_chains = training or Training(), chains or self.chains
        if folder is not None and self.is_finished(group, name):
            model = load(folder)
            _check(folder, model, dataset, sampler.with_start(training.learning_rate), training, n_chains, seed)
            return Fitted(model, Stopwatch(folder).seconds)
        options |= {"sampler": sampler, "training": training, "n_chains": n_chains, "random_state": seed}
        watch = nullcontext() if folder is None else Stopwatch(folder)
        began = time.perf_counter()
        with watch, show_progress(True) as progress:
            watched = observe(progress) if observe else progress
            model = fit(dataset, network, likelihood, run_dir=folder, progress=watched, **options)
        return Fitted(model, time.perf_counter() - began if folder is None else Stopwatch(folder).seconds)


class Stopwatch:
    """Adds up the seconds of a fit in a file beside its run directory, over all sittings that ended in good order.

    The file holds the number. During a sitting it holds a question mark, which stays if the process is killed.
    """

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir.with_suffix(".seconds")
        self._begun = has_run(run_dir)

    @property
    def seconds(self) -> float | None:
        """The sum so far, or None if it is not known."""
        text = self.path.read_text().strip() if self.path.exists() else "?"
        return None if text == "?" else float(text)

    def __enter__(self) -> "Stopwatch":
        self._before = self.seconds if self._begun else 0.0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("?\n")
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            self.path.write_text(f"{self._before + time.perf_counter() - self._start:.1f}\n")


def _check(
    folder: Path, model: Fit, dataset: Dataset, sampler: Any, training: Training, chains: int, seed: int
) -> None:
    """Refuse a finished run that is of something else; by which version it was computed does not matter."""
    manifest = read_manifest(folder)
    pairs = {
        "the data": (manifest.data["sha256"], dataset.sha256()),
        "the seed": (manifest.seed, seed),
        "the sampler": (model.sampler, sampler),
        "the training": (model.training, training),
        "the number of chains": (len(model.status), chains),
    }
    for what, (found, wanted) in pairs.items():
        if found != wanted:
            raise ValueError(
                f"{folder} holds a finished run, but {what} should be {wanted} and is {found}. Remove that folder, or "
                "name another one with --runs."
            )
