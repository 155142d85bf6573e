"""What a candidate for a preset consists of, as experiment.toml writes it, and the objects that it stands for.

Settings of a candidate, all optional. Where it has none, those of the candidate that `like` names hold, or else those
under [methods.every], which are the paper's:

    hidden = [16, 16]                              # widths of the layers
    activation = "relu"
    prior = "normal 1"                             # "fan_in 1": the number is the family's scale
    warmup_steps = 50_000
    sampling_steps = 10_000
    draws = 1_000
    energy = "linear 0.5-0.1"                      # wanted energy variance; or "geometric 0.5-0.01"
    learning_rate = 1e-3
    patience = 10
    chains = 12
"""

from collections.abc import Mapping
from typing import Any

from catalog import Experiment

from mile import MLP, Mile
from mile.ensemble.training import Patience, Training
from mile.priors import Prior, choose_prior
from mile.samplers.mile import Geometric, Linear

FACTORS = (
    "hidden", "activation", "prior", "warmup_steps", "sampling_steps", "draws", "energy", "learning_rate", "patience",
    "chains",
)  # fmt: skip
_SCHEDULES = {"linear": Linear, "geometric": Geometric}


def settings_of(experiment: Experiment, method: str) -> dict[str, Any]:
    """Return all factors of a candidate."""
    own = dict(experiment.methods.get(method, {}))
    parent = own.pop("like", None if method == "every" else "every")
    return (settings_of(experiment, parent) if parent else {}) | own


def columns_of(settings: Mapping[str, Any]) -> dict[str, object]:
    """Return the factors as columns of a row."""
    return {name: settings[name] for name in FACTORS} | {"hidden": "-".join(map(str, settings["hidden"]))}


def network_of(settings: Mapping[str, Any], n_inputs: int, n_outputs: int) -> MLP:
    """Return the network of a candidate."""
    sizes = {"n_inputs": n_inputs, "hidden": tuple(settings["hidden"]), "n_outputs": n_outputs}
    return MLP(**sizes, activation=settings["activation"])


def prior_of(settings: Mapping[str, Any]) -> Prior:
    """Return the prior of a candidate."""
    name, scale = settings["prior"].split()
    return choose_prior(name, float(scale))


def sampler_of(settings: Mapping[str, Any]) -> Mile:
    """Return the sampler of a candidate."""
    name, ends = settings["energy"].split()
    start, end = map(float, ends.split("-"))
    return Mile(
        warmup_steps=settings["warmup_steps"],
        sampling_steps=settings["sampling_steps"],
        n_draws=settings["draws"],
        schedule=_SCHEDULES[name](start=start, end=end),
    )


def training_of(settings: Mapping[str, Any]) -> Training:
    """Return how the members of a candidate are trained."""
    return Training(learning_rate=settings["learning_rate"], stopping=Patience(epochs=settings["patience"]))
