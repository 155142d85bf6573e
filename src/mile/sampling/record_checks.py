"""What the checkpoints of chains must hold, given their sampler: names, types, shapes, and numbers that are possible.

Some leaves of a carry say more than others, by the last part of their name: `index` and `steps` count the steps of the
phase, or of all phases so far; a chain is in trouble if its `position`, `logdensity` or `start_logdensity` is not
finite, or if it is marked as `lost`; what begins with `bad` counts bad steps. A healthy chain has no NaN; infinite
numbers may be bounds that were not met yet.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from mile._errors import Status
from mile._schema import Fields, Schema, Tensor, require
from mile._types import PyTree
from mile.samplers.base import Phase, spacing
from mile.storage import FINISHED, Layout, Record, check_pending, read_status_of

_COUNTERS = ("index", "steps")
_SYMPTOMS = ("position", "logdensity", "start_logdensity")
_NEVER = -1  # what counters of ours begin with at the least
_MOST_COUNTED = 2.0**53  # gradient evaluations of a chain: whole numbers up to here are exact


class Stage(NamedTuple):
    """Shapes of one phase of a group of chains, the group along the first axis."""

    phase: Phase
    carry: PyTree
    record: PyTree | None  # of one step; None in the last phase
    report: Mapping[str, jax.ShapeDtypeStruct] | None  # None where the phase has not ended


def check_progress(records: Sequence[Record], phases: Sequence[Phase], layout: Layout | None) -> None:
    """Check how far chains have come; `layout` has the sizes of the draws, where they are stored.

    Raises
    ------
    UntrustedFileError
        If a chain has made more steps than there are, or has other draws than its steps leave.
    """
    for record in records:
        if record.stage == FINISHED:
            require(record.step == 0, f"step must be 0 after the last phase; got {record.step:,}.", record.source)
            if layout is not None and read_status_of(record) != Status.LOST:
                wanted = layout.n_draws
                require(record.n_draws == wanted, f"n_draws must be {wanted:,}; got {record.n_draws:,}.", record.source)
            continue
        phase = next(phase for phase in phases if phase.name == record.stage)
        most = phase.n_steps
        require(
            record.step <= most, f"step must be at most {most:,} in {phase.name}; got {record.step:,}.", record.source
        )
        wanted = n_records(phase, record.step) if phase is phases[-1] else 0
        is_right = record.n_draws == wanted
        require(is_right, f"n_draws must be {wanted:,} at step {record.step:,}; got {record.n_draws:,}.", record.source)


def n_records(phase: Phase, step: int) -> int:
    """Return how many records of a phase end before a step."""
    thinning = spacing(phase.n_steps, phase.n_records)
    return max(0, step - (phase.n_steps - thinning * phase.n_records)) // thinning


def check_records(records: Sequence[Record], stages: Sequence[Stage], layout: Layout | None) -> None:
    """Check the arrays of checkpoints against the phases: those that have ended, and the one under way if there is one.

    `layout` has the sizes of the draws, where they are stored.

    Raises
    ------
    UntrustedFileError
        If a field is missing, unknown, of another type or shape, or has numbers that are impossible.
    """
    ended = [stage for stage in stages if stage.report is not None]
    current = next((stage for stage in stages if stage.report is None), None)
    n_before = sum(stage.phase.n_steps for stage in ended)
    shared = {name: schema for stage in ended for name, schema in _of_ended(stage).items()}
    for record in records:
        fields = {"status": Tensor("int32", ()), **shared}
        if current is not None:
            fields |= _of_current(current, record)
        Fields(dict, fields, {"non_finite": Tensor("bool", ())}).read(record.arrays, record.source)
        status = read_status_of(record)
        is_marked = bool(record.arrays.get("non_finite", False))
        require(is_marked or "non_finite" not in record.arrays, "non_finite must be true.", record.source)
        is_contradiction = is_marked and status == Status.OK and record.stage == FINISHED
        require(not is_contradiction, "status must not be 0 where a draw is not finite.", record.source)
        if current is None:
            is_healthy = status == Status.OK
        else:
            is_healthy = _check_carry(record, current, n_before) and status == Status.OK
            if current.record is None and layout is not None and status != Status.LOST:
                check_pending(record, layout)
        if is_healthy:
            _check_histories(record, ended)
    check_reports(records)


def _of_ended(stage: Stage) -> dict[str, Schema[object]]:
    """Return what checkpoints keep of a phase that has ended."""
    name, found = stage.phase.name, {}
    for entry, shape in (stage.report or {}).items():
        found[f"info.{name}.{entry}"] = Tensor(shape.dtype.name, shape.shape[1:])
    if stage.record is not None:
        for entry, leaf in zip(stage.record._fields, stage.record, strict=True):
            found[f"history.{name}.{entry}"] = Tensor(leaf.dtype.name, (stage.phase.n_records, *leaf.shape[1:]))
    return found


def _of_current(stage: Stage, record: Record) -> dict[str, Schema[object]]:
    """Return what a checkpoint keeps of the phase under way."""
    found: dict[str, Schema[object]] = {}
    for number, leaf in enumerate(jax.tree.leaves(stage.carry)):
        name, shape = f"carry.{number}", leaf.shape[1:]
        stored = record.arrays.get(name)
        if len(shape) > 1 and stored is not None and stored.ndim and len(stored) < shape[0]:
            shape = (len(stored), *shape[1:])  # the zeros at its end were left out
        found[name] = Tensor(leaf.dtype.name, shape)
    if stage.record is None:
        # The draws themselves are checked against the sizes of their store.
        return found | {f"draw.{number}": Tensor("f", (None,) * (1 if number else 2)) for number in range(3)}
    if record.step:
        length = n_records(stage.phase, record.step)
        for number, leaf in enumerate(jax.tree.leaves(stage.record)):
            found[f"record.{number}"] = Tensor(leaf.dtype.name, (length, *leaf.shape[1:]))
    return found


def _check_carry(record: Record, stage: Stage, n_before: int) -> bool:
    """Check the numbers of a carry; return whether the chain is healthy."""
    is_lost = read_status_of(record) == Status.LOST
    names = [_last(path) for path, _ in jax.tree_util.tree_flatten_with_path(stage.carry)[0]]
    leaves = [(f"carry.{number}", name, record.arrays[f"carry.{number}"]) for number, name in enumerate(names)]
    in_trouble = any(name in _SYMPTOMS and not np.isfinite(leaf).all() for _, name, leaf in leaves)
    in_trouble |= any(name == "lost" and bool(leaf.any()) for _, name, leaf in leaves)
    densities = [leaf for _, name, leaf in leaves if name == "logdensity"]
    has_density = bool(densities) and all(np.isfinite(leaf).all() for leaf in densities)
    for field, name, leaf in leaves:
        if leaf.dtype.kind == "f":
            is_number = (in_trouble and not (has_density and name == "position")) or not np.isnan(leaf).any()
            require(is_number, f"{field} ({name}) must not be NaN in a chain that is well.", record.source)
        elif leaf.dtype.kind == "i":
            require((leaf >= _NEVER).all(), f"{field} ({name}) must not be negative.", record.source)
            if name in _COUNTERS and not leaf.ndim and not is_lost:
                is_right = int(leaf) in (record.step, record.step + n_before)
                require(is_right, f"{field} ({name}) must be {record.step:,}, the steps made.", record.source)
    bad = [int(np.sum(leaf)) for _, name, leaf in leaves if name.startswith("bad")]  # empty: nobody counts them
    if not in_trouble and bad and not any(bad) and stage.record is not None and record.step:
        for number in range(len(jax.tree.leaves(stage.record))):
            _refuse_nan(record, f"record.{number}")
    return not in_trouble


def _check_histories(record: Record, ended: Sequence[Stage]) -> None:
    """Refuse NaN in the histories of phases that had no bad step."""
    for stage in ended:
        name = stage.phase.name
        counted = record.arrays.get(f"info.{name}.bad_steps")
        if stage.record is None or counted is None or float(counted) != 0.0:
            continue
        for field in stage.record._fields:
            _refuse_nan(record, f"history.{name}.{field}")


def _refuse_nan(record: Record, field: str) -> None:
    leaf = record.arrays[field]
    is_right = leaf.dtype.kind != "f" or not np.isnan(leaf).any()
    require(is_right, f"{field} must not be NaN in a chain that is well.", record.source)


def check_reports(records: Sequence[Record]) -> None:
    """Check the named numbers that phases left, which all records have; NaN stands for what a sampler does not have.

    Raises
    ------
    UntrustedFileError
        If one is impossible in a chain that is well.
    """
    well = [record for record in records if read_status_of(record) == Status.OK]
    for field in [name for name in records[0].arrays if name.startswith("info.")]:
        entry = field.rpartition(".")[2]
        is_absent = all(np.isnan(record.arrays[field]).all() for record in well)
        for record in well:
            values, source = record.arrays[field], record.source
            if values.ndim:
                require(np.isfinite(values).all(), f"{field} must be finite in a chain that is well.", source)
            elif entry in ("step_size", "L"):
                require(is_absent or 0.0 < float(values) < np.inf, f"{field} must be a positive number.", source)
            elif entry == "gradient_evaluations":
                is_right = 0.0 <= float(values) <= _MOST_COUNTED
                require(is_right, f"{field} must be a number of evaluations.", source)


def _last(path: jax.tree_util.KeyPath) -> str:
    return jax.tree_util.keystr(path[-1:]).strip(".[]'\"")
