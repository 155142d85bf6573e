"""Diagnostics by group: the weights of each layer, and predictions."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mile.diagnose.diagnosis import Diagnosis, Group
from mile.plot._style import ENSEMBLE, FAILED, MILE, WANTED, finish, log_axis, new_axes, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def ess(diagnosis: Diagnosis, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the effective sample size of each chain alone, over chains and quantities."""
    ax = new_axes(ax)
    found = _known(diagnosis, lambda group: group.ess)
    if not found:
        return nothing(ax, "Effective sample sizes need at least two draws.")
    log_axis(ax, "x", np.concatenate([*found.values(), [diagnosis.n_draws]]))
    ax.axvline(diagnosis.n_draws, color=WANTED, linestyle="--", linewidth=1.2, label="as many as draws")
    _ranges(ax, found)
    title = f"Of {diagnosis.n_draws:,} draws of a chain {_subject(found)} {_least(found):,.0f} independent ones"
    return finish(ax, title, "effective sample size of one chain", "", "upper left")


def rhat(diagnosis: Diagnosis, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the chainwise R-hat, over chains and quantities."""
    ax = new_axes(ax)
    found = _known(diagnosis, lambda group: group.rhat)
    if not found:
        return nothing(ax, "Chainwise R-hat needs at least 16 draws.")
    ax.axvline(1.0, color=WANTED, linewidth=1.2, label="1: no drift")
    ax.axvline(1.1, color=WANTED, linestyle="--", linewidth=1.2, label="1.1: limit")
    _ranges(ax, found)
    drifting = float(np.mean(np.concatenate([*_last(found).values()]) > 1.1))
    title = f"Inside single chains, {100 * drifting:.0f} % of {_which(found)} drift (R-hat above 1.1)"
    return finish(ax, title, "chainwise R-hat", "", "upper right")


def variances(diagnosis: Diagnosis, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the variances between the means of chains and within chains."""
    ax = new_axes(ax)
    between = _known(diagnosis, lambda group: group.between)
    within = _known(diagnosis, lambda group: group.within)
    shared = [name for name in within if name in between]
    if not shared:
        return nothing(ax, "Variances between and within chains need two chains and two draws.")
    log_axis(ax, "x", np.concatenate([*between.values(), *within.values()]))
    _ranges(ax, {name: within[name] for name in shared}, MILE, -0.16, "within chains")
    _ranges(ax, {name: between[name] for name in shared}, ENSEMBLE, 0.16, "between chains")
    ratios = {name: float(np.median(between[name]) / max(np.median(within[name]), 1e-300)) for name in shared}
    last = next((name for name in shared if name.startswith("predictions")), shared[-1])
    title = f"Variance between chains is {_times(ratios[last])} times that within for {_words(last)}"
    if last != shared[0]:
        title += f", {_times(ratios[shared[0]])} times for {_words(shared[0])}"
    return finish(ax, title, "variance", "", "upper right")


def virial(diagnosis: Diagnosis, *, ax: "Axes | None" = None) -> "Axes":
    """Draw the virial ratios of the weights, which are 1 in equilibrium."""
    ax = new_axes(ax)
    found = _known(diagnosis, lambda group: group.virial)
    if not found:
        return nothing(ax, "Virial ratios were not recorded.")
    ax.axvline(1.0, color=WANTED, linestyle="--", linewidth=1.2, label="1: equilibrium")
    _ranges(ax, found)
    values = np.concatenate([*found.values()])
    title = f"Virial ratio: {np.median(values):.2f} for the median weight, 1 is equilibrium"
    return finish(ax, title, "virial ratio", "", "upper right")


def _known(diagnosis: Diagnosis, choose: Callable[[Group], np.ndarray | None]) -> dict[str, np.ndarray]:
    """Return the finite values of each group that has any."""
    found = {}
    for group in diagnosis.groups:
        values = choose(group)
        if values is not None:
            values = np.asarray(values, float)
            found[group.name] = values[np.isfinite(values)]
    return {name: values for name, values in found.items() if values.size}


def _ranges(ax: "Axes", found: dict[str, np.ndarray], color: str = MILE, shift: float = 0.0, label: str = "") -> None:
    """Draw quantiles of each group on a line of its own, the first on top."""
    for index, values in enumerate(found.values()):
        lowest, lower, middle, upper, highest = np.quantile(values, _QUANTILES)
        place = index + shift
        ax.hlines(place, lowest, highest, color=color, linewidth=1.2)
        ax.hlines(place, lower, upper, color=color, alpha=0.5, linewidth=7.0, label="" if index else label)
        ax.plot([middle], [place], "o", color=color, markersize=4.5)
    ax.set_yticks(range(len(found)), [_tick(name) for name in found])
    ax.set_ylim(len(found) - 0.4, -1.6)  # room for a legend on top
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color=FAILED, alpha=0.25, linewidth=0.6)


def _last(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the predictions, which matter most, or else the weights."""
    return {name: values for name, values in found.items() if name.startswith("predictions")} or found


def _least(found: dict[str, np.ndarray]) -> float:
    return min(float(np.median(values)) for values in _last(found).values())


def _subject(found: dict[str, np.ndarray]) -> str:
    return "predictions are worth" if _last(found) is not found else "weights are worth"


def _which(found: dict[str, np.ndarray]) -> str:
    return "predictions" if _last(found) is not found else "weights"


def _words(name: str) -> str:
    return name.replace("predictions: ", "the predicted ")


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def _tick(name: str) -> str:
    return name.replace("predictions: ", "pred. ").replace("probability", "prob.")
