"""The deep ensemble: networks trained by AdamW with early stopping, the starting points of the chains.

One compiled program holds the whole training of a member (shuffling, mini-batches, AdamW, early stopping);
members run side by side as chains do. It returns to the host every few epochs to report and to be
interruptible.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from mile import native
from mile._checks import check_count, check_number
from mile._errors import FitWarning, Status
from mile._progress import Progress, Silent, duration
from mile._random import Stage, stream
from mile._types import Position, Scalar
from mile._watch import Stopped, Watch
from mile.execution import InProcess
from mile.posterior import Posterior, Rows, log_likelihood
from mile.storage import Record, Run, Unsaved

# A block of epochs grows until it lasts this long: short enough to watch, long enough to make its overhead vanish.
_FIRST_EPOCHS = 25
_BLOCK_SECONDS = 0.2
_LARGEST_SHARE = 0.4  # of a time limit that training may take
_WORTH_SAYING = 2.0  # seconds; less work needs no forecast
_MANY_ROWS = 100_000  # whose training takes so long that compiling does not count, and memory does
_ADAM: dict[str, Any] = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}  # Kingma and Ba 2015


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Stop after this many epochs without a new lowest validation loss."""

    epochs: int = 10  # reference configuration of the chains' starting points

    def __post_init__(self) -> None:
        check_count("patience", self.epochs)

    def init(self) -> "Waiting":
        """Begin with no loss seen."""
        return Waiting(jnp.full((), jnp.inf, jnp.float32), jnp.zeros((), jnp.int32))

    def update(self, waiting: "Waiting", loss: Scalar) -> tuple["Waiting", Bool[Array, ""], Bool[Array, ""]]:
        """Take in one epoch's loss; say whether it is the lowest and whether to stop."""
        better = loss < waiting.lowest
        waiting = Waiting(jnp.where(better, loss, waiting.lowest), jnp.where(better, 0, waiting.epochs + 1))
        return waiting, better, waiting.epochs >= self.epochs


class Waiting(NamedTuple):
    """State of `Patience`."""

    lowest: Scalar
    epochs: Int[Array, ""]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How members are trained; the defaults are those of the paper's chains."""

    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    batch_size: int = 32
    max_epochs: int = 500
    stopping: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, positive=True)
        check_number("weight_decay", self.weight_decay, smallest=0.0)
        check_count("batch_size", self.batch_size)
        check_count("max_epochs", self.max_epochs)

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """AdamW; weight decay is decoupled."""
        return optax.adamw(self.learning_rate, weight_decay=self.weight_decay, **_ADAM)


class Members(NamedTuple):
    """The trained ensemble."""

    positions: Float[np.ndarray, "chain d"]
    status: tuple[Status, ...]
    epochs: Int[np.ndarray, " chain"]
    validation_loss: Float[np.ndarray, "chain epoch"]  # NaN after the last epoch, and without validation rows


class _Member(NamedTuple):
    position: Position
    optimizer: Any
    waiting: Any
    best: Position
    epoch: Int[Array, ""]
    stopped: Bool[Array, ""]
    losses: Float[Array, " epoch"]


def train_members(
    posterior: Posterior,
    validation: Rows,
    training: Training,
    chain_ids: Sequence[int],
    *,
    seed: int,
    backend: InProcess | None = None,
    progress: Progress | None = None,
    run: Run | Unsaved | None = None,
    watch: Watch | None = None,
) -> Members:
    """Train one network per chain and return the weights with the lowest validation loss.

    Without validation rows every member trains for `max_epochs` and keeps its last weights. What `run` has of the
    members is used and not trained again. A time limit of `watch` gives each member an equal share of its part.

    Raises
    ------
    Stopped
        If `watch` was asked to stop; everything is saved then.
    """
    backend, progress, run, watch = backend or InProcess(), progress or Silent(), run or Unsaved(), watch or Watch()
    stored = [run.load(chain, "member") for chain in chain_ids]
    if all(record is not None for record in stored):
        return recall_members([record.arrays for record in stored if record is not None])
    groups = backend.groups(chain_ids)
    n_members = len(chain_ids)
    n_rounds = -(-len(groups) // backend.n_workers)  # members that one worker trains in turn
    began = time.perf_counter()
    cut: list[int] = []
    progress.start("ensemble", training.max_epochs * len(groups), unit="epochs", n_chains=n_members)
    if posterior.rows.y.shape[0] < _MANY_ROWS:
        _compile_together(training, backend, seed, groups[0], posterior, validation)
    left = np.inf if watch.time_limit is None else _LARGEST_SHARE * watch.time_limit - (time.perf_counter() - began)

    def train(group: list[int]) -> _Member:
        names: Any = (np.uint32(seed), np.asarray(group, np.uint32))
        member = _recall_training(run, group, training, backend, names, posterior)
        if member is None:
            member = _start(training, backend, *names, posterior)
        began, done, length = time.perf_counter(), int(np.asarray(member.epoch).max()), _FIRST_EPOCHS
        while done < training.max_epochs and not np.asarray(member.stopped).all():
            since, last = time.perf_counter(), min(done + length, training.max_epochs)
            member = _train(training, backend, last, *names, member, posterior, validation)
            stopped = np.asarray(member.stopped).all()  # waits for the result
            progress.advance(last - done)
            seconds = time.perf_counter() - since
            if group == groups[0] and done == _FIRST_EPOCHS:  # the first block also compiles
                _forecast(progress, n_rounds * training.max_epochs * seconds / (last - done))
            done = last
            if not stopped and time.perf_counter() - began > left / n_rounds:
                cut.extend(group)
                break
            if watch.stopping or run.due(group):
                run.save(_training_records(group, member))
            if watch.stopping:
                run.settle()
                raise Stopped
            if seconds < 0.5 * _BLOCK_SECONDS:
                length *= 2
        return member

    trained = backend.map(train, groups)
    progress.finish()
    if cut:
        warnings.warn(
            f"The time limit cut the training of {len(set(cut))} of {n_members} members short; they start with the "
            "best weights found by then.",
            FitWarning,
            stacklevel=5,
        )
    joined = jax.tree.map(
        lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[:n_members],
        *[(member.best, member.epoch, member.losses) for member in trained],
    )
    positions, epochs, losses = joined
    never_finite = ~np.isfinite(losses).any(axis=1) & (int(validation.count) > 0)
    failures = [~np.isfinite(positions).all(axis=1), never_finite]
    codes = np.select(failures, [Status.NON_FINITE_START, Status.UNTRAINED], Status.OK)
    arrays = {"position": positions, "status": codes.astype(np.int32), "epochs": epochs, "losses": losses}
    records = [Record("ensemble", 0, {name: array[row] for name, array in arrays.items()}) for row in range(n_members)]
    run.save({(chain, "member"): record for chain, record in zip(chain_ids, records, strict=True)})
    return Members(positions, tuple(map(Status, codes)), epochs, losses)


def recall_members(stored: list[dict[str, np.ndarray]]) -> Members:
    """Put the saved arrays of members together."""
    joined = {name: np.stack([arrays[name] for arrays in stored]) for name in stored[0]}
    codes = tuple(Status(int(code)) for code in joined["status"])
    return Members(joined["position"], codes, joined["epochs"], joined["losses"])


def _training_records(group: list[int], member: _Member) -> dict[tuple[int, str], Record]:
    """Return what each member of a group needs to go on; copied, because the program reuses its memory."""
    leaves = [np.array(leaf) for leaf in jax.tree.leaves(member)]
    return {
        (chain, "state"): Record("ensemble", 0, {str(number): leaf[row] for number, leaf in enumerate(leaves)})
        for row, chain in enumerate(group)
    }


def _recall_training(
    run: Run | Unsaved, group: list[int], training: Training, backend: InProcess, names: Any, posterior: Posterior
) -> _Member | None:
    stored = [record for chain in group if (record := run.load(chain, "state")) is not None]
    if len(stored) < len(group):
        return None
    shapes = jax.eval_shape(partial(_start, training, backend), *names, posterior)
    leaves, structure = jax.tree.flatten(shapes)
    found = [np.stack([record.arrays[str(number)] for record in stored]) for number in range(len(leaves))]
    return jax.tree.unflatten(structure, found)


def _compile_together(
    training: Training, backend: InProcess, seed: int, group: list[int], posterior: Posterior, validation: Rows
) -> None:
    """Compile the two programs side by side; the calls that follow find them."""
    names: Any = (np.uint32(seed), np.asarray(group, np.uint32))
    shapes = jax.eval_shape(partial(_start, training, backend), *names, posterior)
    nobody = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    calls = (
        partial(_start, training, backend, *names, posterior),
        partial(_train, training, backend, 0, *names, nobody, posterior, validation),  # no epoch
    )
    backend.map(lambda call: jax.block_until_ready(call()), calls)


def _forecast(progress: Progress, seconds: float) -> None:
    if seconds >= _WORTH_SAYING:
        progress.say(f"Training the ensemble: at most {duration(seconds)}, less where training stops early.")


@partial(jax.jit, static_argnames=("training", "backend"))
def _start(training: Training, backend: InProcess, seed: Array, chains: Array, posterior: Posterior) -> _Member:
    def one_member(chain: Array) -> _Member:
        position = posterior.network.init(stream(seed, Stage.INITIALIZE, chain))
        return _Member(
            position=position,
            optimizer=training.optimizer.init(position),
            waiting=training.stopping.init(),
            best=position,
            epoch=jnp.zeros((), jnp.int32),
            stopped=jnp.zeros((), bool),
            losses=jnp.full(training.max_epochs, jnp.nan),
        )

    # Strong types, as numbers read from a file have them: whoever goes on uses the same program.
    started = backend.over_group(one_member)(chains)
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), started)


@partial(jax.jit, static_argnames=("training", "backend"), donate_argnames="members")
def _train(
    training: Training,
    backend: InProcess,
    last_epoch: Int[Array, ""] | int,
    seed: Array,
    chains: Array,
    members: _Member,
    posterior: Posterior,
    validation: Rows,
) -> _Member:
    """Train up to `last_epoch`, or until the stopping rule says so."""

    def one_member(chain: Array, member: _Member) -> _Member:
        key = stream(seed, Stage.OPTIMIZE, chain)
        return jax.lax.while_loop(
            lambda member: (member.epoch < last_epoch) & ~member.stopped,
            lambda member: _epoch(training, jax.random.fold_in(key, member.epoch), member, posterior, validation),
            member,
        )

    return backend.over_group(one_member)(chains, members)


def _epoch(training: Training, key: Array, member: _Member, posterior: Posterior, validation: Rows) -> _Member:
    network, likelihood, rows = posterior.network, posterior.likelihood, posterior.rows
    shuffle = jax.random.uniform(key, rows.y.shape)
    update = partial(_update, training, network, likelihood)
    spec = native.specify(network, likelihood, member.position.dtype, rows)
    if spec is None:
        position, optimizer = update(member.position, member.optimizer, shuffle, rows)
    else:
        position, optimizer = jax.lax.platform_dependent(
            member.position,
            member.optimizer,
            shuffle,
            rows,
            cpu=partial(_native_update, training, spec),
            default=update,
        )
    validated = validation.count > 0
    validation_loss = jnp.where(validated, _loss(network, likelihood, position, validation), jnp.nan)
    waiting, better, stop = training.stopping.update(member.waiting, validation_loss)
    return _Member(
        position=position,
        optimizer=optimizer,
        waiting=waiting,
        best=jnp.where(better | ~validated, position, member.best),
        epoch=member.epoch + 1,
        stopped=stop & validated,
        losses=member.losses.at[member.epoch].set(validation_loss),
    )


def _loss(network: Any, likelihood: Any, position: Position, rows: Rows) -> Scalar:
    return -log_likelihood(network, likelihood, position, rows) / jnp.maximum(jnp.sum(rows.weight), 1.0)


def _update(
    training: Training,
    network: Any,
    likelihood: Any,
    position: Position,
    optimizer: Any,
    shuffle: Float[Array, " slot"],
    rows: Rows,
) -> tuple[Position, Any]:
    """Go once through the rows in the order of random numbers; the last batch may be partly padding."""
    n_slots = rows.y.shape[0]
    batch_size = min(training.batch_size, n_slots)
    order = jnp.argsort(jnp.where(jnp.arange(n_slots) < rows.count, shuffle, 2.0))  # padding comes last
    order = jnp.pad(order, (0, batch_size), constant_values=n_slots - 1)

    def batch_step(batch: Array, carry: tuple[Position, Any]) -> tuple[Position, Any]:
        position, optimizer = carry
        chosen = jax.lax.dynamic_slice(order, (batch * batch_size,), (batch_size,))
        within = batch * batch_size + jnp.arange(batch_size) < rows.count
        taken = rows.take(chosen)
        taken = Rows(x=taken.x, y=taken.y, weight=taken.weight * within, count=taken.count)
        gradient = jax.grad(partial(_loss, network, likelihood))(position, taken)
        updates, optimizer = training.optimizer.update(gradient, optimizer, position)
        position = optax.apply_updates(position, updates)
        return cast(Position, position), optimizer

    n_batches = (rows.count + batch_size - 1) // batch_size
    return jax.lax.fori_loop(0, n_batches, batch_step, (position, optimizer))


def _native_update(
    training: Training,
    spec: native.Specification,
    position: Position,
    optimizer: Any,
    shuffle: Float[Array, " slot"],
    rows: Rows,
) -> tuple[Position, Any]:
    """Do the same in one call of the native kernel."""
    batch_size = min(training.batch_size, rows.y.shape[0])
    mu, nu, count = (optax.tree_utils.tree_get(optimizer, name) for name in ("mu", "nu", "count"))
    position, mu, nu = native.epoch(
        spec,
        (position, mu, nu, count),
        shuffle,
        native.Data(rows.x, rows.y, rows.weight, rows.count),
        batch_size,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        decay_first=_ADAM["b1"],
        decay_second=_ADAM["b2"],
        epsilon=_ADAM["eps"],
    )
    count = count + (rows.count + batch_size - 1) // batch_size
    return position, optax.tree_utils.tree_set(optimizer, mu=mu, nu=nu, count=count)
