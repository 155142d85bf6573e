"""Compare the samplers on one regression set: same networks, same trained starts, LPPD against gradient evaluations.

Usage: python experiments/samplers/run.py mile nuts adjusted --data-dir FOLDER

Rows are added to summary.csv as they finish, and what stands there is not run again; name another file with
--summary to start from nothing.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import REGRESSION, Summary, load
from protocols import paper_split

from mile import MLP, Bars, Gaussian, _registry, fit, metrics
from mile.samplers import configure

PAPER = {"airfoil": {"mile": 0.612, "nuts": 0.558}}  # LPPD, the paper's table of UCI benchmarks


def run(name: str, split: int, sampler: str, n_chains: int, data_dir: str | None) -> dict:
    """Fit one split by the protocol of the UCI table and score it."""
    dataset, x_test, y_test = paper_split(*load(name, data_dir), split)
    began = time.perf_counter()
    with Bars() as bars:
        model = fit(
            dataset,
            MLP(n_inputs=dataset.n_features),
            Gaussian(),
            sampler=configure(sampler),
            n_chains=n_chains,
            random_state=split,
            progress=bars,
        )
    seconds = round(time.perf_counter() - began, 1)
    predictive = model.predictive(x_test)
    return {
        "dataset": name,
        "method": sampler,
        "protocol": "paper",
        "split": split,
        "lppd": round(metrics.lppd(predictive, y_test), 4),
        "rmse": round(metrics.rmse(predictive, y_test), 4),
        "accuracy": "",
        "calibration_error": round(metrics.calibration_error(predictive, y_test), 4),
        "gradient_evaluations": int(model.chains.gradient_evaluations.sum()),
        "seconds": seconds,
        "chains": int(model.ok.sum()),
        "draws": model.sampler.n_draws,
    }


def print_table(summary: Summary) -> None:
    """Print every row beside the paper's number."""
    print(f"{'data':<12}{'sampler':<15}{'split':>5}{'LPPD':>9}{'paper':>8}{'RMSE':>9}{'gradients':>13}{'seconds':>9}")
    for row in summary.rows:
        paper = PAPER.get(row["dataset"], {}).get(row["method"], "")
        print(
            f"{row['dataset']:<12}{row['method']:<15}{row['split']:>5}{row['lppd']:>9}{paper:>8}{row['rmse']:>9}"
            f"{int(row['gradient_evaluations']):>13,}{row['seconds']:>9}"
        )


def main() -> None:
    """Run what is not in the summary yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samplers", nargs="*", metavar="SAMPLER", help=f"any of {', '.join(_registry.sampler.names)}")
    parser.add_argument("--dataset", default="airfoil", choices=REGRESSION)
    parser.add_argument("--data-dir", help="folder with NAME.csv.gz; default MILE_DATA, else download from OpenML")
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument("--chains", type=int, default=12)
    parser.add_argument("--summary", type=Path, default=Path(__file__).with_name("summary.csv"))
    arguments = parser.parse_args()
    known = _registry.sampler.names
    if unknown := set(arguments.samplers) - set(known):
        parser.error(f"unknown samplers: {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    summary = Summary(arguments.summary)
    for sampler in arguments.samplers:
        if summary.has(dataset=arguments.dataset, split=arguments.split, method=sampler):
            continue
        print(f"{arguments.dataset}, split {arguments.split}: {sampler}", flush=True)
        summary.add(**run(arguments.dataset, arguments.split, sampler, arguments.chains, arguments.data_dir))
    print_table(summary)


if __name__ == "__main__":
    main()
