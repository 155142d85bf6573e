"""Training and validation rows, encoded for a network, and how they are split."""

from mile.data.dataset import Dataset, prepare
from mile.data.folds import split_rows
from mile.data.rows import Rows

__all__ = ["Dataset", "Rows", "prepare", "split_rows"]
