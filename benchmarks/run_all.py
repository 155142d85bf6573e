"""Run every benchmark, write RESULTS.md and results.png. A bar that is missed is shown; only a crash is an error."""

import argparse
import ast
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from _common import COLUMNS, HERE, N_CORES, Row
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from mile import native

SCRIPTS = (
    "throughput",
    "convolution",
    "attention",
    "samplers",
    "priors",
    "heads",
    "whole_fit",
    "growth",
    "startup",
    "memory",
    "encoding",
    "prediction",
    "runs",
)
PACKAGES = ("mile-bnn", "jax", "jaxlib", "blackjax", "numpy", "scipy", "scikit-learn")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """What one script gave; rows are None if it crashed."""

    script: str
    rows: list[Row] | None
    seconds: float

    @property
    def title(self) -> str:
        return self._documentation[0].replace("\n", " ").removesuffix(".")

    @property
    def method(self) -> str:
        return "\n\n".join(self._documentation[1:])

    @property
    def _documentation(self) -> list[str]:
        return (ast.get_docstring(ast.parse((HERE / f"{self.script}.py").read_text())) or "").split("\n\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small budgets; written to files of other names")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, help="run some of the scripts")
    arguments = parser.parse_args()
    began = time.perf_counter()
    sections = []
    for index, script in enumerate(arguments.only):
        print(f"[{index + 1}/{len(arguments.only)}] {script}, {time.perf_counter() - began:.0f} s so far", flush=True)
        sections.append(run(script, arguments.quick))
    suffix = "-quick" if arguments.quick else ""
    picture = HERE / f"results{suffix}.png"
    draw(sections, picture)
    report = HERE / f"RESULTS{suffix}.md"
    report.write_text(write(sections, picture.name, time.perf_counter() - began))
    print(f"Wrote {report.name} and {picture.name} after {time.perf_counter() - began:.0f} s")
    return int(any(section.rows is None for section in sections))


def run(script: str, quick: bool) -> Section:
    """Run one script in a process of its own, so that none inherits another's compiled programs or threads."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rows.json"
        command = [sys.executable, str(HERE / f"{script}.py"), "--json", str(output), *(["--quick"] if quick else [])]
        failed = subprocess.run(command, check=False).returncode
        rows = None if failed else [Row(**row) for row in json.loads(output.read_text())]
    return Section(script=script, rows=rows, seconds=time.perf_counter() - began)


def write(sections: list[Section], picture: str, seconds: float) -> str:
    """Return the report in Markdown."""
    judged = [row for section in sections for row in section.rows or () if row.passed is not None]
    crashed = [section.script for section in sections if section.rows is None]
    lines = [
        "# Benchmark results",
        "",
        "Written by `make bench`; do not edit. Ours and the peer ran side by side, so ratios are what counts.",
        "",
        f"- Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, after {seconds / 60:.0f} minutes",
        f"- Machine: {machine()}",
        f"- Gradients by: {native.kernel_name()}",
        f"- Versions: Python {platform.python_version()}, {versions()}",
        f"- Bars reached: {sum(bool(row.passed) for row in judged)} of {len(judged)}"
        + (f"; **crashed: {', '.join(crashed)}**" if crashed else ""),
        "",
        f"![Shares of the peak and speed ratios]({picture})",
    ]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.method, ""]
        if section.rows is None:
            lines.append(f"**`{section.script}.py` crashed; its message is on the terminal.**")
            continue
        lines += ["| " + " | ".join((*COLUMNS, "how")) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
        lines += ["| " + " | ".join((*row.cells, row.note)) + " |" for row in section.rows]
        lines += ["", f"`{section.script}.py`, {section.seconds:.0f} s."]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Describe what the numbers depend on."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return (
        f"{names[0] if names else platform.processor()}, {N_CORES} cores, {memory:.0f} GB, "
        f"{platform.system()} {platform.machine()}; sgemm by {blas['name']} {blas['version']}"
    )


def versions() -> str:
    """Name the packages, and the commit where there is one."""
    named = [f"{package} {importlib.metadata.version(package)}" for package in PACKAGES]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return ", ".join(named) + (f", commit {commit.stdout.strip()}" if commit.returncode == 0 else "")


def draw(sections: list[Section], path: Path) -> None:
    """Draw shares of the peak and speed ratios, each with its bar."""
    compared = [row for section in sections for row in section.rows or () if row.ratio is not None]
    shares = [row for row in compared if row.unit == "GFLOP/s"]
    speeds = [row for row in compared if row.unit != "GFLOP/s"]
    mpl.use("agg")
    heights = [max(1, len(shares)), max(1, len(speeds))]
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(8.5, 1.8 + 0.36 * sum(heights)), height_ratios=heights, layout="constrained"
    )
    _dots(upper, shares, "share of the sgemm peak, %", scale=100.0)
    upper.set_xlim(0, 100)
    _dots(lower, speeds, "times as fast as the peer", scale=1.0)
    lower.set_xlim(left=0)
    lower.axvline(1.0, color="0.6", linewidth=1, zorder=0)
    keys = [("o", _COLORS[True], "bar reached"), ("o", _COLORS[False], "missed"), ("o", _COLORS[None], "no bar")]
    handles = [Line2D([], [], marker=mark, color=color, linestyle="", label=label) for mark, color, label in keys]
    handles.append(Line2D([], [], marker="|", color="black", markersize=14, linestyle="", label="bar"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, handletextpad=0.2)
    figure.savefig(path, dpi=150)
    plt.close(figure)


_COLORS = {True: "#1a7f4b", False: "#c8451b", None: "#7a7a7a"}


def _dots(axes: Axes, rows: list[Row], label: str, scale: float) -> None:
    positions = range(len(rows))
    axes.hlines(positions, 0, [scale * row.judged for row in rows], color="0.85", linewidth=3, zorder=1)
    axes.scatter(
        [scale * row.judged for row in rows], positions, c=[_COLORS[row.passed] for row in rows], s=55, zorder=3
    )
    barred = [(scale * row.low, position) for position, row in enumerate(rows) if row.low is not None]
    if barred:
        axes.scatter(*zip(*barred, strict=True), marker="|", s=320, color="black", linewidths=2, zorder=2)
    for position, row in enumerate(rows):
        axes.text(1.02, position, f"{scale * row.judged:.3g}", transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(positions, [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel(label)
    axes.grid(axis="x", color="0.93")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


if __name__ == "__main__":
    sys.exit(main())
