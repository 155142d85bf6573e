"""The one sampling loop: all chains advance through a sampler's phases in compiled blocks driven from the host."""

from mile.sampling.chains import Chains
from mile.sampling.log_density import sample

__all__ = ["Chains", "sample"]
