"""Checks that hold for every family of likelihoods: density, quantiles, samples and gradients agree."""

import jax
import numpy as np
from scipy import optimize

LEVELS = np.array([1e-6, 1e-3, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 0.999, 1.0 - 1e-6])
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def random_outputs(likelihood, n_rows=7, n_draws=3, scale=1.0, seed=0):
    """Outputs of draws of a network, shape (draw, output, row)."""
    rng = np.random.default_rng(seed)
    return scale * rng.standard_normal((n_draws, likelihood.n_outputs, n_rows))


def check_density_is_the_slope_of_the_cdf(components, rtol=1e-6):
    """Between two quantiles the density integrates to the difference of their levels; so it integrates to one."""
    quantiles = [components.quantile(level) for level in LEVELS]
    for lower, upper, share in zip(quantiles, quantiles[1:], np.diff(LEVELS), strict=False):
        middle, half = 0.5 * (upper + lower), 0.5 * (upper - lower)
        total = sum(
            weight * half * density_of_each(components, middle + half * point)
            for point, weight in zip(_POINTS, _WEIGHTS, strict=True)
        )
        np.testing.assert_allclose(total, share, rtol=rtol)


def density_of_each(components, y):
    """The density of each distribution at a value of its own, shape (draw, row): components take one value a row."""
    return np.stack([components.density(values)[draw] for draw, values in enumerate(y)])


def cdf_of_each(components, y):
    """P(Y <= y) of each distribution at a value of its own."""
    return np.stack([components.cdf(values)[draw] for draw, values in enumerate(y)])


def check_quantiles_invert_the_cdf(components, atol=1e-6):
    """The cdf of a quantile is its level."""
    for level in LEVELS:
        found = cdf_of_each(components, components.quantile(level))
        np.testing.assert_allclose(found, level, rtol=atol, atol=atol * min(level, 1.0 - level))


def check_samples_have_the_moments(components, n_samples=20_000, seed=0):
    """Means and standard deviations of samples are those stated, within five standard errors."""
    rng = np.random.default_rng(seed)
    samples = np.stack([components.sample(rng) for _ in range(n_samples)])
    error = samples.std(axis=0) / np.sqrt(n_samples)
    assert np.all(np.abs(samples.mean(axis=0) - components.mean) <= 5.0 * error)
    fourth = np.mean((samples - samples.mean(axis=0)) ** 4, axis=0)
    variance = samples.var(axis=0)
    error = np.sqrt(np.maximum(fourth - variance**2, 0.0) / n_samples) / (2.0 * np.sqrt(variance))
    assert np.all(np.abs(np.sqrt(variance) - components.std) <= 5.0 * error)


def check_compiled_density(likelihood, outputs, y, rtol=1e-9):
    """The log density in JAX is that of the distributions that predict."""
    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(lambda one: likelihood.log_prob(one, y)))(outputs.astype(np.float64))
    np.testing.assert_allclose(found, likelihood.components(outputs).log_prob(y), rtol=rtol, atol=rtol)


def check_gradients(likelihood, outputs, y, rtol=1e-6, step=1e-5):
    """Derivatives with respect to outputs agree with central differences in float64, and exist in float32."""
    shifts = step * np.eye(likelihood.n_outputs)[:, None, :, None]
    with jax.enable_x64(True):
        density = jax.jit(jax.vmap(jax.vmap(lambda one: likelihood.log_prob(one, y))))
        gradient = jax.jit(jax.vmap(jax.grad(lambda one: likelihood.log_prob(one, y).sum())))(outputs)
        above, below = (np.asarray(density(outputs + sign * shifts)) for sign in (1.0, -1.0))
    expected = np.moveaxis(above - below, 0, 1) / (2.0 * step)
    np.testing.assert_allclose(gradient, expected, rtol=rtol, atol=rtol)
    _, slope = single_precision(likelihood, y)(outputs.astype(np.float32))
    assert np.isfinite(slope).all()


def single_precision(likelihood, y):
    """A compiled function that gives the log density and its derivatives of each of some outputs in float32."""
    y = np.asarray(y, np.float32)

    def density(one):
        values = likelihood.log_prob(one, y)
        return values.sum(), values

    def both(one):
        (_, values), slope = jax.value_and_grad(density, has_aux=True)(one)
        return values, slope

    return jax.jit(jax.vmap(both))


def check_finite_far_out(likelihood, y, reach=1e3):
    """Outputs of a network that has gone astray give finite log densities and derivatives in float32."""
    sizes = np.array([-reach, -50.0, 50.0, reach], np.float32)
    far = sizes[:, None, None, None] * np.eye(likelihood.n_outputs, dtype=np.float32)[:, :, None]
    outputs = np.broadcast_to(far, (*far.shape[:3], len(y))).reshape(-1, likelihood.n_outputs, len(y))
    values, slopes = single_precision(likelihood, y)(outputs)
    assert np.isfinite(values).all(), outputs[~np.isfinite(values).all(axis=1), :, 0]
    assert np.isfinite(slopes).all(), outputs[~np.isfinite(slopes).all(axis=(1, 2)), :, 0]


def check_parameters_are_recovered(likelihood, truth, n_rows=4_000, errors=4.5):
    """The most likely outputs of simulated rows are the true ones, in units of their standard errors."""
    y = likelihood.components(np.broadcast_to(truth[:, None], (1, len(truth), n_rows))).sample(np.random.default_rng(0))

    def loss(outputs):
        repeated = np.broadcast_to(outputs[:, None], (1, len(truth), n_rows))
        return -likelihood.components(repeated).log_prob(y[0]).sum()

    found = optimize.minimize(loss, truth + 0.3, method="BFGS", options={"gtol": 0.05})
    step = 1e-3 * np.eye(len(truth))
    curvature = [
        [
            (loss(found.x + a + b) - loss(found.x + a - b) - loss(found.x - a + b) + loss(found.x - a - b)) / 4e-6
            for b in step
        ]
        for a in step
    ]
    covariance = np.linalg.inv(curvature)
    assert np.all(np.abs(found.x - truth) <= errors * np.sqrt(np.diag(covariance))), (found.x, truth)
    assert np.all(np.diag(covariance) < 0.1)
