"""Whole fit at the paper's budget on the airfoil size, and ensemble training alone, against sklearn-contrib-bde 1.0.2.

Equal settings: 12 members of 5-16-16-2 with ReLU, 1,052 rows in the posterior, 132 rows for validation, Adam with
learning rate 1e-3 on full batches (the peer knows no mini-batches: its epoch is one Adam step, so 1,000 of them are
about 30 epochs of batches of 32), no early stopping but the best weights kept, standard normal prior, then 50,000
warm-up steps with an energy target falling from 0.5 to 0.1, and 10,000 steps of which every tenth is kept. What cannot
be made equal favors the peer: it takes its validation rows out of the 1,052, so it trains on fewer. It gets one CPU
device per core, which its users have to ask for.

Each fit runs in a process of its own and is timed without imports. Ours runs with an empty compilation cache, which
the bars count, and again with the cache it left. The peer, which keeps none, runs once; ours runs before and after it,
and the mean of the two counts.
"""

import functools
import importlib.metadata
import json
import subprocess
import sys
import tempfile

from _common import AIRFOIL, HERE, N_CORES, Row, command_line, progress, run_child

PEER = "sklearn-contrib-bde==1.0.2"
N_VALIDATION = 132
PAPER = {"epochs": 1_000, "warmup_steps": 50_000, "sampling_steps": 10_000, "n_draws": 1_000}
QUICK = {"epochs": 50, "warmup_steps": 500, "sampling_steps": 100, "n_draws": 10}


def main(quick: bool = False) -> list[Row]:
    settings = {"n_validation": N_VALIDATION} | (QUICK if quick else PAPER)
    ours = json.dumps({"n_fits": 1, "batch_size": AIRFOIL[0]} | settings)
    python = peer_python()
    before = _fit_cold_and_warm(ours)
    progress(f"whole fit: {PEER} (minutes)")
    peer = run_child(
        "_peer_bde.py",
        json.dumps(settings),
        python=python,
        environment={"XLA_FLAGS": f"--xla_force_host_platform_device_count={N_CORES}"},
    )
    after = _fit_cold_and_warm(ours)
    cold, warm = (
        {part: (first[part] + second[part]) / 2 for part in first} for first, second in zip(before, after, strict=True)
    )
    training = peer["ensemble"]["seconds"]
    peer_compiling = peer["compile_seconds"] + peer["ensemble"]["compile_seconds"]
    compiling = (
        f"compiling (summed over threads): ours {cold['compile_seconds']:.1f} s cold, {warm['compile_seconds']:.1f} s "
        f"warm, peer {peer_compiling:.1f} s; chains replaced: {cold['replaced']:g}"
    )
    compare = functools.partial(_compare, peer_name=f"{PEER.replace('==', ' ')}, {peer['devices']} devices")
    return [
        compare("whole fit, empty cache", cold["seconds"], peer["seconds"], compiling, low=4.0),
        compare("whole fit, warm cache", warm["seconds"], peer["seconds"], "second process of ours"),
        compare(
            "ensemble, empty cache",
            cold["ensemble"],
            training,
            f"{settings['epochs']:,} epochs; peer's compiling {peer['ensemble']['compile_seconds']:.1f} s",
            low=10.0,
        ),
        compare(
            "ensemble without compiling",
            warm["ensemble"],
            training - peer["ensemble"]["compile_seconds"],
            "ours with the warm cache, the peer's time less its compiling",
        ),
        compare(
            "warm-up and sampling, empty cache",
            cold["seconds"] - cold["ensemble"],
            peer["seconds"] - training,
            f"{settings['warmup_steps'] + settings['sampling_steps']:,} steps a chain",
        ),
    ]


def _fit_cold_and_warm(settings: str) -> list[dict[str, float]]:
    """Fit with an empty compilation cache, then again with what that left."""
    fits = []
    with tempfile.TemporaryDirectory() as cache:
        for state in ("empty", "warm"):
            progress(f"whole fit: ours, {state} compilation cache")
            # The library keeps its compiled programs under this folder.
            fit = run_child("_fit_child.py", settings, environment={"XDG_CACHE_HOME": cache})["fits"][0]
            fits.append({part: fit[part] for part in ("seconds", "compile_seconds", "replaced")})
            fits[-1]["ensemble"] = fit["stages"]["ensemble"]
    return fits


def _compare(name: str, ours: float, peer: float, note: str, *, peer_name: str, low: float | None = None) -> Row:
    return Row(
        name=name, value=ours, unit="s", peer=peer, ratio=peer / ours, low=low, note=f"{note}; peer: {peer_name}"
    )


def peer_python() -> str:
    """Return the interpreter of the peer's own environment, made on first use, with the same JAX as ours."""
    environment = HERE / ".venv-bde"
    python = str(environment / "bin" / "python")
    wanted = [PEER, f"jax=={importlib.metadata.version('jax')}"]
    stamp = environment / "installed"
    if not stamp.exists() or stamp.read_text() != " ".join(wanted):
        progress(f"installing {PEER} into {environment.name}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted], check=True)
        stamp.write_text(" ".join(wanted))
    return python


if __name__ == "__main__":
    command_line(main)
