"""Simulate how a cluster runs blocks of chains: everything that the dispatcher does, event by event, but no chain.

A stage (the ensemble, a phase of the sampler) ends for all chains at once. Before and after a phase each chain has a
short task. In between chains advance in blocks, each on its own, and a slot has one task at a time. What all tasks
pass through one after the other is the scheduler, the client's network link and the client itself.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from scaling.dispatch import Task, Work, works
from scaling.setting import Result, Setting


def simulate(setting: Setting, rng: np.random.Generator) -> Result:
    """Run one fit."""
    cluster = _Cluster(setting, rng)
    stage_seconds = {}
    for stage in setting.stages:
        began = cluster.now
        cluster.share(stage.shared_bytes)
        for work in works(setting, stage):
            cluster.do(work)
        stage_seconds[stage.name] = cluster.now - began
    wall = max(cluster.now, 1e-12)
    return Result(
        wall_seconds=cluster.now,
        efficiency=setting.n_chains * setting.chain_seconds / (setting.n_slots * wall),
        lost_seconds=cluster.lost_seconds,
        utilization={name: queue.busy_seconds / wall for name, queue in cluster.queues.items()},
        client_bytes=cluster.client_bytes,
        n_tasks=cluster.n_tasks,
        n_failures=cluster.n_failures,
        n_duplicates=cluster.n_duplicates,
        stage_seconds=stage_seconds,
    )


class _Queue:
    """Something that serves one task at a time."""

    def __init__(self, task_seconds: float, byte_seconds: float) -> None:
        self._task_seconds, self._byte_seconds = task_seconds, byte_seconds
        self._free = self.busy_seconds = 0.0

    def pass_through(self, now: float, n_bytes: float) -> float:
        """Return when a task that comes now leaves."""
        seconds = self._task_seconds + n_bytes * self._byte_seconds
        self.busy_seconds += seconds
        self._free = max(self._free, now) + seconds
        return self._free


class _Cluster:
    """Slots, queues and the time; does one piece of work after the other."""

    def __init__(self, setting: Setting, rng: np.random.Generator) -> None:
        self.setting, self.rng, self.now = setting, rng, 0.0
        self.lost_seconds = self.client_bytes = 0.0
        self.n_tasks = self.n_failures = self.n_duplicates = 0
        self.queues = {
            "scheduler": _Queue(setting.scheduler_seconds, setting.scheduler_byte_seconds),
            "link": _Queue(0.0, 1.0 / setting.bandwidth),
            "client": _Queue(setting.client_seconds, setting.client_byte_seconds),
        }
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0  # of events: those of one time happen in the order in which they were foreseen
        slow = rng.random(setting.n_slots) < setting.slow_workers
        self._factor = np.where(slow, setting.slow_worker_factor, 1.0).tolist()
        self._life = [0] * setting.n_slots  # of each slot's worker; events of an earlier life do not happen
        self._loaded = [0] * setting.n_slots  # the last piece of work whose programs the worker has
        self._n_works = 0
        self._free: list[int] = []  # idle slots, a heap: of several, Dask takes the first in an order of its own
        self._slow: set[int] = set()  # slots whose last task had to be done elsewhere: others come first
        self._running: dict[int, tuple[Task, float]] = {}  # by slot, with the time of its beginning
        self._again: deque[Task] = deque()
        self._next_look = np.inf
        for slot in range(setting.n_slots):
            self._expect(setting.startup_seconds, self._join, slot, 0)
            self._foresee_failure(slot)

    def share(self, n_bytes: float) -> None:
        """Wait until the scheduler has brought something to every worker, to one after the other."""
        self.now += self.setting.n_slots * n_bytes / self.setting.bandwidth

    def do(self, work: Work) -> None:
        """Finish a piece of work."""
        self._work = work
        self._n_works += 1
        self.now += work.prepare_seconds
        self._dispatch()
        while not work.finished:
            when, _, happen, arguments = heapq.heappop(self._events)
            self.now = max(self.now, when)
            happen(*arguments)

    def _expect(self, seconds: float, happen: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, happen, arguments))

    def _foresee_failure(self, slot: int) -> None:
        if self.setting.failures_per_hour:
            self._expect(self.rng.exponential(3_600.0 / self.setting.failures_per_hour), self._fail, slot)

    # -- what the client does

    def _dispatch(self) -> None:
        while self._free:
            task = self._again.popleft() if self._again else self._work.next_task()
            if task is None:
                break
            self._start(task)
        if self._free and self.setting.with_duplicates:
            self._duplicate()

    def _start(self, task: Task) -> None:
        setting = self.setting
        slot = min(self._free, key=lambda slot: (slot in self._slow, slot)) if self._slow else self._free[0]
        self._take(slot)
        is_slow = setting.slow_tasks and self.rng.random() < setting.slow_tasks
        seconds = task.seconds * self._factor[slot] * (setting.slow_task_factor if is_slow else 1.0)
        loading = setting.program_seconds if self._loaded[slot] < self._n_works else 0.0
        self._loaded[slot] = self._n_works
        task.copies += 1
        self.n_tasks += 1
        self._running[slot] = task, self.now
        wait = setting.overhead_seconds + loading + seconds
        self._expect(wait, self._end, slot, self._life[slot], task, seconds)

    def _take(self, slot: int) -> None:
        """Make a slot busy."""
        if self._free[0] == slot:
            heapq.heappop(self._free)
        else:
            self._free.remove(slot)
            heapq.heapify(self._free)

    def _duplicate(self) -> None:
        """Give idle slots the tasks that take too long, and look again when the next one does."""
        soonest = np.inf
        for slot, (task, began) in list(self._running.items()):
            tolerated = None if task.done or task.copies > 1 else self._work.tolerated(task)
            if tolerated is None:
                continue
            due = began + tolerated
            if due > self.now:
                soonest = min(soonest, due)
            elif self._free:
                self.n_duplicates += 1
                self._slow.add(slot)
                self._start(task)
        if soonest < np.inf and not self.now < self._next_look <= soonest:
            self._next_look = soonest
            self._expect(soonest - self.now, self._dispatch)

    def _receive(self, slot: int, life: int, task: Task, seconds: float) -> None:
        if self._life[slot] != life:
            return  # the worker died with its result
        heapq.heappush(self._free, slot)
        del self._running[slot]
        if task.done:
            self.lost_seconds += seconds
        else:
            task.done = True
            self._work.take(task, seconds)
            tolerated = self._work.tolerated(task)
            if tolerated is None or seconds <= tolerated:
                self._slow.discard(slot)
        self._dispatch()

    # -- what happens elsewhere

    def _join(self, slot: int, life: int) -> None:
        if self._life[slot] == life:
            heapq.heappush(self._free, slot)
            self._dispatch()

    def _end(self, slot: int, life: int, task: Task, seconds: float) -> None:
        if self._life[slot] != life:
            return
        received = self.now
        for queue in self.queues.values():
            received = queue.pass_through(received, task.n_bytes)
        self.client_bytes += task.n_bytes
        self._expect(received - self.now, self._receive, slot, life, task, seconds)

    def _fail(self, slot: int) -> None:
        """Lose a worker and what it was doing; the scheduler has the task done again elsewhere."""
        setting = self.setting
        self.n_failures += 1
        self._life[slot] += 1
        self._loaded[slot] = 0
        self._slow.discard(slot)
        if slot in self._free:
            self._take(slot)
        task, began = self._running.pop(slot, (None, 0.0))
        if task is not None:
            self.lost_seconds += self.now - began
            task.copies -= 1
            if not task.done and not task.copies:
                self._again.append(task)
        self._expect(setting.restart_seconds + setting.startup_seconds, self._join, slot, self._life[slot])
        self._foresee_failure(slot)
        self._dispatch()
