"""Predictive distributions: every kept draw is one component of a mixture, evaluated in blocks of rows.

Nothing is approximated by random numbers except `sample`: moments, densities and quantiles are those of the
mixture. Rows are processed in padded blocks of one fixed size, so a row's numbers do not depend on its
neighbors, and memory does not depend on the number of rows.
"""

from mile.likelihoods import AbstractPredictive, ClassPredictive, Predictive
from mile.predict._joined import JoinedDraws
from mile.predict._mixture import DEFAULT_MEMORY, DrawMixture, predict

__all__ = [
    "DEFAULT_MEMORY",
    "AbstractPredictive",
    "ClassPredictive",
    "DrawMixture",
    "JoinedDraws",
    "Predictive",
    "predict",
]
