"""Pieces of a number's range, each with a feature, so that a network sees where in the data a number lies.

This is the piecewise linear encoding of Gorishniy et al., "On embeddings for numerical features in tabular deep
learning", 2022: the range is cut at quantiles of the training rows, and the feature of a piece rises over that piece
alone. Here it rises from -1 to 1, and the number itself stays a feature, which tells numbers outside the range apart.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float

MOST_PIECES = 64
Edges = tuple[float, ...]  # rising; one more than there are pieces, or none


def learn_edges(known: Float[np.ndarray, " row"], weight: Float[np.ndarray, " row"], n_pieces: int) -> Edges:
    """Return the ends of at most so many pieces: quantiles, as far as there are enough different numbers.

    A number that more rows have than a piece has on average, such as the zero of an amount that few rows have, is an
    end of its own, and the quantiles are those of the other rows; else most ends would be that number. They are
    training values, so that a weight of two is exactly the row twice. A single piece would say what the number itself
    says: then there are none.
    """
    if n_pieces < 2 or not len(known):
        return ()
    values, group = np.unique(known, return_inverse=True)
    counts = np.bincount(group, weight)
    is_frequent = counts * n_pieces > counts.sum()
    frequent, others, weights = values[is_frequent], values[~is_frequent], counts[~is_frequent]
    levels = np.linspace(0.0, 1.0, n_pieces - len(frequent) + 1)
    quantiles = np.quantile(others, levels, method="inverted_cdf", weights=weights) if len(others) else []
    edges = np.unique(np.append(frequent, quantiles))
    # Pieces are measured by half of each end, because a difference of two finite numbers may be infinite.
    edges = edges[np.append(True, np.diff(edges / 2) > 0)]
    return tuple(map(float, edges)) if len(edges) > 2 else ()


def n_pieces_of(edges: Edges) -> int:
    """Return the number of pieces between the ends."""
    return max(0, len(edges) - 1)


def write_pieces(x: Float[np.ndarray, " row"], edges: Edges, out: Float[np.ndarray, "row piece"]) -> None:
    """Write the feature of each piece: -1 below it, 1 above it, linear between; infinite numbers are fine."""
    ends = np.asarray(edges) / 2
    inside = np.clip(x[:, None] / 2, ends[:-1], ends[1:])
    out[:] = 2 * ((inside - ends[:-1]) / np.diff(ends)) - 1


def piece_labels(edges: Edges) -> tuple[str, ...]:
    """Return what to add to the column's name to name each piece."""
    texts = [f"{edge:g}" for edge in edges]
    if len(set(texts)) < len(texts):
        texts = [repr(edge) for edge in edges]  # they differ beyond six digits
    return tuple(f" ({low} to {high})" for low, high in pairwise(texts))


def are_edges(edges: Sequence[float]) -> bool:
    """Say whether numbers from a file can be ends of pieces."""
    array = np.asarray(edges, np.float64)
    few = len(array) == 0 or 3 <= len(array) <= MOST_PIECES + 1
    return few and bool(np.isfinite(array).all() and (np.diff(array / 2) > 0).all())
