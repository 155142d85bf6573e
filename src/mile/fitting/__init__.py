"""The pipeline: data, network and prior become a posterior, a deep ensemble, tuned chains and their draws."""

from mile.fitting.job import fit
from mile.fitting.result import Fit

__all__ = ["Fit", "fit"]
