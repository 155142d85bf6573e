"""Samplers: each file registers its class, with the presets and the title that belong to it."""

import dataclasses
from collections.abc import Mapping
from typing import cast

from mile import _registry
from mile._checks import check_choice, check_count
from mile.samplers.adjusted import Adjusted
from mile.samplers.auto import MINIBATCHES, STOPPED, Auto, alternatives, with_plan
from mile.samplers.base import Draw, Finished, NamedSampler, Sampler, Tuned, budgets_of, resized
from mile.samplers.mile import Mile
from mile.samplers.naive_mclmc import NaiveMclmc
from mile.samplers.nuts import Nuts
from mile.samplers.pgps import Pgps
from mile.samplers.point import DeepEnsemble
from mile.samplers.split_hmc import SplitHmc
from mile.samplers.stochastic import Stochastic

AUTO = "auto"  # the sampler that suits the time limit
EXACT = "exact"  # the preset without bias
DEFAULT = "default"  # the preset of the estimators

__all__ = [
    "AUTO",
    "DEFAULT",
    "MINIBATCHES",
    "STOPPED",
    "Adjusted",
    "Auto",
    "DeepEnsemble",
    "Draw",
    "Finished",
    "Mile",
    "NaiveMclmc",
    "NamedSampler",
    "Nuts",
    "Pgps",
    "Sampler",
    "SplitHmc",
    "Stochastic",
    "Tuned",
    "alternatives",
    "budgets_of",
    "configure",
    "preset_names",
    "presets_of",
    "resized",
    "title_of",
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
    """Return the sampler of a name, a preset and budgets.

    A sampler object ignores the preset. A budget of None is the preset's, or the object's own; `n_draws` of None never
    exceeds `sampling_steps`. A budget that the sampler does not have is checked and ignored, so that samplers can be
    compared by changing one argument.

    Raises
    ------
    ValueError
        If the name or the preset is unknown, or a budget is impossible.
    """
    if preset == EXACT:
        if sampler not in ("mile", "adjusted"):
            raise ValueError(
                f'preset "exact" means sampler="adjusted", which cannot be combined with {sampler!r}: '
                "choose another preset or leave the sampler out."
            )
        sampler, preset = "adjusted", "paper"
    budgets = {"warmup_steps": warmup_steps, "sampling_steps": sampling_steps, "n_draws": n_draws}
    budgets = {name: check_count(name, value) for name, value in budgets.items() if value is not None}
    if isinstance(sampler, str) and sampler in _registry.sampler:
        presets = presets_of(sampler)
        return _with_budgets(presets[check_choice("preset", preset, presets)], budgets)
    if not hasattr(type(sampler), "phases"):
        raise ValueError(f"sampler must be one of {list(_registry.sampler)} or a sampler object; got {sampler!r}.")
    return _with_budgets(cast(Sampler, sampler), budgets)


def presets_of(name: str) -> Mapping[str, Sampler]:
    """Return the presets of a named sampler, the estimators' default among them."""
    presets = cast(type[NamedSampler], _registry.sampler[name]).presets()
    return {DEFAULT: presets["paper"], **presets}


def preset_names() -> list[str]:
    """Return the names of all presets of all samplers."""
    return sorted({EXACT}.union(*(presets_of(name) for name in _registry.sampler)))


def title_of(sampler: str) -> str:
    """Return the title of a named sampler on pages and in tables; one that is not registered keeps its name."""
    return cast(type[NamedSampler], _registry.sampler[sampler]).title if sampler in _registry.sampler else sampler


def _with_budgets(configured: Sampler, budgets: Mapping[str, int]) -> Sampler:
    if isinstance(configured, Auto):
        return dataclasses.replace(
            configured,
            full=_with_budgets(configured.full, budgets),
            stochastic=_with_budgets(configured.stochastic, budgets),
        )
    known = {field.name for field in dataclasses.fields(configured)}
    given = {name: value for name, value in budgets.items() if name in known}
    if "sampling_steps" in given:
        given.setdefault("n_draws", min(configured.n_draws, given["sampling_steps"]))
    return dataclasses.replace(configured, **given)
