"""Reproduce the UCI regression table: LPPD, RMSE and minutes of MILE, of NUTS and of two deep ensembles.

Usage: python experiments/uci/run.py --dataset airfoil --dataset yacht --data-dir FOLDER

Rows are added to summary.csv as they finish, and what stands there is not run again; --again computes it anew into a
file of its own.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import load
from campaign import Work, main
from catalog import Cell
from dot_chart import draw_beside_paper
from protocols import paper_split
from regression import UCI, Prediction, is_fitted, predict, sampler_of, training_of
from scoring import costs, ensemble_costs, scores
from workbench import Workbench

__all__ = ["TABLE_TRAINING", "paper_split", "run"]

TABLE_TRAINING = training_of("DE-0.01")


def measure(cell: Cell, bench: Workbench) -> dict[str, object]:
    """Fit one row, or load its fit, and score it; of a stand-in only the cost is of interest."""
    prediction = predict(cell, bench)
    if "stands_for" in UCI.methods[cell.method]:
        return extrapolated(cell, bench, prediction)
    spent = ensemble_costs if prediction.is_ensemble else costs
    return scores(prediction.predictive, prediction.y_test) | spent(prediction.fitted)


def extrapolated(cell: Cell, bench: Workbench, prediction: Prediction) -> dict[str, object]:
    """Return what the method would cost that a short run of few chains stands for: each phase at its full length."""
    fitted = prediction.fitted
    full = bench.scaled(sampler_of(UCI.methods[cell.method]["stands_for"]))
    counted = gradients = 0.0
    for short, long in zip(fitted.model.sampler.phases, full.phases, strict=True):
        number = float(fitted.model.chains.info[short.name]["gradient_evaluations"].sum())
        counted, gradients = counted + number, gradients + number * long.n_steps / short.n_steps
    gradients *= bench.chains / len(fitted.model.ok)
    found = costs(fitted) | {"gradient_evaluations": round(gradients), "chains": bench.chains}
    if fitted.seconds is not None:
        found["seconds"] = round(fitted.seconds * gradients / counted, 1)
    return found


def run(name: str, split: int, methods: list[str], data_dir: str | None, chains: int = 12) -> list[dict]:
    """Fit one split of the paper's protocol without keeping anything, and return a row for each method."""
    bench = Workbench(data_dir=data_dir, chains=chains)
    cells = [Cell(name, method, "paper", split) for method in methods]
    return [cell._asdict() | measure(cell, bench) for cell in cells]


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Show the LPPD of each method on each table."""
    draw_beside_paper(UCI, rows, path, ("DE", "DE-0.01", "NUTS", "MILE"))


if __name__ == "__main__":
    main(__file__, Work(measure=measure, load=load, is_fitted=is_fitted, draw=draw))
