"""Several fitted models beside each other: scores of the same rows, and paired differences with standard errors."""

from mile.comparison.candidates import Candidate, by_left_out_rows, by_rows
from mile.comparison.result import Comparison, compare_candidates

__all__ = ["Candidate", "Comparison", "by_left_out_rows", "by_rows", "compare_candidates"]
