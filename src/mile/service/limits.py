"""What a service takes from strangers at most, and how it says no."""

import hmac
from dataclasses import dataclass

from mile._checks import check_count, check_number

MOST_QUANTILES, MOST_TIMES, MOST_CURVES, MOST_POINTS = 99, 1_000, 100, 512


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one request.

    Attributes
    ----------
    rows
        Most rows.
    n_bytes
        Longest body.
    seconds
        Longest time, both to receive a body and to answer it.
    waiting
        Most requests that are worked on at once.
    """

    rows: int = 10_000
    n_bytes: int = 16 << 20
    seconds: float = 30.0
    waiting: int = 512

    def __post_init__(self) -> None:
        check_count("max_rows", self.rows)
        check_count("max_bytes", self.n_bytes)
        check_number("timeout", self.seconds, smallest=1e-3, largest=86_400.0)
        check_count("waiting", self.waiting)


class Refused(Exception):
    """A request that gets no answer but a reason, with the status of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def bad(message: str) -> Refused:
    """Return the refusal of a body that cannot be read."""
    return Refused(400, message)


def wrong(message: str) -> Refused:
    """Return the refusal of a body that can be read, but not answered."""
    return Refused(422, message)


def is_token(header: str | None, token: str) -> bool:
    """Say whether the header `Authorization` has the token; takes the same time for every wrong one of its length."""
    given = (header or "").encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, f"Bearer {token}".encode())
