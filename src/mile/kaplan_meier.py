"""The share of rows without an event by time, from rows of which some were lost from sight before theirs."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Times = Float[np.ndarray, " row"]
_NORMAL_95 = 1.6448536269514722  # half the width of a 90 % interval in standard errors


class Curve(NamedTuple):
    """A step function of time that falls from one: at `times` it takes the values of `share`."""

    times: Float[np.ndarray, " step"]  # increasing
    share: Float[np.ndarray, " step"]
    error: Float[np.ndarray, " step"]  # standard error of the logarithm, by Greenwood's formula

    def at(self, times: Times) -> Times:
        """Return the share right after each of the times."""
        return np.concatenate([[1.0], self.share])[np.searchsorted(self.times, times, side="right")]

    def before(self, times: Times) -> Times:
        """Return the share right before each of the times."""
        return np.concatenate([[1.0], self.share])[np.searchsorted(self.times, times, side="left")]

    def band(self) -> tuple[Float[np.ndarray, " step"], Float[np.ndarray, " step"]]:
        """Return the ends of 90 % intervals, on the scale of the logarithm."""
        factor = np.exp(_NORMAL_95 * self.error)
        return self.share / factor, np.minimum(self.share * factor, 1.0)


def kaplan_meier(time: Times, event: Bool[np.ndarray, " row"]) -> Curve:
    """Return the curve of Kaplan and Meier (1958); rows without an event count until their time, included."""
    times, place = np.unique(time, return_inverse=True)
    events = np.bincount(place, weights=event.astype(float), minlength=len(times))
    left = np.bincount(place, minlength=len(times)).astype(float)
    at_risk = len(time) - np.concatenate([[0.0], np.cumsum(left)[:-1]])
    share = np.cumprod(1.0 - events / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(events > 0.0, events / (at_risk * (at_risk - events)), 0.0)
    return Curve(times, share, np.sqrt(np.cumsum(np.where(np.isfinite(terms), terms, 0.0))))


def censoring_curve(time: Times, event: Bool[np.ndarray, " row"]) -> Curve:
    """Return the share of rows that would still be seen if there were no events, by time.

    Where an event and the end of another row's observation share a time, the event came first.
    """
    times, place = np.unique(time, return_inverse=True)
    events = np.bincount(place, weights=event.astype(float), minlength=len(times))
    lost = np.bincount(place, minlength=len(times)) - events
    at_risk = len(time) - np.concatenate([[0.0], np.cumsum(events + lost)[:-1]]) - events
    share = np.cumprod(np.where(at_risk > 0.0, 1.0 - lost / np.maximum(at_risk, 1.0), 1.0))
    return Curve(times, share, np.zeros(len(times)))
