"""The pipeline: data, network and prior become a posterior, a deep ensemble, tuned chains and their draws."""

from mile.fitting.result import Fit
from mile.fitting.running import fit

__all__ = ["Fit", "fit"]
