"""Likelihoods: what the network's outputs say about y, and the distributions that predict it; one file a family."""

from mile.likelihoods._links import LOG_SCALE_LIMIT
from mile.likelihoods._rounding import refuse_extreme, refuse_rounded
from mile.likelihoods.base import AbstractLikelihood, AbstractPredictive, AbstractResponse
from mile.likelihoods.categorical import Categorical, ClassPredictive, LabeledResponse
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.gaussian import Gaussian
from mile.likelihoods.numbers import AbstractNumberLikelihood, Predictive, ScaledResponse

__all__ = [
    "LOG_SCALE_LIMIT",
    "AbstractComponents",
    "AbstractLikelihood",
    "AbstractNumberLikelihood",
    "AbstractPredictive",
    "AbstractResponse",
    "Categorical",
    "ClassPredictive",
    "Gaussian",
    "LabeledResponse",
    "Predictive",
    "ScaledResponse",
    "refuse_extreme",
    "refuse_rounded",
]
