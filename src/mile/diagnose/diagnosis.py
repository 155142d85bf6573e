"""What a fit's chains did: layer by layer, in the space of predictions, chain by chain, with advice in plain words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from mile._errors import Status
from mile.diagnose import convergence
from mile.fitting.result import Fit
from mile.networks import places
from mile.storage import StoredDraws

_LARGEST_CELLS = 12_000_000  # draws x quantities of a group that are looked at; beyond, an even selection of quantities
_FUNCTION_ROWS = 50  # rows at which predictions are followed
_BLOCK_CELLS = 4_000_000  # that the statistics work on at a time
_ENERGY_TAIL = 0.999  # quantile of the energy error that is reported
_READ_ROWS = 1_024  # draws read from disk at a time

_PREDICTIONS = "predictions: "  # how the names of their groups begin

# When to warn. The virial limits are for parameters of a chain in equilibrium, whose ratio is 1.
_VIRIAL_MEDIAN = (0.5, 1.5)
_VIRIAL_LARGE, _VIRIAL_LARGE_SHARE = 3.0, 0.05
_DRIFT = 1.1  # chainwise R-hat of predictions
_FEWEST_EFFECTIVE = 20.0  # draws of one chain, of predictions
_BAD_SHARE = 0.01
_SHORT_TRAVEL = 10.0  # decoherence lengths
_ENERGY_EXCESS = 10.0  # realized over wanted energy variance
_FEWEST_DRAWS = 16


class Group(NamedTuple):
    """Quantities that are judged together: the weights of a layer, or predictions."""

    name: str
    n_quantities: int  # in all; the statistics are of an even selection if that is many
    ess: Float[np.ndarray, "chain quantity"]  # of each chain alone
    rhat: Float[np.ndarray, "chain quantity"]  # chainwise: of each chain alone, in four pieces
    pooled_ess: Float[np.ndarray, " quantity"]
    pooled_rhat: Float[np.ndarray, " quantity"]
    between: Float[np.ndarray, " quantity"]  # variance of the chains' means
    within: Float[np.ndarray, " quantity"]  # mean of the chains' variances
    virial: Float[np.ndarray, "chain quantity"] | None  # -Cov(parameter, gradient), 1 in equilibrium; None: predictions


class ChainReport(NamedTuple):
    """How one chain fared."""

    chain: int
    status: Status
    replaced: bool
    epochs: int
    step_size: float
    L: float
    travel: float  # distance in units of L; NaN for methods without one
    bad_steps: int  # not finite and reverted, all phases
    energy_variance: float  # realized while sampling, per dimension
    energy_tail: float  # 99.9 % quantile of the squared energy change per dimension, of the kept draws
    virial: float  # median over parameters


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """Diagnostics of a fit; `groups` are of the good chains, `chains` of all."""

    n_draws: int
    groups: tuple[Group, ...]
    chains: tuple[ChainReport, ...]
    warnings: tuple[str, ...]

    def table(self) -> list[dict[str, str | float | None]]:
        """Return one row of plain numbers per group, medians over chains and quantities unless they say otherwise."""
        return [
            {
                "group": group.name,
                "quantities": group.n_quantities,
                "ess_per_chain": _median(group.ess),
                "smallest_ess_per_chain": _extreme(group.ess, np.min),
                "chainwise_rhat": _median(group.rhat),
                "largest_chainwise_rhat": _extreme(group.rhat, np.max),
                "pooled_ess": _median(group.pooled_ess),
                "pooled_rhat": _median(group.pooled_rhat),
                "between_variance": _median(group.between),
                "within_variance": _median(group.within),
                "virial": None if group.virial is None else _median(group.virial),
            }
            for group in self.groups
        ]


def diagnose(fit: Fit, x: Float[np.ndarray, "row feature"] | None = None) -> Diagnosis:
    """Judge the chains of a fit.

    Parameters
    ----------
    fit
        As `mile.fit` returns it, or `model.fit_`.
    x
        Rows at which predictions are followed from draw to draw. Without them only weights are judged, which says
        little: different weights can be the same function.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from mile import MileRegressor
    >>> from mile.diagnose.diagnosis import diagnose
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X, y)
    >>> [row["group"] for row in diagnose(model.fit_, X).table()]
    ['layer 1', 'layer 2', 'layer 3', 'predictions: location', 'predictions: log scale']
    """
    groups = [_weights(fit, name, where) for name, where in _layers(fit).items()]
    if x is not None and fit.encoder.takes_tables:
        x, fit = fit.encoder.transform(x), fit.for_encoded
    if x is not None and len(x):
        groups += _predictions(fit, np.asarray(x))
    chains = tuple(_chain(fit, row) for row in range(len(fit.status)))
    return Diagnosis(
        n_draws=fit.chains.logdensity.shape[1],
        groups=tuple(groups),
        chains=chains,
        warnings=tuple(_warnings(fit, groups, chains)),
    )


def _layers(fit: Fit) -> dict[str, slice]:
    """Return where each layer's parameters are."""
    layers = fit.network.layers
    return dict(zip((layer.name for layer in layers), places(layers), strict=True))


def _weights(fit: Fit, name: str, where: slice) -> Group:
    ok = fit.ok
    n_cells = int(ok.sum()) * fit.chains.logdensity.shape[1]
    size = where.stop - where.start
    count = int(np.clip(_LARGEST_CELLS // n_cells, 1, size))
    chosen = where.start + np.linspace(0, size - 1, count).astype(int)
    draws = np.stack([_columns(fit.chains.draws, chain, chosen) for chain in np.flatnonzero(ok).tolist()])
    virial = fit.chains.virial
    return _group(name, size, draws, None if virial is None else virial[ok][:, chosen])


def _columns(draws: np.ndarray | StoredDraws, chain: int, chosen: np.ndarray) -> np.ndarray:
    """Return some coordinates of a chain's draws, which may be on disk."""
    rows = draws.select([chain]).flat if isinstance(draws, StoredDraws) else draws[chain]
    return np.concatenate([rows[start : start + _READ_ROWS][:, chosen] for start in range(0, len(rows), _READ_ROWS)])


def _predictions(fit: Fit, x: np.ndarray) -> list[Group]:
    """Return the quantities that the predictive distribution names, draw by draw."""
    rows = x[np.linspace(0, len(x) - 1, min(len(x), _FUNCTION_ROWS)).astype(int)]
    predictive = fit.predictive(rows, chains=np.flatnonzero(fit.ok).tolist())
    shape = (int(fit.ok.sum()), -1, len(rows))
    return [
        _group(_PREDICTIONS + name, len(rows), values.reshape(shape), None)
        for name, values in predictive.followed().items()
    ]


def _group(name: str, n_quantities: int, draws: np.ndarray, virial: np.ndarray | None) -> Group:
    width = max(1, _BLOCK_CELLS // (draws.shape[0] * draws.shape[1]))
    blocks = [np.asarray(draws[..., start : start + width], float) for start in range(0, draws.shape[-1], width)]
    found = [convergence.mixing(block) for block in blocks]
    joined = (np.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
    return Group(name, n_quantities, *joined, virial=virial)


def _chain(fit: Fit, row: int) -> ChainReport:
    chains, dimension = fit.chains, fit.network.dimension
    last = list(chains.info.values())[-1]
    identifier = int(fit.chain_ids[row])
    squares = np.square(chains.energy_change[row].astype(float)) / dimension

    def number(name: str) -> float:
        return float(last[name][row]) if name in last else float("nan")

    return ChainReport(
        chain=identifier,
        status=fit.status[row],
        replaced=identifier >= len(fit.status),
        epochs=int(fit.members.epochs[row]),
        step_size=number("step_size"),
        L=number("L"),
        travel=number("travel"),
        bad_steps=int(sum(report["bad_steps"][row] for report in chains.info.values() if "bad_steps" in report)),
        energy_variance=number("energy_variance"),
        energy_tail=float(np.quantile(squares, _ENERGY_TAIL)),
        virial=float("nan") if chains.virial is None else float(np.median(chains.virial[row])),
    )


def _warnings(fit: Fit, groups: list[Group], chains: tuple[ChainReport, ...]) -> list[str]:
    """Return one sentence for each problem, with what to do about it."""
    good = [chain for chain in chains if chain.status == Status.OK]
    return [
        *_about_failures(chains),
        *_about_steps(fit, good),
        *_about_predictions(fit, [group for group in groups if group.name.startswith(_PREDICTIONS)]),
        *_about_equilibrium(fit, [group for group in groups if group.virial is not None]),
    ]


def _about_failures(chains: tuple[ChainReport, ...]) -> list[str]:
    replaced = [chain.chain for chain in chains if chain.replaced and chain.status == Status.OK]
    found = []
    if replaced:
        found.append(
            f"{_count(len(replaced), 'chain')} failed and {_were(len(replaced))} replaced by fresh members "
            f"(numbers {_names(replaced)}); if this happens often, look for extreme values in the data or lower "
            "learning_rate."
        )
    for chain in chains:
        if chain.status != Status.OK:
            found.append(
                f"Chain {chain.chain} is left out of the predictions: {chain.status.sentence}; look for extreme values "
                "in the data or lower learning_rate."
            )
    return found


def _about_steps(fit: Fit, good: list[ChainReport]) -> list[str]:
    n_steps = sum(phase.n_steps for phase in fit.sampler.phases)
    found = []
    bad = [chain.chain for chain in good if chain.bad_steps > _BAD_SHARE * n_steps]
    if bad:
        found.append(
            f"In {_count(len(bad), 'chain')} (numbers {_names(bad)}) more than 1 % of the steps were not finite and "
            "were reverted; lower learning_rate, which is also the first step size."
        )
    slow = [chain.chain for chain in good if chain.travel < _SHORT_TRAVEL]
    if slow:
        found.append(
            f"{_count(len(slow), 'chain')} (numbers {_names(slow)}) went less than {_SHORT_TRAVEL:g} decoherence "
            "lengths while sampling, so the draws are nearly one draw; give more sampling_steps."
        )
    schedule = fit.sampler.energy_schedule
    realized = np.median([chain.energy_variance for chain in good])
    if schedule is not None and realized > _ENERGY_EXCESS * schedule.end:
        found.append(
            f"The realized energy variance per dimension, {realized:.2g}, is far above the wanted {schedule.end:g}: "
            'the steps are coarse for this posterior; use preset="accurate" if the posterior itself matters.'
        )
    return found


def _about_predictions(fit: Fit, groups: list[Group]) -> list[str]:
    n_draws = fit.chains.logdensity.shape[1]
    if fit.sampler.gradient_evaluations() == 0:
        return []  # an ensemble does not sample
    if n_draws < _FEWEST_DRAWS:
        return [f"With {n_draws} draws a chain, diagnostics say little; give a larger n_draws."]
    found = []
    drifting = [_spoken(group) for group in groups if _median(group.rhat) > _DRIFT]
    if drifting:
        found.append(
            f"Chains still drift in the {' and the '.join(drifting)} (median chainwise R-hat above {_DRIFT:g}); give "
            "more warmup_steps and sampling_steps."
        )
    few = [_spoken(group) for group in groups if _median(group.ess) < _FEWEST_EFFECTIVE]
    if few:
        found.append(
            f"A chain's {n_draws:,} draws are worth fewer than {_FEWEST_EFFECTIVE:g} independent ones for the "
            f"{' and the '.join(few)}; give more sampling_steps, or more chains."
        )
    return found


def _about_equilibrium(fit: Fit, groups: list[Group]) -> list[str]:
    if not groups:
        return []
    ratios = np.concatenate([np.ravel(group.virial) for group in groups if group.virial is not None])
    median, large = float(np.median(ratios)), float(np.mean(ratios > _VIRIAL_LARGE))
    found = []
    if median < _VIRIAL_MEDIAN[0]:
        found.append(
            f"The median virial ratio of the weights is {median:.2f} where 1 is equilibrium: the chains have not "
            "explored their surroundings fully and weight variances are too small; give more steps or use "
            'preset="accurate".'
        )
    elif median > _VIRIAL_MEDIAN[1] or large > _VIRIAL_LARGE_SHARE:
        found.append(
            f"The virial ratio of the weights is {median:.2f} in the median, above {_VIRIAL_LARGE:g} for "
            f"{100 * large:.0f} % of them, where 1 is equilibrium: large steps inflate the posterior; use "
            'preset="accurate" if that matters.'
        )
    return found


def _spoken(group: Group) -> str:
    """Return a group of predictions as a sentence calls it."""
    return group.name.replace(_PREDICTIONS, "predicted ")


def _median(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")


def _extreme(values: np.ndarray, choose: Callable[[np.ndarray], float]) -> float:
    known = values[np.isfinite(values)]
    return float(choose(known)) if known.size else float("nan")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _names(chains: list[int]) -> str:
    return ", ".join(map(str, chains))
