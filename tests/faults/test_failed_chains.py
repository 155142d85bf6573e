"""Chains that fail are counted, named, replaced or left out, and never touch the others (RELIABILITY H2 to H5)."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import number_predictive
from targets import assert_same_bits, small_dataset

import mile
from mile import MLP, DeepEnsemble, FitFailedError, FitWarning, Gaussian, Mile, Status
from mile._random import Stage, stream
from mile._types import Target
from mile.ensemble.training import Training
from mile.fitting import job
from mile.padded_rows import pad_rows
from mile.posterior import FunctionTarget, Posterior
from mile.samplers import _mclmc, _virial
from mile.samplers._phases import MileSampling, MileSamplingPhase
from mile.samplers.base import Health, SamplerDefaults, Tuned
from mile.sampling.chains import run_chains

PHASES = ["phase I", "phase II", "phase III", "sampling"]


class TestUnreliableDensity:
    """H2: at a known share of positions, chosen by a hash of their bits, value and gradient are not finite."""

    # Phases of 480, 60, 60 and 600 steps: at one in a thousand none comes near 5 % by chance.
    SAMPLER = Mile(warmup_steps=600, sampling_steps=600, n_draws=600, step_size=0.5)

    def run(self, probability, outcome):
        target = Unreliable(share=jnp.float32(1 - np.sqrt(1 - probability)), outcome=jnp.float32(outcome))
        sampler = SimpleNamespace(
            phases=tuple(Logging(inner=phase) for phase in self.SAMPLER.phases), gradient_evaluations=lambda: 0
        )
        positions = jnp.asarray(np.random.default_rng(0).standard_normal((4, 5)), jnp.float32)
        return run_chains(sampler, target, positions, seed=3)

    @pytest.mark.parametrize("outcome", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("probability", [1e-3, 1e-1, 1.0])
    def test_is_counted_exactly_and_never_reaches_a_draw(self, probability, outcome):
        chains = self.run(probability, outcome)
        assert np.isfinite(chains.draws).all()
        assert np.isfinite(chains.logdensity).all()
        for phase in self.SAMPLER.phases:
            info = chains.info[phase.name]
            np.testing.assert_array_equal(info["bad_steps"], info["injected"])
            expected = probability * phase.n_steps * 4
            assert abs(info["injected"].sum() - expected) <= 5 * np.sqrt(expected * (1 - probability))
        assert sum(chains.info[name]["injected"].sum() for name in PHASES) > 0

    @pytest.mark.parametrize("probability", [1e-3, 1e-1, 1.0])
    def test_fails_a_chain_exactly_when_more_than_a_twentieth_of_a_phase_is_bad(self, probability):
        chains = self.run(probability, np.nan)
        shares = [chains.info[phase.name]["injected"] / phase.n_steps for phase in self.SAMPLER.phases]
        too_many = np.any(np.array(shares) > 0.05, axis=0)
        assert too_many.tolist() == [probability > 0.05] * 4
        assert chains.status == tuple(Status.BAD_STEPS if bad else Status.OK for bad in too_many)

    def test_leaves_the_chain_where_it_was(self):
        chains = self.run(1e-1, np.nan)
        stayed = np.all(chains.draws[:, 1:] == chains.draws[:, :-1], axis=2)
        first_stayed = chains.info["sampling"]["injected"] - stayed.sum(axis=1)
        assert np.isin(first_stayed, [0, 1]).all()  # whether the first step was reverted cannot be seen in the draws
        np.testing.assert_array_equal(chains.energy_change[:, 1:][stayed], 0.0)
        assert np.ptp(self.run(1.0, np.nan).draws, axis=1).max() == 0.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Unreliable(Target):
    """A standard normal whose value and first derivative are `outcome` at a share of all positions."""

    share: Any
    outcome: Any

    def strikes(self, position):
        bits = jax.lax.bitcast_convert_type(position, jnp.uint32)
        mixed = jnp.sum(bits * (2 * jnp.arange(len(position), dtype=jnp.uint32) + jnp.uint32(0x9E3779B1)))
        for factor in (0x85EBCA6B, 0xC2B2AE35):
            mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(factor)
        return (mixed >> 8).astype(jnp.float32) * 2.0**-24 < self.share

    def value_and_grad(self, position):
        return -0.5 * position @ position, -position


@dataclass
class Spy(Target):
    """Strikes, and keeps its own log of it: what the sampler makes of the numbers plays no part."""

    target: Unreliable
    log: list

    def value_and_grad(self, position):
        struck = self.target.strikes(position)
        self.log.append(struck)
        value, gradient = self.target.value_and_grad(position)
        bad = self.target.outcome
        return jnp.where(struck, bad, value), gradient.at[0].set(jnp.where(struck, bad, gradient[0]))


class Logged(NamedTuple):
    inner: Any
    injected: Any


@dataclass(frozen=True)
class Around:
    """A phase around another one, of the same name and budget."""

    inner: Any

    @property
    def name(self):
        return self.inner.name

    @property
    def n_steps(self):
        return self.inner.n_steps

    @property
    def n_records(self):
        return self.inner.n_records


@jax.tree_util.register_static
@dataclass(frozen=True)
class Logging(Around):
    """Adds up the steps in which the density struck, from its own log."""

    def init(self, key, carry, target):
        inner = carry.inner if isinstance(carry, Logged) else carry
        return Logged(self.inner.init(key, inner, target), jnp.zeros((), jnp.int32))

    def step(self, key, carry, target):
        spy = Spy(target, [])
        inner, record = self.inner.step(key, carry.inner, spy)
        return Logged(inner, carry.injected + jnp.any(jnp.stack(spy.log))), record

    def finish(self, carry):
        finished = self.inner.finish(carry.inner)
        report = finished.report | {"injected": carry.injected}
        return finished._replace(carry=carry._replace(inner=finished.carry), report=report)


NETWORK = MLP(n_inputs=3, hidden=(3,))
TRAINING = Training(learning_rate=0.01, max_epochs=150)
SMALL = Mile(warmup_steps=100, sampling_steps=60, n_draws=12)
SEED = 2
N_CHAINS = 12
VICTIMS = [1, 6, 11]
SURVIVORS = np.setdiff1d(range(N_CHAINS), VICTIMS)
# Victims take the places of reserve members in this order.
REPLACED = [0, 12, 2, 3, 4, 5, 13, 7, 8, 9, 10, 14]


def fit(network=NETWORK, sampler=None, n_chains=N_CHAINS):
    return mile.fit(
        small_dataset(),
        network,
        Gaussian(),
        sampler=sampler or Faulty(),
        training=TRAINING,
        n_chains=n_chains,
        random_state=SEED,
    )


class Marked(NamedTuple):
    inner: Any
    fails_in: Any  # number of the phase in which this chain fails; -1: none
    start: Any


@jax.tree_util.register_static
@dataclass(frozen=True)
class Breaking(Around):
    """Gives marked chains a density that is nowhere a number; the first phase marks them by their first weight."""

    index: int
    fails_in: int = -1
    victims: tuple[float, ...] | None = ()  # None: all

    def init(self, key, carry, target):
        if self.index > 0:
            return carry._replace(inner=self.inner.init(key, carry.inner, target))
        marked = True if self.victims is None else jnp.any(carry[0] == jnp.asarray(self.victims, carry.dtype))
        return Marked(self.inner.init(key, carry, target), jnp.where(marked, self.fails_in, -1), carry)

    def step(self, key, carry, target):
        inner, record = self.inner.step(key, carry.inner, Broken(target, carry.fails_in == self.index))
        return carry._replace(inner=inner), record

    def finish(self, carry):
        finished = self.inner.finish(carry.inner)
        report = finished.report | ({"start": carry.start} if self.index == 0 else {})
        return finished._replace(carry=carry._replace(inner=finished.carry), report=report)


@dataclass
class Broken(Target):
    target: Any
    broken: Any

    def value_and_grad(self, position):
        return jax.tree.map(lambda leaf: jnp.where(self.broken, jnp.nan, leaf), self.target.value_and_grad(position))


@dataclass(frozen=True)
class Faulty(SamplerDefaults):
    """MILE, with a fault in one phase for chains that start from given weights; reports where chains started."""

    mile: Mile = SMALL
    fails_in: int = -1
    victims: tuple[float, ...] | None = ()

    @property
    def name(self):
        return "mile"

    @property
    def n_draws(self):
        return self.mile.n_draws

    @property
    def phases(self):
        first, *others = self.mile.phases
        return (Breaking(first, 0, self.fails_in, self.victims), *(Breaking(p, i + 1) for i, p in enumerate(others)))

    def gradient_evaluations(self):
        return self.mile.gradient_evaluations()

    def with_start(self, step_size):
        return replace(self, mile=self.mile.with_start(step_size))


@dataclass(frozen=True, kw_only=True)
class FragileNetwork(MLP):
    """Starts from weights that are not numbers for the given members of the ensemble."""

    members: tuple[int, ...]

    def init(self, key):
        keys = jnp.stack([jax.random.key_data(stream(SEED, Stage.INITIALIZE, member)) for member in self.members])
        return jnp.where(jnp.any(jnp.all(jax.random.key_data(key) == keys, axis=1)), jnp.nan, super().init(key))


@pytest.fixture(scope="module")
def clean():
    """Return a fit without faults whose last three chains are those that replacements must equal."""
    result = fit(n_chains=N_CHAINS + len(VICTIMS))
    assert result.ok.all()
    return result


def failing(clean, members, phase):
    """Return a sampler that fails for the given members of the clean fit."""
    return Faulty(fails_in=phase, victims=tuple(clean.members.positions[list(members), 0].tolist()))


def arrays(result, slots):
    """Return all that a fit knows of some of its chains; the numbers of the loop and of the members."""
    chains = result.chains._replace(status=np.array(result.chains.status), seed=None)
    members = result.members._replace(status=np.array(result.members.status))
    return jax.tree.map(lambda leaf: leaf[slots], (members, chains, np.array(result.status)))


class TestReplacement:
    """H3: three of twelve chains fail."""

    def check(self, result, clean):
        assert result.status == (Status.OK,) * N_CHAINS
        assert result.chain_ids.tolist() == REPLACED
        assert_same_bits(arrays(result, SURVIVORS), arrays(clean, SURVIVORS))
        assert_same_bits(arrays(result, VICTIMS), arrays(clean, [12, 13, 14]))
        assert result.predictive(small_dataset().x_valid).mean.shape == (16,)

    @pytest.mark.parametrize("phase", [0, 1, 2, 3])
    def test_of_chains_that_fail_in_warm_up_or_sampling(self, clean, phase):
        names = r"Chain 1: more than 5 %.* Chain 6: more than 5 %.* Chain 11: more than 5 %"
        with pytest.warns(
            FitWarning, match=f"^3 of 12 chains failed and were replaced by fresh members. {names}"
        ) as seen:
            result = fit(sampler=failing(clean, VICTIMS, phase))
        assert len(seen) == 1
        assert "left out" not in str(seen[0].message)
        self.check(result, clean)

    def test_of_members_that_fail_in_training(self):
        # A subclass of MLP takes XLA's path, so what it is compared with must take it too.
        sound = FragileNetwork(n_inputs=3, hidden=(3,), members=(999,))
        clean = fit(network=sound, n_chains=N_CHAINS + len(VICTIMS))
        network = FragileNetwork(n_inputs=3, hidden=(3,), members=tuple(VICTIMS))
        names = r"Chain 1: its starting point.* Chain 6: its starting point.* Chain 11: its starting point"
        with pytest.warns(FitWarning, match=f"^3 of 12 chains failed and were replaced by fresh members. {names}"):
            result = fit(network=network)
        self.check(result, clean)

    def test_that_fails_too_is_left_out_and_named(self, clean):
        names = r"1 could not be replaced and are left out: Chain 12: more than 5 %"
        with pytest.warns(FitWarning, match=names):
            result = fit(sampler=failing(clean, [*VICTIMS, 12], phase=3))
        assert result.status == tuple(Status.BAD_STEPS if slot == 1 else Status.OK for slot in range(N_CHAINS))
        assert result.chain_ids.tolist() == REPLACED
        others = np.delete(range(N_CHAINS), 1)
        assert_same_bits(arrays(result, others), arrays(clean, np.array(REPLACED)[others]))

        x = small_dataset().x_valid
        good = clean.chains.draws[np.array(REPLACED)[others]].reshape(-1, NETWORK.dimension)
        expected = number_predictive(NETWORK, good, x, result.response.scale)
        np.testing.assert_array_equal(result.predictive(x).mean, expected.mean)
        np.testing.assert_array_equal(result.predictive(x).std, expected.std)
        members = clean.members.positions[np.array(REPLACED)[others]]
        of_members = number_predictive(NETWORK, members, x, result.response.scale)
        np.testing.assert_array_equal(result.ensemble_predictive(x).mean, of_members.mean)


class TestNoneLeft:
    """H4."""

    @pytest.mark.parametrize("phase", [0, 3])
    def test_in_sampling_is_an_error_with_every_reason(self, phase):
        with pytest.raises(FitFailedError, match="All 3 chains failed, and so did their replacements") as caught:
            fit(sampler=Faulty(fails_in=phase, victims=None), n_chains=3)
        assert all(f"Chain {chain}: more than 5 % of the steps" in str(caught.value) for chain in range(6))

    def test_in_training_is_an_error_with_every_reason(self):
        network = FragileNetwork(n_inputs=3, hidden=(3,), members=tuple(range(6)))
        with pytest.raises(FitFailedError, match="All 3 chains failed") as caught:
            fit(network, DeepEnsemble(), n_chains=3)
        assert all(f"Chain {chain}: its starting point" in str(caught.value) for chain in range(6))


@dataclass(frozen=True)
class Spike:
    """A standard normal with a needle at zero, so narrow that a chain leaves it at once and so high that it matters."""

    height: float = 100.0

    def __call__(self, x):
        square = x @ x
        return -0.5 * square + self.height * jnp.exp(-0.5 * square / 1e-4**2)


@jax.tree_util.register_static
@dataclass(frozen=True, kw_only=True)
class Collapsing(MileSamplingPhase):
    """Sampling whose step size has collapsed for chains with a negative first coordinate."""

    def init(self, key, carry, target):
        carry = super().init(key, carry, target)
        collapsed = jnp.where(carry.state.position[0] < 0, 1e-7, 1.0) * carry.tuned.step_size
        return carry._replace(tuned=carry.tuned._replace(step_size=collapsed))


class TestVerdict:
    """H5, and the chain that falls (DECISIONS 12)."""

    SAMPLER = Mile(warmup_steps=100, sampling_steps=60, n_draws=12, step_size=0.5)
    STARTS = np.array([[0.0] * 5, [1.0] * 5, [-1.0] * 5], np.float32)

    def test_a_chain_that_ends_far_below_its_start_has_diverged(self):
        with pytest.warns(FitWarning, match="^Chain 0: it ended in a region far less probable"):
            result = mile.sample(Spike(), self.STARTS, self.SAMPLER, random_state=1)
        assert result.status == (Status.DIVERGED, Status.OK, Status.OK)
        assert np.isfinite(result.draws).all()

    def test_a_chain_that_hardly_moves_is_frozen(self):
        *tuning, last = self.SAMPLER.phases
        collapsing = Collapsing(name=last.name, n_steps=last.n_steps, n_records=last.n_records)
        sampler = SimpleNamespace(phases=(*tuning, collapsing), gradient_evaluations=lambda: 0)
        target = FunctionTarget(Spike())
        result = run_chains(sampler, target, jnp.asarray(self.STARTS[1:].repeat(4, axis=0)), seed=1)
        frozen = result.info["sampling"]["travel"] < 0.1
        assert 0 < frozen.sum() < 8
        assert result.status == tuple(Status.FROZEN if stuck else Status.OK for stuck in frozen)
        # A frozen chain is where it was; the others have gone somewhere.
        moved = np.abs(result.draws[:, -1] - result.draws[:, 0]).max(axis=1)
        assert moved[frozen].max() < 1e-4 < moved[~frozen].min()

    @pytest.mark.parametrize(
        ("step_size", "L", "fall", "bad_steps", "start", "status"),
        [
            (0.0101, 10.0, 0.0, 0, 0.0, Status.OK),
            (0.0099, 10.0, 0.0, 0, 0.0, Status.FROZEN),
            (1.0, 10.0, 39.9, 0, 0.0, Status.OK),
            (1.0, 10.0, 40.1, 0, 0.0, Status.DIVERGED),
            (1.0, 10.0, 0.0, 5, 0.0, Status.OK),
            (1.0, 10.0, 0.0, 6, 0.0, Status.BAD_STEPS),
            (1.0, 10.0, 0.0, 0, np.nan, Status.NON_FINITE_START),
            (1.0, 10.0, 0.0, 0, np.inf, Status.NON_FINITE_START),
            # The first cause counts.
            (0.0099, 10.0, 40.1, 6, -np.inf, Status.NON_FINITE_START),
            (0.0099, 10.0, 40.1, 6, 0.0, Status.BAD_STEPS),
            (0.0099, 10.0, 40.1, 0, 0.0, Status.DIVERGED),
        ],
    )
    def test_follows_the_limits(self, step_size, L, fall, bad_steps, start, status):
        position = jnp.zeros(4)  # ten times the dimension: a fall of 40
        state = _mclmc.State(position, position, jnp.asarray(-fall), position)
        health = Health(jnp.asarray(start), jnp.asarray(bad_steps), jnp.asarray(0.0), jnp.asarray(0))
        virial = _virial.init(state.position)
        carry = MileSampling(state, Tuned(jnp.asarray(step_size), jnp.asarray(L)), health, virial)
        finished = MileSamplingPhase(name="sampling", n_steps=100, n_records=10).finish(carry)
        assert Status(int(finished.status)) == status

    def test_of_an_early_phase_stays_when_later_ones_go_well(self, clean):
        target = Posterior(
            rows=pad_rows(small_dataset().x_train, small_dataset().y_train),
            network=NETWORK,
            likelihood=Gaussian(),
            prior=clean.prior,
        )
        sampler = failing(clean, [1], phase=1).with_start(TRAINING.learning_rate)
        chains = run_chains(sampler, target, jnp.asarray(clean.members.positions[:2]), seed=SEED)
        assert chains.status == (Status.OK, Status.BAD_STEPS)
        assert chains.info["phase II"]["bad_steps"][1] == 10
        assert chains.info["sampling"]["bad_steps"][1] == 0


class TestStart:
    """Each chain starts from its trained member, not from the weights that training began with."""

    def check(self, result):
        starts = result.chains.info["phase I"]["start"]
        np.testing.assert_array_equal(starts, result.members.positions)
        data = small_dataset()
        posterior = Posterior(
            rows=pad_rows(data.x_train, data.y_train), network=NETWORK, likelihood=Gaussian(), prior=result.prior
        )
        untrained = jnp.stack([NETWORK.init(stream(SEED, Stage.INITIALIZE, chain)) for chain in result.chain_ids])
        before, after = (
            np.array([posterior.logdensity(position) for position in positions])
            for positions in (untrained, jnp.asarray(starts))
        )
        gain = after - before
        assert gain.min() > 2.0
        # The first step has the length of the learning rate, so the first record lies near the start.
        first = result.chains.history["phase I"].logdensity[:, 0]
        assert (np.abs(first - after) < 0.5 * gain).all()

    def test_of_every_chain_is_its_trained_member(self, clean):
        self.check(clean)

    def test_of_every_replacement_is_its_trained_member(self, clean):
        with pytest.warns(FitWarning, match="3 of 12 chains failed"):
            self.check(fit(sampler=failing(clean, VICTIMS, phase=3)))

    def test_from_untrained_weights_would_be_noticed(self, clean, monkeypatch):
        def run_from_untrained(sampler, target, positions, *, chain_ids, **options):
            untrained = jnp.stack([NETWORK.init(stream(SEED, Stage.INITIALIZE, chain)) for chain in chain_ids])
            return run_chains(sampler, target, untrained, chain_ids=chain_ids, **options)

        monkeypatch.setattr(job, "run_chains", run_from_untrained)
        wrong = fit()
        with pytest.raises(AssertionError):
            self.check(wrong)

    def test_of_a_deep_ensemble_is_also_its_end(self, clean):
        result = fit(sampler=DeepEnsemble())
        np.testing.assert_array_equal(result.chains.draws[:, 0], result.members.positions)
        np.testing.assert_array_equal(result.members.positions, clean.members.positions[:N_CHAINS])
