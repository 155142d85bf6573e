"""The names of this package; they are imported on first use, because some of them need JAX."""

from mile.native._attention import accelerates, apply
from mile.native._library import KernelState, kernel_name, kernel_state, sharing_cores
from mile.native._ops import (
    Data,
    Specification,
    described_form,
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
    "described_form",
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
