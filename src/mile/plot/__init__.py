"""Figures of predictions, chains and diagnoses; each function draws on one matplotlib `Axes` and returns it.

A title is a sentence with the number to see. Without `ax` a new pyplot figure is made.
"""

from mile.plot._chains import accumulation, energy, step_size, trace
from mile.plot._classes import confidence, confusion, reliability, roc
from mile.plot._counts import rootogram
from mile.plot._diagnosis import ess, rhat, variances, virial
from mile.plot._images import surprises
from mile.plot._models import differences
from mile.plot._numbers import coverage, intervals, pit, uncertainty
from mile.plot._outputs import residual_correlation, several_outputs
from mile.plot._survival import survival, survival_calibration

__all__ = [
    "accumulation",
    "confidence",
    "confusion",
    "coverage",
    "differences",
    "energy",
    "ess",
    "intervals",
    "pit",
    "reliability",
    "residual_correlation",
    "rhat",
    "roc",
    "rootogram",
    "several_outputs",
    "step_size",
    "surprises",
    "survival",
    "survival_calibration",
    "trace",
    "uncertainty",
    "variances",
    "virial",
]
