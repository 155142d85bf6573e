"""A forecast of the time, memory and disk space that a fit takes."""

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mile._compilation import use_compilation_cache
from mile._deadline import Deadline
from mile.data.dataset import Dataset
from mile.ensemble.members import train_members
from mile.ensemble.training import Patience, Training
from mile.execution import InProcess
from mile.fitting.job import plan
from mile.likelihoods import AbstractLikelihood
from mile.networks.base import Network
from mile.priors import Prior
from mile.samplers import Sampler
from mile.sampling.chains import time_step
from mile.sampling.timing import expected_memory

_PROBE_EPOCHS = 10  # that are timed


class Forecast(NamedTuple):
    """Time, memory and disk space of a fit."""

    training_seconds: float  # at most; early stopping saves some of it
    sampling_seconds: float
    memory_bytes: int  # of the process, besides the draws
    draw_bytes: int  # in memory without a run directory, otherwise on disk
    disk_bytes: int  # of a run directory
    gradient_evaluations: int
    n_weights: int


def forecast_fit(
    dataset: Dataset,
    network: Network,
    likelihood: AbstractLikelihood,
    prior: Prior | None = None,
    sampler: Sampler | None = None,
    *,
    training: Training | None = None,
    n_chains: int = 12,
    temperature: float = 1.0,
    stacking: str = "none",
    stop_when: str | None = None,
) -> Forecast:
    """Forecast what `fit` with the same arguments takes at most, after timing a few epochs and steps.

    Examples
    --------
    >>> import numpy as np
    >>> from mile import MLP, Dataset, Gaussian, Mile, forecast_fit
    >>> rng = np.random.default_rng(0)
    >>> dataset = Dataset.from_arrays(rng.normal(size=(100, 3)), rng.normal(size=100))
    >>> expected = forecast_fit(dataset, MLP(n_inputs=3), Gaussian(), sampler=Mile(), n_chains=2)
    >>> expected.gradient_evaluations
    240002
    """
    use_compilation_cache()
    job = plan(dataset, network, likelihood, prior, sampler, training, n_chains, 0, temperature, stacking, stop_when)
    learning, validation, sampling = job.own_rows(job.posterior(), np.arange(n_chains))
    backend = InProcess()
    n_timed = min(n_chains, backend.n_workers * backend.width)
    n_rounds = -(-n_chains // n_timed)
    probe = replace(job.training, max_epochs=_PROBE_EPOCHS, stopping=Patience(epochs=_PROBE_EPOCHS + 1))
    for _ in range(2):  # the first time also compiles
        began = time.perf_counter()
        members = train_members(learning, validation, probe, range(n_timed), seed=0)
        epoch_seconds = (time.perf_counter() - began) / _PROBE_EPOCHS
    sampling_seconds = 0.0
    if job.sampler.gradient_evaluations():
        positions = np.resize(members.positions, (n_chains, network.dimension))
        target = sampling.tempered(temperature)
        sampling_seconds = time_step(job.sampler, target, positions, seed=0, deadline=Deadline()).seconds_left(0, 0)
    n_bytes = sum(array.nbytes for array in dataset.arrays().values())
    return Forecast(
        training_seconds=n_rounds * job.training.max_epochs * epoch_seconds,
        sampling_seconds=sampling_seconds,
        memory_bytes=expected_memory(0) or 0,
        draw_bytes=job.draw_bytes,
        disk_bytes=job.draw_bytes + n_bytes,
        gradient_evaluations=n_chains * job.sampler.gradient_evaluations(),
        n_weights=network.dimension,
    )
