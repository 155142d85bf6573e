"""The array shapes and types in signatures are what really flows, checked by beartype on a whole run.

In a process of its own: the rest of the suite passes wrong types on purpose, to see how they are refused.
"""

import subprocess
import sys

SCRIPT = """
from jaxtyping import install_import_hook

# Before mile is first imported; all modules that compute on arrays.
computing = ["data", "networks", "likelihoods", "priors", "posterior", "ensemble", "predict", "metrics", "_ess"]
kernels = ["_mclmc", "_step_size", "_decoherence"]
names = [f"mile.{name}" for name in computing] + [f"mile.samplers.{name}" for name in kernels]
install_import_hook(names, "beartype.beartype")

import numpy as np
import mile
from mile import metrics

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
y = X[:, 0] + 0.1 * rng.normal(size=40)
budget = dict(
    hidden_layer_sizes=(4,), n_chains=2, warmup_steps=60, sampling_steps=20, n_draws=10, max_epochs=5, random_state=0
)
regressor = mile.MileRegressor(**budget).fit(X, y)
predictive = regressor.predictive(X)
predictive.mean, predictive.std, predictive.aleatoric_std, predictive.epistemic_std, predictive.log_prob(y)
predictive.cdf(y), predictive.quantile(0.3), predictive.quantile([0.1, 0.9]), predictive.sample(3, random_state=0)
regressor.predict_interval(X), regressor.predict_quantiles(X, [0.5]), regressor.lppd(X, y)
metrics.lppd(predictive, y), metrics.rmse(predictive, y), metrics.calibration_error(predictive, y)
times = np.array(list(zip(y > 0.0, np.exp(y))), [("event", bool), ("time", float)])
model = mile.MileRegressor(**budget | dict(sampler="deep_ensemble")).fit(X, times)
model.predict_survival(X, [1.0, 2.0], level=0.9), model.predict_hazard(X, [1.0]), model.predict_median(X, level=0.5)
model.predict_restricted_mean(X, 2.0, level=0.5), model.lppd(X, times), metrics.concordance(model.predictive(X), times)
metrics.integrated_brier(model.predictive(X), times), metrics.survival_calibration_error(model.predictive(X), times)
model.sample_predictive(X, 2), model.predictive(X).columns()
classifier = mile.MileClassifier(**budget).fit(X, np.where(X[:, 0] > 0, "b", "a"))
probabilities = classifier.predictive(X)
probabilities.probs, probabilities.labels, probabilities.entropy, probabilities.mutual_information
mile.sample(lambda x: -0.5 * x @ x, np.zeros((2, 3), np.float32), warmup_steps=60, sampling_steps=20, random_state=0)

# And the checker is on.
try:
    mile.Normal().log_prob(np.zeros((2, 2)))
except TypeError:
    print("checked")
"""


def test_a_whole_run_keeps_every_annotation():
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout == "checked\n"
