"""The names of this package; they are imported on first use, because some of them need JAX. `__init__` lists them."""

from mile.native._attention import accelerates, apply
from mile.native._library import KernelState, kernel_name, kernel_state, sharing_cores
from mile.native._mixtures import mixture, weighted_mixture
from mile.native._ops import (
    Data,
    Specification,
    described_form,
    epoch,
    mclmc_step,
    outputs,
    specify,
    summarize,
    value,
    value_and_grad,
)
from mile.native._outputs import value_and_grad_of_outputs, value_of_outputs
