"""Records of chains, the checkpoints of a run: what each kind must hold, and that it agrees with the rest of the run.

The checksum in a file tells accidents. What stands here refuses contents that no fit of ours can have written, by the
name of file and field. It cannot tell a wrong number that is possible from the right one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mile._errors import Status
from mile._schema import Count, Fields, Tensor, Text, quote, require
from mile.storage._draws import Layout
from mile.storage._tensors import read_tensors
from mile.storage.schema import read_code

TRAINING, FINISHED = "ensemble", "finished"  # stages before the first and after the last phase of a sampler
_LONGEST_STAGE = 200  # characters
_METADATA = Fields(
    dict,
    {"stage": Text(longest=_LONGEST_STAGE), "step": Count(0, 2**62)},
    {"n_draws": Count(), "chain": Count()},  # files of version 0.1 do not say of which chain they are
)
# Stage of each kind of record that has one only; "state", "start" and "last" are in the phase under way.
_STAGES = {"member": TRAINING, "final": FINISHED}


class Record(NamedTuple):
    """The checkpoint of one chain."""

    stage: str
    step: int
    arrays: dict[str, np.ndarray]
    n_draws: int = 0
    source: str = ""  # the file that it was read from, for messages


def read_record(folder: Path, name: str) -> Record:
    """Read a record of a chain and check what its name says of it.

    Raises
    ------
    CorruptFileError, UntrustedFileError
        If the file is damaged, or not such a record of that chain.
    """
    path = folder / name
    arrays, metadata = read_tensors(path, within=folder)
    found = _METADATA.read(metadata, path)
    chain, kind = Path(name).parent.name, Path(name).name.partition(".")[0].partition("-")[0]
    owner = found.pop("chain", int(chain))
    require(owner == int(chain), f"chain must be {int(chain)}, whose folder it is in; got {owner}.", path)
    record = Record(arrays=arrays, **found, source=str(path))
    stage = _STAGES.get(kind, record.stage)
    require(record.stage == stage, f"stage must be {stage!r} in a file of this name; got {quote(record.stage)}.", path)
    is_over = kind in ("state", "start", "last") and record.stage == FINISHED
    require(not is_over, f"stage must not be {FINISHED!r} in a file of this name.", path)
    if kind == "member":
        require(record.step == 0, f"step must be 0 in a file of this name; got {record.step}.", path)
        require(record.n_draws == 0, f"n_draws must be 0 in a file of this name; got {record.n_draws}.", path)
    return record


def metadata_of(record: Record, chain: int) -> dict[str, str | int]:
    """Return what a file says of a record besides its arrays."""
    return {"stage": record.stage, "step": record.step, "n_draws": record.n_draws, "chain": chain}


def chain_of(name: str) -> int:
    """Return the chain whose record has this name."""
    return int(Path(name).parent.name)


# Members of the ensemble


def check_member(record: Record, dimension: int | None = None, max_epochs: int | None = None) -> None:
    """Check the record of a trained member; `dimension` and `max_epochs` are those of the fit, if known.

    Raises
    ------
    UntrustedFileError
        If a field is not what training writes, or contradicts another one.
    """
    source, scalar = record.source, Tensor("int32", ())
    fields = {
        "position": Tensor("float32", (dimension,)),
        "status": scalar,
        "epochs": scalar,
        "losses": Tensor("float32", (max_epochs,)),
    }
    arrays = Fields(dict, fields).read(record.arrays, source)
    code = read_status_of(record)
    losses = arrays["losses"]
    epochs = Count(0, len(losses)).read(int(arrays["epochs"]), source, ("epochs",))
    require(not np.isfinite(losses[epochs:]).any(), "losses must be NaN after the last epoch.", source)
    is_finite = bool(np.isfinite(arrays["position"]).all())
    allowed = (Status.OK, Status.UNTRAINED) if is_finite else (Status.NON_FINITE_START, Status.LOST)
    names = " or ".join(str(int(one)) for one in allowed)
    numbers = "finite" if is_finite else "not finite"
    require(code in allowed, f"status must be {names} where position is {numbers}; got {int(code)}.", source)
    is_scored = bool(np.isfinite(losses).any())
    require(code != Status.UNTRAINED or not is_scored, "status must be 0 where a loss is finite.", source)


def check_members(records: Sequence[Record], dimension: int, max_epochs: int, *, is_validated: bool) -> None:
    """Check the records of all members of a fit; `is_validated`: whether there are validation rows.

    Raises
    ------
    UntrustedFileError
        If one is not what this fit writes.
    """
    for record in records:
        check_member(record, dimension, max_epochs)
        arrays, code = record.arrays, read_status_of(record)
        is_scored = bool(np.isfinite(arrays["losses"]).any())
        source = record.source
        require(is_validated or not is_scored, "losses must be NaN: there are no validation rows.", source)
        if code in (Status.OK, Status.UNTRAINED):
            right = Status.OK if is_scored or not is_validated else Status.UNTRAINED
            require(code == right, f"status must be {int(right)} with these losses; got {int(code)}.", source)


def read_status_of(record: Record) -> Status:
    """Return the status in a record.

    Raises
    ------
    UntrustedFileError
        If it has none, or one that is unknown.
    """
    require("status" in record.arrays, "status is missing.", record.source)
    found = Tensor("int32", ()).read(record.arrays["status"], record.source, ("status",))
    return read_code(int(found), record.source)


# Draws that are in no chunk yet


def check_pending(record: Record, layout: Layout) -> list[np.ndarray]:
    """Return the draws of a chain that were in no chunk yet; those of a chain that is not known to fail are finite.

    Raises
    ------
    UntrustedFileError
        If there are more or fewer than the sizes of the store leave, or their numbers are impossible.
    """
    source = record.source
    Count(0, layout.n_draws).read(record.n_draws, source, ("n_draws",))
    count = record.n_draws % layout.chunk if record.n_draws < layout.n_draws else 0
    found = []
    for number, shape in enumerate(((count, layout.dimension), (count,), (count,))):
        name = f"draw.{number}"
        is_finite = number < 2 and "non_finite" not in record.arrays
        array = Tensor(layout.dtype, shape, is_finite=is_finite).read(record.arrays.get(name), source, (name,))
        found.append(array)
    return found


def check_alike(first: Record, other: Record) -> None:
    """Check that two records that were saved together have the same stage, and fields of the same types.

    Raises
    ------
    UntrustedFileError
        At the first field that differs.
    """
    ours, theirs, source = _kinds(first), _kinds(other), other.source
    is_same = other.stage == first.stage
    require(is_same, f"stage must be {first.stage!r} as in {first.source}; got {quote(other.stage)}.", source)
    for name in sorted(ours.keys() | theirs.keys()):
        is_same = ours.get(name) == theirs.get(name)
        here, there = theirs.get(name, "missing"), ours.get(name, "missing")
        require(is_same, f"{quote(name)} must be as in {first.source}, {there}; got {here}.", source)


def _kinds(record: Record) -> dict[str, str]:
    """Return type and shape of each field, but for the first axis: how far a chain has come decides it."""
    found = {}
    for name, array in record.arrays.items():
        if name != "non_finite" and not name.startswith("record."):  # which are missing before the first step
            shape = ", ".join(["any", *map(str, array.shape[1:])] if array.ndim else [])
            found[name] = f"{array.dtype} of shape ({shape})"
    return found
