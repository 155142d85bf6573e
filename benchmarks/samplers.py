"""Chain-steps per second against BlackJAX on the airfoil size: its kernel vmapped, and one chain per CPU device.

The peers run in processes of their own that stay alive, so that all three take turns. Compilation is not counted.
"""

import os
import subprocess
import sys
from contextlib import ExitStack

from _chains import SamplingTimer
from _common import AIRFOIL, HERE, N_CHAINS, N_CORES, Row, command_line, interleave, progress


class Peer:
    """A process that makes one run of BlackJAX chains whenever it is asked to."""

    def __init__(self, layout: str, n_steps: int, n_devices: int) -> None:
        self._n_steps = n_steps
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "_peer_blackjax.py"), layout, str(n_steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # By the environment, because importing BlackJAX already starts the devices.
            env=os.environ | {"JAX_NUM_CPU_DEVICES": str(n_devices)},
        )
        self._answer()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input ends it

    def chain_steps(self) -> float:
        """Return chain-steps per second of one run."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return N_CHAINS * self._n_steps / float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the BlackJAX process ended early; its message stands above")
        return line


def main(quick: bool = False) -> list[Row]:
    n_steps = 100 if quick else 1_000
    with ExitStack() as stack:
        progress("samplers: compiling BlackJAX vmapped")
        vmapped = stack.enter_context(Peer("vmapped", n_steps, 1))
        progress("samplers: compiling BlackJAX one chain per device")
        devices = stack.enter_context(Peer("devices", n_steps, N_CORES))
        progress("samplers: compiling ours")
        timer = SamplingTimer(*AIRFOIL, (16, 16), N_CHAINS, seconds=0.2 if quick else 1.5)
        timer.step_seconds()
        progress("samplers: taking turns")
        ours, *peers = interleave(
            lambda: N_CHAINS / timer.step_seconds(),
            vmapped.chain_steps,
            devices.chain_steps,
            repetitions=3 if quick else 7,
        )
    described = [
        ("BlackJAX vmapped", f"{N_CHAINS} chains vmapped inside one scan", 5.0),
        ("BlackJAX, a chain per device", f"{N_CORES} CPU devices, one chain at a time on each", 2.5),
    ]
    return [
        Row(
            name=f"sampler against {name}",
            value=ours,
            unit="chain-steps/s",
            peer=peer,
            ratio=ours / peer,
            low=bar,
            note=f"airfoil size, 16-16; peer: {how}",
        )
        for (name, how, bar), peer in zip(described, peers, strict=True)
    ]


if __name__ == "__main__":
    command_line(main)
