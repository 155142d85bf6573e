"""Likelihoods: what the network's outputs say about y, and the distributions that predict it; one file a family."""

from mile.likelihoods._links import LOG_SCALE_LIMIT
from mile.likelihoods._rounding import refuse_extreme, refuse_rounded
from mile.likelihoods.base import AbstractLikelihood, AbstractPredictive, AbstractResponse
from mile.likelihoods.categorical import Categorical, ClassPredictive, LabeledResponse
from mile.likelihoods.components import AbstractComponents
from mile.likelihoods.gamma import Gamma
from mile.likelihoods.gaussian import Gaussian
from mile.likelihoods.lognormal import LogNormal
from mile.likelihoods.numbers import AbstractNumberLikelihood, Predictive, ScaledResponse
from mile.likelihoods.positive import AbstractPositive
from mile.likelihoods.weibull import Weibull

__all__ = [
    "LOG_SCALE_LIMIT",
    "AbstractComponents",
    "AbstractLikelihood",
    "AbstractNumberLikelihood",
    "AbstractPositive",
    "AbstractPredictive",
    "AbstractResponse",
    "Categorical",
    "ClassPredictive",
    "Gamma",
    "Gaussian",
    "LabeledResponse",
    "LogNormal",
    "Predictive",
    "ScaledResponse",
    "Weibull",
    "refuse_extreme",
    "refuse_rounded",
]
