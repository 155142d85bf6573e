"""Chains on several devices: simulated ones of the CPU, in processes of their own because JAX starts once."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import runs

from mile.execution import Devices, InProcess

PROGRAM = """
from mile.execution import Devices, InProcess
four = Devices(count=4)
import jax
import numpy as np
import runs
assert len(jax.devices()) == 4
one = runs.begin(None)
for devices in (Devices(count=2), four):
    many = runs.begin(None, backend=devices)
    for name in ("draws", "logdensity", "energy_change"):
        np.testing.assert_array_equal(getattr(many.chains, name), getattr(one.chains, name))
    np.testing.assert_array_equal(many.members.positions, one.members.positions)
    np.testing.assert_array_equal(many.chains.history["phase I"], one.chains.history["phase I"])
"""


@pytest.mark.parametrize("path", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_two_and_four_give_the_bits_of_one(path):
    environment = (
        os.environ | {"PYTHONPATH": str(Path(runs.__file__).parent)} | ({"MILE_NATIVE": "0"} if path == "xla" else {})
    )
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr


def test_a_group_has_a_chain_on_each_device_and_is_filled_up():
    devices = Devices(count=jax.local_device_count())
    size = jax.local_device_count() * InProcess().width
    assert devices.groups(range(size + 1)) == [list(range(size)), [size] * size]


def test_more_than_there_are_is_an_error_that_says_when_to_ask():
    with pytest.raises(ValueError, match=r"asks for 99 devices and JAX has \d+ .* before JAX is first used"):
        Devices(count=99).mesh  # noqa: B018


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_their_number_must_be_a_number(count):
    with pytest.raises(ValueError, match="count"):
        Devices(count=count)
