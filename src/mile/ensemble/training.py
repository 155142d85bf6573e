"""How one network is trained by AdamW with early stopping.

One compiled program holds the whole training of a member (shuffling, mini-batches, AdamW, early stopping). It
returns to the host every few epochs to report and to be interruptible.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from mile import _registry, native
from mile._checks import check_count, check_number
from mile._random import Stage, stream
from mile._types import Position, PyTree, Scalar
from mile.ensemble.rate_schedules import RateSchedule
from mile.execution import Program
from mile.folded import ChosenRows, FoldedPosterior
from mile.likelihoods import AbstractLikelihood
from mile.networks.base import Network
from mile.padded_rows import PaddedRows
from mile.posterior import Posterior, log_likelihood

# Of Adam, Kingma and Ba 2015.
_DECAY_FIRST, _DECAY_SECOND, _EPSILON = 0.9, 0.999, 1e-8
_LARGEST_DECAY = 1.0 - 1e-6  # the kernel keeps decays in float32


@runtime_checkable
class Stopping(Protocol):
    """A rule that says when to stop; pure and hashable. Its state is a pytree of its own."""

    def init(self) -> PyTree:
        """Begin with no loss seen."""
        ...

    def update(self, waiting: PyTree, loss: Scalar) -> tuple[PyTree, Bool[Array, ""], Bool[Array, ""]]:
        """Take in one epoch's loss; say whether it is the lowest and whether to stop."""
        ...


@_registry.stopping("patience")
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


@_registry.training("training")
@dataclass(frozen=True, kw_only=True)
class Training:
    """How members are trained; the defaults are those of the paper's chains.

    Parameters
    ----------
    learning_rate, weight_decay
        Of AdamW.
    batch_size
        Rows of a mini-batch.
    max_epochs, stopping
        When training ends.
    second_decay
        How much of the running mean of squared gradients a step keeps: with 0.999 it remembers about 1,000 steps, with
        0.95 about 20, which suits trainings of few steps.
    schedule
        How the learning rate changes over the epochs, such as `CosLog()`; None: not at all.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    batch_size: int = 32
    max_epochs: int = 500
    stopping: Stopping = field(default_factory=Patience)
    second_decay: float = field(default=_DECAY_SECOND, metadata={_registry.ABSENT: _DECAY_SECOND})
    schedule: RateSchedule | None = field(default=None, metadata={_registry.ABSENT: None})

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, positive=True)
        check_number("weight_decay", self.weight_decay, smallest=0.0)
        check_count("batch_size", self.batch_size)
        check_count("max_epochs", self.max_epochs)
        if not isinstance(self.stopping, Stopping):
            raise ValueError(f"stopping must be a rule such as Patience(epochs=10); got {self.stopping!r}.")
        check_number("second_decay", self.second_decay, smallest=0.0, largest=_LARGEST_DECAY)
        if self.schedule is not None and not isinstance(self.schedule, RateSchedule):
            raise ValueError(f"schedule must be None or a schedule such as CosLog(); got {self.schedule!r}.")

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """AdamW at the full learning rate; weight decay is decoupled."""
        return optax.adamw(
            self.learning_rate, b1=_DECAY_FIRST, b2=self.second_decay, eps=_EPSILON, weight_decay=self.weight_decay
        )


class Member(NamedTuple):
    """A network in training."""

    position: Position
    optimizer: optax.OptState
    waiting: PyTree  # state of the stopping rule
    best: Position
    epoch: Int[Array, ""]
    stopped: Bool[Array, ""]
    losses: Float[Array, " epoch"]


@partial(jax.jit, static_argnames=("training", "program"))
def start(
    training: Training, program: Program, seed: Array, chains: Array, posterior: Posterior | FoldedPosterior
) -> Member:
    """Draw the first weights of a group of members."""

    def one_member(chain: Array) -> Member:
        position = posterior.for_chain(chain).network.init(stream(seed, Stage.INITIALIZE, chain))
        return Member(
            position=position,
            optimizer=training.optimizer.init(position),
            waiting=training.stopping.init(),
            best=position,
            epoch=jnp.zeros((), jnp.int32),
            stopped=jnp.zeros((), bool),
            losses=jnp.full(training.max_epochs, jnp.nan),
        )

    # Strong types, as numbers read from a file have them: a resumed run uses the same program.
    started = program.over_group(one_member)(chains)
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), started)


@partial(jax.jit, static_argnames=("training", "program"), donate_argnames="members")
def train(
    training: Training,
    program: Program,
    last_epoch: Int[Array, ""] | int,
    seed: Array,
    chains: Array,
    members: Member,
    posterior: Posterior | FoldedPosterior,
    validation: PaddedRows | ChosenRows,
) -> Member:
    """Train up to `last_epoch`, or until the stopping rule says so."""

    def one_member(chain: Array, member: Member) -> Member:
        key = stream(seed, Stage.OPTIMIZE, chain)
        own, others = posterior.for_chain(chain), validation.for_chain(chain)
        return jax.lax.while_loop(
            lambda member: (member.epoch < last_epoch) & ~member.stopped,
            lambda member: _epoch(training, jax.random.fold_in(key, member.epoch), member, own, others),
            member,
        )

    return program.over_group(one_member)(chains, members)


def _epoch(training: Training, key: Array, member: Member, posterior: Posterior, validation: PaddedRows) -> Member:
    network, likelihood, rows = posterior.network, posterior.likelihood, posterior.rows
    shuffle = jax.random.uniform(key, rows.y.shape[:1])
    schedule = training.schedule
    factor = None if schedule is None else schedule.factor(member.epoch, training.max_epochs)
    update = partial(_update, training, network, likelihood)
    spec = native.specify(network, likelihood, member.position.dtype, rows)
    if spec is None or not spec.has_head:
        position, optimizer = update(member.position, member.optimizer, shuffle, rows, factor)
    else:
        position, optimizer = jax.lax.platform_dependent(
            member.position,
            member.optimizer,
            shuffle,
            rows,
            factor,
            cpu=partial(_native_update, training, spec),
            default=update,
        )
    validated = validation.count > 0
    validation_loss = jnp.where(validated, _loss(network, likelihood, position, validation), jnp.nan)
    waiting, better, stop = training.stopping.update(member.waiting, validation_loss)
    return Member(
        position=position,
        optimizer=optimizer,
        waiting=waiting,
        best=jnp.where(better | ~validated, position, member.best),
        epoch=member.epoch + 1,
        stopped=stop & validated,
        losses=member.losses.at[member.epoch].set(validation_loss),
    )


def _loss(network: Network, likelihood: AbstractLikelihood, position: Position, rows: PaddedRows) -> Scalar:
    return -log_likelihood(network, likelihood, position, rows) / jnp.maximum(jnp.sum(rows.weight), 1.0)


def _update(
    training: Training,
    network: Network,
    likelihood: AbstractLikelihood,
    position: Position,
    optimizer: optax.OptState,
    shuffle: Float[Array, " slot"],
    rows: PaddedRows,
    factor: Scalar | None = None,
) -> tuple[Position, optax.OptState]:
    """Go once through the rows in the order of random numbers; the last batch may be partly padding."""
    n_slots = rows.y.shape[0]
    batch_size = min(training.batch_size, n_slots)
    order = jnp.argsort(jnp.where(jnp.arange(n_slots) < rows.count, shuffle, 2.0))  # padding comes last
    order = jnp.pad(order, (0, batch_size), constant_values=n_slots - 1)

    def batch_step(batch: Array, carry: tuple[Position, optax.OptState]) -> tuple[Position, optax.OptState]:
        position, optimizer = carry
        chosen = jax.lax.dynamic_slice(order, (batch * batch_size,), (batch_size,))
        within = batch * batch_size + jnp.arange(batch_size) < rows.count
        taken = rows.take(chosen)
        taken = PaddedRows(x=taken.x, y=taken.y, weight=taken.weight * within, count=taken.count)
        gradient = jax.grad(partial(_loss, network, likelihood))(position, taken)
        updates, optimizer = training.optimizer.update(gradient, optimizer, position)
        if factor is not None:
            updates = jax.tree.map(lambda update: factor * update, updates)
        position = optax.apply_updates(position, updates)
        return cast(Position, position), optimizer

    n_batches = (rows.count + batch_size - 1) // batch_size
    return jax.lax.fori_loop(0, n_batches, batch_step, (position, optimizer))


def _native_update(
    training: Training,
    spec: native.Specification,
    position: Position,
    optimizer: optax.OptState,
    shuffle: Float[Array, " slot"],
    rows: PaddedRows,
    factor: Scalar | None = None,
) -> tuple[Position, optax.OptState]:
    """Do the same in one call of the native kernel."""
    batch_size = min(training.batch_size, rows.y.shape[0])
    mu, nu, count = (optax.tree_utils.tree_get(optimizer, name) for name in ("mu", "nu", "count"))
    position, mu, nu = native.epoch(
        spec,
        (position, mu, nu, count),
        jnp.ones((), position.dtype) if factor is None else factor,
        shuffle,
        native.Data(rows.x, rows.y, rows.weight, rows.count),
        batch_size,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        decay_first=_DECAY_FIRST,
        decay_second=training.second_decay,
        epsilon=_EPSILON,
    )
    count = count + (rows.count + batch_size - 1) // batch_size
    return position, optax.tree_utils.tree_set(optimizer, mu=mu, nu=nu, count=count)
