"""Parts of path-guided particle sampling: the densities of its path, the field that follows them, the cloud."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from mile._types import Count, Key, Number, Position, Scalar, Target

Particles = Float[Array, "particle d"]
PerParticle = Float[Array, " particle"]
Finite = Bool[Array, " particle"]

_LONGEST_DRIFT = 4.0  # of a Langevin step, times the noise; see `Langevin`


class Slope(NamedTuple):
    """A density of the path at one particle: its logarithm, and the derivatives of that in position and in t."""

    logdensity: Float[Array, "*particle"]
    gradient: Float[Array, "*particle d"]
    rate: Float[Array, "*particle"]


class Ends(NamedTuple):
    """The target at a particle, and what the derivative in t has of it, which may be of other rows."""

    value: Scalar
    gradient: Position
    rate_value: Scalar
    rate_gradient: Position


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["start_scale", "start_widening", "target_shrinkage"],
    meta_fields=["batch_size", "rescale_batches", "own_batches", "softmax_twice", "accumulate_gradients"],
)
@dataclass(frozen=True, kw_only=True)
class Route:
    """Densities p_t from the normal p_0 to the target p_1 (log-weighted shrinkage, Fan et al. 2024, section 4.1).

    With b = beta + (1 - beta) t it is log p_t(x) = (1 - t) log p_0((1 - alpha t) x) + t log p_1(x / b).
    """

    start_scale: Number
    start_widening: Number  # alpha
    target_shrinkage: Number  # beta
    batch_size: int
    rescale_batches: bool
    own_batches: bool = False
    softmax_twice: bool = False
    accumulate_gradients: bool = False

    def slope(self, position: Position, time: Number, target: Target) -> Slope:
        """Return p_t at one particle, without the constants of p_0 and p_1."""
        value, gradient = target.value_and_grad(position / self._shrinkage(time))
        return self._slope(position, time, Ends(value, gradient, value, gradient))

    def _shrinkage(self, time: Number) -> Number:
        return self.target_shrinkage + (1.0 - self.target_shrinkage) * time

    def _slope(self, position: Position, time: Number, ends: "Ends") -> Slope:
        """Put p_t together from what is known of the target."""
        alpha, beta = self.start_widening, self.target_shrinkage
        widening, shrinkage = 1.0 - alpha * time, self._shrinkage(time)
        start_gradient = -widening * position / self.start_scale**2
        start = 0.5 * widening * (position @ start_gradient)
        start_rate = -start - alpha * (1.0 - time) * (position @ start_gradient)
        end_rate = ends.rate_value - (1.0 - beta) * time / shrinkage**2 * (position @ ends.rate_gradient)
        return Slope(
            logdensity=(1.0 - time) * start + time * ends.value,
            gradient=(1.0 - time) * widening * start_gradient + time / shrinkage * ends.gradient,
            rate=start_rate + end_rate,
        )

    def slopes(self, particles: Particles, time: Number, target: Target) -> tuple[Slope, Finite]:
        """Return p_t at each particle by the same rows, and where it is finite."""
        return _with_finite(jax.vmap(lambda position: self.slope(position, time, target))(particles))

    def slopes_by_batches(
        self,
        key: Key,
        particles: Particles,
        time: Number,
        target: Target,
        sums: Particles | None = None,
        *,
        for_field: bool,
    ) -> tuple[Slope, Finite, Number, Particles | None]:
        """Return p_t at each particle by what one step sees of the rows, where it is finite, and the share of the rows.

        With `own_batches` each particle draws its rows. `for_field`: the rate is needed, whose value and whose gradient
        draw rows anew, as they do in the original. The last result is `sums` with the gradients of this step.
        """
        if self.softmax_twice:
            target = target.with_softmax_twice()
        if not self.own_batches:
            batch, share = self.batch(key, target)
            return *self.slopes(particles, time, batch), share, sums

        def of_particle(key: Key, position: Position, summed: Position | None) -> tuple[Slope, Position | None]:
            keys, place = jax.random.split(key, 3), position / self._shrinkage(time)
            value, gradient = self._own_rows(keys[0], target).value_and_grad(place)
            if summed is None and not for_field:
                return self._slope(position, time, Ends(value, gradient, value, gradient)), None
            rate_gradient = self._own_rows(keys[1], target).value_and_grad(place)[1]
            if summed is not None:
                prior = target.prior_gradient(place)
                once = summed + gradient - prior
                summed = once + rate_gradient - prior
                gradient, rate_gradient = once + prior, summed + prior
            rate_value = self._own_rows(keys[2], target).logdensity(place) if for_field else value
            return self._slope(position, time, Ends(value, gradient, rate_value, rate_gradient)), summed

        found, summed = jax.vmap(of_particle)(jax.random.split(key, len(particles)), particles, sums)
        slope, finite = _with_finite(found)
        if sums is not None and summed is not None:
            sums = jnp.where(finite[:, None], summed, sums)
        n_gradients = 1.0 if sums is None else 2.0  # each on its own rows
        return slope, finite, n_gradients * target.random_share(self.batch_size), sums

    def _own_rows(self, key: Key, target: Target) -> Target:
        return target.random_rows(key, self.batch_size, scaled=self.rescale_batches)

    def batch(self, key: Key, target: Target) -> tuple[Target, Number]:
        """Return the target as one step of all particles sees it, and which share of the rows that is."""
        order, first = target.shuffled(key), jnp.zeros((), jnp.int32)
        batch = target.minibatch(order, first, self.batch_size, scaled=self.rescale_batches)
        return batch, 1.0 if batch is target else target.minibatch_share(self.batch_size)


def _with_finite(found: Slope) -> tuple[Slope, Finite]:
    return found, jnp.isfinite(found.logdensity + found.rate + jnp.sum(found.gradient, axis=1))


class Field(NamedTuple):
    """The vector field phi: a network with one hidden layer of sigmoid units."""

    inner: Float[Array, "d width"]
    inner_bias: Float[Array, " width"]
    outer: Float[Array, "width d"]
    outer_bias: Float[Array, " d"]

    def at(self, particles: Particles) -> tuple[Particles, PerParticle]:
        """Return the field at each particle, and its exact divergence."""
        hidden = jax.nn.sigmoid(particles @ self.inner + self.inner_bias)
        products = jnp.sum(self.inner * self.outer.T, axis=0)  # of each unit: what goes in times what comes out
        return hidden @ self.outer + self.outer_bias, (hidden * (1.0 - hidden)) @ products


def init_field(key: Key, width: int, like: Position) -> Field:
    """Draw weights and biases uniformly within one over the root of the fan-in, as PyTorch does for the original."""
    dimension = like.shape[0]
    keys = jax.random.split(key, 4)

    def draw(index: int, fan_in: int, *shape: int) -> Array:
        return jax.random.uniform(keys[index], shape, like.dtype, -(fan_in**-0.5), fan_in**-0.5)

    return Field(
        inner=draw(0, dimension, dimension, width),
        inner_bias=draw(1, dimension, width),
        outer=draw(2, width, width, dimension),
        outer_bias=draw(3, width, dimension),
    )


def field_loss(field: Field, particles: Particles, slope: Slope, finite: Finite) -> Scalar:
    """Return how far the field is from moving p_t as t does: the mean square of what is left of continuity.

    What is left is phi . grad log p_t + div phi + d/dt log p_t minus the mean of the last, which stands for the change
    of the unknown constant. Particles whose slope is not finite are left out.
    """
    velocity, divergence = field.at(particles)
    gradient = jnp.where(finite[:, None], slope.gradient, 0.0)
    rate = jnp.where(finite, slope.rate - mean_over(slope.rate, finite), 0.0)
    return mean_over(jnp.square(jnp.sum(velocity * gradient, axis=1) + divergence + rate), finite)


FieldTraining = tuple[Field, optax.OptState, Scalar, Scalar]  # and the last loss, the number of updates


def train_field(
    field: Field,
    optimizer: optax.OptState,
    particles: Particles,
    slope: Slope,
    finite: Finite,
    *,
    updates: Count,
    tolerance: Number,
    learning_rate: Number,
) -> FieldTraining:
    """Make at most `updates` steps of Adam, the last when the loss falls below `tolerance`.

    Returns the field and its optimizer, the loss before the last update (infinite without any) and their number.
    An update that is not finite is not made, and ends the training.
    """
    rule = optax.adam(learning_rate)
    dtype = particles.dtype

    def unfinished(state: FieldTraining) -> Array:
        return (state[3] < updates) & (state[2] >= tolerance)  # NaN is not

    def update(state: FieldTraining) -> FieldTraining:
        field, optimizer, _, count = state
        loss, gradient = jax.value_and_grad(field_loss)(field, particles, slope, finite)
        change, new_optimizer = rule.update(gradient, optimizer, field)
        new_field = optax.apply_updates(field, change)
        is_finite = jnp.isfinite(sum(jnp.sum(leaf) for leaf in (loss, *gradient)))
        field, optimizer = jax.tree.map(
            lambda new, old: jnp.where(is_finite, new, old), (new_field, new_optimizer), (field, optimizer)
        )
        return field, optimizer, jnp.where(is_finite, loss, jnp.nan), count + 1.0

    start = (field, optimizer, jnp.full((), jnp.inf, dtype), jnp.zeros((), dtype))
    return jax.lax.while_loop(unfinished, update, start)


def mean_over(values: PerParticle, where: Finite) -> Scalar:
    """Return the mean over some particles; NaN if there are none."""
    return jnp.sum(jnp.where(where, values, 0.0)) / jnp.sum(where)


class CloudTally(NamedTuple):
    """Where the cloud began, and what is counted in a phase."""

    start_logdensity: Scalar  # median over particles; NaN if one of them is not finite
    gradients: Scalar  # in units of all rows; floats, because an int32 may overflow
    moves: Scalar
    reverted: Scalar
    limited: Scalar


class Cloud(NamedTuple):
    """All particles; `safe` is where each last had a finite density and gradient."""

    particles: Particles
    safe: Particles
    time: Scalar
    field: Field
    optimizer: optax.OptState
    tally: CloudTally
    sums: Particles | None = None  # of the likelihood's gradients, where they accumulate


@partial(jax.tree_util.register_dataclass, data_fields=["step_size"], meta_fields=["limit_drift"])
@dataclass(frozen=True, kw_only=True)
class Langevin:
    """Unadjusted Langevin steps of all particles on p_t.

    In equilibrium the drift has mean square step_size^2 tr H, H the curvature: wherever the step is stable, less than
    2 step_size d, as the noise has. `limit_drift` cuts what is several times as long: a step far too long for its
    place, which would otherwise be thrown farther at each return.
    """

    step_size: Number
    limit_drift: bool

    def step(self, key: Key, cloud: Cloud, route: Route, target: Target) -> tuple[Cloud, Scalar]:
        """Move each particle once; return also the mean log density before."""
        batch_key, noise_key = jax.random.split(key)
        slope, finite, share, sums = route.slopes_by_batches(
            batch_key, cloud.particles, cloud.time, target, cloud.sums, for_field=False
        )
        cloud = cloud._replace(sums=sums)
        drift = self.step_size * slope.gradient
        if self.limit_drift:
            longest = _LONGEST_DRIFT * jnp.sqrt(2.0 * self.step_size * drift.shape[1])
            excess = jnp.linalg.norm(drift, axis=1) / longest
            drift = drift / jnp.maximum(excess, 1.0)[:, None]
            limited = cloud.tally.limited + jnp.sum(finite & (excess > 1.0))
            cloud = cloud._replace(tally=cloud.tally._replace(limited=limited))
        noise = jax.random.normal(noise_key, drift.shape, drift.dtype)
        moved = cloud.particles + drift + jnp.sqrt(2.0 * self.step_size) * noise
        return move(remember(cloud, finite), moved, finite, share), mean_over(slope.logdensity, finite)


def remember(cloud: Cloud, finite: Finite) -> Cloud:
    """Store the positions of the particles whose density is finite."""
    return cloud._replace(safe=jnp.where(finite[:, None], cloud.particles, cloud.safe))


def move(cloud: Cloud, moved: Particles, allowed: Finite, share: Number) -> Cloud:
    """Move each particle, or put it back where its density was last finite; count both, and a gradient for each."""
    good = allowed & jnp.isfinite(jnp.sum(moved, axis=1))
    n_particles, tally = len(moved), cloud.tally
    gradients = tally.gradients + n_particles * share
    tally = tally._replace(
        gradients=gradients.astype(tally.gradients.dtype),
        moves=tally.moves + n_particles,
        reverted=tally.reverted + jnp.sum(~good),
    )
    return cloud._replace(particles=jnp.where(good[:, None], moved, cloud.safe), tally=tally)
