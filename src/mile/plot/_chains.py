"""Chains through tuning and sampling, and what their draws add to the prediction."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from mile._errors import Status
from mile._types import Scalar
from mile.fitting.result import Fit
from mile.plot._style import (
    ENSEMBLE,
    FAILED,
    MILE,
    MISS,
    WANTED,
    count,
    even_choice,
    finish,
    log_axis,
    make_room,
    new_axes,
    nothing,
)
from mile.samplers import title_of
from mile.samplers.base import EnergySchedule, spacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_POINTS, _FEWEST_POINTS = 400, 12  # of a line in all, and in one phase
_MOST_NAMED = 3  # failed chains that get a line of their own in the legend
_MOST_ROWS = 500
_MOST_CELLS = 6_000_000  # draws x rows
_N_POINTS = 30  # of a smooth curve
_NARROWEST = 0.05  # share of all steps that a phase needs to be named
_LEGEND_LINE = 0.09  # of the height of the axes
_STEPS = "steps (tuning, then sampling)"


class _Stretch(NamedTuple):
    """A phase on the axis of steps."""

    name: str
    start: int
    stop: int
    n_records: int

    def steps(self, n_found: int) -> np.ndarray:
        """Return the steps at which the records were made; a run that was cut short has fewer."""
        every = spacing(self.stop - self.start, self.n_records)
        first = self.stop - every * self.n_records
        return first + every * np.arange(1, n_found + 1)


def trace(fit: Fit, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the log density of each chain through tuning and sampling.

    Parameters
    ----------
    fit
        As `mile.fit` returns it, or `model.fit_`.
    ax
        Where to draw; None makes a new figure.
    """
    ax = new_axes(ax)
    sampled = np.asarray(fit.chains.logdensity, float)
    pieces = [*_histories(fit, "logdensity"), (_stretches(fit)[-1], sampled)]
    if sum(values.shape[1] for _, values in pieces) < 2:
        return nothing(ax, "There is no trace: a deep ensemble does not sample.")
    _draw(ax, fit, pieces)
    _set_limits(ax, np.concatenate([values[fit.ok].ravel() for _, values in pieces]), tail=0.002)
    title = f"Log density of {count(len(fit.status), 'chain')} through tuning and sampling"
    half = sampled.shape[1] // 2
    if half >= 2:
        good = sampled[fit.ok]
        moved = np.abs(good[:, -half:].mean(axis=1) - good[:, :half].mean(axis=1))
        moved = float(np.median(moved / np.maximum(good.std(axis=1), np.finfo(float).tiny)))
        verdict = "has settled" if moved < 1.0 else "still moves"
        title = f"Log density {verdict}: the halves of sampling differ by {moved:.1f} standard deviations"
    return _finish(ax, title, "log density")


def energy(fit: Fit, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the variance of the energy change per dimension, wanted and realized.

    While tuning, the running estimate is the wanted level by construction, so what each phase realized is drawn.
    """
    ax = new_axes(ax)
    pieces = _constants(fit, "energy_variance")
    if not pieces or not log_axis(ax, "y", _ravel(pieces, fit.ok)):
        return nothing(ax, "There is no record of the energy variance.")
    _draw(ax, fit, pieces)
    ax.plot([], [], color=MILE, alpha=0.55, linewidth=0.8, label="realized, by phase")
    title = f"Energy variance per dimension is {_digits(np.median(pieces[-1][1][fit.ok]))} while sampling"
    schedule = fit.sampler.energy_schedule
    if schedule is not None:
        steps, wanted = _wanted(fit, schedule)
        ax.plot(steps, wanted, color=WANTED, linewidth=2.0, label="wanted")
        title += f", {_digits(wanted[-1])} is wanted"
    return _finish(ax, title, "energy variance")


def step_size(fit: Fit, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the step size of each chain through tuning and sampling."""
    ax = new_axes(ax)
    pieces = _histories(fit, "step_size")
    known = {stretch.name for stretch, _ in pieces}
    pieces += [piece for piece in _constants(fit, "step_size") if piece[0].name not in known]
    if not pieces or not log_axis(ax, "y", _ravel(pieces, fit.ok)):
        return nothing(ax, "There is no record of step sizes.")
    _draw(ax, fit, pieces)
    final = np.asarray(fit.chains.tuned.step_size, float)[fit.ok]
    title = f"Step sizes end between {_digits(final.min())} and {_digits(final.max())}"
    if len(final) == 1:
        title = f"The step size ends at {_digits(final[0])}"
    return _finish(ax, title, "step size")


def accumulation(fit: Fit, x: Float[np.ndarray, "row feature"], y: np.ndarray, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the log pointwise predictive density as draws accumulate, of all chains and of each alone.

    Parameters
    ----------
    fit
        As `mile.fit` returns it, or `model.fit_`.
    x, y
        Rows of raw features and what was observed; of many, an even selection.
    ax
        Where to draw; None makes a new figure.
    """
    x, y, ax = np.asarray(x), np.asarray(y), new_axes(ax)
    if len(x) != len(y) or not len(y):
        raise ValueError(f"x and y must have the same number of rows, at least one; got {len(x)} and {len(y)}.")
    n_chains, n_draws = int(fit.ok.sum()), fit.chains.logdensity.shape[1]
    rows = even_choice(len(y), int(np.clip(_MOST_CELLS // (n_chains * n_draws), 1, _MOST_ROWS)))
    members = fit.ensemble_predictive(x[rows])
    ensemble = float(np.mean(members.log_prob(y[rows])))
    if n_draws < 2:
        return nothing(ax, f"One draw a chain cannot accumulate; LPPD of the ensemble is {ensemble:.3f}.")
    chains = fit.predictive(x[rows], chains=np.flatnonzero(fit.ok).tolist())
    values = chains.log_prob_per_draw(y[rows]).reshape(n_chains, n_draws, len(rows))
    numbers, totals = _accumulate(values)
    alone = totals.mean(axis=2).T
    together = _together(fit, totals, members.log_prob_per_draw(y[rows])).mean(axis=1)
    ax.plot(numbers, alone, color=MILE, alpha=0.45, linewidth=0.9)
    ax.plot([], [], color=MILE, alpha=0.45, linewidth=0.9, label="one chain")
    ax.plot(
        numbers,
        together,
        color=MILE,
        linewidth=2.2,
        label=f"{title_of(fit.sampler.name)}, {count(n_chains, 'chain')}",
    )
    ax.axhline(ensemble, color=ENSEMBLE, linestyle="--", linewidth=1.4, label="deep ensemble")
    log_axis(ax, "x", numbers)
    _set_limits(ax, np.concatenate([alone[-1], alone.max(axis=1), together, [ensemble]]))
    make_room(ax, below=0.3)
    better = "above" if together[-1] >= ensemble else "below"
    title = f"LPPD reaches {together[-1]:.3f}, {abs(together[-1] - ensemble):.3f} {better} the deep ensemble"
    if len(rows) < len(y):
        title += f" (on {len(rows)} of {len(y):,} rows)"
    return finish(ax, title, "draws of each chain", "LPPD (higher is better)", "lower right", 2)


def _together(fit: Fit, totals: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Return the log density of all candidates, shape (number, row), from those of chains and of members (chain, row).

    Members have no draws to accumulate.
    """
    if fit.weights is None:
        return np.logaddexp.reduce(totals, axis=0) - np.log(len(totals))
    weights = np.concatenate([fit.chain_weights[fit.ok], fit.member_weights[fit.ok]])
    every = np.concatenate([totals, np.broadcast_to(members[:, None], totals.shape)])
    return np.asarray(logsumexp(every, axis=0, b=weights[:, None, None]))


def _accumulate(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of draws, and the log mean density of that many first draws, shape (chain, number, row)."""
    n_draws = values.shape[1]
    numbers = np.unique(np.geomspace(1, n_draws, _N_POINTS).round().astype(int))
    sums = np.logaddexp.reduceat(values, np.concatenate([[0], numbers[:-1]]), axis=1)
    return numbers, np.logaddexp.accumulate(sums, axis=1) - np.log(numbers)[:, None]


def _stretches(fit: Fit) -> list[_Stretch]:
    phases = fit.sampler.phases
    ends = np.cumsum([phase.n_steps for phase in phases]).tolist()
    starts = [0, *ends[:-1]]
    return [
        _Stretch(phase.name, start, end, max(1, min(phase.n_records, phase.n_steps)))
        for phase, start, end in zip(phases, starts, ends, strict=True)
    ]


def _histories(fit: Fit, name: str) -> list[tuple[_Stretch, np.ndarray]]:
    """Return what the tuning phases recorded of a quantity."""
    found = []
    for stretch in _stretches(fit)[:-1]:
        values = getattr(fit.chains.history.get(stretch.name), name, None)
        if values is not None and values.shape[1]:
            found.append((stretch, np.asarray(values, float)))
    return found


def _constants(fit: Fit, name: str) -> list[tuple[_Stretch, np.ndarray]]:
    """Return the one number a chain that each phase reports."""
    info = fit.chains.info
    return [
        (stretch, np.asarray(info[stretch.name][name], float)[:, None])
        for stretch in _stretches(fit)
        if name in info.get(stretch.name, {})
    ]


def _wanted(fit: Fit, schedule: EnergySchedule) -> tuple[np.ndarray, np.ndarray]:
    """Return the level that the schedule wants at some steps; after tuning it stays."""
    stretches = _stretches(fit)
    first, tuning, end = stretches[0].stop, stretches[1].stop, stretches[-1].stop
    steps = np.linspace(0, tuning, _N_POINTS)
    wanted = np.asarray(schedule.value(cast(Scalar, steps), first, tuning), float)  # of NumPy's arrays too
    return np.append(steps, end), np.append(wanted, wanted[-1])


def _draw(ax: "Axes", fit: Fit, pieces: list[tuple[_Stretch, np.ndarray]]) -> None:
    """Draw one line a chain, failed ones apart, and the borders of the phases."""
    failed, stretches = np.flatnonzero(~fit.ok), _stretches(fit)
    total = stretches[-1].stop
    for row in range(len(fit.status)):
        steps, values = (np.concatenate(parts) for parts in zip(*_line(pieces, row, total), strict=True))
        if fit.ok[row]:
            ax.plot(steps, values, color=MILE, alpha=0.55, linewidth=0.8)
        else:
            label = f"chain {fit.chain_ids[row]}, left out: {_WORDS[fit.status[row]]}"
            if len(failed) > _MOST_NAMED:
                label = None if row != failed[0] else f"{len(failed)} chains, left out"
            ax.plot(steps, values, color=FAILED, linestyle="--", linewidth=1.0, label=label)
    for stretch in stretches:
        if stretch.start:
            ax.axvline(stretch.start, color=MISS, linewidth=0.7, alpha=0.6)
        if stretch.stop - stretch.start >= _NARROWEST * total:
            place = ((stretch.start + stretch.stop) / 2, 1.01)
            word = stretch.name.removeprefix("phase ").replace("sampling", "draws")  # short enough for a narrow place
            ax.text(*place, word, transform=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize="small")
    ax.set_xlim(0, total)
    in_thousands = total >= 10_000
    ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if in_thousands and value else f"{value:,.0f}")


def _finish(ax: "Axes", title: str, y_label: str) -> "Axes":
    """Add title, labels, and a legend with room of its own."""
    make_room(ax, below=_LEGEND_LINE * len(ax.get_legend_handles_labels()[1]))
    return finish(ax, title, _STEPS, y_label, "lower left")


def _line(pieces: list[tuple[_Stretch, np.ndarray]], row: int, total: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield steps and values of a chain, phase by phase; a number of a whole phase is a line apart from the others."""
    for stretch, values in pieces:
        if values.shape[1] == 1:
            yield np.array([stretch.start, stretch.stop, stretch.stop]), np.append(np.repeat(values[row], 2), np.nan)
        else:
            n_points = max(_FEWEST_POINTS, _MOST_POINTS * (stretch.stop - stretch.start) // total)
            chosen = even_choice(values.shape[1], n_points)
            yield stretch.steps(values.shape[1])[chosen], values[row][chosen]


def _ravel(pieces: list[tuple[_Stretch, np.ndarray]], ok: np.ndarray) -> np.ndarray:
    return np.concatenate([values[ok].ravel() for _, values in pieces])


def _set_limits(ax: "Axes", values: np.ndarray, tail: float = 0.0) -> None:
    """Set limits that show almost all values; a few extreme ones may be outside."""
    known = values[np.isfinite(values)]
    if not known.size:
        return
    lower, upper = np.quantile(known, [tail, 1.0])
    margin = 0.06 * (upper - lower) or 0.5
    ax.set_ylim(lower - margin, upper + margin)


def _digits(value: float) -> str:
    return f"{value:#.2g}".rstrip(".")


_WORDS = {
    Status.NON_FINITE_START: "no finite start",
    Status.BAD_STEPS: "bad steps",
    Status.FROZEN: "frozen",
    Status.DIVERGED: "diverged",
    Status.UNTRAINED: "untrained",
    Status.NON_FINITE: "not finite",
}
