"""New rows for a fitted estimator: checked and encoded as its own were, cut into folds, and sampled together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from mile._errors import warn
from mile._json import Json
from mile._progress import Progress
from mile.data import Dataset, Rows
from mile.data.folds import FEWEST_ROWS_OF_A_FOLD
from mile.estimators._foldings import Folding, Labels, check_folding
from mile.estimators._responses import split_missing
from mile.estimators._task import check_weights, encode_rows, take_rows
from mile.execution import Backend
from mile.features.accepted import ResponseLike, WeightsLike
from mile.features.base import Table
from mile.fitting.result import Fit
from mile.fitting.running import run_job
from mile.fitting.updating import Moved, Update, folds_of_new, plan_update
from mile.likelihoods.limits import has_limits, limits_of
from mile.storage import DATA, Remembered, has_run, read_manifest, read_tensors

_ADVICE = "fit with run_dir=..., or with warm_start=True, to keep the rows"


@dataclass(frozen=True, kw_only=True, eq=False)
class Earlier:
    """Rows of a fit, and how it weighs its chains."""

    dataset: Dataset
    stacking: str


def earlier_in(folder: Path, fit: Fit) -> Earlier:
    """Return the rows that a run keeps.

    Raises
    ------
    ValueError
        If it keeps none, or is the run of another fit.
    """
    manifest = read_manifest(folder) if has_run(folder) else None
    if manifest is None or DATA not in manifest.files:
        raise ValueError(f"{folder} keeps no rows to add new ones to: {_ADVICE}.")
    if manifest.seed != fit.seed:
        raise ValueError(f"the run in {folder} is not that of this model: their seeds differ.")
    dataset = Dataset.from_arrays(**read_tensors(folder / DATA, within=folder).arrays)
    return Earlier(dataset=dataset, stacking=str(manifest.configuration.get("stacking", "none")))


def no_rows() -> ValueError:
    """Return the error of a model that has forgotten its rows."""
    return ValueError(f"this model does not keep its rows, and new ones are sampled together with them: {_ADVICE}.")


def plan_new_rows(
    fit: Fit,
    earlier: Earlier,
    features: Table,
    y: ResponseLike,
    weight: WeightsLike | None,
    *,
    groups: Labels | None,
    earlier_groups: Labels | None,
    order: Labels | None,
) -> Update:
    """Check and encode new rows, and return what is to be done about them.

    Raises
    ------
    ValueError
        If a row cannot be used, or groups are given for one side only.
    """
    y = limits_of(y) if has_limits(y) else y
    response, known = split_missing(y)
    values, n_given = np.asarray(response), len(features)
    if len(values) != n_given:
        raise ValueError(f"X and y must have the same number of rows; got {n_given} and {len(values)}.")
    weights = check_weights(weight, features)
    rotates = earlier.dataset.folds is not None
    folding, of_groups = _folding(groups, earlier_groups, order, n_given, earlier.dataset, rotates=rotates)
    if known is not None:
        features, values, folding = take_rows(features, known), values[known], folding.take(known)
        weights = None if weights is None else weights[known]
    if len(values) < FEWEST_ROWS_OF_A_FOLD:
        raise ValueError(f"there must be at least {FEWEST_ROWS_OF_A_FOLD} new rows; got {len(values)}.")
    encoded = fit.response.encode(fit.response.cast(values))
    x = encode_rows(fit.encoder, features)
    first = int(max(part.number.max(initial=-1) for part in (earlier.dataset.train, earlier.dataset.valid))) + 1
    place = np.arange(n_given) if known is None else known
    new = Rows.checked(x, encoded, "new", weights, first + place)
    strata = fit.likelihood.strata(values)
    folds = folds_of_new(earlier.dataset, len(new), fit.seed, strata, folding.groups, folding.order, of_groups)
    return plan_update(
        fit, earlier.dataset, new, folds, unseen=fit.encoder.share_unseen(features), stacking=earlier.stacking
    )


def run_update(
    update: Update,
    backend: Backend,
    *,
    progress: Progress | None,
    run_dir: str | Path | None,
    origin: dict[str, Json],
    time_limit: float | None = None,
) -> Fit:
    """Warn if a fit from the start is due, and continue the chains."""
    tell(update.moved)
    return run_job(
        update.job,
        backend,
        progress=progress,
        run_dir=run_dir,
        origin=origin,
        time_limit=time_limit,
        memory=Remembered() if run_dir is None else None,
        starts=update.starts,
    )


def tell(moved: Moved) -> None:
    """Warn if a fit from the start is due."""
    if moved.is_due:
        warn(f"A fit from the start is due: {'; '.join(moved.reasons)}.")


def _folding(
    groups: Labels | None,
    earlier_groups: Labels | None,
    order: Labels | None,
    n_new: int,
    dataset: Dataset,
    *,
    rotates: bool,
) -> tuple[Folding, dict[int, int]]:
    """Return groups and order of the new rows, and the folds that groups have already."""
    if earlier_groups is None:
        return check_folding(groups, order, n_new, may_rotate=rotates), {}
    if groups is None:
        raise ValueError("earlier_groups are labels of the rows of the fit: give groups, those of the new rows, too.")
    before = list(cast(Sequence[object], np.asarray(earlier_groups, object)))
    number, folds = dataset.train.number, dataset.folds
    if len(before) <= number.max():
        raise ValueError(
            f"earlier_groups must have one label for each row that the model was fitted on; got {len(before)}, and row "
            f"{number.max()} was among those."
        )
    both = check_folding([*before, *np.asarray(groups, object)], order, len(before) + n_new, may_rotate=rotates)
    assert both.groups is not None
    assert folds is not None
    of_groups = dict(zip(both.groups[number].tolist(), folds.tolist(), strict=True))
    _, new = np.unique(both.groups[len(before) :], return_inverse=True)
    labels = zip(new.tolist(), both.groups[len(before) :].tolist(), strict=True)
    named = {code: of_groups[label] for code, label in labels if label in of_groups}
    return Folding(groups=new), named
