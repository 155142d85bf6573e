"""In a browser: a whole predictive distribution without a server, from one page of 100 kB.

Twelve thousand draws become 24 networks, which are written as numbers into a page. Fifty lines of JavaScript there
compute the distribution anew whenever a slider moves: no server, no library, nothing is fetched. Beyond the rows that
the model has seen, ignorance grows and the density becomes wide. The script writes `strength.html`; open it.

Picture: Four predictive densities of strength by all draws and, over each, as a dashed line, that of the student. They
lie on each other; beyond the data both are several times as wide, and that of the student is uneven.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import mile

COLUMNS = {"cement": (100.0, 500.0), "water": (120.0, 250.0), "age": (1.0, 90.0)}
HERE = np.array([[200, 180, 28], [300, 180, 28], [450, 150, 60], [900, 150, 60]], float)

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>A predictive distribution in a page</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
label { display: grid; grid-template-columns: 6rem 1fr 4rem; gap: 1rem; align-items: center }
svg { width: 100%; height: auto; margin: 1rem 0 } output { font-variant-numeric: tabular-nums; text-align: right }
</style>
<h1>Strength of a mixture</h1>
<p>Move a slider. The columns of the table end at the middle of each: to the right of it the model has seen nothing.</p>
<form id="sliders"></form>
<svg viewBox="0 0 640 240" role="img" aria-label="Predictive density of strength">
<path id="density" fill="#9cc5d6" stroke="#1f6f8b" stroke-width="2"/><path id="ends" stroke="#e07a2f" stroke-width="2"/>
<path d="M0 212H640" stroke="#555"/><g id="ticks" fill="#555" font-size="22" text-anchor="middle"></g></svg>
<p id="words" aria-live="polite"></p>
<script>
const model = /*MODEL*/;
const activate = {
  relu: x => Math.max(0, x), tanh: Math.tanh, sigmoid: x => 1 / (1 + Math.exp(-x)), silu: x => x / (1 + Math.exp(-x)),
  gelu: x => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
}[model.activation];

// Each network is one component, a normal distribution: its mean and standard deviation on the scale of y.
function components(row) {
  const x = row.map((value, i) => (value - model.shift[i]) / model.scale[i]);
  return model.networks.map(weights => {
    let units = x, start = 0;
    for (let layer = 1; layer < model.sizes.length; layer++) {
      const [n, m] = [model.sizes[layer - 1], model.sizes[layer]], next = [];
      for (let j = 0; j < m; j++) {
        let sum = weights[start + n * m + j];
        for (let i = 0; i < n; i++) sum += units[i] * weights[start + i * m + j];
        next.push(layer < model.sizes.length - 1 ? activate(sum) : sum);
      }
      start += (n + 1) * m;
      units = next;
    }
    const noise = Math.hypot(1 / (Math.exp(-units[1]) + 1 / model.limit), model.floor);
    return [model.center + model.unit * units[0], model.unit * noise];
  });
}
const average = values => values.reduce((sum, value) => sum + value, 0) / values.length;
const density = (parts, y) => average(parts.map(([m, s]) => Math.exp(-0.5 * ((y - m) / s) ** 2) / s / 2.5066283));

// Mean, both parts of the standard deviation, and the ends of the 90 % interval from a fine grid.
function summary(row) {
  const parts = components(row), mean = average(parts.map(p => p[0]));
  const noise = Math.sqrt(average(parts.map(p => p[1] ** 2)));
  const ignorance = Math.sqrt(average(parts.map(p => (p[0] - mean) ** 2)));
  const low = Math.min(...parts.map(([m, s]) => m - 5 * s)), high = Math.max(...parts.map(([m, s]) => m + 5 * s));
  const step = (high - low) / 4000, ends = [];
  for (let i = 0, sum = 0; i < 4000; i++) {
    const before = sum, y = low + (i + 0.5) * step;
    sum += density(parts, y) * step;
    for (const level of [0.05, 0.95]) if (before < level && sum >= level) ends.push(y);
  }
  return {parts, mean, noise, ignorance, interval: ends};
}
function draw() {
  const inputs = [...document.querySelectorAll("input")], now = summary(inputs.map(input => +input.value));
  inputs.forEach(input => input.nextElementSibling.value = input.value);
  const [first, last] = model.shown, place = y => 640 * (y - first) / (last - first);
  const points = [...Array(321).keys()].map(i => first + (last - first) * i / 320);
  const heights = points.map(y => density(now.parts, y)), top = Math.max(...heights);
  const line = points.map((y, i) => `${place(y).toFixed(1)} ${(212 - 200 * heights[i] / top).toFixed(1)}`);
  document.getElementById("density").setAttribute("d", `M0 212L${line.join("L")}L640 212Z`);
  document.getElementById("ends").setAttribute("d", now.interval.map(y => `M${place(y)} 205V222`).join(""));
  const shown = [now.mean, ...now.interval, now.noise, now.ignorance];
  const [mean, low, high, noise, ignorance] = shown.map(value => value.toFixed(1));
  document.getElementById("words").textContent =
    `${mean} on average, ${low} to ${high} with 90 %. Noise ${noise}, ignorance ${ignorance}.`;
}
model.columns.forEach(([name, low, high]) => document.getElementById("sliders").insertAdjacentHTML("beforeend",
  `<label>${name}<input type="range" min="${low}" max="${2 * high - low}" value="${(low + high) / 2}" step="any">
   <output></output></label>`));
document.getElementById("ticks").innerHTML = [1, 2, 3, 4].map(i => `<text x="${128 * i}" y="236">` +
  `${(model.shown[0] + (model.shown[1] - model.shown[0]) * i / 5).toFixed(0)}</text>`).join("");
document.addEventListener("input", draw);
draw();
</script>
"""


def mixtures(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what mixtures are made of, and their strength."""
    x = np.column_stack([rng.uniform(low, high, n) for low, high in COLUMNS.values()])
    strength = 22 * x[:, 0] / x[:, 1] * np.log1p(x[:, 2]) / np.log(91) + 8
    return x, strength + (1 + strength / 15) * rng.normal(size=n)


def as_numbers(student: mile.MileRegressor, y: np.ndarray) -> dict[str, object]:
    """Return everything that a page needs to predict as the student does."""
    fit = student.fit_
    standardizer, response = fit.encoder.tensors(), fit.response
    return {
        "networks": [[float(f"{weight:.6g}") for weight in draw] for draw in fit.chains.draws[:, 0]],
        "sizes": [fit.network.n_inputs, *fit.network.hidden, 2],
        "activation": fit.network.activation,
        "limit": 10.0,  # of the bounded link of scales, in likelihoods/_links.py
        "floor": float(fit.likelihood.floor),
        "shift": standardizer["shift"].tolist(),
        "scale": standardizer["scale"].tolist(),
        "center": float(response.decode(np.zeros(1))[0]),
        "unit": response.unit,
        "columns": [[name, *ends] for name, ends in COLUMNS.items()],
        "shown": [float(y.min() - 30), float(y.max() + 80)],
    }


def main() -> None:
    """Fit, distill, write the page, and draw both models."""
    x, y = mixtures(np.random.default_rng(0), 300)
    model = mile.MileRegressor(random_state=0).fit(x, y)
    student = model.distill(x, y, loss=None)
    print(student.distillation_)
    page = PAGE.replace("/*MODEL*/", json.dumps(as_numbers(student, y), separators=(",", ":")))
    Path("strength.html").write_text(page, encoding="utf-8")
    print(f"strength.html: {len(page) / 1e3:.0f} kB")

    _, axis = plt.subplots(figsize=(6.4, 3.4), layout="constrained", dpi=110)
    at = np.linspace(-20, 180, 300)
    for row, color in zip(HERE, ("#7a7a7a", "#e07a2f", "#1f6f8b", "#a33b5c"), strict=True):
        for one, style in ((model, "-"), (student, (0, (4, 3)))):
            log_density = one.predictive(np.tile(row, (len(at), 1))).log_prob(at)
            width = 3.5 if one is model else 1.5
            shade = 0.4 if one is model else 1.0
            name = f"cement {row[0]:.0f}, age {row[2]:.0f}" if one is student else None
            axis.plot(at, np.exp(log_density), color=color, alpha=shade, linewidth=width, linestyle=style, label=name)
    axis.set(xlabel="strength", ylabel="density", ylim=(0, None), xlim=(at[0], at[-1]))
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("in_a_browser.png")


if __name__ == "__main__":
    main()
