"""Laws of growth: seconds as a power of parameters or rows, by least squares of logarithms, as in the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from drawing import PAPER, color_of, panels
from numpy.typing import ArrayLike

MEASURES = {
    "sampling_seconds": "seconds, wall clock",
    "processor_seconds": "seconds of processors",
    "gradient_microseconds": "µs of a processor for one gradient",
}
SCORES = {"lppd": "LPPD", "rmse": "RMSE"}


class Law(NamedTuple):
    """y = factor * x ** exponent, and the share of the variance of log y that it explains."""

    factor: float
    exponent: float
    r_squared: float

    def at(self, x: ArrayLike) -> np.ndarray:
        """Return what the law says."""
        return self.factor * np.asarray(x, float) ** self.exponent


def power_law(x: Sequence[float], y: Sequence[float]) -> Law:
    """Fit log y = a + b log x.

    Raises
    ------
    ValueError
        If there are fewer than two places, or a number is not positive.
    """
    if len(set(x)) < 2 or min(x) <= 0.0 or min(y) <= 0.0:
        raise ValueError(f"A law of growth needs two places at least and positive numbers; got {x} and {y}.")
    log_x, log_y = np.log(x), np.log(y)
    slope, height = np.polyfit(log_x, log_y, 1)
    return Law(float(np.exp(height)), float(slope), _explained(log_y, height + slope * log_x))


def explained_by(x: Sequence[float], y: Sequence[float], power: int) -> float:
    """Return the share of the variance of y that a + b x ** power explains."""
    basis = np.asarray(x, float) ** power
    slope, height = np.polyfit(basis, y, 1)
    return _explained(np.asarray(y, float), height + slope * basis)


def draw_laws(rows: list[dict[str, str]], x_column: str, x_label: str, path: Path) -> None:
    """Show each measure against the column, on logarithmic axes, with its law, and the scores below."""
    with panels([*MEASURES.values(), *SCORES.values()], path, x_label) as axes:
        for column, title in MEASURES.items():
            x, y = _points(rows, x_column, column)
            axes[title].loglog(x, y, "o", color=color_of("MILE"), ms=4)
            if len(set(x)) > 1:
                law = power_law(x, y)
                axes[title].loglog(x, law.at(x), "--", color=PAPER, lw=1.2)
                text = f"exponent {law.exponent:.2f}, R² {law.r_squared:.3f}"
                axes[title].annotate(text, (0.05, 0.9), xycoords="axes fraction", fontsize="small")
            axes[title].yaxis.set_minor_formatter("")  # labels are for the powers of ten
        for column, title in SCORES.items():
            for method in ("MILE", "DE"):
                chosen = [row for row in rows if row["method"].split()[0] == method]
                x, y = _points(chosen, x_column, column)
                if x:
                    axes[title].semilogx(x, y, "o-", color=color_of(method), ms=4, lw=1.2, label=method)
        sizes = sorted({float(row[x_column]) for row in rows if row[x_column]})
        for ax in axes.values():
            ax.set_xticks(sizes, [f"{size:,.0f}" for size in sizes], rotation=30)
            ax.set_xticks([], minor=True)


def _points(rows: list[dict[str, str]], x_column: str, y_column: str) -> tuple[list[float], list[float]]:
    """Return two columns of the rows that have both, sorted by the first."""
    found = sorted((float(row[x_column]), float(row[y_column])) for row in rows if row[x_column] and row.get(y_column))
    return [x for x, _ in found], [y for _, y in found]


def _explained(y: np.ndarray, fitted: np.ndarray) -> float:
    total = np.sum(np.square(y - np.mean(y)))
    return float(1.0 - np.sum(np.square(y - fitted)) / total) if total > 0.0 else 1.0
