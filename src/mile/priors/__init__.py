"""Priors on the flat parameter vector: families of one scale, and rules that give each layer a scale of its own."""

from typing import cast

from mile import _registry
from mile._checks import check_number
from mile.priors.base import FlatPrior, Layered, NamedPrior, Prior
from mile.priors.laplace import Laplace
from mile.priors.normal import Normal
from mile.priors.rules import FanIn, PerLayer, Scaled
from mile.priors.student_t import StudentT

__all__ = [
    "FanIn",
    "FlatPrior",
    "Laplace",
    "Layered",
    "NamedPrior",
    "Normal",
    "PerLayer",
    "Prior",
    "Scaled",
    "StudentT",
    "choose_prior",
]


def choose_prior(prior: str | Prior, scale: float = 1.0) -> Prior:
    """Return the prior that a word and a scale stand for; an object stands for itself and has its own scale.

    Raises
    ------
    ValueError
        If there is no such prior, or an object comes with a scale besides.
    """
    check_number("prior_scale", scale, positive=True)
    if isinstance(prior, str) and prior in _registry.prior:
        return cast(type[NamedPrior], _registry.prior[prior]).of_scale(float(scale))
    if isinstance(prior, str | type) or not isinstance(prior, Prior):
        raise ValueError(f"prior must be one of {list(_registry.prior)} or a prior object; got {prior!r}.")
    if scale != 1.0:
        raise ValueError(f"prior_scale must be 1.0 with a prior object, which has its own scale; got {scale!r}.")
    return prior
