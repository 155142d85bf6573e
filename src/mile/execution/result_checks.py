"""What a result from another process must look like before it is used: kind, shapes, types, and numbers.

Healthy chains carry some numbers that are not finite, such as an upper bound that has not been met yet. So finite are:
draws and other records, what was so before, arrays of a phase that has just begun or ended, and log densities.
Whether a chain that is not finite has failed by itself is for others to say: its block gives the same elsewhere.
"""

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mile._errors import Status
from mile.execution import Flaw


def check_begun(found: Any, *, expected: Any, before: Any) -> Flaw | None:
    """Look at what a phase begins with; `expected` has its shapes, `before` is what the phase before has left."""
    return _form(found, expected) or _finite(found, before)


def check_advanced(found: Any, *, before: Any, record: Any, n_records: int) -> Flaw | None:
    """Look at what a block of steps leaves, which began `before` and should give `n_records` of shape `record`."""
    if not all(hasattr(found, name) for name in ("carries", "records", "seconds_per_step")):
        return _other_kind(found)
    records = jax.tree.map(lambda leaf: _Shape((len(leaf), n_records, *leaf.shape[1:]), leaf.dtype), record)
    seconds = found.seconds_per_step
    if not isinstance(seconds, float) or not 0.0 <= seconds < math.inf:
        return Flaw(f".seconds_per_step {seconds!r}, not a duration", is_malformed=True)
    return (
        _form(found.carries, before, ".carries")
        or _form(found.records, records, ".records")
        or _finite(found.carries, before, ".carries")
        or _finite(found.records, None, ".records", with_numbers=True)
    )


def check_finished(found: Any, *, expected: Any, before: Any) -> Flaw | None:
    """Look at a phase's conclusions; chains that failed may leave anything."""
    flaw = _form(found, expected)
    if flaw is not None:
        return flaw
    codes = np.asarray(found.status)
    if not np.isin(codes, list(Status)).all():
        return Flaw(f".status {codes.tolist()}, not codes of `Status`", is_malformed=True)
    carry, earlier, report = (
        jax.tree.map(lambda leaf: np.asarray(leaf)[codes == Status.OK], tree)
        for tree in (found.carry, before, found.report)
    )
    return _finite(carry, earlier, ".carry") or _finite(report, None, ".report")


def check_trained(found: Any, *, expected: Any, is_validated: bool) -> Flaw | None:
    """Look at members in training."""
    flaw = _form(found, expected)
    if flaw is not None:
        return flaw
    epochs = np.arange(found.losses.shape[1])
    losses = np.where((epochs < np.asarray(found.epoch)[:, None]) & is_validated, found.losses, 0.0)
    return _finite(found._replace(losses=losses), None)


def check_rows(found: Any, *, expected: Any) -> Flaw | None:
    """Look at predictions of some rows."""
    is_text = getattr(getattr(found, "dtype", None), "kind", "") in "US" and expected.dtype.kind in "US"
    flaw = _form(found, _Shape(expected.shape, found.dtype) if is_text else expected)  # texts have any length
    return flaw or _finite(found, None, with_numbers=True)


class _Shape:
    """Shape and type of an array that is not there."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype


def _form(found: Any, expected: Any, prefix: str = "") -> Flaw | None:
    """Compare kind, shapes and types."""
    if jax.tree.structure(found) != jax.tree.structure(expected):
        return _other_kind(found, prefix)
    for (name, leaf), wanted in zip(_named(found, prefix), jax.tree.leaves(expected), strict=True):
        for part, actual, right in (
            ("shape", getattr(leaf, "shape", None), wanted.shape),
            ("type", getattr(leaf, "dtype", type(leaf).__name__), wanted.dtype),
        ):
            if actual != right:
                return Flaw(f"{name or 'an array'} of {part} {actual}, not {right}", is_malformed=True)
    return None


def _finite(found: Any, before: Any, prefix: str = "", *, with_numbers: bool = False) -> Flaw | None:
    """Find an array that is not finite and should be; `with_numbers` also where a chain has one number only."""
    earlier = dict(_named(before, prefix))
    for name, leaf in _named(found, prefix):
        array = np.asarray(leaf)
        if not np.issubdtype(array.dtype, np.inexact) or np.isfinite(array).all():
            continue
        if name in earlier and np.shape(earlier[name]) == array.shape:
            is_wrong = bool((np.isfinite(np.asarray(earlier[name])) & ~np.isfinite(array)).any())
        else:
            is_wrong = with_numbers or array.ndim > 1 or "logdensity" in name.rpartition(".")[2]
        if is_wrong:
            return Flaw(f"NaN or infinite numbers in {name or 'an array'}")
    return None


def _named(tree: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield prefix + jax.tree_util.keystr(path), leaf


def _other_kind(found: Any, prefix: str = "") -> Flaw:
    return Flaw(f"{prefix or 'something'} of another kind, {type(found).__name__!r}", is_malformed=True)
