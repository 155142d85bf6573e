"""The mutants: where, what, and which tests should notice."""

from typing import NamedTuple


class Mutant(NamedTuple):
    file: str  # below src/mile
    old: str  # stands there once
    new: str
    tests: str


_MCLMC = "tests/unit/samplers/test_mclmc.py"
_STEP_SIZE = "tests/unit/samplers/test_step_size.py"
_LENGTH = "tests/unit/samplers/test_decoherence.py"
_PHASES = "tests/unit/samplers/test_mile.py tests/faults/test_failed_chains.py"
_LOOP = "tests/unit/sampling/test_chains.py"
_LIKELIHOODS = "tests/unit/likelihoods/test_likelihoods.py tests/unit/likelihoods/test_contracts.py"
_LINK = "tests/unit/likelihoods/test_bounded_link.py"
_HIERARCHICAL = "tests/unit/priors/test_hierarchical.py"
_PREDICT = "tests/unit/test_metrics.py tests/unit/predict/test_mixture.py tests/unit/likelihoods/test_contracts.py"
_DATA = "tests/unit/data/test_dataset.py tests/sklearn/test_sample_weight.py"
_STORAGE = "tests/unit/storage/test_storage.py tests/faults/test_storage_faults.py"

MUTANTS = (
    # The integrator
    Mutant("samplers/_mclmc.py", "_B1 = 0.1931833275037836", "_B1 = 0.1831833275037836", _MCLMC),
    Mutant(
        "samplers/_mclmc.py",
        "energy_change = kinetic_change - proposal.logdensity + state.logdensity",
        "energy_change = kinetic_change + proposal.logdensity - state.logdensity",
        _MCLMC,
    ),
    Mutant("samplers/_mclmc.py", "velocity=_normalize(noise[1])", "velocity=state.velocity", _MCLMC),
    Mutant("samplers/_mclmc.py", "norm / (dimension - 1)", "norm / dimension", _MCLMC),
    Mutant("samplers/_mclmc.py", "(dimension - 1) * _kinetic_change", "dimension * _kinetic_change", _MCLMC),
    Mutant("samplers/_mclmc.py", "jnp.expm1(step_size / L)", "jnp.expm1(2.0 * step_size / L)", _MCLMC),
    Mutant("samplers/_mclmc.py", "jnp.where(shrinkage < 0.5, precise, plain)", "precise", _MCLMC),
    # The step size
    Mutant("samplers/_step_size.py", "(6.0 * trust)", "(3.0 * trust)", _STEP_SIZE),
    Mutant("samplers/_step_size.py", "(memory - 1.0) / (memory + 1.0)", "memory / (memory + 1.0)", _STEP_SIZE),
    Mutant("samplers/_step_size.py", "trusted = jnp.where(finite, trusted, 0.0)", "pass", _STEP_SIZE),
    Mutant("samplers/_step_size.py", "_SHRINK = 0.8", "_SHRINK = 1.0", _STEP_SIZE),
    Mutant("samplers/_step_size.py", "** (-1.0 / 6.0)", "** (-1.0 / 4.0)", _STEP_SIZE),
    Mutant("samplers/_step_size.py", "minimum(step / total_steps", "minimum(step / phase_one_steps", _STEP_SIZE),
    # The decoherence length
    Mutant("samplers/_decoherence.py", "max(math.sqrt(dimension), 15.0)", "math.sqrt(dimension)", _LENGTH),
    Mutant("samplers/_decoherence.py", "difference * (position - mean)", "difference * difference", _LENGTH),
    Mutant("samplers/_decoherence.py", "thinning * n_draws / _column", "n_draws / _column", _LENGTH),
    Mutant("samplers/_decoherence.py", "jnp.maximum(length, step_size), step_size", "length, step_size", _LENGTH),
    # The phases
    Mutant("samplers/_phases.py", "jnp.where(info.finite, used, 0.0)", "used", _PHASES),
    Mutant("samplers/_phases.py", "self.n_steps / carry.tuned.L", "self.n_steps * carry.tuned.L", _PHASES),
    Mutant("samplers/_phases.py", "LARGEST_BAD_SHARE * phase.n_steps", "phase.n_steps", _PHASES),
    Mutant("samplers/_phases.py", "carry.index // self.thinning", "carry.index", _PHASES),
    Mutant(
        "samplers/_minibatches.py",
        "~jnp.isfinite(chain.logdensity),",
        "False,",
        "tests/unit/samplers/test_stochastic.py",
    ),
    Mutant("samplers/base.py", "max(1, n_steps // max(n_records, 1))", "max(1, n_steps // n_records - 1)", _LOOP),
    # Likelihoods
    Mutant("likelihoods/gaussian.py", "return -log_scale - 0.5", "return log_scale - 0.5", _LIKELIHOODS),
    Mutant("likelihoods/_links.py", "LOG_SCALE_LIMIT = math.log(1e6)", "LOG_SCALE_LIMIT = 50.0", _LIKELIHOODS),
    Mutant("likelihoods/_links.py", "SCALE_LIMIT = 10.0", "SCALE_LIMIT = 11.0", _LINK),
    Mutant("likelihoods/_resolution.py", "0.5 * np.median", "np.median", _LINK),
    Mutant(
        "priors/hierarchical.py",
        "0.5 * (self.degrees + block.group_size) * jnp",
        "0.5 * self.degrees * jnp",
        _HIERARCHICAL,
    ),
    Mutant("priors/hierarchical.py", "gammaln(a - 0.5) - gammaln(a)", "gammaln(a + 0.5) - gammaln(a)", _HIERARCHICAL),
    Mutant(
        "likelihoods/gaussian.py",
        "distance - 0.5 * weights.mean(",
        "distance - weights.mean(",
        _PREDICT,
    ),
    Mutant("likelihoods/categorical.py", "y >= self.n_classes)", "y > self.n_classes)", _PREDICT),
    Mutant("likelihoods/categorical.py", "self.entropy - self._summary[1]", "self._summary[1]", _PREDICT),
    Mutant("likelihoods/numbers.py", "0.5 - level / 2, 0.5 + level / 2", "0.5 - level / 2, 0.5 + level / 3", _PREDICT),
    Mutant(
        "likelihoods/numbers.py",
        "np.sqrt(self._moments[1] + self._moments[2])",
        "np.sqrt(self._moments[1])",
        _PREDICT,
    ),
    Mutant("likelihoods/_quantiles.py", "np.where(error < 0, y, lower)", "np.where(error <= 1, y, lower)", _PREDICT),
    Mutant("likelihoods/_quantiles.py", "right + np.abs(y - inside)", "right", _PREDICT),
    # Encoders
    Mutant("features/numbers.py", "np.sqrt(squares / len(rows))", "np.sqrt(squares / (len(rows) - 1))", _DATA),
    Mutant("features/numbers.py", "weight[where] / total", "weight[where] / len(weight)", _DATA),
    Mutant("features/pixels.py", "high if high > low else low + 1.0", "high", "tests/unit/features/test_pixels.py"),
    Mutant("features/tokens.py", "encoding.ids[:context]", "encoding.ids[-context:]", "tests/unit/features"),
    # Storage
    Mutant(
        "storage/_draws.py",
        'values.dtype.newbyteorder("<")).tobytes()',
        'values.dtype.newbyteorder(">")).tobytes()',
        _STORAGE,
    ),
    Mutant("storage/_draws.py", 'crc32c(body).to_bytes(4, "little") != check', "False", _STORAGE),
    Mutant("storage/_durable.py", "os.fsync(file.fileno())", "pass", _STORAGE),
    Mutant("storage/_durable.py", "temporary.unlink(missing_ok=True)", "pass", _STORAGE),
)
