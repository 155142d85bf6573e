"""Value and gradient of the log likelihood of LeNet-5 (the paper's CNN v2), against PyTorch on CPU.

1,024 images of 28 x 28, 61,706 parameters, all cores. PyTorch runs the same network in its usual memory layout and with
channels last, of which the faster counts; its gradients are compared with ours. XLA is the path that the library takes
where it has no native kernel. Peak and contestants take turns.
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from _common import N_CORES, Row, command_line, interleave, progress, seconds_of, sgemm_peak

from mile import native
from mile.likelihoods import Categorical
from mile.networks import CNN_V1, LENET5, ConvNet
from mile.padded_rows import pad_rows
from mile.posterior import Posterior, value_and_grad_by_xla
from mile.priors import Normal

N_IMAGES, N_CLASSES = 1_024, 10
BAR = 1.5  # times the speed of PyTorch
LARGEST_DIFFERENCE = 1e-3  # between the two gradients, relative to the largest entry
NETWORKS = {"CNN v2": (LENET5, BAR), "CNN v1": (CNN_V1, None)}


def main(quick: bool = False) -> list[Row]:
    rows = []
    for name, (template, bar) in NETWORKS.items():
        progress(f"convolution: {name}")
        rows += compare(name, template.sized((28, 28), N_CLASSES), bar, repetitions=3 if quick else 11)
    return rows


def compare(name: str, network: ConvNet, bar: float | None, repetitions: int) -> list[Row]:
    """Time one network in all ways."""
    rng = np.random.default_rng(0)
    x = rng.random((N_IMAGES, network.n_inputs), np.float32)
    y = rng.integers(N_CLASSES, size=N_IMAGES).astype(np.int32)
    position, likelihood = network.init(jax.random.key(0)), Categorical(N_CLASSES)
    posterior = Posterior(rows=pad_rows(x, y), network=network, likelihood=likelihood, prior=Normal())
    compiled = jax.jit(lambda posterior, position: posterior.value_and_grad(position))
    in_blocks = jax.jit(partial(value_and_grad_by_xla, network, likelihood))
    ours = lambda: jax.block_until_ready(compiled(posterior, position))  # noqa: E731
    xla = lambda: jax.block_until_ready(in_blocks(position, posterior.rows))  # noqa: E731
    contestants: dict[str, Callable[[], Any]] = {"ours": ours, "XLA": xla}
    if importlib.util.find_spec("torch") is None:
        progress("convolution: PyTorch is not installed, so there is no peer")
    else:
        contestants |= torch_evaluations(network, np.asarray(position), x, y)
        gradient = ours()[1] + position  # without the prior's
        for evaluate in list(contestants.values())[2:]:
            difference = np.abs(evaluate() - np.asarray(gradient)).max()
            assert difference <= LARGEST_DIFFERENCE * np.abs(gradient).max(), difference
    for evaluate in contestants.values():
        evaluate()
    timed = [lambda evaluate=evaluate: seconds_of(evaluate) for evaluate in contestants.values()]
    peak, *medians = interleave(sgemm_peak, *timed, repetitions=repetitions)
    seconds = dict(zip(contestants, medians, strict=True))
    torch_seconds = min((value for key, value in seconds.items() if key.startswith("torch")), default=None)
    arithmetic = N_IMAGES * flops(network) / 1e9
    per_second = {key: N_IMAGES / value for key, value in seconds.items()}
    note = f"{N_IMAGES:,} images, {network.dimension:,} parameters, {N_CORES} cores, {native.kernel_name()}"
    measured = ", ".join(f"{key} {1e3 * value:.1f} ms" for key, value in seconds.items())
    return [
        Row(
            name=f"{name} gradient against PyTorch",
            value=per_second["ours"],
            unit="images/s",
            peer=None if torch_seconds is None else N_IMAGES / torch_seconds,
            ratio=None if torch_seconds is None else torch_seconds / seconds["ours"],
            low=None if torch_seconds is None else bar,
            note=f"{note}; {measured}",
        ),
        Row(
            name=f"{name} gradient, share of peak",
            value=arithmetic / seconds["ours"],
            unit="GFLOP/s",
            peer=peak,
            ratio=arithmetic / seconds["ours"] / peak,
            note=f"{note}; peer: sgemm; XLA alone {arithmetic / seconds['XLA']:.1f} GFLOP/s",
        ),
    ]


def flops(network: ConvNet) -> int:
    """Return the arithmetic of one image: products forward, for weights and, but in the first layer, for inputs."""
    total = 0
    for index, stage in enumerate(network.stages):
        height, width = stage.convolved
        total += (2 if index == 0 else 3) * 2 * height * width * stage.fan_in * stage.convolution.filters
    sizes = network.dense_sizes
    return total + sum(3 * 2 * fan_in * fan_out for fan_in, fan_out in pairwise(sizes))


def torch_evaluations(
    network: ConvNet, position: np.ndarray, x: np.ndarray, y: np.ndarray
) -> dict[str, Callable[[], np.ndarray]]:
    """Return functions that evaluate the gradient by PyTorch, as one flat vector in our order."""
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(N_CORES)
    labels = torch.tensor(y, dtype=torch.long)
    height, width, channels = network.input_shape
    plain = torch.tensor(x.reshape(-1, height, width, channels)).permute(0, 3, 1, 2)

    def evaluation(layout: Any) -> Callable[[], np.ndarray]:
        model = torch_model(torch, network, position).to(memory_format=layout)
        images = plain.contiguous(memory_format=layout)

        def evaluate() -> np.ndarray:
            model.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels, reduction="sum").backward()
            return flat_gradient(network, model)

        return evaluate

    layouts = {"torch": torch.contiguous_format, "torch channels last": torch.channels_last}
    return {name: evaluation(layout) for name, layout in layouts.items()}


def torch_model(torch: Any, network: ConvNet, position: np.ndarray) -> Any:
    """Return the same network with the same weights; it flattens height, width, channel as ours does."""
    nn, modules, start = torch.nn, [], 0
    for stage in network.stages:
        convolution = stage.convolution
        module = nn.Conv2d(stage.channels, convolution.filters, convolution.kernel, padding=convolution.padding)
        weights = position[start : start + stage.fan_in * convolution.filters]
        shape = (convolution.kernel, convolution.kernel, stage.channels, convolution.filters)
        start = fill(torch, module, weights.reshape(shape).transpose(3, 2, 0, 1), position, start + weights.size)
        modules += [module, nn.ReLU()] + ([nn.AvgPool2d(convolution.pool)] if convolution.pool > 1 else [])
    modules.append(channels_last(torch))
    sizes = network.dense_sizes
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        module = nn.Linear(fan_in, fan_out)
        weights = position[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start = fill(torch, module, weights.T, position, start + weights.size)
        modules += [module] + ([nn.ReLU()] if index + 2 < len(sizes) else [])
    return nn.Sequential(*modules)


def channels_last(torch: Any) -> Any:
    """Return a module that flattens images in the order height, width, channel."""

    class Flatten(torch.nn.Module):
        def forward(self, images: Any) -> Any:
            return images.permute(0, 2, 3, 1).reshape(len(images), -1)

    return Flatten()


def fill(torch: Any, module: Any, weights: np.ndarray, position: np.ndarray, start: int) -> int:
    """Give a module its weights, and the bias that follows them; return where the next layer starts."""
    stop = start + len(module.bias)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weights.copy()))
        module.bias.copy_(torch.tensor(position[start:stop].copy()))
    return stop


def flat_gradient(network: ConvNet, model: Any) -> np.ndarray:
    """Return the gradients of a module's parameters in our order; PyTorch minimizes, so the sign is the other."""
    parts = []
    for module in model:
        if not hasattr(module, "weight"):
            continue
        weights = module.weight.grad.numpy()
        parts += [(weights.transpose(2, 3, 1, 0) if weights.ndim == 4 else weights.T).ravel(), module.bias.grad.numpy()]
    return -np.concatenate(parts)


if __name__ == "__main__":
    command_line(main)
