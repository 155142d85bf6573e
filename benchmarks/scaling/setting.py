"""What a simulated fit is given, and what it gives."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Work of each chain between two barriers: the steps of a phase, or the epochs of a member."""

    name: str
    n_steps: int
    step_seconds: float  # of one chain, alone on its machine
    is_training: bool = False  # a slot then finishes the members that it has begun
    is_bare: bool = False  # without the short tasks before and after
    checkpoint_bytes: float = 0.0  # go to the worker with each task and come back with its result
    record_bytes: float = 0.0  # that come back for each step
    shared_bytes: float = 0.0  # that the scheduler brings to every worker before


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A fit and the cluster it runs on. Times are in seconds; every worker has one slot."""

    n_chains: int
    n_slots: int
    stages: tuple[Stage, ...]
    # The dispatcher.
    block_seconds: float = 10.0
    with_duplicates: bool = True
    # The cluster.
    sharing: float = 1.0  # how much slower a step is when the slots of a machine are all in use
    overhead_seconds: float = 0.0  # of a task, in which its slot is idle but nobody else is busy
    scheduler_seconds: float = 0.0  # of a task, in which the scheduler does nothing else
    scheduler_byte_seconds: float = 0.0  # the same for each byte, to and fro
    bandwidth: float = np.inf  # of one machine's network link, bytes per second
    client_seconds: float = 0.0  # of a task, in which the client does nothing else
    client_byte_seconds: float = 0.0  # the same for each byte: packing, unpacking, writing
    startup_seconds: float = 0.0  # of a worker
    program_seconds: float = 0.0  # of a worker's first task of a kind in a stage: loading what it runs
    short_seconds: float = 0.0  # of the tasks before and after a phase
    prepare_seconds: float = 0.0  # of the client before the blocks of a phase, while nobody computes
    # What goes wrong.
    failures_per_hour: float = 0.0  # of one worker
    restart_seconds: float = 60.0  # until a lost worker is replaced, before its start-up
    slow_workers: float = 0.0  # share of them
    slow_worker_factor: float = 1.0
    slow_tasks: float = 0.0  # share of them, on any worker
    slow_task_factor: float = 1.0

    def __post_init__(self) -> None:
        if min(self.n_chains, self.n_slots) < 1:
            raise ValueError(f"a fit needs chains and slots; got {self.n_chains} and {self.n_slots}.")

    @property
    def chain_seconds(self) -> float:
        """What one chain computes."""
        return sum(stage.n_steps * stage.step_seconds for stage in self.stages)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a simulated fit took."""

    wall_seconds: float
    efficiency: float  # useful seconds over those of all slots
    lost_seconds: float  # of computing that died with a worker or came second
    utilization: dict[str, float]  # share of the time in which scheduler, link and client are busy
    client_bytes: float  # that went through the client
    n_tasks: int
    n_failures: int
    n_duplicates: int
    stage_seconds: dict[str, float] = field(default_factory=dict)
