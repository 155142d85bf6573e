"""Pictures of simulated clusters."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scaling.setting import Result

_COLORS = ("#8cb9d9", "#1a7f4b", "#c8451b", "#222222")
_TITLES = {"calm": "nothing goes wrong", "troubled": "workers die and dawdle"}
_QUEUES = {"scheduler": "#c8451b", "client": "#1a7f4b", "link": "#7a5aa6"}


def draw_efficiency(
    path: Path, found: dict[str, dict[tuple[int, int], Result]], chains: Sequence[int], slots: Sequence[int]
) -> None:
    """Draw the share of useful time against the number of workers, a line for each number of chains."""
    figure, panels = _panels(len(found))
    for axes, (name, results) in zip(panels, found.items(), strict=True):
        for n_chains, color in zip(chains, _COLORS, strict=True):
            shares = [100 * results[n_chains, n_slots].efficiency for n_slots in slots]
            axes.plot(slots, shares, "o-", color=color, markersize=5, label=f"{n_chains:,} chains")
        _finish(axes, _TITLES[name], "workers", [f"{n:,}" for n in slots], slots)
    panels[0].set_ylabel("useful share of the workers' time, %")
    _explain(figure, panels[0])
    _save(figure, path)


def draw_blocks(path: Path, found: dict[str, list[Result]], lengths: Sequence[float]) -> None:
    """Draw the share of useful time, and how busy everybody else is, against the length of a block."""
    figure, panels = _panels(len(found))
    for axes, (name, results) in zip(panels, found.items(), strict=True):
        axes.plot(
            lengths, [100 * one.efficiency for one in results], "o-", color="black", label="workers, useful", zorder=3
        )
        for queue, color in _QUEUES.items():
            busy = [100 * one.utilization[queue] for one in results]
            axes.plot(lengths, busy, "--", color=color, label=f"{queue}, busy")
        _finish(axes, _TITLES[name], "length of a block, s", [f"{seconds:g}" for seconds in lengths], lengths)
    panels[0].set_ylabel("share of the time, %")
    _explain(figure, panels[0])
    _save(figure, path)


def _panels(count: int) -> tuple[Figure, Sequence[Axes]]:
    mpl.use("agg")
    return plt.subplots(1, count, figsize=(9, 4.1), sharey=True, layout="constrained")


def _explain(figure: Figure, axes: Axes) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)


def _finish(axes: Axes, title: str, label: str, names: Sequence[str], ticks: Sequence[float]) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xscale("log")
    axes.set_xticks(ticks, names)
    axes.minorticks_off()
    axes.margins(x=0.08)
    axes.set_xlabel(label)
    axes.set_ylim(0, 103)
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150)
    plt.close(figure)
