"""All samplers, in one table."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from mile._checks import check_choice, check_count
from mile.samplers import adjusted as _adjusted
from mile.samplers import mile as _mile
from mile.samplers import naive_mclmc as _naive_mclmc
from mile.samplers import nuts as _nuts
from mile.samplers import pgps as _pgps
from mile.samplers import split_hmc as _split_hmc
from mile.samplers import stochastic as _stochastic
from mile.samplers.adjusted import Adjusted
from mile.samplers.auto import MINIBATCHES, Auto, with_plan
from mile.samplers.base import Draw, Finished, Sampler, Tuned
from mile.samplers.mile import Mile
from mile.samplers.naive_mclmc import NaiveMclmc
from mile.samplers.nuts import Nuts
from mile.samplers.pgps import Pgps
from mile.samplers.point import DeepEnsemble
from mile.samplers.split_hmc import SplitHmc
from mile.samplers.stochastic import Stochastic

# Name of a sampler -> its presets. The first preset of each is what its paper used, and what "default" stands for
# where there is no other.
SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    "mile": _mile.PRESETS,
    "adjusted": _adjusted.PRESETS,
    "stochastic": _stochastic.PRESETS,
    "nuts": _nuts.PRESETS,
    "naive_mclmc": _naive_mclmc.PRESETS,
    "split_hmc": _split_hmc.PRESETS,
    "pgps": _pgps.PRESETS,
    "deep_ensemble": dict.fromkeys(_mile.PRESETS, DeepEnsemble()),
}
# What pages and tables call them; a sampler of the user's own has its name.
TITLES: Mapping[str, str] = {
    "mile": "MILE",
    "adjusted": "adjusted MCLMC",
    "stochastic": "stochastic MILE",
    "nuts": "NUTS",
    "naive_mclmc": "naive MCLMC",
    "split_hmc": "split HMC",
    "pgps": "PGPS",
    "deep_ensemble": "deep ensemble",
}
# Words that stand for a choice among them: the sampler that suits the time limit, and the preset without bias.
AUTO, EXACT = "auto", "exact"
DEFAULT = "default"  # the preset of the estimators
PRESETS = (*_mile.PRESETS, EXACT)

# What files may name.
KINDS: Mapping[str, Any] = {name: type(presets["paper"]) for name, presets in SAMPLERS.items()} | {AUTO: Auto}

__all__ = [
    "AUTO",
    "DEFAULT",
    "KINDS",
    "MINIBATCHES",
    "PRESETS",
    "SAMPLERS",
    "TITLES",
    "Adjusted",
    "Auto",
    "DeepEnsemble",
    "Draw",
    "Finished",
    "Mile",
    "NaiveMclmc",
    "Nuts",
    "Pgps",
    "Sampler",
    "SplitHmc",
    "Stochastic",
    "Tuned",
    "configure",
    "with_plan",
]


def configure(
    sampler: str | Sampler,
    preset: str = "paper",
    *,
    warmup_steps: int | None = None,
    sampling_steps: int | None = None,
    n_draws: int | None = None,
) -> Sampler:
    """Return the sampler that a name, a preset and budgets stand for.

    A sampler object stands for itself, whatever the preset. Budgets left at None are the preset's or
    the object's own; `n_draws` left at None never exceeds `sampling_steps`. A budget that the sampler has
    no use for is checked and ignored, so that samplers can be compared by changing one argument.

    Raises
    ------
    ValueError
        If the name or the preset is unknown, or a budget is impossible.
    """
    if preset == EXACT:
        if not isinstance(sampler, str) or sampler not in ("mile", "adjusted"):
            raise ValueError(
                f'preset "exact" stands for sampler="adjusted", which cannot be combined with {sampler!r}: '
                "choose another preset or leave the sampler out."
            )
        sampler, preset = "adjusted", "paper"
    budgets = {"warmup_steps": warmup_steps, "sampling_steps": sampling_steps, "n_draws": n_draws}
    budgets = {name: check_count(name, value) for name, value in budgets.items() if value is not None}
    if isinstance(sampler, str) and sampler in (*SAMPLERS, AUTO):
        check_choice("preset", preset, PRESETS)
        if sampler != AUTO:
            return _with_budgets(_preset(sampler, preset), budgets)
        full, stochastic = (_with_budgets(_preset(name, preset), budgets) for name in ("mile", "stochastic"))
        return Auto(full=full, stochastic=stochastic)
    if not hasattr(type(sampler), "phases"):
        raise ValueError(f"sampler must be one of {sorted((*SAMPLERS, AUTO))} or a sampler object; got {sampler!r}.")
    return _with_budgets(sampler, budgets)


def _preset(sampler: str, name: str) -> Any:
    presets = SAMPLERS[sampler]
    return presets["paper"] if name == DEFAULT and name not in presets else presets[name]


def _with_budgets(configured: Any, budgets: dict[str, int]) -> Any:
    known = {field.name for field in dataclasses.fields(configured)}
    given = {name: value for name, value in budgets.items() if name in known}
    if "sampling_steps" in given:
        given.setdefault("n_draws", min(configured.n_draws, given["sampling_steps"]))
    return dataclasses.replace(configured, **given)
