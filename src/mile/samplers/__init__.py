"""All samplers, in one table."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from mile._checks import check_choice, check_count
from mile.samplers import mile as _mile
from mile.samplers import nuts as _nuts
from mile.samplers._phases import LengthRecord, TuningRecord
from mile.samplers.base import Draw, Finished, Sampler, Tuned
from mile.samplers.mile import Mile
from mile.samplers.nuts import AdaptationRecord, Nuts
from mile.samplers.point import DeepEnsemble

# Name of a sampler -> its presets. The first preset of each is what its paper used.
SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    "mile": _mile.PRESETS,
    "nuts": _nuts.PRESETS,
    "deep_ensemble": dict.fromkeys(_mile.PRESETS, DeepEnsemble()),
}

# What files may name: the classes of the table, and what phases record.
KINDS: Mapping[str, Any] = {name: type(presets["paper"]) for name, presets in SAMPLERS.items()}
RECORDS: tuple[Any, ...] = (TuningRecord, LengthRecord, AdaptationRecord, Draw)

__all__ = [
    "KINDS",
    "RECORDS",
    "SAMPLERS",
    "DeepEnsemble",
    "Draw",
    "Finished",
    "Mile",
    "Nuts",
    "Sampler",
    "Tuned",
    "configure",
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
    configured: Any = sampler
    if isinstance(sampler, str):
        if sampler not in SAMPLERS:
            raise ValueError(f"sampler must be one of {sorted(SAMPLERS)} or a sampler object; got {sampler!r}.")
        presets = SAMPLERS[sampler]
        check_choice("preset", preset, presets)
        configured = presets[preset]
    if not hasattr(type(configured), "phases"):
        raise ValueError(f"sampler must be one of {sorted(SAMPLERS)} or a sampler object; got {sampler!r}.")
    budgets = {"warmup_steps": warmup_steps, "sampling_steps": sampling_steps, "n_draws": n_draws}
    budgets = {name: check_count(name, value) for name, value in budgets.items() if value is not None}
    known = {field.name for field in dataclasses.fields(configured)}
    given = {name: value for name, value in budgets.items() if name in known}
    if "sampling_steps" in given:
        given.setdefault("n_draws", min(configured.n_draws, given["sampling_steps"]))
    return dataclasses.replace(configured, **given)
