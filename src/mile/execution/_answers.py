"""Which answer to a task counts: a plausible one, or, where it matters, one that two workers gave."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from mile.execution.base import Flaw
from mile.execution.dask_client import Outcome

HERE = "this process"  # in the place of a worker's address
MOST_ANSWERS = 4  # to one task, before it is given up


class Answer(NamedTuple):
    """What one worker returned for a task."""

    outcome: Outcome
    flaw: Flaw | None
    token: str  # equal for two answers that are the same

    @property
    def place(self) -> str:
        """Address of the worker."""
        return self.outcome.address

    @property
    def where(self) -> str:
        """Host and address, for messages."""
        return HERE if self.place == HERE else f"host {self.outcome.host} ({self.place})"

    @property
    def is_usable(self) -> bool:
        """Whether it has the right form."""
        return self.flaw is None or not self.flaw.is_malformed


def is_sampled(share: float, *names: int) -> bool:
    """Say whether a task is among the share that is computed twice; its names alone decide, so a rerun agrees."""
    digest = hashlib.sha256(" ".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2.0**64


def choose(answers: Sequence[Answer], *, needs_two: bool, knows_failure: bool, only_one_place: bool) -> Answer | None:
    """Return the answer that counts, or None if another one is needed.

    Parameters
    ----------
    answers
        All so far.
    needs_two
        Whether two workers must agree, even if nothing seems wrong.
    knows_failure
        Whether two workers have agreed before that this chain is not finite.
    only_one_place
        Whether there is one worker only, which may then confirm itself.
    """
    usable = [answer for answer in answers if answer.is_usable]
    for answer in usable:
        same = [other.place for other in usable if other.token == answer.token]
        if len(set(same)) > 1 or (only_one_place and len(same) > 1):
            return answer
    if needs_two:
        return None
    return next((answer for answer in usable if answer.flaw is None or knows_failure), None)


def last_resort(answers: Sequence[Answer]) -> list[Answer]:
    """Return one of each distinct answer without a flaw, for when no worker can give another."""
    sound = [answer for answer in answers if answer.flaw is None]
    return list({answer.token: answer for answer in sound}.values())


def next_places(answers: Sequence[Answer], hosts: dict[str, str]) -> list[str]:
    """Return the workers to ask next: new ones, on other hosts if possible, else those asked least."""
    asked = [answer.place for answer in answers]
    new = [address for address in hosts if address not in asked]
    seen = {answer.outcome.host for answer in answers} | {hosts.get(place) for place in asked}
    elsewhere = [address for address in new if hosts[address] not in seen]
    if new:
        return elsewhere or new
    fewest = min((asked.count(address) for address in hosts), default=0)
    return [address for address in hosts if asked.count(address) == fewest]
