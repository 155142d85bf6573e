"""What the checkpoint of a member in training must hold: its shapes, and a history that its losses explain."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mile._schema import Count, Fields, Tensor, require
from mile._types import PyTree
from mile.ensemble.training import Member, Training
from mile.storage import Record


def check_training(records: Sequence[Record], shapes: Member, training: Training, *, is_validated: bool) -> None:
    """Check the checkpoints of a group of members; `shapes` are those of the group.

    Raises
    ------
    UntrustedFileError
        If a field is missing, unknown, of another type or shape, or contradicts another one.
    """
    leaves, structure = jax.tree.flatten(shapes)
    fields = {str(number): Tensor(leaf.dtype.name, leaf.shape[1:]) for number, leaf in enumerate(leaves)}
    for record in records:
        Fields(dict, fields).read(record.arrays, record.source)
        require(record.step == 0, f"step must be 0 in training; got {record.step}.", record.source)
        require(record.n_draws == 0, f"n_draws must be 0 in training; got {record.n_draws}.", record.source)
        member = jax.tree.unflatten(structure, [record.arrays[str(number)] for number in range(len(leaves))])
        _check_member(member, training, record.source, is_validated=is_validated)


def _check_member(member: Member, training: Training, source: str, *, is_validated: bool) -> None:
    names = _numbers(member)
    epoch = Count(0, training.max_epochs).read(int(member.epoch), source, (names["epoch"],))
    losses = np.asarray(member.losses)
    is_over = not np.isfinite(losses[epoch:]).any() and (is_validated or not np.isfinite(losses).any())
    require(is_over, f"{names['losses']} must be NaN after the last epoch and without validation rows.", source)
    # What stops training follows from the losses so far, to the bit.
    waiting, stopped = _replay(training, jnp.asarray(losses), epoch)
    followed = member._replace(waiting=waiting, stopped=np.asarray(bool(stopped) and is_validated))
    for (field, ours), theirs in zip(_named(member), jax.tree.leaves(followed), strict=True):
        is_same = np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
        require(is_same, f"{names[field]} must follow from the losses.", source)
    was_finite = epoch == 0 or bool(np.isfinite(losses[epoch - 1]))
    for field, leaf in (pair for pair in _named(member) if pair[0].startswith(("position", "optimizer"))):
        is_right = not was_finite or not np.isnan(leaf).any()
        require(is_right, f"{names[field]} must not be NaN where the last loss is finite.", source)
        if leaf.dtype.kind == "i":
            is_right = int(leaf) >= 0 and (int(leaf) % epoch == 0 if epoch else int(leaf) == 0)
            require(is_right, f"{names[field]} must count the same updates in each epoch.", source)
    is_right = np.isfinite(member.best).all() or not np.isfinite(losses).any()
    require(is_right, f"{names['best']} must be finite where a loss is.", source)
    is_best = epoch == 0 or is_validated or np.array_equal(member.best, member.position, equal_nan=True)
    require(is_best, f"{names['best']} must be the position: there are no validation rows.", source)


def _named(member: Member) -> list[tuple[str, np.ndarray]]:
    """Return the leaves with the names that they have in the member."""
    return [
        (jax.tree_util.keystr(path).removeprefix("."), np.asarray(leaf))
        for path, leaf in jax.tree_util.tree_flatten_with_path(member)[0]
    ]


def _numbers(member: Member) -> dict[str, str]:
    """Return the name that each field has in a file, and its own in brackets."""
    return {field: f"{number} ({field})" for number, (field, _) in enumerate(_named(member))}


@partial(jax.jit, static_argnames="training")
def _replay(training: Training, losses: Array, epoch: Array | int) -> tuple[PyTree, Array]:
    """Apply the stopping rule to the losses of the first epochs."""

    def one(number: Array, found: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        waiting, _, stop = training.stopping.update(found[0], losses[number])
        return waiting, stop

    waiting = jax.tree.map(jnp.asarray, training.stopping.init())
    return jax.lax.fori_loop(0, epoch, one, (waiting, jnp.zeros((), bool)))
