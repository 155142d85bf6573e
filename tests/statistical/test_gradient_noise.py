"""Mini-batch MCLMC under gradient noise of known size: where it is exact, and where it is known to fail.

Seeds are fixed; the probabilities in the docstrings are those of a failure with another seed.
"""

import numpy as np
import pytest
from noisy_targets import noisy_normal
from targets import squared_bias

from mile.samplers._step_size import Geometric
from mile.samplers.stochastic import Stochastic
from mile.sampling.chains import run_chains

DIMENSION = 50


def sample(deviations, precondition, n_steps=30_000):
    sampler = Stochastic(
        precondition=precondition,
        schedule=Geometric(),
        noise_share=1.0,  # the noise is all there is
        step_size=0.1,
        warmup_steps=6_000,
        sampling_steps=n_steps,
        n_draws=n_steps // 3,
    )
    start = np.random.default_rng(0).standard_normal((4, DIMENSION)).astype(np.float32)
    chains = run_chains(sampler, noisy_normal(deviations), start, seed=1)
    assert chains.ok.all()
    return chains


@pytest.mark.slow
def test_noise_that_is_the_same_in_all_directions_leaves_the_target_as_it_is():
    """Derivation of SMILE. The turn of a step inflates second moments by 1 %; the limit is 2 %.

    Over chains the mean has a standard deviation of 0.3 %, and there are four. False failure: below 1e-9.
    """
    chains = sample(np.full(DIMENSION, 3.0), precondition=False)
    second = np.square(chains.draws.astype(np.float64)).mean()
    assert abs(second - 1.0) < 0.02
    np.testing.assert_allclose(chains.info["sampling"]["noise"], 3.0, rtol=0.05)
    assert np.all(chains.info["sampling"]["energy_variance"] < 1e-3)


@pytest.mark.slow
def test_noise_that_differs_between_directions_biases_the_naive_chain_and_not_the_preconditioned():
    """Noise with a covariance of condition 100. Measured b2max: 1.9 naive, 0.003 preconditioned.

    With another seed the latter varies by a factor of two. False failure: below 1e-6.
    """
    deviations = np.geomspace(1.0, 10.0, DIMENSION)
    assert squared_bias(sample(deviations, precondition=False).draws).max() > 0.1
    assert squared_bias(sample(deviations, precondition=True).draws).max() < 0.02
