"""Memory of long runs, measured by the operating system in processes of their own: set by blocks, not by draws."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux' account of memory")

WATCH = """
import json, sys, threading, time
import jax
import jax.numpy as jnp
import numpy as np
import mile
import mile.estimators
import mile.sampling.chains
import zarr

jax.devices()
seen = []

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def watch():
    while True:
        seen.append((time.monotonic(), resident()))
        time.sleep(0.01)

def peak():
    return max(size for _, size in seen)

threading.Thread(target=watch, daemon=True).start()
time.sleep(0.05)
before = resident()
"""


def measured(script, *arguments):
    command = [sys.executable, "-c", WATCH + script, *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


LONG_FIT = """
rng = np.random.default_rng(0)
X = rng.standard_normal((60, 5))
y = X[:, 0] + 0.1 * rng.standard_normal(60)
budget = {"n_chains": 12, "warmup_steps": 300, "sampling_steps": 20_000, "n_draws": 20_000, "max_epochs": 2}
model = mile.MileRegressor(random_state=0, run_dir=sys.argv[1] if len(sys.argv) > 1 else None, **budget).fit(X, y)
fitted = peak() - before
model.predict(X)
model.predict_interval(X[:10])
print(json.dumps({"fit": fitted, "all": peak() - before, "shape": model.fit_.chains.draws.shape}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stored", [True, False])
def test_a_fit_with_386_megabytes_of_draws_stays_under_a_gigabyte(stored, tmp_path):
    result = measured(LONG_FIT, *([tmp_path / "run"] if stored else []))
    assert result["shape"] == [12, 20_000, 402]
    assert result["all"] < 1e9
    if stored:  # beyond chunks and programs it holds nothing
        assert result["fit"] < 386e6


STREAM = """
n_draws, d, folder = int(sys.argv[1]), 1_000, sys.argv[2]
sampler = mile.Mile(warmup_steps=300, sampling_steps=n_draws, n_draws=n_draws)
from mile.storage import _draw_files
counts = []
write = _draw_files.DrawWriter._write_chunk

def counted(self, index, number, arrays):
    counts.append((time.monotonic(), index, number, self._layout.chunk))
    return write(self, index, number, arrays)

_draw_files.DrawWriter._write_chunk = counted
start = np.zeros((2, d), np.float32)
chains = mile.sample(lambda x: -0.5 * jnp.sum(x * x), start, sampler, random_state=0, run_dir=folder)
chunk = counts[0][3]
begin = next(at for at, index, number, _ in counts if number == 3)
end = max(at for at, *_ in counts)
window = np.array([(at, size) for at, size in seen if begin <= at <= end])
draws = 2 * (n_draws - 4 * chunk)
slope = np.polyfit(window[:, 0] - begin, window[:, 1], 1)[0] * (end - begin) / draws
print(json.dumps({"slope": 10_000 * slope, "kind": type(chains.draws).__name__, "n_bytes": chains.draws.nbytes}))
"""


@pytest.mark.slow
def test_streaming_a_hundred_thousand_draws_takes_no_memory_that_grows(tmp_path):
    result = measured(STREAM, 100_000, tmp_path / "run")
    assert result["kind"] == "StoredDraws"
    assert result["n_bytes"] == 2 * 100_000 * 1_000 * 4
    assert result["slope"] < 1e6  # per 10,000 draws
    stored = sum(path.stat().st_size for path in (tmp_path / "run" / "draws.zarr").rglob("*") if path.is_file())
    assert stored == pytest.approx(result["n_bytes"], rel=0.02)


THIRD_PHASE = """
d, n_steps = 61_706, int(sys.argv[1])
warmup = n_steps + 200
fractions = (1 - (n_steps + 100) / warmup, 100 / warmup, n_steps / warmup)
sampler = mile.Mile(warmup_steps=warmup, sampling_steps=50, n_draws=5, fractions=fractions, step_size=62.0)
start = np.random.default_rng(0).standard_normal((4, d)).astype(np.float32)
chains = mile.sample(lambda x: -0.5 * jnp.sum(x * x), start, sampler, random_state=0)
print(json.dumps({"peak": peak(), "steps": sampler.phases[2].n_steps}))
"""


@pytest.mark.slow
def test_phase_three_keeps_a_few_coordinates_and_nothing_else():
    """The same run with a phase III of a few steps is the baseline."""
    baseline, result = measured(THIRD_PHASE, 8), measured(THIRD_PHASE, 5_000)
    assert result["steps"] == 5_000
    assert result["peak"] - baseline["peak"] < 1.2 * 4 * (2_000 * 5_000 * 4)


PREDICT = """
from mile.predict import predict

n_rows, n_draws = 1_000_000, 12_000
network = mile.MLP(n_inputs=2, hidden=(2,))
rng = np.random.default_rng(0)
draws = 0.3 * rng.standard_normal((n_draws, network.dimension), np.float32)
x = rng.standard_normal((n_rows, 2), np.float32)
likelihood = mile.Gaussian()
identity = likelihood.plain_response()
before = resident()
predictive = predict(network, likelihood, draws, x, identity)
mean, std = predictive.mean, predictive.std
few = np.r_[0:40, n_rows - 40 : n_rows]
small = predict(network, likelihood, draws, x[few], identity)
error = float(max(np.abs(mean[few] - small.mean).max(), np.abs(std[few] - small.std).max()))
print(json.dumps({"peak": peak() - before, "error": error}))
"""


@pytest.mark.slow
def test_a_million_rows_with_twelve_thousand_draws_are_predicted_within_the_budget():
    result = measured(PREDICT)
    assert result["peak"] < 1 << 30  # the default budget
    assert result["error"] == 0.0
