"""New rows for a finished fit: its chains continue on all rows from where they ended, after a short tuning.

How far the posterior has moved is measured before the first step, by the gradients that the old draws have under the
new target. It decides how long the tuning is, and when a fit from the start is due instead.
"""

from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile.data import Dataset, Rows
from mile.data.folds import rotating_folds, split_rows
from mile.ensemble.members import Members
from mile.fitting.job import Job
from mile.fitting.result import Fit
from mile.posterior import Posterior
from mile.samplers import Sampler, budgets_of
from mile.samplers._step_size import Linear

_SAMPLING_SHARE = 0.4  # of the sampling steps of the fit
_TUNING_SHARE = 0.05  # of its tuning steps, where the posterior moved as rows of the same kind let it
_MOST_TUNING = 4.0  # times as much at most: the whole stays below a quarter of the steps of a fit
_FRACTIONS = (0.7, 0.15, 0.15)  # of the tuning: a short one needs more of it to measure L
_FAR_FACTOR = 2.0  # times the usual shift, from where on chains have to travel
_MOST_PROBES = 40  # draws of a chain that are asked how far it has moved
_DUE_SHIFT = 3.0  # times what rows of the same kind bring about
_DUE_VIRIAL = 2.0  # curvature beyond what the number of rows explains, either way
_DUE_UNSEEN = 0.05  # share of rows with a level that the encoder does not know
_DUE_OUTSIDE = 0.05  # share of rows with a value far outside
_FAR = 0.5  # of the range of a feature, beyond its ends


@dataclass(frozen=True, kw_only=True)
class Moved:
    """How far new rows have moved a posterior, and what speaks for a fit from the start.

    Attributes
    ----------
    n_before, n_new
        Rows of the fit, and rows that came.
    shift
        Distance to where the chains belong now, in standard deviations of their draws, as the root mean square over
        weights. New rows of the same kind bring about the root of n_new / n_before.
    settled
        The same distance with the rows of the fit alone: how far its chains were from where they belonged.
    virial
        How much more curved the log posterior is around the draws, with all rows against those of the fit. More rows of
        the same kind give their ratio.
    outside
        Share of the new rows with a value far outside of what the fit had.
    unseen
        Share of the new rows with a text that the fit did not have.
    reasons
        One for each thing that speaks for a fit from the start.
    """

    n_before: int
    n_new: int
    shift: float
    settled: float
    virial: float
    outside: float
    unseen: float
    reasons: tuple[str, ...] = field(default=())

    @property
    def is_due(self) -> bool:
        """Whether a fit from the start is due."""
        return bool(self.reasons)

    @property
    def usual_shift(self) -> float:
        """The shift that as many rows of the same kind bring about."""
        return float(np.sqrt(self.n_new / self.n_before))


class Update(NamedTuple):
    """What is to be done about new rows."""

    job: Job
    starts: Members
    moved: Moved


def plan_update(fit: Fit, dataset: Dataset, new: Rows, folds: np.ndarray, *, unseen: float, stacking: str) -> Update:
    """Return the job that continues a fit on its rows and new ones.

    Parameters
    ----------
    fit
        With chains of a sampler that tunes and then samples.
    dataset
        Its rows.
    new
        Encoded as those are.
    folds
        Of the new rows; where none rotate, 1 for those that are set aside.
    unseen
        Share of the new rows with a text that the fit did not have.
    stacking
        How the fit weighs its chains.

    Raises
    ------
    ValueError
        If its sampler has no tuning that could be short.
    """
    together = replace(_joined(dataset, new, folds), encoder=fit.encoder, response=fit.response)
    seed = int(np.random.SeedSequence([fit.seed, len(together.train), len(together.valid)]).generate_state(1)[0])
    job = Job(
        dataset=together,
        network=fit.network,
        likelihood=fit.likelihood,
        prior=fit.prior,
        sampler=fit.sampler,
        training=fit.training,
        n_chains=len(fit.status),
        temperature=fit.temperature,
        response=fit.response,
        seed=seed,
        stacking=stacking,
    )
    moved = _measure(fit, job, dataset, new, unseen)
    return Update(replace(job, sampler=_short(fit, moved)), _last_draws(fit, job), moved)


def folds_of_new(
    dataset: Dataset,
    n_new: int,
    seed: int,
    strata: np.ndarray | None,
    groups: Int[np.ndarray, " row"] | None,
    order: np.ndarray | None,
    known: dict[int, int],
) -> np.ndarray:
    """Return folds of new rows by the rule of the fit, and `known` folds of groups; see `plan_update`."""
    if dataset.folds is None:
        share = len(dataset.valid) / (len(dataset.train) + len(dataset.valid))
        return split_rows(n_new, share, seed, strata).astype(np.int32)
    n_folds = int(dataset.folds.max()) + 1
    folds = rotating_folds(n_new, n_folds, seed, strata=strata, groups=groups, order=order)
    if groups is not None:
        folds = np.array(
            [known.get(int(group), int(fold)) for group, fold in zip(groups, folds, strict=True)], np.int32
        )
    return folds


def _joined(dataset: Dataset, new: Rows, folds: np.ndarray) -> Dataset:
    if dataset.folds is not None:
        train = _after(dataset.train, new, np.ones(len(new), bool))
        return replace(dataset, train=train, folds=np.concatenate([dataset.folds, folds]).astype(np.int32))
    held = folds.astype(bool)
    return replace(dataset, train=_after(dataset.train, new, ~held), valid=_after(dataset.valid, new, held))


def _after(rows: Rows, new: Rows, chosen: np.ndarray) -> Rows:
    pairs = {one.name: (getattr(rows, one.name), getattr(new, one.name)[chosen]) for one in fields(Rows)}
    return Rows(**{name: np.concatenate([ours, theirs.astype(ours.dtype)]) for name, (ours, theirs) in pairs.items()})


def _last_draws(fit: Fit, job: Job) -> Members:
    """Return where chains begin: at their last draws; one that failed at that of a chain with the same rows."""
    positions, good = np.array(fit.members.positions), np.flatnonzero(fit.ok)
    n_folds = 1 if job.rotation is None else job.rotation.n_folds
    for place in range(len(positions)):
        alike = [int(other) for other in good if other % n_folds == place % n_folds]
        if alike:
            source = place if place in alike else alike[0]
            positions[place] = np.asarray(fit.chains.draws[source, -1])
    return Members(positions, fit.members.status, fit.members.epochs, fit.members.validation_loss)


def _short(fit: Fit, moved: Moved) -> Sampler:
    """Return the sampler with a tuning as long as the posterior has moved."""
    budgets, known = budgets_of(fit.sampler), {one.name for one in fields(fit.sampler)}
    if not {"warmup_steps", "sampling_steps", "n_draws", "step_size"} <= set(known):
        raise ValueError(f"chains of {fit.sampler.name} have no tuning that could be short: fit from the start.")
    factor = float(np.clip(moved.shift / moved.usual_shift, 1.0, _MOST_TUNING))
    sampling = max(1, round(_SAMPLING_SHARE * budgets["sampling_steps"]))
    changes: dict[str, object] = {
        "warmup_steps": max(100, round(_TUNING_SHARE * factor * budgets["warmup_steps"])),
        "sampling_steps": sampling,
        "n_draws": min(budgets["n_draws"], sampling),
        "step_size": float(np.median(fit.chains.tuned.step_size[fit.ok])),
    }
    schedule = fit.sampler.energy_schedule
    # Small steps are enough where chains need not go far; else they begin with the large ones that a fit begins with.
    if schedule is not None and "schedule" in known and factor < _FAR_FACTOR:
        changes["schedule"] = Linear(start=schedule.end, end=schedule.end)
    if len(getattr(fit.sampler, "fractions", ())) == len(_FRACTIONS):
        changes["fractions"] = _FRACTIONS
    return replace(fit.sampler, **changes)


# How far the posterior has moved


def _measure(fit: Fit, job: Job, dataset: Dataset, new: Rows, unseen: float) -> Moved:
    posterior, rotation = job.posterior().tempered(job.temperature), job.rotation
    weight, n_before = np.asarray(posterior.rows.weight), len(dataset.train)
    shifts, settled, ratios = [], [], []
    for place in np.flatnonzero(fit.ok).tolist():
        seen = np.ones(len(job.dataset.train), bool)
        if rotation is not None:
            seen = rotation.folds != rotation.left_out(place)
        here = np.zeros_like(weight)
        here[: len(seen)] = weight[: len(seen)] * seen
        before = np.where(np.arange(len(here)) < n_before, here, 0.0).astype(here.dtype)
        stored = fit.chains.draws
        chosen = np.linspace(0, stored.shape[1] - 1, min(_MOST_PROBES, stored.shape[1])).round().astype(int)
        draws = np.asarray(stored[place, chosen])
        now, then = (np.asarray(_gradients(_weighted(posterior, one), draws)) for one in (here, before))
        shifts.append(_distance(draws, now - then))
        settled.append(_distance(draws, then))
        centered = draws - draws.mean(axis=0)
        ratios.append(np.sum(centered * now) / np.sum(centered * then))
    found = Moved(
        n_before=n_before + len(dataset.valid),
        n_new=len(new),
        shift=float(np.median(shifts)),
        settled=float(np.median(settled)),
        virial=float(np.median(ratios)),
        outside=_far_outside(dataset.train, new),
        unseen=unseen,
    )
    return replace(found, reasons=tuple(_reasons(found)))


def _distance(draws: Float[np.ndarray, "draw d"], gradients: Float[np.ndarray, "draw d"]) -> float:
    """Return how far a log density with these gradients moves the mean of draws, in their standard deviations.

    With covariance C of the draws and mean gradient g the mean moves by C g, whose length in standard deviations is
    that of g with the metric C: the spread of the draws along g.
    """
    pull = gradients.mean(axis=0, dtype=np.float64)
    return float(np.std(draws.astype(np.float64) @ pull) / np.sqrt(draws.shape[1]))


def _weighted(posterior: Posterior, weight: np.ndarray) -> Posterior:
    return replace(posterior, rows=replace(posterior.rows, weight=jax.device_put(weight)))


@jax.jit
def _gradients(posterior: Posterior, draws: Float[Array, "draw d"]) -> Float[Array, "draw d"]:
    return jax.lax.map(lambda draw: posterior.value_and_grad(draw)[1], jnp.asarray(draws))


def _far_outside(before: Rows, new: Rows) -> float:
    """Return the share of the new rows with a feature, or a number to predict, far beyond all before."""
    far = _is_far(before.x, new.x)
    if before.y.ndim == 1 and before.y.dtype.kind == "f":
        far |= _is_far(before.y[:, None], new.y[:, None])
    return float(far.mean())


def _is_far(before: np.ndarray, new: np.ndarray) -> np.ndarray:
    low, high = before.min(axis=0), before.max(axis=0)
    room = _FAR * (high - low) + np.finfo(np.float32).eps
    return ((new < low - room) | (new > high + room)).any(axis=1)


def _reasons(moved: Moved) -> list[str]:
    expected = 1.0 + moved.n_new / moved.n_before
    found = []
    if moved.shift > _DUE_SHIFT * np.hypot(moved.usual_shift, moved.settled):
        found.append(
            f"the posterior moved by {moved.shift:.2g} of its standard deviations, where rows of the same kind move it "
            f"by about {moved.usual_shift:.2g}"
        )
    is_settled = moved.settled < _DUE_SHIFT * moved.usual_shift  # else the curvature around the draws says nothing
    if is_settled and not 1.0 / _DUE_VIRIAL < moved.virial / expected < _DUE_VIRIAL:
        found.append(f"it is {moved.virial:.2g} times as curved, where the number of rows explains {expected:.2g}")
    if moved.unseen > _DUE_UNSEEN:
        found.append(f"{100 * moved.unseen:.0f} % of the new rows have texts that the fit did not know")
    if moved.outside > _DUE_OUTSIDE:
        found.append(f"{100 * moved.outside:.0f} % of the new rows have values far outside of those before")
    return found
