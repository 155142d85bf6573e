"""What a fit's chains did: layer by layer, in the space of predictions, chain by chain, with advice in plain words."""

from mile.diagnose.diagnosis import ChainReport, Diagnosis, Group, diagnose

__all__ = ["ChainReport", "Diagnosis", "Group", "diagnose"]
