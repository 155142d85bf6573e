"""The native kernel: a multilayer perceptron's log likelihood, its gradient, and whole steps built on it, on CPU.

An accelerator, never a second truth: XLA computes the same numbers up to rounding wherever the library
is missing, the network is another one, the precision is not float32, or the device is not a CPU. Which of
them runs is decided where it is used, in `posterior`, `samplers/_mclmc` and `ensemble/training`.
"""

from mile.native._attention import accelerates, apply
from mile.native._library import KernelState, kernel_name, kernel_state, sharing_cores
from mile.native._ops import (
    Data,
    Specification,
    epoch,
    mclmc_step,
    mixture,
    outputs,
    specify,
    summarize,
    value,
    value_and_grad,
)
from mile.native._outputs import value_and_grad_of_outputs, value_of_outputs

__all__ = [
    "Data",
    "KernelState",
    "Specification",
    "accelerates",
    "apply",
    "epoch",
    "kernel_name",
    "kernel_state",
    "mclmc_step",
    "mixture",
    "outputs",
    "sharing_cores",
    "specify",
    "summarize",
    "value",
    "value_and_grad",
    "value_and_grad_of_outputs",
    "value_of_outputs",
]
