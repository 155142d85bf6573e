"""Memory of a whole fit, measured by the operating system in a process of its own."""

import json
import subprocess
import sys

import pytest

N_ROWS, N_FEATURES = 1_000_000, 20
DATA = 4 * N_ROWS * N_FEATURES  # bytes in float32

FIT = f"""
import json, resource, sys
import jax
import numpy as np
from mile import MileRegressor

rng = np.random.default_rng(0)
X = np.empty(({N_ROWS}, {N_FEATURES}), sys.argv[1])
for start in range(0, len(X), 10_000):
    X[start : start + 10_000] = rng.standard_normal((10_000, X.shape[1]))
y = X[:, 0] + X[:, 1]
jax.devices()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
budget = {{"n_chains": 2, "warmup_steps": 3, "sampling_steps": 1, "max_epochs": 1, "batch_size": 4096}}
model = MileRegressor(random_state=0, **budget).fit(X, y)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({{"kibibytes": after - before, "draws": model.fit_.chains.draws.shape}}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit is that of Linux")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_fit_of_a_million_rows_stays_within_three_times_its_data_and_200_megabytes(dtype):
    process = subprocess.run([sys.executable, "-c", FIT, dtype], capture_output=True, text=True, timeout=500)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["draws"][:2] == [2, 1]
    assert 1024 * result["kibibytes"] < 3 * DATA + 200e6
