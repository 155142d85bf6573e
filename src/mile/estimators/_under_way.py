"""What a run can predict with before it has draws: the trained networks that its chains start from."""

from collections.abc import Sequence

import numpy as np

from mile._errors import Status, warn
from mile._schema import require
from mile.fitting.result import Fit, Parts, assemble
from mile.fitting.tensors import Arrays
from mile.samplers import DeepEnsemble
from mile.storage import Record, check_member, read_status_of, schema


def ensemble_of(
    folder: object, stage: str, parts: Parts, kept: Arrays, members: Sequence[Record | None], seed: int
) -> Fit | None:
    """Return the deep ensemble of a run whose members are all trained; None if some are not, or none is good.

    Warns that there are no draws yet.

    Parameters
    ----------
    folder
        Of the run, for the message.
    stage
        What the run is doing.
    parts, kept, seed
        Configuration, arrays that prediction needs, and seed of the run.
    members
        Record of each chain's member.
    """
    trained = [member for member in members if member is not None]
    if len(trained) < len(members):
        return None
    for member in trained:
        check_member(member, parts.network.dimension, parts.training.max_epochs)
    codes = [read_status_of(member) for member in trained]
    if Status.OK not in codes:
        return None
    warn(
        f"The run in {folder} has no draws yet (it is in {stage}): this model is the deep ensemble of {len(codes)} "
        "networks that its chains start from."
    )
    sampler = DeepEnsemble()
    position = np.stack([member.arrays["position"] for member in trained])
    unknown = np.full(len(codes), np.nan, np.float32)
    phase = sampler.phases[0].name
    arrays = dict(kept) | {
        "draws": position[:, None],
        "logdensity": unknown[:, None],
        "energy_change": np.zeros_like(unknown)[:, None],
        "gradient_evaluations": np.zeros(len(codes), np.int64),
        "chain_ids": np.arange(len(codes)),
        "member": position,
        "member_epochs": np.stack([member.arrays["epochs"] for member in trained]),
        "validation_loss": np.stack([member.arrays["losses"] for member in trained]),
    }
    arrays |= dict.fromkeys(("status", "member_status", "chain_status"), np.array(codes, np.int32))
    arrays |= {f"info.{phase}.{name}": unknown for name in ("step_size", "L", "logdensity")}
    require(schema.CANDIDATE_WEIGHTS not in arrays, "weights must not be there before there are draws.")
    return assemble(parts._replace(sampler=sampler), arrays, seed)
