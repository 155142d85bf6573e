"""The columns of a summary that follow from a fit."""

from typing import Any

import numpy as np
from workbench import Fitted

from mile import metrics
from mile.predict import ClassPredictive


def scores(predictive: Any, y: np.ndarray) -> dict[str, float]:
    """Return the scores that a summary has columns for; the calibration error of classes is the expected one."""
    if isinstance(predictive, ClassPredictive):
        found = {
            "lppd": metrics.lppd(predictive, y),
            "accuracy": metrics.accuracy(predictive, y),
            "calibration_error": metrics.expected_calibration_error(predictive, y),
        }
    else:
        found = {
            "lppd": metrics.lppd(predictive, y),
            "rmse": metrics.rmse(predictive, y),
            "calibration_error": metrics.calibration_error(predictive, y),
        }
    return {name: round(value, 4) for name, value in found.items()}


def costs(fitted: Fitted) -> dict[str, object]:
    """Return what the chains of a fit took: gradients of all of them, seconds, good chains, draws of one."""
    model = fitted.model
    return {
        "gradient_evaluations": int(model.chains.gradient_evaluations.sum()),
        "seconds": "" if fitted.seconds is None else round(fitted.seconds, 1),
        "chains": int(model.ok.sum()),
        "draws": model.chains.logdensity.shape[1],
    }


def ensemble_costs(fitted: Fitted) -> dict[str, object]:
    """Return the same for the members that started the chains: no gradients, and nobody took the time alone."""
    return costs(fitted) | {"gradient_evaluations": 0, "seconds": "", "draws": 1}
