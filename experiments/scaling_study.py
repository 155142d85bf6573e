"""How the time of sampling grows with a size, of the network or of the data: fits of several sizes, and their law.

The method `law` has a row of its own: the law of the times of all other methods of its data set and split that sample.
"""

from dataclasses import dataclass
from pathlib import Path

from catalog import Cell, Experiment
from power_law import draw_laws, explained_by, power_law
from variants import is_fitted, network_of, settings_of, split_for, times, try_out
from workbench import Workbench

LAW = "law"
COLUMNS = (
    *Cell._fields, "parameters", "training_rows", "lppd", "rmse", "calibration_error", "gradient_evaluations",
    "seconds", "sampling_seconds", "processor_seconds", "gradient_microseconds", "chains", "draws",
    "exponent", "r_squared", "wall_exponent", "wall_r_squared", "linear_r_squared", "quadratic_r_squared",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ScalingStudy:
    """An experiment whose methods differ in a size; `size` is its column in the summary."""

    experiment: Experiment
    size: str
    label: str  # of the size in the figure

    def measure(self, cell: Cell, bench: Workbench) -> dict[str, object] | None:
        """Fit one row, or load its fit, and score and time it."""
        if cell.method == LAW:
            return self.law(cell, bench)
        trial = try_out(self.experiment, cell, bench)
        sizes = {"parameters": trial.model.network.dimension, "training_rows": len(trial.dataset.y_train)}
        return sizes | trial.columns()

    def law(self, cell: Cell, bench: Workbench) -> dict[str, object] | None:
        """Fit the law to the times of the fits, if all are there."""
        planned = [each for each in self.experiment.cells() if each == cell._replace(method=each.method)]
        cells = [each for each in planned if self._samples(each.method)]
        found = times(self.experiment, cells, bench)
        if found is None:
            return None
        x = [self.size_of(each, bench) for each in cells]
        wall = power_law(x, [found[each].seconds for each in cells])
        seconds = [found[each].processor_seconds for each in cells]
        law = power_law(x, seconds)
        columns = {
            "exponent": law.exponent,
            "r_squared": law.r_squared,
            "wall_exponent": wall.exponent,
            "wall_r_squared": wall.r_squared,
            "linear_r_squared": explained_by(x, seconds, 1),
            "quadratic_r_squared": explained_by(x, seconds, 2),
        }
        return {name: round(value, 4) for name, value in columns.items()}

    def size_of(self, cell: Cell, bench: Workbench) -> float:
        """Return the size of a cell without fitting it."""
        settings = settings_of(self.experiment, cell)
        dataset = split_for(settings, cell, bench.data_dir).dataset
        if self.size == "parameters":
            return network_of(settings, dataset.n_features).dimension
        return len(dataset.y_train)

    def is_fitted(self, cell: Cell, bench: Workbench) -> bool:
        """Say whether a row needs no new fit."""
        return cell.method == LAW or is_fitted(self.experiment, cell, bench)

    def draw(self, rows: list[dict[str, str]], path: Path) -> None:
        """Show the times against the size, with their laws."""
        rows = [row for row in rows if row["protocol"] == self.experiment.protocols[0]]  # others have other sizes
        draw_laws(rows, self.size, self.label, path)

    def _samples(self, method: str) -> bool:
        return method != LAW and "members_of" not in self.experiment.methods[method]
