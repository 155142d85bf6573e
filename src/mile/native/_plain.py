"""The compiled library without JAX: loaded by ctypes, it predicts mixtures of normal distributions by itself."""

import ctypes
import math
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

FILE = Path(__file__).with_name("_native.so")
ROWS = 96  # of one call: a tile of the kernel, or two
_CELLS = 1 << 22  # draws x rows of one call
_ROW_MULTIPLE = 12
PLAIN_FUNCTIONS = ("mile_outputs", "mile_summarize", "mile_mixture", "mile_weighted_mixture", "mile_predict")
_NORMAL = NormalDist()
_SCALE_LIMIT, _LOG_SCALE_LIMIT = 10.0, math.log(1e6)  # as in likelihoods/_links.py
_NO_MEMORY = "the native kernel got no memory for a block of rows: free some."


class NormalForm(NamedTuple):
    """What the kernel must know of a perceptron whose two outputs say a normal distribution."""

    sizes: tuple[int, ...]
    activation: int
    head: int
    floor: float


class WeightedDraws(NamedTuple):
    """Draws in pieces, each contiguous; and groups of neighbors of one weight: where each ends, and its share."""

    pieces: tuple[np.ndarray, ...]
    ends: np.ndarray
    shares: np.ndarray


class Summary(NamedTuple):
    """Moments and quantiles of rows: means, mean variances, variances of means, and quantiles (level, row)."""

    mean: np.ndarray
    noise: np.ndarray
    ignorance: np.ndarray
    quantiles: np.ndarray


def open_library(file: Path) -> ctypes.CDLL:
    """Load the library and choose its kernel.

    Raises
    ------
    OSError, AttributeError
        If it cannot be loaded, or is of another version.
    """
    loaded = ctypes.CDLL(str(file))
    loaded.mile_kernel_name.restype = loaded.mile_use_kernel.restype = ctypes.c_char_p
    loaded.mile_use_kernel.argtypes = [ctypes.c_char_p]
    loaded.mile_use_kernel(os.environ.get("MILE_NATIVE", "").encode() or None)
    loaded.mile_use_helpers.argtypes = [ctypes.c_int64]
    for name in PLAIN_FUNCTIONS:
        getattr(loaded, name).restype = ctypes.c_int64
    return loaded


@cache
def plain_library() -> ctypes.CDLL | None:
    """Return the library, or None if there is none, it is switched off, or it cannot be used."""
    if os.environ.get("MILE_NATIVE") == "0" or not FILE.exists():
        return None
    try:
        return open_library(FILE)
    except (OSError, AttributeError):
        return None


class NormalMixtures:
    """Predicts rows by a library, a network, and its draws; arguments of calls are prepared once."""

    def __init__(self, library: ctypes.CDLL, form: NormalForm, draws: WeightedDraws) -> None:
        self._function, self._outputs, self._mixture = library.mile_predict, library.mile_outputs, library.mile_mixture
        self._form = form
        self._kept = (
            np.array(form.sizes, np.int64),
            np.zeros(0, np.int64),
            np.array([form.floor], np.float32),
            np.array([piece.ctypes.data for piece in draws.pieces], np.int64),
            np.array([len(piece) for piece in draws.pieces], np.int64),
            np.array(draws.ends, np.int64),
            np.array(draws.shares, np.float64),
        )
        self._draws = draws  # the pieces must live as long as their addresses
        sizes, image, floor, pieces, counts, ends, shares = map(_pointer, self._kept)
        self._network = (sizes, _count(len(form.sizes)), image, _count(0), _count(form.activation), _count(form.head))
        self._network = (*self._network, floor, pieces, counts, _count(len(draws.pieces)))
        self._groups = (ends, shares, _count(len(draws.ends)))
        self._levels: dict[tuple[float, ...], tuple[np.ndarray, np.ndarray]] = {}
        most = _CELLS // int(draws.ends[-1]) // _ROW_MULTIPLE * _ROW_MULTIPLE
        self.block_rows = int(np.clip(most, _ROW_MULTIPLE, ROWS))

    def summarize(self, x: np.ndarray, levels: Sequence[float] = (), n_threads: int | None = None) -> Summary:
        """Return moments and quantiles of encoded rows (row, feature) in float32.

        Raises
        ------
        MemoryError
            If the kernel gets no memory for a block of rows.
        """
        key = tuple(levels)
        at, normal = self._levels.setdefault(key, _both(key))
        moments, quantiles = np.empty((3, len(x))), np.empty((len(key), len(x)))
        starts = range(0, len(x), self.block_rows)

        def one(start: int) -> None:
            rows = slice(start, start + self.block_rows)
            block = np.ascontiguousarray(x[rows].T, np.float32)
            n_rows = block.shape[1]
            found = np.empty((3 + len(key), n_rows))
            failed = self._function(
                *self._network,
                _pointer(block),
                _count(n_rows),
                *self._groups,
                _pointer(at),
                _pointer(normal),
                _count(len(key)),
                _pointer(found),
                ctypes.c_void_p(found.ctypes.data + 24 * n_rows),
            )
            if failed:
                raise MemoryError(_NO_MEMORY)
            moments[:, rows], quantiles[:, rows] = found[:3], found[3:]

        workers = min(len(starts), n_threads or os.cpu_count() or 1)
        if workers > 1:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(one, starts))
        else:
            for start in starts:
                one(start)
        mean, noise, ignorance = moments
        return Summary(mean, noise, ignorance, quantiles)

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return distribution function and density of each row's mixture at one value y per row.

        Raises
        ------
        MemoryError
            As `summarize`.
        """
        cdf, density = np.empty(len(x)), np.empty(len(x))
        for start in range(0, len(x), self.block_rows):
            rows = slice(start, start + self.block_rows)
            block, at = np.ascontiguousarray(x[rows].T, np.float32), np.array(y[rows], np.float64)
            raw = np.concatenate([self._raw(piece, block) for piece in self._draws.pieces]).astype(np.float64)
            location = np.ascontiguousarray(raw[:, 0].T)
            precision = np.ascontiguousarray(np.exp(-_log_scale(self._form, raw[:, 1].T)))
            below, height = np.empty(len(at)), np.empty(len(at))
            size = (_count(location.shape[0]), _count(location.shape[1]))
            ends = (_pointer(at), _pointer(below), _pointer(height))
            self._mixture(_pointer(location), _pointer(precision), *size, *self._groups, *ends)
            cdf[rows], density[rows] = below, height
        return cdf, density

    def _raw(self, draws: np.ndarray, block: np.ndarray) -> np.ndarray:
        """Return the network's two outputs (draw, output, row)."""
        found, n_rows = np.empty((len(draws), 2, block.shape[1]), np.float32), _count(block.shape[1])
        arguments = (_pointer(draws), _count(len(draws)), _pointer(block), n_rows, _pointer(found))
        if self._outputs(*self._network[:5], *arguments):
            raise MemoryError(_NO_MEMORY)
        return found


def _log_scale(form: NormalForm, raw: np.ndarray) -> np.ndarray:
    """Return log standard deviations, as likelihoods/_links.py has them, which needs JAX."""
    if form.head == 0:
        return np.clip(raw, -_LOG_SCALE_LIMIT, _LOG_SCALE_LIMIT)
    below_limit = -np.logaddexp(-raw, -math.log(_SCALE_LIMIT))
    return 0.5 * np.logaddexp(2.0 * below_limit, 2.0 * math.log(form.floor))


def _both(levels: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return levels, and the quantiles of the standard normal distribution from which a search begins."""
    return np.array(levels, np.float64), np.array([_NORMAL.inv_cdf(level) for level in levels], np.float64)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _count(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)
