"""Simulate MILE on clusters that we do not have, from what was measured on one machine: tables and pictures for docs.

Numbers come from measured.json (see `steps.py`, `overhead.py`, `measure.py`). Tables are put into docs/scale.md where
its marks are, pictures beside it.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mile.ensemble.training import Training
from mile.samplers import Mile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _common import Row, progress
from scaling import pictures, record, tables
from scaling.costs import Problem, Speed, checkpoint_bytes, stages
from scaling.setting import Result, Setting, Stage
from scaling.simulate import simulate
from scaling.tables import duration, size

DOCS = Path(__file__).resolve().parents[2] / "docs"
SAMPLER, TRAINING = Mile(), Training(max_epochs=100)  # the paper's budget; members rarely train longer
AIRFOIL = Problem(name="1,052 rows, 16-16", n_rows=1_052, n_inputs=5, hidden=(16, 16))
PROTEIN = Problem(name="32,011 rows, 16-16", n_rows=32_011, n_inputs=9, hidden=(16, 16))
WIDE = Problem(name="8,000 rows, 128-128-128", n_rows=8_000, n_inputs=12, hidden=(128, 128, 128))
MILLION = Problem(name="1,000,000 rows, 16-16", n_rows=1_000_000, n_inputs=20, hidden=(16, 16))
CHAINS, SLOTS = (10, 100, 1_000, 10_000), (1, 10, 100, 1_000)
BLOCKS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # seconds
_MOST_RUNS = 20
BANDWIDTH = 1.25e9  # bytes per second: 10 Gbit/s
SAVE_INTERVAL = 10.0  # seconds between two checkpoints of a run directory, as in the library
# Assumed, not measured: a worker lives ten hours; one in fifty is three times slower, as when its core is shared; one
# task in a hundred takes five times as long.
TROUBLE: dict[str, float] = {
    "failures_per_hour": 0.1,
    "restart_seconds": 60.0,
    "slow_workers": 0.02,
    "slow_worker_factor": 3.0,
    "slow_tasks": 0.01,
    "slow_task_factor": 5.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 100 chains and workers; writes nothing")
    quick = parser.parse_args().quick
    chains, slots = ([n for n in sizes if n <= 100] if quick else list(sizes) for sizes in (CHAINS, SLOTS))
    calm, troubled = grid(chains, slots, {}), grid(chains, slots, TROUBLE)
    found = {
        "costs": costs_table(),
        "calm": grid_table(calm, chains, slots),
        "troubled": grid_table(troubled, chains, slots),
    }
    if not quick:
        found |= {"problems": problems_table(), "remedies": remedies_table()}
        found |= {script: check_table(script) for script in ("steps", "rehearse", "measure")}
        lengths = {name: block_lengths(changes) for name, changes in (("calm", {}), ("troubled", TROUBLE))}
        pictures.draw_efficiency(DOCS / "scale-efficiency.png", {"calm": calm, "troubled": troubled}, chains, slots)
        pictures.draw_blocks(DOCS / "scale-blocks.png", lengths, BLOCKS)
        tables.fill_in(DOCS / "scale.md", found)
    for name, table in found.items():
        print(f"\n{name}\n\n{table}")


def setting_for(problem: Problem, n_chains: int, n_slots: int, network: str = "narrow", **changes: Any) -> Setting:
    """Put the measured numbers together."""
    speed = Speed(**record.entry("steps")["values"]["speeds"][network])
    overhead, fits = record.entry("overhead")["values"], record.entry("measure")["values"]
    # Work of the client that grows with the number of chains: choosing the next, and saving all of them.
    saving = n_chains * overhead["save_chain_processor_seconds"] / SAVE_INTERVAL
    if saving >= 1.0:
        raise ValueError(f"the client could not even save {n_chains:,} chains in time.")
    left = 1.0 - saving
    placing = overhead["scheduler_seconds"] + n_slots * overhead["place_worker_seconds"]
    task = overhead["client_seconds"] + n_chains * overhead["choose_chain_seconds"]
    epoch = fits["epoch_seconds"] * problem.gradient_flops / fits["gradient_flops"]
    first, second, *others = stages(problem, SAMPLER, TRAINING, speed.seconds_per_step(problem), epoch)
    setting = Setting(
        n_chains=n_chains,
        n_slots=n_slots,
        stages=(_shared(first, problem), _shared(second, problem), *others),
        overhead_seconds=max(
            0.0, fits["overhead_seconds"] - overhead["scheduler_seconds"] - overhead["client_seconds"]
        ),
        scheduler_seconds=placing,
        scheduler_byte_seconds=overhead["scheduler_byte_seconds"],
        client_seconds=task / left,
        client_byte_seconds=overhead["client_byte_seconds"] / left,
        bandwidth=BANDWIDTH,
        startup_seconds=fits["startup_seconds"],
        program_seconds=fits["program_seconds"],
        short_seconds=fits["short_seconds"],
        prepare_seconds=fits["prepare_seconds"],
    )
    return replace(setting, **changes)


def _shared(stage: Stage, problem: Problem) -> Stage:
    return replace(stage, shared_bytes=problem.data_bytes)


def run(setting: Setting) -> Result:
    """Simulate; where chance decides and few chains leave much to it, return the median of several runs."""
    n_runs = max(1, min(_MOST_RUNS, 1_000 // setting.n_chains)) if setting.slow_tasks else 1
    results = [simulate(setting, np.random.default_rng(seed)) for seed in range(n_runs)]
    return sorted(results, key=lambda result: result.wall_seconds)[n_runs // 2]


def grid(chains: Sequence[int], slots: Sequence[int], changes: dict[str, float]) -> dict[tuple[int, int], Result]:
    """Simulate all pairs."""
    found = {}
    for n_chains in chains:
        for n_slots in slots:
            progress(f"study: {n_chains:,} chains on {n_slots:,} workers{', trouble' if changes else ''}")
            found[n_chains, n_slots] = run(setting_for(PROTEIN, n_chains, n_slots, **changes))
    return found


def block_lengths(changes: dict[str, float]) -> list[Result]:
    """Simulate blocks of several lengths on a large cluster."""
    progress("study: lengths of blocks")
    return [run(setting_for(PROTEIN, 4_000, 1_000, block_seconds=seconds, **changes)) for seconds in BLOCKS]


# -- tables


def grid_table(found: dict[tuple[int, int], Result], chains: Sequence[int], slots: Sequence[int]) -> str:
    """Show time and efficiency of all pairs."""
    header = ["chains", *(f"{n:,} worker{'s' if n > 1 else ''}" for n in slots)]
    return tables.markdown(header, ([f"{n:,}", *(_cell(found[n, m]) for m in slots)] for n in chains))


def costs_table() -> str:
    """Show what one chain of each problem costs."""
    rows = []
    for problem, network in ((AIRFOIL, "narrow"), (PROTEIN, "narrow"), (WIDE, "wide"), (MILLION, "narrow")):
        speed = Speed(**record.entry("steps")["values"]["speeds"][network])
        step = speed.seconds_per_step(problem)
        found = {stage.name: stage for stage in stages(problem, SAMPLER, TRAINING, step, 0.0)}
        rows.append(
            [
                problem.name,
                f"{problem.dimension:,}",
                f"{2e-6 * problem.gradient_flops:,.0f} MFLOP",
                f"{1e3 * step:.3g} ms",
                duration(step * (SAMPLER.warmup_steps + SAMPLER.sampling_steps)),
                size(found["phase I"].checkpoint_bytes),
                size(found["phase III"].checkpoint_bytes),
                size(problem.draw_bytes(SAMPLER)),
                size(problem.data_bytes),
            ]
        )
    header = [
        "problem", "parameters", "a step", "its time", "a chain", "checkpoint", "in phase III", "draws", "data",
    ]  # fmt: skip
    return tables.markdown(header, rows)


def problems_table() -> str:
    """Show which part of a large cluster is busy, for several problems."""
    rows = []
    for problem, network, n_chains, n_slots in (
        (AIRFOIL, "narrow", 1_000, 100),
        (PROTEIN, "narrow", 1_000, 100),
        (PROTEIN, "narrow", 2_000, 1_000),
        (WIDE, "wide", 200, 100),
        (WIDE, "wide", 2_000, 1_000),
        (MILLION, "narrow", 200, 100),
        (MILLION, "narrow", 2_000, 1_000),
    ):
        progress(f"study: {problem.name}, {n_chains:,} chains on {n_slots:,} workers")
        result = run(setting_for(problem, n_chains, n_slots, network, **TROUBLE))
        busy = [f"{100 * result.utilization[name]:.0f} %" for name in ("scheduler", "link", "client")]
        lost = result.lost_seconds / (n_slots * result.wall_seconds)
        rows.append(
            [
                problem.name,
                f"{n_chains:,} on {n_slots:,}",
                duration(result.wall_seconds),
                f"{100 * result.efficiency:.0f} %",
                *busy,
                size(result.client_bytes),
                f"{100 * lost:.1f} %",
                f"{result.n_failures:,}",
                f"{result.n_duplicates:,}",
            ]
        )
    header = [
        "problem", "chains", "time", "efficiency", "scheduler busy", "link", "client", "traffic", "lost",
        "workers died", "duplicates",
    ]  # fmt: skip
    return tables.markdown(header, rows)


def remedies_table() -> str:
    """Show what changes of the library would bring on a large cluster where nothing goes wrong."""
    cases = ((PROTEIN, "narrow", 10_000), (WIDE, "wide", 2_000))
    columns = []
    for problem, network, n_chains in cases:
        progress(f"study: remedies for {problem.name}")
        today = setting_for(problem, n_chains, 1_000, network)
        usual = checkpoint_bytes(problem, "sampling", SAMPLER)
        sizes = [min(stage.checkpoint_bytes, usual) for stage in today.stages]
        changed = [replace(stage, checkpoint_bytes=n) for stage, n in zip(today.stages, sizes, strict=True)]
        light = replace(today, stages=tuple(changed))
        bare = replace(light, stages=tuple(replace(stage, is_bare=True) for stage in light.stages))
        constant = {
            name: record.entry("overhead")["values"][name] for name in ("client_seconds", "client_byte_seconds")
        }
        free = replace(bare, **constant)
        settings = (today, light, bare, free, replace(free, block_seconds=30.0))
        columns.append([_cell(run(setting)) for setting in settings])
    names = [
        "as it is",
        "the samples of phase III stay out of the tasks",
        "and begin and finish are parts of blocks",
        "and the client's work does not grow with the chains",
        "and blocks last 30 s",
    ]
    header = ["", *(f"{problem.name}, {n_chains:,} chains" for problem, _, n_chains in cases)]
    return tables.markdown(header, zip(names, *columns, strict=True))


def _cell(result: Result) -> str:
    return f"{duration(result.wall_seconds)}, {100 * result.efficiency:.0f} %"


def check_table(script: str) -> str:
    """Show what one script predicted and measured."""
    rows = [Row(**row) for row in record.entry(script)["values"]["rows"]]
    compared = ([row.name, *row.cells[1:4]] for row in rows if row.ratio is not None)
    return tables.markdown(["", "predicted", "measured", "ratio"], compared)


if __name__ == "__main__":
    main()
