"""Pictures of explanations; each function draws on one matplotlib `Axes` and returns it."""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mile._printable import one_line
from mile.explain.effects import Band, Effect
from mile.explain.importance import Importance
from mile.explain.interactions import Interaction
from mile.explain.width_map import WidthMap
from mile.plot._style import FAILED, MILE, MISS, WANTED, count, cut, finish, make_room, new_axes, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_COLUMNS = 20
_NAME = 24  # characters
_MOST_PARTS = 10  # columns whose contributions are drawn one by one


def importance(found: Importance, *, ax: "Axes | None" = None) -> "Axes":
    """Draw what shuffling each column costs, with 90 % intervals, the most important at the top."""
    ax = new_axes(ax)
    shown = found.order[:_MOST_COLUMNS][::-1]
    places, (lower, upper) = np.arange(len(shown)), found.interval[shown].T
    for matters, color, words in ((True, MILE, "matters"), (False, FAILED, "no more than chance")):
        here = found.important[shown] == matters
        if here.any():
            ax.hlines(places[here], lower[here], upper[here], color=color, linewidth=2.0, alpha=0.5)
            ax.plot(found.loss[shown][here], places[here], "o", color=color, markersize=4.0, label=words)
    ax.axvline(0.0, color=FAILED, linewidth=1.0, linestyle=":")
    ax.set_yticks(places, [cut(found.names[place], _NAME) for place in shown], parse_math=False)
    ax.set_ylim(-0.7, len(shown) - 0.3)
    n_important = int(found.important.sum())
    title = f"{n_important} of {count(len(found.names), 'column')} matter beyond chance"
    return finish(ax, title, "loss in LPPD when the column is shuffled", "", "lower right")


def effect(found: Effect, *, accumulated: bool | None = None, target: str = "y", ax: "Axes | None" = None) -> "Axes":
    """Draw the effect of a column with its two bands.

    Parameters
    ----------
    found
        The effect.
    accumulated
        Whether to draw accumulated local effects, or partial dependence; None takes the former where there are any.
    target
        What y is, for the axis.
    ax
        Where to draw; None makes a new figure.
    """
    ax = new_axes(ax)
    curve = found.dependence if accumulated is False or found.accumulated is None else found.accumulated
    is_accumulated = curve is found.accumulated
    quantity = target if found.quantity == "mean" else found.quantity
    if found.accumulated is None:
        _draw_levels(ax, found, curve)
    else:
        _draw_curve(ax, found.value, curve)
        if found.kind == "date":
            places = np.linspace(0, len(found.value) - 1, 4).round().astype(int)
            ax.set_xticks(found.value[places], [found.label[place] for place in places])
    make_room(ax, above=0.22)
    label = f"effect on {quantity}" if is_accumulated else quantity
    return finish(ax, _sentence(found, curve), one_line(found.name), label, "upper left", 2)


def interactions(found: Sequence[Interaction], *, ax: "Axes | None" = None) -> "Axes":
    """Draw the strength of the interactions of pairs with 90 % intervals, the strongest at the top."""
    ax = new_axes(ax)
    shown = found[:_MOST_PARTS][::-1]
    if not shown:
        return nothing(ax, "No pairs of columns were asked for.")
    places = np.arange(len(shown))
    ax.hlines(places, *np.array([one.interval for one in shown]).T, color=MILE, linewidth=2.0, alpha=0.5)
    ax.plot([one.strength for one in shown], places, "o", color=MILE, markersize=4.0)
    ax.axvline(0.0, color=FAILED, linewidth=1.0, linestyle=":")
    ax.set_yticks(places, [cut(f"{one.first} × {one.second}", _NAME) for one in shown], parse_math=False)
    best = shown[-1]
    title = f"{best.first} and {best.second} interact most: {100 * best.share:.0f} % of their joint effect"
    return finish(ax, title, "what a pair has beyond the sum of both", "")


def width_map(found: WidthMap, *, target: str = "y", ax: "Axes | None" = None) -> "Axes":
    """Draw how wide predictions are over two columns, darker where they are wider; dots are cells that hold rows."""
    from matplotlib.patches import Rectangle

    ax, width = new_axes(ax), found.width
    low, high = float(width.min()), float(width.max())
    for first, second in np.ndindex(*width.shape):
        share = (width[first, second] - low) / (high - low or 1.0)
        place = first - 0.5, second - 0.5
        ax.add_patch(Rectangle(place, 1.0, 1.0, facecolor=MILE, alpha=0.06 + 0.74 * float(share), linewidth=0))
    ax.plot(*np.nonzero(found.rows), "o", color=WANTED, markersize=3.0)
    ax.set(xlim=(-0.5, width.shape[0] - 0.5), ylim=(-0.5, width.shape[1] - 0.5))
    shown = [cut(label, 9) for label in found.labels[0]]
    step = 1 if len(shown) * max(map(len, shown)) <= 44 else 2
    ax.set_xticks(range(0, len(shown), step), shown[::step], parse_math=False)
    ax.set_yticks(range(width.shape[1]), [cut(label, 14) for label in found.labels[1]], parse_math=False)
    where = np.unravel_index(np.argmax(width), width.shape)
    at = " and ".join(
        f"{one_line(name, _NAME)} {labels[place]}"
        for name, labels, place in zip(found.names, found.labels, where, strict=True)
    )
    what = target if found.quantity == "mean" else found.quantity
    title = f"Standard deviation of {one_line(what, _NAME)}: {low:.3g} (pale) to {high:.3g} (dark, at {at})"
    return finish(ax, title, one_line(found.names[0]), one_line(found.names[1]))


def contributions(
    quantity: str,
    labels: list[str],
    added: Float[np.ndarray, " column"],
    error: Float[np.ndarray, " column"],
    ends: tuple[float, float],
    *,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw what columns add to one prediction, from the average to the prediction, the largest at the top."""
    ax = new_axes(ax)
    order = np.argsort(-np.abs(added), kind="stable")
    shown, rest = order[:_MOST_PARTS], order[_MOST_PARTS:]
    names = [cut(labels[int(place)], _NAME) for place in shown]
    values, errors = added[shown], error[shown]
    if len(rest):
        names.append(f"{len(rest)} other columns")
        values, errors = np.append(values, added[rest].sum()), np.append(errors, np.sqrt(np.sum(error[rest] ** 2)))
    places = np.arange(len(names))[::-1]
    start = ends[1] - np.cumsum(values)
    ax.barh(places, values, left=start, color=np.where(values > 0.0, MISS, MILE), alpha=0.75, height=0.7)
    ax.hlines(places, start + values - errors, start + values + errors, color=FAILED, linewidth=1.2)
    for end, words in zip(ends, ("average", "this row"), strict=True):
        ax.axvline(end, color=FAILED, linewidth=1.0, linestyle=":" if words == "average" else "-")
    ax.set_yticks(places, names, parse_math=False)
    ax.set_ylim(-0.7, len(names) - 0.3)
    title = f"{one_line(quantity)}: {ends[1]:.4g} here, {ends[0]:.4g} on average"
    return finish(ax, title, quantity, "")


def svg(draw: "Callable[[Axes], object]") -> str:
    """Return a picture as SVG text."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.5), layout="constrained")
    draw(figure.subplots())
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg") :]


def _draw_curve(ax: "Axes", at: np.ndarray, curve: Band) -> None:
    noise = curve.aleatoric
    ax.fill_between(at, curve.mean - noise, curve.mean + noise, color=FAILED, alpha=0.18, linewidth=0, label="± noise")
    ax.fill_between(at, *curve.epistemic_band(), color=MILE, alpha=0.3, linewidth=0, label="95 % of curves")
    ax.plot(at, curve.mean, color=MILE, linewidth=1.6, label="mean curve")
    ax.plot(at, np.full(len(at), 0.012), "|", color=WANTED, markersize=6.0, transform=ax.get_xaxis_transform())


def _draw_levels(ax: "Axes", found: Effect, curve: Band) -> None:
    places, noise = np.arange(len(found.label)), curve.aleatoric
    lower, upper = curve.epistemic_band()
    ax.vlines(places, curve.mean - noise, curve.mean + noise, color=FAILED, alpha=0.35, linewidth=6.0, label="± noise")
    ax.vlines(places, lower, upper, color=MILE, linewidth=2.0, label="95 % of draws")
    ax.plot(places, curve.mean, "o", color=MILE, markersize=4.0, label="mean")
    names = [cut(name, _NAME) for name in found.label]
    ax.set_xticks(places, names, parse_math=False, rotation=30 if max(map(len, names)) > 5 else 0, ha="right")
    ax.set_xlim(-0.6, len(places) - 0.4)


def _sentence(found: Effect, curve: Band) -> str:
    low, high = int(np.argmin(curve.mean)), int(np.argmax(curve.mean))
    name = one_line(found.name, _NAME)
    rise = curve.mean[high] - curve.mean[low]
    return f"{name}: lowest at {found.label[low]}, highest at {found.label[high]}, {rise:.3g} apart"
