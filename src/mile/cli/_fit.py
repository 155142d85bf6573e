"""`mile fit`, `resume` and `forecast`."""

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from mile import _registry
from mile._progress import duration
from mile._schema import Count
from mile.cli._console import Console, table
from mile.cli._data import LearningInput, fitted, read_exposure, read_kinds, read_problem
from mile.cli._images import is_image_file, read_image_problem
from mile.cli._reading import DataFile
from mile.cli._texts import read_text_problem
from mile.cli._use import (
    choice_lines,
    out_of_fold_answer,
    out_of_fold_table,
    score_table,
    scores_beside_ensemble,
    takes_images,
)
from mile.estimators import ESTIMATORS, MileClassifier, MileRegressor, MileTextClassifier
from mile.estimators.loading import Model, read_validation
from mile.estimators.loading import resume as resume_run
from mile.execution import DaskBackend, tls_security
from mile.features.exposure import with_exposure
from mile.fitting.likelihood_choice import AUTO
from mile.storage import has_run, read_manifest

_IMAGE_NETWORK = "lenet5"  # where the user names none
_TEXT_NETWORK = "att_v2"
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Settings(NamedTuple):
    """What the user chose of the method."""

    preset: str
    sampler: str
    hidden: str | None
    n_chains: int
    warmup_steps: int | None
    sampling_steps: int | None
    n_draws: int | None
    network: str | None = None
    text: str | None = None  # the column of texts, if they are what is read
    likelihood: str | None = None
    kinds: Mapping[str, str] | None = None  # what columns are, by name
    n_folds: int | None = None
    stop_when: str | None = None

    def for_images(self) -> "Settings":
        """Return these settings with a network that takes images."""
        return self if self.network else self._replace(network=_IMAGE_NETWORK)

    def estimator(
        self,
        task: str,
        *,
        run_dir: Path | None = None,
        backend: DaskBackend | None = None,
        time_limit: float | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> MileRegressor | MileClassifier:
        """Return an estimator that is not fitted yet."""
        return self._kind(task)(
            preset=self.preset,
            sampler=self.sampler,
            n_chains=self.n_chains,
            **({} if self.n_folds is None else {"n_folds": self.n_folds}),
            **({} if self.stop_when is None else {"stop_when": self.stop_when}),
            warmup_steps=self.warmup_steps,
            sampling_steps=self.sampling_steps,
            n_draws=self.n_draws,
            run_dir=run_dir,
            backend=backend,
            time_limit=time_limit,
            random_state=random_state,
            verbose=verbose,
        )

    def _kind(self, task: str) -> Callable[..., MileRegressor | MileClassifier]:
        """Return the estimator's class with its network."""
        if self.text is None:
            given = {"network": self.network, "likelihood": self.likelihood, "columns": self.kinds or None}
            return partial(ESTIMATORS[task], _widths(self.hidden), **given)
        if self.hidden is not None:
            raise ValueError("--hidden describes the network of tables: with --text choose one with --network.")
        if self.n_folds is not None:
            raise ValueError("--folds is for tables and images; with --text rows are set aside for validation.")
        if self.stop_when is not None:
            raise ValueError("--stop-when is for tables and images, not for --text.")
        return partial(MileTextClassifier, self.network or _TEXT_NETWORK)


def fit(
    console: Console,
    data: DataFile,
    target: str | None,
    drop: list[str],
    task: str,
    settings: Settings,
    out: Path | None,
    time_limit: str | None,
    seed: int | None,
    save: Path | None,
    place: DaskBackend | None = None,
    groups: str | None = None,
    order: str | None = None,
    event: str | None = None,
    exposure: str | None = None,
) -> None:
    """Fit a table or images and keep the run."""
    folding = _folding(data, settings, groups, order)
    drop = drop if groups is None or groups in drop else [*drop, groups]  # new groups have labels of their own
    at_risk = None if exposure is None else read_exposure(data.table, exposure)
    drop = drop if exposure is None or exposure in drop else [*drop, exposure]
    problem, settings = _read(data, target, drop, task, settings, event)
    data.forget()
    run = out or data.run
    console.say(_describe(data, problem))
    estimator = settings.estimator(
        problem.task,
        run_dir=run,
        backend=place,
        time_limit=_seconds(time_limit),
        random_state=seed,
        verbose=int(console.talkative),
    )
    if has_run(run):
        console.say(f"{run} holds a run already; if it is the same, it is resumed.")
    began = time.perf_counter()
    if at_risk is not None:
        rows, columns = with_exposure(problem.x, at_risk), problem.features
        estimator.fit_columns(rows, problem.y, columns, problem.target, exposure=exposure, **folding)
    elif len(problem.shape) > 2:
        estimator.fit(problem.x, problem.y)
    elif problem.event is not None:
        estimator.fit_columns(problem.x, problem.y, problem.features, problem.target, event=problem.event, **folding)
    else:
        estimator.fit_columns(problem.x, problem.y, problem.features, problem.target, **folding)
    _finish(console, run, estimator, time.perf_counter() - began, save)


def _read(
    data: DataFile, target: str | None, drop: list[str], task: str, settings: Settings, event: str | None = None
) -> tuple[LearningInput, Settings]:
    """Read what there is to learn, and choose a network that takes it."""
    if task == "auto" and settings.likelihood is not None:
        task = "regression" if settings.likelihood == AUTO else _registry.likelihood[settings.likelihood].task
    if event is not None and (settings.text is not None or is_image_file(data)):
        raise ValueError("--event is for tables, not for texts or images.")
    if settings.kinds and (settings.text is not None or is_image_file(data)):
        raise ValueError("--category, --number and --ignore describe columns of a table, not texts or images.")
    if settings.text is not None:
        return read_text_problem(data, settings.text, target, drop, task), settings
    if is_image_file(data):
        return read_image_problem(data, target, drop, task), settings.for_images()
    if target is None:
        raise ValueError("--target must name the column to predict.")
    return read_problem(data, target, drop, task, settings.kinds, event), settings


class FoldColumns(TypedDict, total=False):
    """The columns that say how rows are cut into folds, by the name that `fit` gives them."""

    groups: np.ndarray
    order: np.ndarray


def _folding(data: DataFile, settings: Settings, groups: str | None, order: str | None) -> FoldColumns:
    """Return the columns that are asked for."""
    if (groups is not None or order is not None) and (settings.text is not None or is_image_file(data)):
        raise ValueError("--groups and --order name columns of a table; there are none in texts or images.")
    found: FoldColumns = {}
    if groups is not None:
        found["groups"] = data.table.column(groups)
    if order is not None:
        found["order"] = data.table.column(order)
    return found


def resume(
    console: Console,
    run: Path,
    time_limit: str | None,
    force: bool,
    save: Path | None,
    place: DaskBackend | None = None,
    draws: int | None = None,
    chains: str | None = None,
    preset: str | None = None,
) -> None:
    """Resume a run, or give a finished one more."""
    began = time.perf_counter()
    model = resume_run(
        run,
        backend=place,
        time_limit=_seconds(time_limit),
        verbose=int(console.talkative),
        force=force,
        n_draws=draws,
        n_chains=_chains(chains, run),
        preset=preset,
    )
    _finish(console, run, model, time.perf_counter() - began, save)


def kinds(
    data: DataFile, target: str | None, category: list[str] | None, number: list[str] | None, ignore: list[str] | None
) -> dict[str, str]:
    """Return the kind of each column that the user named."""
    return read_kinds(data, target, {"category": category or [], "number": number or [], "ignore": ignore or []})


def cluster(
    address: str | None,
    verify: float | None,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
) -> DaskBackend | None:
    """Return the cluster that the user chose, if any.

    Raises
    ------
    ValueError
        If there is nothing to verify or to encrypt, the share is impossible, or a certificate cannot be used.
    """
    if address is None and verify is not None:
        raise ValueError("--dask-verify compares the workers of a Dask cluster: name one with --dask ADDRESS.")
    given = [file for file in (ca, cert, key) if file is not None]
    if given and address is None:
        raise ValueError("--dask-tls-... encrypts the traffic of a Dask cluster: name one with --dask tls://HOST:8786.")
    if given and (ca is None or cert is None or key is None):
        raise ValueError("--dask-tls-ca, --dask-tls-cert and --dask-tls-key belong together: give all three.")
    if address is None:
        return None
    security = None if ca is None or cert is None or key is None else tls_security(ca, cert, key)
    backend = DaskBackend(address, security=security)
    return backend if verify is None else replace(backend, verify=verify)


def _finish(console: Console, run: Path, model: Model, seconds: float, save: Path | None) -> None:
    """Save the model if asked to, and print a summary."""
    if save is not None:
        model.save(save)
    result = fitted(model)
    n_chains, n_draws, dimension = result.chains.draws.shape
    saved = getattr(model, "steps_saved_", 0)
    validation = read_validation(run, result)
    scores = None if validation is None else scores_beside_ensemble(result.for_encoded, validation.x, validation.y)
    unseen = result.out_of_fold
    console.say(
        f"Finished in {duration(seconds)}: {n_chains} chains of {n_draws:,} draws of {dimension:,} weights, "
        f"seed {result.seed}."
    )
    if saved:
        console.say(f"More draws gained nothing on unseen rows: {saved:,} sampling steps of each chain were saved.")
    for line in choice_lines(model):
        console.say(line)
    for chain, code in zip(result.chain_ids, result.status, strict=True):
        if code != 0:
            console.say(f"  chain {chain}: {code.sentence}")
    if scores is not None:
        console.say(f"\nOn the {len(validation.y) if validation else 0} validation rows:")
        console.say(score_table(scores))
    if unseen is not None:
        console.say(f"\nOut of fold: each of {len(unseen):,} rows by the chains that never saw it.")
        console.say(out_of_fold_table(result))
    console.say(f"\nRun      {run}")
    if save is not None:
        console.say(f"Model    {save}")
    console.say(f"Report   mile report {run}")
    example = "NEW.npz" if takes_images(model) else "NEW.csv"
    console.say(f"Predict  mile predict {run} {example} --out predictions.csv")
    console.answer(
        {
            "run": str(run),
            "model": None if save is None else str(save),
            "seconds": seconds,
            "seed": result.seed,
            "chains": {
                int(chain): code.name.lower() for chain, code in zip(result.chain_ids, result.status, strict=True)
            },
            "draws": n_draws,
            "weights": dimension,
            "steps_saved": saved,
            "likelihood": choice_lines(model) or None,
            "gradient_evaluations": int(result.chains.gradient_evaluations.sum()),
            "validation": scores,
            "out_of_fold": None if unseen is None else out_of_fold_answer(result),
        }
    )


def forecast(
    console: Console, data: DataFile, target: str | None, drop: list[str], task: str, settings: Settings
) -> None:
    """Time a few steps and print a forecast of the fit."""
    problem, settings = _read(data, target, drop, task, settings)
    console.say(_describe(data, problem))
    estimator = settings.estimator(problem.task)
    expected = estimator.forecast(problem.x, problem.y)
    total = expected.training_seconds + expected.sampling_seconds
    console.say(
        table(
            ("", "expected"),
            [
                ("training, at most", duration(expected.training_seconds)),
                ("sampling", duration(expected.sampling_seconds)),
                ("in all, at most", duration(total)),
                ("memory", _size(expected.memory_bytes)),
                ("memory without a run directory", _size(expected.memory_bytes + expected.draw_bytes)),
                ("disk", _size(expected.disk_bytes)),
                ("gradient evaluations", f"{expected.gradient_evaluations:,}"),
                ("weights", f"{expected.n_weights:,}"),
            ],
        )
    )
    console.answer(expected._asdict() | {"total_seconds": total})


def _describe(data: DataFile, problem: LearningInput) -> str:
    kind = f"{problem.task}: {problem.reason}"
    if len(problem.shape) == 1:
        return f"{data}: {len(problem.y):,} texts in {problem.features[0]!r}, {kind}."
    if len(problem.shape) > 2:
        return f"{data}: {len(problem.y):,} images of {' x '.join(map(str, problem.shape[1:]))}, {kind}."
    n_features = len(problem.features)
    return f"{data}: {len(problem.y):,} rows, {n_features} feature{'' if n_features == 1 else 's'}, {kind}."


def _widths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"--hidden must be widths separated by commas, such as 16,16; got {text!r}.") from None


def _chains(text: str | None, run: Path) -> int | None:
    """Return how many chains a text such as 18 or +6 stands for."""
    if text is None:
        return None
    found = re.fullmatch(r"(\+?)([1-9][0-9]{0,6})", text.strip())
    if found is None:
        raise ValueError(f"--chains must be a number such as 18, or +6 for six more; got {text!r}.")
    before = Count(1).read(read_manifest(run).configuration.get("n_chains"), run, ("n_chains",)) if found[1] else 0
    return before + int(found[2])


def _seconds(text: str | None) -> float | None:
    """Return the seconds that a text such as 10m stands for."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else math.nan
    if not seconds > 0:
        raise ValueError(f"--time-limit must be a time such as 90s, 10m or 2h; got {text!r}.")
    return seconds


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"
