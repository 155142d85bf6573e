"""The native kernel: a multilayer perceptron's log likelihood, its gradient, and whole steps built on it, on CPU.

An accelerator, never a second truth: XLA computes the same numbers up to rounding wherever the library
is missing, the network is another one, the precision is not float32, or the device is not a CPU. Which of
them runs is decided where it is used, in `posterior`, `samplers/_mclmc` and `ensemble/training`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mile.native._names import (
        Data,
        KernelState,
        Specification,
        accelerates,
        apply,
        described_form,
        epoch,
        kernel_name,
        kernel_state,
        mclmc_step,
        mixture,
        outputs,
        sharing_cores,
        specify,
        summarize,
        value,
        value_and_grad,
        value_and_grad_of_outputs,
        value_of_outputs,
        weighted_mixture,
    )

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
    "weighted_mixture",
]


def __getattr__(name: str) -> object:  # type checkers read the block above
    if name not in __all__:
        raise AttributeError(f"module 'mile.native' has no attribute {name!r}")
    from mile.native import _names

    value = getattr(_names, name)
    globals()[name] = value
    return value
