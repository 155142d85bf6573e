"""Count the chains that end in NaN: MILE, and MCLMC tuned as published, from the same trained networks.

Usage: python experiments/stability/run.py airfoil yacht --methods naive_mclmc --data-dir FOLDER

A row is added to summary.csv as it finishes, and what stands there is not run again; name another file with
--summary to start from nothing.
"""

import argparse
import csv
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from mile import MLP, Bars, Gaussian, Mile, Normal, Status
from mile.ensemble.members import train_members
from mile.ensemble.training import Training
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.samplers.naive_mclmc import NaiveMclmc
from mile.sampling.chains import Chains, run_chains

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import REGRESSION, load
from protocols import paper_split

COLUMNS = [
    "dataset", "method", "protocol", "chains", "warmup_steps", "sampling_steps", "non_finite_share", "paper_share",
    "cause", "seconds",
]  # fmt: skip
# The study's own configuration, in the paper's code: one first step size for all data, more layers than the
# paper's text says, and members trained at ten times the learning rate of its UCI table.
HIDDEN = (16, 16, 16)
TRAINING = Training(learning_rate=0.01)
METHODS = {
    "mile": Mile(),
    "naive_mclmc": NaiveMclmc(step_size=26.0),
    "blackjax_defaults": NaiveMclmc.presets()["accurate"],
}
PAPER = {
    "mile": dict.fromkeys(REGRESSION, 0.0),
    "naive_mclmc": {"airfoil": 0.86, "concrete": 0.80, "energy": 0.78, "yacht": 0.85},
}
SPLIT = 1
N_DRAWS = 100  # what is kept does not change what happens


def run(name: str, method: str, n_chains: int, scale: float, data_dir: str | None) -> dict:
    """Train the members, run a chain from each, replace none, and say what became of them."""
    dataset, _, _ = paper_split(*load(name, data_dir), SPLIT)
    network = MLP(n_inputs=dataset.n_features, hidden=HIDDEN)
    posterior = Posterior(
        rows=pad_rows(dataset.x_train, dataset.y_train), network=network, likelihood=Gaussian(), prior=Normal()
    )
    full = METHODS[method].with_start(TRAINING.learning_rate)
    sampler = replace(
        full,
        warmup_steps=round(scale * full.warmup_steps),
        sampling_steps=round(scale * full.sampling_steps),
        n_draws=N_DRAWS,
    )
    began = time.perf_counter()
    with Bars() as bars:
        validation = pad_rows(dataset.x_valid, dataset.y_valid)
        members = train_members(posterior, validation, TRAINING, range(n_chains), seed=SPLIT, progress=bars)
        chains = run_chains(sampler, posterior, members.positions, seed=SPLIT, progress=bars)
    causes = [_cause(chains, chain) for chain in range(n_chains)]
    lost = [chain for chain in range(n_chains) if is_lost(chains, chain)]
    return {
        "dataset": name,
        "method": method,
        "protocol": "paper",
        "chains": n_chains,
        "warmup_steps": sampler.warmup_steps,
        "sampling_steps": sampler.sampling_steps,
        "non_finite_share": len(lost) / n_chains,
        "paper_share": PAPER.get(method, {}).get(name, ""),
        "cause": "; ".join(f"{count} {cause}" for cause, count in Counter(causes).most_common()),
        "seconds": round(time.perf_counter() - began, 1),
    }


def is_lost(chains: Chains, chain: int) -> bool:
    """Say whether a chain came to a point, a step size or a length that is not a number."""
    numbers = [chains.tuned.step_size[chain], chains.tuned.L[chain], *chains.logdensity[chain]]
    return chains.status[chain] == Status.NON_FINITE or not np.isfinite(numbers).all()


def _cause(chains: Chains, chain: int) -> str:
    """Say what happened first to one chain, from what its phases report."""
    if not is_lost(chains, chain):
        return chains.status[chain].name.lower().replace("_", " ")
    for phase, report in chains.info.items():
        if report["step_size"][chain] == 0.0:
            overflowed = np.isnan(chains.history[phase].energy_variance[chain, -1])
            return f"step size 0 in {phase} after {'an energy overflow' if overflowed else 'it met its cap'}"
        if phase != "phase I" and np.isnan(report["L"][chain]):
            bad = np.isfinite(report["first_bad_step"][chain])
            return f"not finite in {phase}" if phase != "phase II" and bad else f"L NaN in {phase}"
    return "not finite in sampling"


def append(path: Path, row: dict) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    """Run the rows that are not in the summary yet, then print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="*", metavar="DATA", help=f"any of {', '.join(REGRESSION)}; default all")
    parser.add_argument("--data-dir", help="folder with NAME.csv.gz; default MILE_DATA, else download from OpenML")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's steps to make")
    parser.add_argument("--summary", type=Path, default=Path(__file__).with_name("summary.csv"))
    arguments = parser.parse_args()
    names = arguments.datasets or list(REGRESSION)
    if unknown := set(names) - set(REGRESSION):
        parser.error(f"unknown data: {', '.join(sorted(unknown))}; choose from {', '.join(REGRESSION)}")
    rows = []
    if arguments.summary.exists():
        with arguments.summary.open() as file:
            rows = list(csv.DictReader(file))
    done = {(row["dataset"], row["method"], row["chains"], row["warmup_steps"]) for row in rows}
    for method in arguments.methods:
        for name in names:
            n_steps = round(arguments.scale * METHODS[method].warmup_steps)
            if (name, method, str(arguments.chains), str(n_steps)) not in done:
                print(f"{name}, {method}", flush=True)
                row = run(name, method, arguments.chains, arguments.scale, arguments.data_dir)
                append(arguments.summary, row)
                rows.append(row)
    for row in rows:
        share, paper = float(row["non_finite_share"]), row["paper_share"]
        beside = f"{float(paper):.0%}" if paper != "" else ""
        print(f"{row['dataset']:<10}{row['method']:<19}{share:>5.0%}{beside:>6}  {row['cause']}")


if __name__ == "__main__":
    main()
