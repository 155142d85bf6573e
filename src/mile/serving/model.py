"""A saved regression that predicts by the native kernel alone, and becomes the whole estimator when asked for more."""

import copyreg
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from mile._errors import CorruptFileError, Status, UntrustedFileError
from mile.native._plain import NormalForm, NormalMixtures, WeightedDraws, plain_library
from mile.storage import schema
from mile.storage._tensors import read_tensors

_LARGEST_FILE = 1 << 28  # bytes; draws of larger ones stay on disk, which takes the whole estimator
_LARGEST_INPUT = 1e6  # as in features/numbers.py
_NORMAL_HEADS = (0, 2)  # the kernel's codes of two outputs for a normal distribution, as in kernel.hpp
_SETTINGS = {"kind": "standardizer"}


class Predictor(NamedTuple):
    """What takes rows of an array to moments and quantiles of y."""

    mixtures: NormalMixtures
    shift: np.ndarray  # of X, by column
    scale: np.ndarray
    center: float  # of y
    unit: float
    n_draws: int
    names: tuple[str, ...] | None = None  # of the columns of X, and of y
    target: str | None = None

    def encoded(self, X: object) -> np.ndarray | None:
        """Return standardized rows; None if X is anything but an array of finite numbers of the right shape."""
        if type(X) is not np.ndarray or X.ndim != 2 or X.dtype.kind not in "fiu" or X.shape[1] != len(self.shift):
            return None
        with np.errstate(over="ignore"):  # infinity is cut below
            standardized = (X.astype(np.float64) - self.shift) / self.scale
        if not np.isfinite(X).all():
            return None
        return np.clip(standardized, -_LARGEST_INPUT, _LARGEST_INPUT).astype(np.float32)

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return P(Y <= y) and the density of one y per row, on the scale of y."""
        below, density = self.mixtures.evaluate(x, (y - self.center) / self.unit)
        return below, density / self.unit

    def quantiles(self, x: np.ndarray, levels: Sequence[float]) -> np.ndarray:
        """Return quantiles (row, level) on the scale of y."""
        return self.center + self.unit * self.mixtures.summarize(x, levels).quantiles.T


class FittedModel:
    """A model from a file: `predict`, `predict_interval` and `predict_quantiles` need neither JAX nor scikit-learn.

    Everything else is that of the estimator that was saved, which is loaded from the same file when it is needed first;
    so are predictions for anything but arrays of finite numbers. `isinstance` takes this for that estimator.
    """

    def __init__(self, path: Path, predictor: Predictor) -> None:
        state = {"_path": path.absolute(), "_stamp": _stamp(path), "_predictor": predictor}
        state |= {"_loaded": None, "_fit": None}
        vars(self).update(state)

    @classmethod
    def read(cls, path: Path) -> "FittedModel | None":
        """Return the model of a file; None if the kernel is missing, cannot predict it, or the file cannot be read.

        What reads the whole file then says why.
        """
        found = read_predictor(path)
        # Whether an array fits names, scikit-learn decides, which the estimator asks.
        return None if found is None or found.names is not None else cls(path, found)

    def predict(self, X: object, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the predictive mean, and with `return_std` also the standard deviation."""
        x = self._encoded(X)
        if x is None:
            return self._whole().predict(X, return_std)
        found, unit = self._predictor.mixtures.summarize(x), self._predictor.unit
        mean = self._predictor.center + unit * found.mean
        return (mean, unit * np.sqrt(found.noise + found.ignorance)) if return_std else mean

    def predict_interval(self, X: object, level: float = 0.9, *, conformal: bool = False) -> np.ndarray:
        """Return lower and upper end of the interval that holds y with probability `level`."""
        x = self._encoded(X)
        if x is None or conformal is not False or not 0.0 < level < 1.0:
            return self._whole().predict_interval(X, level, conformal=conformal)
        return self._predictor.quantiles(x, (0.5 - level / 2, 0.5 + level / 2))

    def predict_quantiles(self, X: object, q: object = (0.05, 0.5, 0.95)) -> np.ndarray:
        """Return the quantiles at levels `q`, one column each."""
        x, levels = self._encoded(X), np.atleast_1d(np.asarray(cast(ArrayLike, q), np.float64))
        if x is None or levels.ndim != 1 or not levels.size or not ((levels > 0.0) & (levels < 1.0)).all():
            return self._whole().predict_quantiles(X, q)
        return self._predictor.quantiles(x, levels.tolist())

    def __call__(self, X: object) -> np.ndarray:
        """Return what `predict` does, as the estimator."""
        return cast(np.ndarray, self.predict(X))

    def _whole(self) -> Any:  # it has the methods of the estimator that was saved, which only the file knows
        """Return the estimator that was saved."""
        if self._loaded is None:
            if _stamp(self._path) != self._stamp:
                raise CorruptFileError(f"{self._path} has changed since this model was loaded from it: load it again.")
            from mile.estimators.loading import load as load_whole

            loaded = load_whole(self._path)
            vars(self).update({"_loaded": loaded, "_fit": loaded.fit_})
        return self._loaded

    def _encoded(self, X: object) -> np.ndarray | None:
        """Return standardized rows; None if only the estimator can predict them, which may be fitted anew by now."""
        is_same = self._loaded is None or getattr(self._loaded, "fit_", None) is self._fit
        return self._predictor.encoded(X) if is_same else None

    @property
    def __class__(self) -> type:
        return type(self._whole())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._whole(), name, value)

    def __dir__(self) -> list[str]:
        return dir(self._whole())

    def __repr__(self) -> str:
        return f"<model of {self._predictor.n_draws:,} draws from {self._path}>"


def read_predictor(path: Path) -> Predictor | None:
    """Return what predicts rows of numbers, of a model whose columns may have names; None as for `FittedModel.read`."""
    library = plain_library()
    try:
        if library is None or path.stat().st_size > _LARGEST_FILE:
            return None
        arrays, metadata = read_tensors(path)
        schema.check_format(metadata, schema.MODEL_FORMAT, path)
        header = schema.MODEL.read(metadata, path)
        if header.kernel is None or not header.extra:
            return None
        form = header.kernel
        if form.sizes[-1] != 2 or form.head not in _NORMAL_HEADS:
            return None
        origin = schema.ORIGIN.read(header.extra)
        names = origin.feature_names
        if origin.estimator != "regressor" or json.loads(arrays["encoder"].tobytes()) != _SETTINGS:
            return None
        draws = _counting(arrays, form)
        shift, scale = (arrays[f"encoder.{name}"] for name in ("shift", "scale"))
        center, unit = (float(arrays[f"response.{name}"]) for name in ("shift", "scale"))
    except (CorruptFileError, UntrustedFileError, OSError, ValueError, KeyError, TypeError):
        return None
    is_sound = shift.shape == scale.shape == (form.sizes[0],) and shift.dtype == scale.dtype == np.float64
    is_finite = np.isfinite([*shift.flat, *scale.flat, center, unit]).all() and (scale > 0.0).all() and unit > 0.0
    if draws is None or not (is_sound and is_finite) or (names is not None and len(names) != len(shift)):
        return None
    named = None if names is None else tuple(names)
    mixtures = NormalMixtures(library, form, draws)
    return Predictor(mixtures, shift, scale, center, unit, int(draws.ends[-1]), named, origin.target)


def _unchanged(estimator: object) -> object:
    return estimator


# A copy of any kind is a copy of the estimator: it needs no file.
copyreg.dispatch_table[FittedModel] = lambda model: (_unchanged, (model._whole(),))


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _counting(arrays: dict[str, np.ndarray], form: NormalForm) -> WeightedDraws | None:
    """Return the draws that count, where they lie; None if they are not finite numbers in float32.

    A chain's weight is spread equally over its draws, and a member is one draw; as in fitting/candidates.py.
    """
    dimension = sum((n + 1) * m for n, m in zip(form.sizes[:-1], form.sizes[1:], strict=True))
    draws, members = arrays["draws"], arrays["member"]
    is_known = draws.ndim == 3 and draws.shape[2] == dimension and members.shape == (len(draws), dimension)
    if not is_known or draws.dtype != np.float32 or members.dtype != np.float32 or not draws.size:
        return None
    good = np.array([code == Status.OK for code in schema.read_status(arrays).status])
    n_chains, n_draws, _ = draws.shape
    weights = arrays.get(schema.CANDIDATE_WEIGHTS)
    if weights is None:
        weights = np.r_[good / good.sum(), np.zeros(n_chains)]
    is_possible = weights.shape == (2 * n_chains,) and (weights >= 0.0).all() and abs(weights.sum() - 1.0) < 1e-9
    if len(good) != n_chains or not is_possible or (weights[np.tile(~good, 2)] > 0.0).any():
        return None
    pieces = [draws[chain] for chain in np.flatnonzero(weights[:n_chains] > 0.0)]
    counts, shares = [n_draws] * len(pieces), weights[:n_chains][weights[:n_chains] > 0.0].tolist()
    if (weights[:n_chains] == weights[0]).all():
        pieces, counts, shares = [draws.reshape(-1, dimension)], [n_chains * n_draws], [float(weights[:n_chains].sum())]
    chosen = weights[n_chains:] > 0.0
    pieces += [member[None] for member in members[chosen]]
    counts += [1] * int(chosen.sum())
    shares += weights[n_chains:][chosen].tolist()
    if not all(np.isfinite(piece).all() for piece in pieces):
        return None
    return WeightedDraws(tuple(pieces), np.cumsum(counts), np.array(shares))
