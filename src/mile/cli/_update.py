"""`mile update`: new rows for a run."""

import time
from pathlib import Path
from typing import cast

import numpy as np

from mile._progress import duration
from mile.cli._console import Console
from mile.cli._data import features_for, response_for
from mile.cli._reading import DataFile
from mile.cli._target import drop_unknown
from mile.cli._texts import takes_texts
from mile.cli._use import load_model, out_of_fold_answer, out_of_fold_table, takes_images, target_name
from mile.estimators import MileClassifier, MileRegressor
from mile.features.accepted import InputLike


def update(
    console: Console,
    run: Path,
    data: DataFile,
    target: str | None,
    out: Path | None,
    groups: str | None,
    earlier: DataFile | None,
    order: str | None,
    save: Path | None,
) -> None:
    """Continue the chains of a run on its rows and those of a table, in a new run."""
    model = load_model(run)
    if not isinstance(model, MileRegressor | MileClassifier) or takes_texts(model) or takes_images(model):
        raise ValueError(f"{run} is not the run of a table, whose rows could be added to.")
    name = target or target_name(model)
    if name is None:
        raise ValueError("The model does not know its target's name: give --target.")
    if earlier is not None and groups is None:
        raise ValueError("--earlier has the --groups of the rows of the run: give --groups too.")
    rows = drop_unknown(data.table, name)
    place, began = out or run.with_name(f"{run.stem}-updated{run.suffix}"), time.perf_counter()
    model.set_params(verbose=int(console.talkative))
    model.update(
        cast(InputLike, features_for(model, rows, name)),
        np.asarray(response_for(model, rows, name)),
        groups=None if groups is None else rows.column(groups),
        earlier_groups=None if earlier is None or groups is None else earlier.table.column(groups),
        order=None if order is None else rows.column(order),
        earlier=run,
        run_dir=place,
    )
    if save is not None:
        model.save(save)
    moved, seconds = model.updated_, time.perf_counter() - began
    console.say(
        f"Updated in {duration(seconds)}: {moved.n_new:,} rows after {moved.n_before:,}. They moved the posterior by "
        f"{moved.shift:.2g} of its standard deviations; rows of the same kind move it by about {moved.usual_shift:.2g}."
    )
    unseen = model.fit_.out_of_fold
    if unseen is not None:
        console.say(f"\nOut of fold: each of {len(unseen):,} rows by the chains that never saw it.")
        console.say(out_of_fold_table(model.fit_))
    console.say(f"\nRun      {place}")
    console.answer(
        {
            "run": str(place),
            "rows_before": moved.n_before,
            "rows_new": moved.n_new,
            "shift": moved.shift,
            "usual_shift": moved.usual_shift,
            "virial": moved.virial,
            "unseen": moved.unseen,
            "outside": moved.outside,
            "fit_is_due": list(moved.reasons),
            "seconds": seconds,
            "out_of_fold": None if unseen is None else out_of_fold_answer(model.fit_),
        }
    )
