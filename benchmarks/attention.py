"""Value and gradient of the log likelihood of the paper's attention network ATT v2, against PyTorch on CPU.

1,024 reviews of up to 70 random tokens, 55,778 parameters. Both compute the same function; PyTorch as it is usually
written, with its fused attention and with plain products, of which the faster counts, on all cores. Ours runs as chains
do, one evaluation per core side by side, and once more one at a time. Peak and contestants take turns. The arithmetic
counted is that of the usual way: projections of every token, scores, values at every position and their gradients.
Ours does less of it for the same numbers: it projects every token of the vocabulary once, and takes the mean over
positions before the values and the output projection.
"""

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from _common import N_CORES, Row, command_line, interleave, progress, seconds_of, sgemm_peak

from mile.execution import InProcess
from mile.likelihoods import Categorical
from mile.networks import ATT_V2, Attention, FixedArray
from mile.padded_rows import pad_rows
from mile.posterior import log_likelihood

N_REVIEWS = 1_024
N_CLASSES = 2
BAR = 1.0  # times the speed of PyTorch
LARGEST_DIFFERENCE = 1e-3  # between the two gradients, relative to the largest entry


def main(quick: bool = False) -> list[Row]:
    network, position, ids, y = problem()
    ours = our_evaluation(network, position, ids, y)
    backend, arithmetic = InProcess(n_threads=N_CORES), gflop(network, len(ids))
    measures: dict[str, Callable[[], float]] = {
        "peak": sgemm_peak,
        "side by side": lambda: seconds_of(lambda: backend.map(lambda _: ours(), range(N_CORES))) / N_CORES,
        "alone": lambda: seconds_of(ours),
    }
    if importlib.util.find_spec("torch") is None:
        progress("attention: PyTorch is not installed, so there is no peer")
    else:
        for name, evaluate in torch_evaluations(network, position, ids, y).items():
            check_same(ours(), evaluate())
            measures[name] = lambda evaluate=evaluate: seconds_of(evaluate)
    progress("attention: timing")
    medians = interleave(*measures.values(), repetitions=3 if quick else 9)
    seconds = dict(zip(measures, medians, strict=True))
    peak = seconds.pop("peak")
    torch_seconds = min((value for name, value in seconds.items() if name.startswith("torch")), default=None)
    rows = []
    for name in ("side by side", "alone"):
        note = f"{N_REVIEWS:,} reviews, {name} on {N_CORES} cores, {1e3 * seconds[name]:.0f} ms an evaluation"
        rows.append(
            Row(
                name=f"ATT v2 gradient, {name}",
                value=1.0 / seconds[name],
                unit="evaluations/s",
                peer=None if torch_seconds is None else 1.0 / torch_seconds,
                ratio=None if torch_seconds is None else torch_seconds / seconds[name],
                low=None if torch_seconds is None else BAR,
                note=note + ("; PyTorch is not installed" if torch_seconds is None else "; peer: PyTorch"),
            )
        )
    rate = arithmetic / seconds["side by side"]
    rows.append(
        Row(
            name="ATT v2 gradient, usual arithmetic",
            value=rate,
            unit="GFLOP/s",
            peer=peak,
            ratio=rate / peak,
            note=f"{arithmetic:.1f} GFLOP an evaluation; peer: sgemm",
        )
    )
    return rows


def problem() -> tuple[Attention, np.ndarray, np.ndarray, np.ndarray]:
    """Draw reviews of random lengths, classes, embeddings and weights."""
    rng = np.random.default_rng(0)
    shape = (ATT_V2.vocabulary + ATT_V2.context, ATT_V2.width)
    table = rng.normal(0.0, 0.3, shape).astype(np.float32)
    network = dataclasses.replace(ATT_V2, embedding=FixedArray(table)).sized(ATT_V2.input_shape, N_CLASSES)
    ids = rng.integers(1, network.vocabulary, (N_REVIEWS, network.context))
    lengths = rng.integers(10, 2 * network.context, N_REVIEWS)  # about half are cut, as most reviews are
    ids[np.arange(network.context) >= lengths[:, None]] = 0
    y = rng.integers(0, N_CLASSES, N_REVIEWS).astype(np.int32)
    noise = 0.1 * rng.standard_normal(network.dimension, np.float32)
    return network, np.asarray(network.init(jax.random.key(0))) + noise, ids, y


def our_evaluation(network: Attention, position: np.ndarray, ids: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    rows, start = pad_rows(ids.astype(np.float32), y), jax.device_put(position)
    likelihood = Categorical(N_CLASSES)
    evaluate = jax.jit(jax.value_and_grad(lambda position, rows: log_likelihood(network, likelihood, position, rows)))
    jax.block_until_ready(evaluate(start, rows))
    return lambda: jax.block_until_ready(evaluate(start, rows))


def torch_evaluations(
    network: Attention, position: np.ndarray, ids: np.ndarray, y: np.ndarray
) -> dict[str, Callable[[], Any]]:
    """Return the same as PyTorch code, with fused attention and with plain products."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(N_CORES)
    tokens, labels, table = torch.tensor(ids), torch.tensor(y).long(), torch.tensor(network.embedding.values)
    present, weights, start = tokens > 0, [], 0
    for layer in network.layers:
        for shape in ((layer.fan_in, layer.n_weights // layer.fan_in), (layer.n_biases,)):
            stop = start + int(np.prod(shape))
            weights.append(torch.tensor(position[start:stop].reshape(shape), requires_grad=True))
            start = stop

    def fused(query: Any, key: Any, value: Any) -> Any:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=present[:, None, None])

    def plain(query: Any, key: Any, value: Any) -> Any:
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        return scores.masked_fill(~present[:, None, None], -torch.inf).softmax(-1) @ value

    def evaluate(attend: Callable) -> tuple[Any, list[Any]]:
        x = table[tokens] + table[network.vocabulary :]
        layers = iter(zip(weights[::2], weights[1::2], strict=True))
        split = [
            (x @ matrix + bias).unflatten(-1, (network.heads, -1)).transpose(1, 2) for matrix, bias in _some(layers, 3)
        ]
        matrix, bias = next(layers)
        outputs = attend(*split).transpose(1, 2).flatten(2) @ matrix + bias
        counted = present[..., None]
        hidden = (outputs * counted).sum(1) / counted.sum(1)
        for index, (matrix, bias) in enumerate(layers):
            hidden = (functional.gelu(hidden, approximate="tanh") if index else hidden) @ matrix + bias
        value = -functional.cross_entropy(hidden, labels, reduction="sum")
        return value.detach(), torch.autograd.grad(value, weights)

    return {"torch fused": lambda: evaluate(fused), "torch plain": lambda: evaluate(plain)}


def _some(iterator: Any, count: int) -> list[Any]:
    return [next(iterator) for _ in range(count)]


def check_same(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> None:
    """Make sure that both did the same work."""
    gradient = np.concatenate([part.numpy().ravel() for part in theirs[1]])
    difference = np.abs(np.asarray(ours[1]) - gradient).max() / np.abs(gradient).max()
    if not np.isclose(float(ours[0]), float(theirs[0]), rtol=1e-4) or difference > LARGEST_DIFFERENCE:
        raise RuntimeError(f"the two gradients differ by {difference:g}.")


def gflop(network: Attention, n_texts: int) -> float:
    """Return the arithmetic of value and gradient as usually written; fixed embeddings need no gradient."""
    context, width, attention = network.context, network.width, network.attention_width
    projections = context * width * 3 * attention
    rest = 2 * context * context * attention + context * attention * width
    rest += sum(n * m for n, m in zip(network.dense_sizes, network.dense_sizes[1:], strict=False))
    return 2e-9 * n_texts * (2 * projections + 3 * rest)


if __name__ == "__main__":
    command_line(main)
