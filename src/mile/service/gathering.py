"""Rows of several requests are predicted together: one call of the kernel costs little more than one row."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from mile.service.answers import AbstractAnswers, Columns
from mile.service.rows import Options

_MOST_IN_LOOP = 4e-3  # seconds; what takes longer is computed in a thread, and others are served meanwhile
_MOST_GATHERED = 512  # rows; larger requests are computed by themselves, in parts
_PART_SECONDS, _FEWEST_PART = 0.25, 64
_PROBE_ROWS = 64


class Cost(NamedTuple):
    """Seconds of one row, and of each further one."""

    first: float
    more: float

    def of(self, n_rows: int, options: Options) -> float:
        """Return the seconds that rows take, about."""
        return (self.first + (n_rows - 1) * self.more) * (1.0 + 0.4 * len(options.quantiles) + len(options.times))


def measured_cost(answers: AbstractAnswers, x: np.ndarray) -> Cost:
    """Predict a row and some more, twice because the first time compiles, and return what it takes.

    Raises
    ------
    ValueError
        If a prediction is not finite: such a model shall not serve.
    """
    seconds = []
    for n_rows in (1, _PROBE_ROWS):
        rows = np.repeat(x[:1], n_rows, axis=0)
        for _ in range(2):
            began = time.perf_counter()
            found = answers.columns(rows, Options())
            took = time.perf_counter() - began
        if any(column.dtype.kind == "f" and np.isnan(column).any() for column in found.values()):
            raise ValueError("the model predicts NaN for a row of typical values.")
        seconds.append(took)
    return Cost(seconds[0], max(1e-7, (seconds[1] - seconds[0]) / (_PROBE_ROWS - 1)))


class Gatherer:
    """Answers requests of one model; small ones that wait at the same time share a call."""

    def __init__(self, answers: AbstractAnswers, cost: Cost, pool: Executor) -> None:
        self._answers, self._cost, self._pool = answers, cost, pool
        self._waiting: dict[Options, list[tuple[np.ndarray, asyncio.Future[Columns]]]] = {}
        self._is_planned = self._is_busy = False

    async def columns(self, x: np.ndarray, options: Options) -> Columns:
        """Return the columns of a table of predictions."""
        loop = asyncio.get_running_loop()
        if len(x) > _MOST_GATHERED:
            return await self._in_parts(x, options)
        future: asyncio.Future[Columns] = loop.create_future()
        self._waiting.setdefault(options, []).append((x, future))
        if not self._is_planned and not self._is_busy:
            self._is_planned = True
            loop.call_soon(self._flush)
        return await future

    async def apart(self, function: Callable[..., object], *arguments: object, rows: int = 1) -> object:
        """Return what a function of the answers says that costs as so many rows."""
        if self._cost.of(rows, Options()) < _MOST_IN_LOOP:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def _in_parts(self, x: np.ndarray, options: Options) -> Columns:
        """Predict many rows; between two parts the request may be given up."""
        size = max(_FEWEST_PART, int(_PART_SECONDS / self._cost.more))
        loop, parts = asyncio.get_running_loop(), []
        for start in range(0, len(x), size):
            rows = x[start : start + size]
            parts.append(await loop.run_in_executor(self._pool, self._answers.columns, rows, options))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _flush(self) -> None:
        """Answer all that wait: here if it is quick, else in a thread."""
        self._is_planned = False
        waiting, self._waiting = self._waiting, {}
        slow = 0.0
        for options, parts in waiting.items():
            slow += self._cost.of(sum(len(x) for x, _ in parts), options)
        if slow < _MOST_IN_LOOP:
            for options, parts in waiting.items():
                self._settle(parts, self._answered(parts, options))
            return
        self._is_busy = True
        task = asyncio.get_running_loop().create_task(self._flush_apart(waiting))
        self._task = task  # a task that nobody holds may be collected

    async def _flush_apart(self, waiting: dict[Options, list[tuple[np.ndarray, "asyncio.Future[Columns]"]]]) -> None:
        loop = asyncio.get_running_loop()
        for options, parts in waiting.items():
            wanted = [part for part in parts if not part[1].done()]  # who gave up is done
            if wanted:
                self._settle(wanted, await loop.run_in_executor(self._pool, self._answered, wanted, options))
        self._is_busy = False
        if self._waiting:
            self._flush()

    def _answered(
        self, parts: list[tuple[np.ndarray, "asyncio.Future[Columns]"]], options: Options
    ) -> Columns | Exception:
        try:
            return self._answers.columns(np.concatenate([x for x, _ in parts]), options)
        except Exception as error:
            return error

    def _settle(self, parts: list[tuple[np.ndarray, "asyncio.Future[Columns]"]], found: Columns | Exception) -> None:
        start = 0
        for x, future in parts:
            end = start + len(x)
            if future.done():
                pass
            elif type(found) is dict:
                future.set_result({name: column[start:end] for name, column in found.items()})
            else:
                future.set_exception(found)  # pyright: ignore[reportArgumentType]: not the columns
            start = end
