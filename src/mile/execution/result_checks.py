"""What a result from another process must look like before it is used: kind, shapes, types, and numbers.

Healthy chains carry some infinite numbers, such as an upper bound that has not been met yet. These must be finite:
draws and other records, what was finite before, arrays of a phase that has just begun or ended, and log densities.
A second worker tells a chain that has failed from a wrong result: its block gives the same bits there.
"""

import math
from collections.abc import Iterator

import jax
import numpy as np

from mile._errors import Status
from mile._types import PyTree
from mile.execution import Flaw


def check_begun(found: PyTree, *, expected: PyTree, before: PyTree) -> Flaw | None:
    """Check the first carry of a phase; `expected` has its shapes, `before` is the last carry of the phase before."""
    return _form(found, expected) or _finite(found, before)


def check_advanced(found: PyTree, *, before: PyTree, record: PyTree, n_records: int) -> Flaw | None:
    """Check the result of a block that began with the carry `before` and makes `n_records` of shape `record`."""
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


def check_finished(found: PyTree, *, expected: PyTree, before: PyTree) -> Flaw | None:
    """Check the results of a phase; a chain that failed may return anything of the right form."""
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


def check_trained(found: PyTree, *, expected: PyTree, is_validated: bool) -> Flaw | None:
    """Check members in training."""
    flaw = _form(found, expected)
    if flaw is not None:
        return flaw
    epochs = np.arange(found.losses.shape[1])
    losses = np.where((epochs < np.asarray(found.epoch)[:, None]) & is_validated, found.losses, 0.0)
    return _finite(found._replace(losses=losses), None)


def check_rows(found: PyTree, *, expected: np.ndarray) -> Flaw | None:
    """Check predictions of some rows."""
    is_text = getattr(getattr(found, "dtype", None), "kind", "") in "US" and expected.dtype.kind in "US"
    flaw = _form(found, _Shape(expected.shape, found.dtype) if is_text else expected)  # texts have any length
    return flaw or _finite(found, None, with_numbers=True)


class _Shape:
    """Shape and type of an array without its values."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.shape, self.dtype = shape, dtype


def _form(found: PyTree, expected: PyTree, prefix: str = "") -> Flaw | None:
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


def _finite(found: PyTree, before: PyTree, prefix: str = "", *, with_numbers: bool = False) -> Flaw | None:
    """Find an array that is not finite and should be; with `with_numbers` also among single numbers of a chain."""
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


def _named(tree: PyTree, prefix: str) -> Iterator[tuple[str, PyTree]]:
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield prefix + jax.tree_util.keystr(path), leaf


def _other_kind(found: PyTree, prefix: str = "") -> Flaw:
    return Flaw(f"{prefix or 'something'} of another kind, {type(found).__name__!r}", is_malformed=True)
