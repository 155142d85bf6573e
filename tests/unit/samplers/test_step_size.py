"""The step-size rule against its plain textbook form, and the schedules of the wanted energy variance."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mile.samplers import _step_size
from mile.samplers._step_size import Exponential, Geometric, Linear


class Textbook:
    """The rule in its plain form: x and t are running sums, x/t estimates variance over step size to the sixth."""

    def __init__(self, eps, memory, trust):
        self.eps, self.gamma, self.trust = eps, (memory - 1) / (memory + 1), trust
        self.x = self.t = 0.0
        self.cap = np.inf

    def update(self, energy_change, finite, dimension, target):
        xi = energy_change**2 / (dimension * target) + 1e-8
        w = np.exp(-0.5 * (np.log(xi) / (6 * self.trust)) ** 2) if finite else 0.0
        self.x = self.gamma * self.x + w * xi / self.eps**6
        self.t = self.gamma * self.t + w
        if not finite:
            self.cap = 0.8 * self.eps
        self.eps = min((self.x / self.t) ** (-1 / 6), self.cap) if self.t > 0 else self.cap


def run(start, changes, finite, *, dimension=10, target=0.3, memory=100.0, trust=1.5):
    """Return the averages after each update, as one compiled loop; targets may be one for each step."""

    def update(average, step):
        average = _step_size.update(
            average,
            energy_change=step[0],
            finite=step[1],
            dimension=dimension,
            target=step[2],
            memory=memory,
            trust=trust,
        )
        return average, average

    changes = jnp.asarray(changes)
    steps = (changes, jnp.asarray(finite), jnp.broadcast_to(jnp.asarray(target, changes.dtype), changes.shape))
    return jax.lax.scan(update, _step_size.init(jnp.asarray(start, changes.dtype)), steps)[1]


def random_steps(n_steps, bad_share, seed=0, dtype=float):
    """Return energy changes over many orders of magnitude, and which steps are finite; bad ones report zero."""
    rng = np.random.default_rng(seed)
    finite = rng.random(n_steps) >= bad_share
    changes = rng.standard_normal(n_steps) * 10 ** rng.uniform(-2, 2, n_steps)
    return np.where(finite, changes, 0.0).astype(dtype), finite


class TestRule:
    @pytest.mark.parametrize(
        ("bad_share", "memory", "trust"), [(0.0, 100.0, 1.5), (0.05, 100.0, 1.5), (0.3, 10.0, 3.0), (0.02, 2.0, 0.7)]
    )
    def test_equals_the_textbook_form_over_hundreds_of_steps(self, bad_share, memory, trust):
        changes, finite = random_steps(500, bad_share)
        targets = np.linspace(0.5, 0.1, 500)
        textbook, expected = Textbook(0.02, memory, trust), []
        for step in zip(changes, finite, itertools.repeat(10), targets):
            textbook.update(*step)
            expected.append(textbook.eps)
        assert np.ptp(np.log(expected)) > 1.0  # there was something to adapt
        with jax.enable_x64(True):
            averages = run(0.02, changes, finite, target=targets, memory=memory, trust=trust)
            np.testing.assert_allclose(averages.value, expected, rtol=1e-9)
            assert averages.weight[-1] == pytest.approx(textbook.t, rel=1e-9)
            relative = averages.estimate[-1] / averages.weight[-1]
            assert relative == pytest.approx(textbook.x / textbook.t * textbook.eps**6, rel=1e-9)

    def test_float32_is_as_good_as_the_textbook_in_float64(self):
        changes, finite = random_steps(500, 0.05, dtype=np.float32)
        textbook = Textbook(0.02, 100.0, 1.5)
        for step in zip(changes.astype(float), finite, itertools.repeat(10), itertools.repeat(0.3)):
            textbook.update(*step)
        assert run(0.02, changes, finite).value[-1] == pytest.approx(textbook.eps, rel=1e-4)

    def test_energy_error_as_wanted_leaves_the_step_size_alone(self):
        changes = np.full(100, np.sqrt(10 * 0.3), np.float32)
        np.testing.assert_allclose(run(0.7, changes, np.ones(100, bool)).value, 0.7, rtol=1e-5)

    @pytest.mark.parametrize("factor", [0.25, 4.0])
    def test_first_step_size_follows_the_sixth_root_law(self, factor):
        change = np.sqrt(10 * 0.3 * factor, dtype=np.float32)
        assert run(0.7, [change], [True]).value[0] == pytest.approx(0.7 * factor ** (-1 / 6), rel=1e-5)

    def test_settles_where_the_energy_variance_is_the_wanted_one(self):
        """A chain whose energy variance is 50 step_size^6 a dimension must end at (target/50)^(1/6)."""

        def update(average, z):
            change = jnp.sqrt(10 * 50.0) * average.value**3 * z
            average = _step_size.update(
                average, energy_change=change, finite=True, dimension=10, target=0.3, memory=100.0, trust=1.5
            )
            return average, average.value

        # Without noise, so that the trust given to a step does not matter.
        _, values = jax.lax.scan(update, _step_size.init(jnp.float32(1e-3)), jnp.ones(2_000))
        assert values[-1] == pytest.approx((0.3 / 50.0) ** (1 / 6), rel=1e-3)


class TestBadSteps:
    def test_first_step_is_bad(self):
        averages = run(0.5, np.zeros(3, np.float32), [False, False, False])
        np.testing.assert_allclose(averages.value, [0.4, 0.32, 0.256], rtol=1e-6)
        assert averages.weight[-1] == 0.0

    def test_a_bad_step_is_not_averaged(self):
        changes, _ = random_steps(50, 0.0, dtype=np.float32)
        finite = np.ones(51, bool)
        finite[-1] = False
        # Whatever energy change a bad step might report.
        for change in (0.0, 1e3):
            averages = jax.tree.map(np.asarray, run(0.02, np.append(changes, np.float32(change)), finite))
            ratios = averages.estimate / averages.weight / averages.value.astype(float) ** 6
            assert ratios[-1] == pytest.approx(ratios[-2], rel=1e-5)
            assert averages.weight[-1] == pytest.approx(99 / 101 * averages.weight[-2], rel=1e-6)
            assert averages.value[-1] == pytest.approx(0.8 * averages.value[-2], rel=1e-6)

    def test_cap_is_never_exceeded_after_a_bad_step(self):
        changes, finite = random_steps(2_000, 0.01, seed=1, dtype=np.float32)
        changes[200:] *= 1e-3  # errors so small that the rule would like much larger steps
        finite[100] = False
        values = np.asarray(run(0.5, changes, finite).value)
        used = np.append(np.float32(0.5), values[:-1])
        cap = np.minimum.accumulate(np.where(finite, np.inf, np.float32(0.8) * used))
        assert np.all(values <= cap * (1 + 1e-6))
        assert np.isclose(values, cap, rtol=1e-6).any()  # the cap was felt

    @pytest.mark.parametrize("n_good", [0, 50])
    def test_thousands_in_a_row_leave_a_positive_step_size(self, n_good):
        changes, finite = random_steps(n_good + 5_000, 0.0, dtype=np.float32)
        finite[n_good:] = False
        averages = run(0.5, np.where(finite, changes, np.float32(0)), finite)
        assert np.isfinite(averages.value).all()
        assert (averages.value > 0).all()
        assert averages.value[-1] < 1e-30
        for leaf in (averages.estimate, averages.weight, averages.largest):
            assert np.isfinite(leaf[-1])

    def test_good_steps_after_thousands_of_bad_ones_are_harmless(self):
        finite = np.r_[np.zeros(3_000, bool), np.ones(100, bool)]
        averages = run(0.5, finite.astype(np.float32), finite)
        assert np.isfinite(averages.value).all()
        assert (averages.value > 0).all()

    @pytest.mark.parametrize("change", [0.0, 1e-30, 1e18])
    def test_extreme_energy_changes_keep_the_average_finite(self, change):
        averages = run(0.5, np.full(500, change, np.float32), np.ones(500, bool), target=5e-4)
        for leaf in (averages.value, averages.estimate, averages.weight):
            assert np.isfinite(leaf).all()
        assert (averages.value > 0).all()


class TestSchedules:
    @pytest.mark.parametrize(
        ("step", "level"),
        [(0, 0.5), (22_500, 0.3), (40_000, 0.5 - 0.4 * 8 / 9), (45_000, 0.1), (50_000, 0.1)],
    )
    def test_linear_falls_over_phases_one_and_two_together(self, step, level):
        assert Linear().value(jnp.float32(step), 40_000, 45_000) == pytest.approx(level, rel=1e-5)

    @pytest.mark.parametrize(
        ("step", "level"),
        [(0, 0.5), (10_000, np.sqrt(0.5 * 5e-4)), (20_000, 5e-4), (20_001, 5e-4), (40_000, 5e-4), (45_000, 5e-4)],
    )
    def test_geometric_falls_over_half_of_phase_one_and_stays(self, step, level):
        assert Geometric().value(jnp.float32(step), 40_000, 45_000) == pytest.approx(level, rel=1e-5)

    def test_exponential_has_four_time_constants_in_phases_one_and_two_together(self):
        schedule = Exponential(start=10.0, end=0.1)
        for step, level in ((0, 10.0), (11_250, 0.1 + 9.9 / np.e), (45_000, 0.1 + 9.9 * np.exp(-4.0))):
            assert schedule.value(jnp.float32(step), 40_000, 45_000) == pytest.approx(level, rel=1e-5)

    def test_levels_and_fraction_can_be_chosen(self):
        assert Linear(start=2.0, end=1.0).value(jnp.float32(25), 40, 50) == pytest.approx(1.5)
        geometric = Geometric(start=1.0, end=0.01, fraction=1.0)
        assert geometric.value(jnp.float32(20), 40, 50) == pytest.approx(0.1, rel=1e-5)
        assert geometric.value(jnp.float32(40), 40, 50) == pytest.approx(0.01, rel=1e-5)

    @pytest.mark.parametrize("schedule", [Linear, Geometric, Exponential])
    @pytest.mark.parametrize("name", ["start", "end"])
    @pytest.mark.parametrize("level", [0.0, -0.1, float("nan"), float("inf"), "0.5", None, True])
    def test_impossible_levels_are_refused(self, schedule, name, level):
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            schedule(**{name: level})

    @pytest.mark.parametrize("fraction", [0.0, -0.5, 1.01, float("nan"), float("inf"), "half"])
    def test_impossible_fractions_are_refused(self, fraction):
        with pytest.raises(ValueError, match="fraction"):
            Geometric(fraction=fraction)
