"""The deep ensemble: members trained side by side in blocks of epochs, the starting points of the chains."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from mile._deadline import Deadline, Stopped
from mile._errors import ClusterError, FitFailedError, Status, warn
from mile._progress import Progress, Silent, duration
from mile._types import PyTree
from mile.ensemble.record_checks import check_training
from mile.ensemble.training import Member, Training, start, train
from mile.execution import Done, Flaw, InProcess, Program, Task, WorkerPool, result_checks
from mile.folded import ChosenRows, FoldedPosterior
from mile.padded_rows import PaddedRows
from mile.posterior import Posterior
from mile.storage import TRAINING, Record, Run, Unsaved, check_members

# A block of epochs grows until it lasts this share of a block of steps: training is short.
_FIRST_EPOCHS = 25
_BLOCK_SHARE = 0.2
_LARGEST_SHARE = 0.4  # of a time limit that training may take
_WORTH_SAYING = 2.0  # seconds; less work needs no forecast
_MANY_ROWS = 100_000  # whose training takes so long that compiling does not count, and memory does


StreamNames = tuple[np.uint32, np.ndarray]  # seed, and numbers of the chains
OwnPosterior = Posterior | FoldedPosterior  # of all rows, or of each chain's own
OwnRows = PaddedRows | ChosenRows


class Members(NamedTuple):
    """The trained ensemble."""

    positions: Float[np.ndarray, "chain d"]
    status: tuple[Status, ...]
    epochs: Int[np.ndarray, " chain"]
    validation_loss: Float[np.ndarray, "chain epoch"]  # NaN after the last epoch, and without validation rows

    def joined(self, others: "Members") -> "Members":
        """Return these members and others after them."""
        return Members(
            positions=np.concatenate([self.positions, others.positions]),
            status=self.status + others.status,
            epochs=np.concatenate([self.epochs, others.epochs]),
            validation_loss=np.concatenate([self.validation_loss, others.validation_loss]),
        )

    def replace(self, slots: np.ndarray, others: "Members") -> "Members":
        """Put other members in some places; the arrays are changed, not copied."""
        for ours, theirs in (
            (self.positions, others.positions),
            (self.epochs, others.epochs),
            (self.validation_loss, others.validation_loss),
        ):
            ours[slots] = theirs
        return self._replace(status=replaced(self.status, slots, others.status))


def replaced(status: Sequence[Status], slots: np.ndarray, others: Sequence[Status]) -> tuple[Status, ...]:
    """Return the status of chains after some of them were replaced."""
    found = dict(enumerate(status)) | dict(zip(slots.tolist(), others, strict=True))
    return tuple(found.values())


def train_members(
    posterior: OwnPosterior,
    validation: OwnRows,
    training: Training,
    chain_ids: Sequence[int],
    *,
    seed: int,
    backend: WorkerPool | None = None,
    progress: Progress | None = None,
    run: Run | Unsaved | None = None,
    deadline: Deadline | None = None,
) -> Members:
    """Train one network per chain and return the weights with the lowest validation loss.

    Without validation rows every member trains for `max_epochs` and keeps its last weights. What `run` has of the
    members is used and not trained again. A time limit of `deadline` is shared equally among the members.

    Raises
    ------
    Stopped
        If `deadline` was asked to stop; everything is saved then.
    """
    backend, progress, run, deadline = (
        backend or InProcess(),
        progress or Silent(),
        run or Unsaved(),
        deadline or Deadline(),
    )
    stored = [run.load(chain, "member") for chain in chain_ids]
    found = [record for record in stored if record is not None]
    if len(found) == len(stored):
        is_validated = int(validation.count) > 0
        check_members(found, posterior.network.dimension, training.max_epochs, is_validated=is_validated)
        return recall_members([record.arrays for record in found])
    groups = backend.program.groups(chain_ids)
    began = time.perf_counter()
    progress.start("ensemble", training.max_epochs * len(groups), unit="epochs", n_chains=len(chain_ids))
    course = _Course(training, groups, seed, backend, progress, run)
    if backend.is_local and posterior.n_slots < _MANY_ROWS:
        _compile_together(training, backend, seed, groups[0], posterior, validation)
    if deadline.time_limit is not None:
        course.set_limit(_LARGEST_SHARE * deadline.time_limit - (time.perf_counter() - began))
    course.recall(posterior, is_validated=int(validation.count) > 0)
    shared = (posterior, validation)
    if not backend.is_local:
        course.check_results(posterior, validation)

    def next_task() -> Task[Member] | None:
        return None if deadline.stopping else course.next_task()

    try:
        for done in backend.flow(_train_group, next_task, shared, course.show):
            for one in done:
                course.take(one)
        if deadline.stopping:
            raise Stopped
    except (ClusterError, Stopped):
        run.save(course.records())
        run.settle()
        raise
    progress.finish()
    if course.cut:
        warn(
            f"The time limit cut the training of {len(course.cut)} of {len(groups)} members short; they start with "
            "the best weights found by then."
        )
    return _collect(course.members, chain_ids, validation, run)


def _collect(
    trained: list[Member | None], chain_ids: Sequence[int], validation: OwnRows, run: Run | Unsaved
) -> Members:
    """Join the members and save them; a member that no worker could train is NaN."""
    n_members = len(chain_ids)
    some = next((member for member in trained if member is not None), None)
    if some is None:
        raise FitFailedError("No member of the ensemble could be trained.")
    width = len(some.epoch)
    lost = np.repeat([member is None for member in trained], width)[:n_members]
    nobody = Member(*jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), tuple(some)))
    nobody = nobody._replace(best=np.full_like(nobody.best, np.nan), losses=np.full_like(nobody.losses, np.nan))
    trained = [member or nobody for member in trained]
    joined = jax.tree.map(
        lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[:n_members],
        *[(member.best, member.epoch, member.losses) for member in trained if member is not None],
    )
    positions, epochs, losses = joined
    never_finite = ~np.isfinite(losses).any(axis=1) & (int(validation.count) > 0)
    failures = [lost, ~np.isfinite(positions).all(axis=1), never_finite]
    codes = np.select(failures, [Status.LOST, Status.NON_FINITE_START, Status.UNTRAINED], Status.OK)
    members = Members(positions, tuple(map(Status, codes)), epochs, losses)
    run.save({(chain, "member"): one for chain, one in zip(chain_ids, member_records(members), strict=True)})
    return members


def member_records(members: Members) -> list[Record]:
    """Return what a run keeps of each member."""
    positions, status, epochs, losses = members
    arrays = {"position": positions, "status": np.array(status, np.int32), "epochs": epochs, "losses": losses}
    return [Record(TRAINING, 0, {name: array[row] for name, array in arrays.items()}) for row in range(len(status))]


class _Course:
    """Where each group of members is in its training; groups advance independently of each other."""

    def __init__(
        self,
        training: Training,
        groups: list[list[int]],
        seed: int,
        pool: WorkerPool,
        progress: Progress,
        run: Run | Unsaved,
    ) -> None:
        self.members: list[Member | None] = [None] * len(groups)
        self.cut: list[int] = []
        self._training, self._groups, self._pool, self._progress, self._run = training, groups, pool, progress, run
        self._names = [(np.uint32(seed), np.asarray(group, np.uint32)) for group in groups]
        self._epochs, self._shown, self._spent = [0] * len(groups), [0] * len(groups), [0.0] * len(groups)
        self._lengths = [_FIRST_EPOCHS] * len(groups)
        self._waiting = list(range(len(groups)))
        self._seconds = np.inf
        self._check: Callable[[Member], Flaw | None] | None = None
        self._lock = threading.Lock()

    def set_limit(self, seconds: float) -> None:
        """Give each member an equal share of the time."""
        self._seconds = seconds / self._n_rounds

    @property
    def _n_rounds(self) -> int:
        """Members that one worker trains in turn."""
        return -(-len(self._groups) // max(1, self._pool.n_workers))

    def recall(self, posterior: OwnPosterior, *, is_validated: bool) -> None:
        """Continue from the last checkpoint, if there is one."""
        for number, group in enumerate(self._groups):
            member = _recall_training(
                self._run,
                group,
                self._training,
                self._pool.program,
                self._names[number],
                posterior,
                is_validated=is_validated,
            )
            if member is not None:
                self.members[number] = member
                self._epochs[number] = int(np.asarray(member.epoch).max())
        self._waiting = [number for number in self._waiting if not self._is_trained(number)]

    def check_results(self, posterior: OwnPosterior, validation: OwnRows) -> None:
        """Check the results of other processes before they are used."""
        shapes = _shapes(self._training, self._pool.program, self._names[0], posterior)
        self._check = partial(result_checks.check_trained, expected=shapes, is_validated=int(validation.count) > 0)

    def _is_trained(self, number: int) -> bool:
        member = self.members[number]
        stopped = member is not None and bool(np.asarray(member.stopped).all())
        return stopped or self._epochs[number] >= self._training.max_epochs

    def next_task(self) -> Task[Member] | None:
        """Return the next block of epochs, or None if none could begin now."""
        if not self._waiting:
            return None
        number = self._waiting.pop(0)
        last = min(self._epochs[number] + self._lengths[number], self._training.max_epochs)
        arguments = (self._training, self._pool.program, last, *self._names[number], self.members[number])
        name = f"member {self._groups[number][0]}, epochs {self._epochs[number]:,} to {last:,}"
        return Task(number, arguments, name, seed=int(self._names[number][0]), check=self._check)

    def take(self, done: Done[Member]) -> None:
        """Receive a block; queue the next one unless the member is trained, lost, or out of time."""
        number = done.group
        if done.lost:
            warn(done.lost)
            self.members[number] = None
            return
        before = self._epochs[number]
        last = min(before + self._lengths[number], self._training.max_epochs)
        self.members[number], self._epochs[number] = done.result, last
        self._spent[number] += done.seconds
        self.show(number, last)
        if number == 0 and before == _FIRST_EPOCHS:  # the first block also compiles
            _forecast(self._progress, self._n_rounds * self._training.max_epochs * done.seconds / (last - before))
        if self._is_trained(number):
            return
        if self._spent[number] > self._seconds:
            self.cut.append(number)
            return
        if self._run.due(self._groups[number]):
            self._run.save(_training_records(self._groups[number], done.result))
        target = _BLOCK_SHARE * self._pool.block_seconds
        if done.seconds < 0.5 * target:
            factor = int(min(self._pool.growth, target / max(done.seconds, 1e-9)))
            self._lengths[number] *= factor
        self._waiting.insert(0, number)  # finish what has begun

    def show(self, number: int, epoch: int) -> None:
        """Tell progress how far a member has come."""
        with self._lock:
            amount, self._shown[number] = epoch - self._shown[number], max(epoch, self._shown[number])
        if amount > 0:
            self._progress.advance(amount)

    def records(self) -> dict[tuple[int, str], Record]:
        """Return what a resumed run needs of all members that have begun."""
        found = {}
        for group, member in zip(self._groups, self.members, strict=True):
            if member is not None:
                found |= _training_records(group, member)
        return found


def _train_group(
    training: Training,
    program: Program,
    last_epoch: int,
    seed: np.uint32,
    chains: np.ndarray,
    member: Member | None,
    shared: tuple[OwnPosterior, OwnRows],
    report: Callable[[int], None],
) -> Member:
    """Train a group up to an epoch, or until the stopping rule says so; a task of a pool."""
    posterior, validation = shared
    if member is None:
        member = start(training, program, seed, chains, posterior)
    return jax.block_until_ready(train(training, program, last_epoch, seed, chains, member, posterior, validation))


def recall_members(stored: list[dict[str, np.ndarray]]) -> Members:
    """Put the saved arrays of members together."""
    joined = {name: np.stack([arrays[name] for arrays in stored]) for name in stored[0]}
    codes = tuple(Status(int(code)) for code in joined["status"])
    return Members(joined["position"], codes, joined["epochs"], joined["losses"])


def _training_records(group: list[int], member: Member) -> dict[tuple[int, str], Record]:
    """Return what a resumed run needs of each member; copied, because the program reuses its memory."""
    leaves = [np.array(leaf) for leaf in jax.tree.leaves(member)]
    return {
        (chain, "state"): Record(TRAINING, 0, {str(number): leaf[row] for number, leaf in enumerate(leaves)})
        for row, chain in enumerate(group)
    }


def _recall_training(
    run: Run | Unsaved,
    group: list[int],
    training: Training,
    program: Program,
    names: StreamNames,
    posterior: OwnPosterior,
    *,
    is_validated: bool,
) -> Member | None:
    stored = [record for chain in group if (record := run.load(chain, "state")) is not None]
    if len(stored) < len(group):
        return None
    shapes = _shapes(training, program, names, posterior)
    check_training(stored, shapes, training, is_validated=is_validated)
    leaves, structure = jax.tree.flatten(shapes)
    found = [np.stack([record.arrays[str(number)] for record in stored]) for number in range(len(leaves))]
    return jax.tree.unflatten(structure, found)


def _shapes(training: Training, program: Program, names: StreamNames, posterior: OwnPosterior) -> PyTree:
    """Return the shapes of a group of members."""
    return jax.eval_shape(partial(start, training, program), *names, posterior)


def _compile_together(
    training: Training,
    pool: WorkerPool,
    seed: int,
    group: list[int],
    posterior: OwnPosterior,
    validation: OwnRows,
) -> None:
    """Compile the two programs at the same time; later calls find them compiled."""
    names = (np.uint32(seed), np.asarray(group, np.uint32))
    shapes = _shapes(training, pool.program, names, posterior)
    nobody = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    calls = (
        partial(start, training, pool.program, *names, posterior),
        partial(train, training, pool.program, 0, *names, nobody, posterior, validation),  # no epoch
    )
    InProcess().map(lambda call: jax.block_until_ready(call()), calls)


def _forecast(progress: Progress, seconds: float) -> None:
    if seconds >= _WORTH_SAYING:
        progress.say(f"Training the ensemble: at most {duration(seconds)}, less where training stops early.")
