"""Counts of requests, rows and seconds, as text for Prometheus."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

# Seconds, from a single row to a whole table.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Labels = tuple[tuple[str, str], ...]


class Counters:
    """What `/metrics` tells."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()  # by model, as the others
        self.outcomes: Counter[str] = Counter()
        self.reloads: Counter[str] = Counter()
        self.failed_reloads: Counter[str] = Counter()

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests[endpoint, status] += 1
        counts = self._times.setdefault(endpoint, [0] * (len(BOUNDS) + 1))
        counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds[endpoint] += seconds  # pyright: ignore[reportArgumentType]: a sum of seconds

    def text(self, under_way: int, followed: Mapping[str, int], outside: Mapping[str, Mapping[str, float]]) -> str:
        """Return all of them; `followed` and `outside` are by model."""
        requests = sorted(self._requests.items())
        lines = _family("mile_requests_total", "counter", "Requests by endpoint and status.")
        lines += [_line("mile_requests_total", _end(end, status), n) for (end, status), n in requests]
        lines += _family("mile_errors_total", "counter", "Requests that were refused or failed.")
        errors = [(end, status, n) for (end, status), n in requests if status >= 400]
        lines += [_line("mile_errors_total", _end(end, status), n) for end, status, n in errors]
        lines += _family("mile_request_seconds", "histogram", "Time from a request to its answer.")
        for endpoint, counts in sorted(self._times.items()):
            below = list(accumulate(counts))
            for bound, n in zip((*map(str, BOUNDS), "+Inf"), below, strict=True):
                lines.append(_line("mile_request_seconds_bucket", (("endpoint", endpoint), ("le", bound)), n))
            lines.append(_line("mile_request_seconds_sum", (("endpoint", endpoint),), self._seconds[endpoint]))
            lines.append(_line("mile_request_seconds_count", (("endpoint", endpoint),), below[-1]))
        by_model: tuple[tuple[str, str, Counter[str]], ...] = (
            ("mile_rows_total", "Rows predicted.", self.rows),
            ("mile_outcomes_total", "Outcomes taken.", self.outcomes),
            ("mile_reloads_total", "Times that a changed model file was taken over.", self.reloads),
            ("mile_failed_reloads_total", "Changed files that could not be used.", self.failed_reloads),
        )
        for name, help, counted in by_model:
            lines += _family(name, "counter", help)
            lines += [_line(name, (("model", model),), n) for model, n in sorted(counted.items())]
        lines += _family("mile_requests_under_way", "gauge", "Requests that are worked on.")
        lines.append(_line("mile_requests_under_way", (), under_way))
        lines += _family("mile_followed_rows", "gauge", "Predictions that wait for their outcome.")
        lines += [_line("mile_followed_rows", (("model", model),), n) for model, n in sorted(followed.items())]
        lines += _family("mile_outside_ratio", "gauge", "Share of cells outside the range of training.")
        for model, columns in sorted(outside.items()):
            lines += [
                _line("mile_outside_ratio", (("model", model), ("column", name)), share)
                for name, share in columns.items()
            ]
        return "\n".join(lines) + "\n"


def _end(endpoint: str, status: int) -> _Labels:
    return ("endpoint", endpoint), ("status", str(status))


def _family(name: str, kind: str, help: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    text = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels)
    return f"{name}{{{text}}} {value}" if text else f"{name} {value}"


def _escaped(label: str) -> str:
    plain = label.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
