"""Priors on the flat parameter vector: families of one scale, rules of a scale for each layer, unknown scales."""

from typing import cast

from mile import _registry
from mile._checks import check_number, choose_part
from mile.priors.base import Accelerated, FlatPrior, Layered, NamedPrior, NativePrior, Prior
from mile.priors.hierarchical import Grouped, Hierarchical
from mile.priors.laplace import Laplace
from mile.priors.normal import Normal
from mile.priors.rules import FanIn, PerLayer, Scaled
from mile.priors.student_t import StudentT

__all__ = [
    "Accelerated",
    "FanIn",
    "FlatPrior",
    "Grouped",
    "Hierarchical",
    "Laplace",
    "Layered",
    "NamedPrior",
    "NativePrior",
    "Normal",
    "PerLayer",
    "Prior",
    "Scaled",
    "StudentT",
    "choose_prior",
]


def choose_prior(prior: str | Prior, scale: float = 1.0) -> Prior:
    """Return the prior of a name and a scale; an object is returned as it is, with the scale that it has.

    Raises
    ------
    ValueError
        If there is no such prior, or a scale is given beside an object.
    """
    check_number("prior_scale", scale, positive=True)
    family, given = choose_part(_registry.prior, prior, Prior)
    if given is None:
        return cast(type[NamedPrior], family).of_scale(float(scale))
    if scale != 1.0:
        raise ValueError(f"prior_scale must be 1.0 with a prior object, which has its own scale; got {scale!r}.")
    return given
