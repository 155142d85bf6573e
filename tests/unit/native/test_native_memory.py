"""A call of the native kernel that gets no memory is an error of that call, never the end of the process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mile import native

pytestmark = [
    pytest.mark.skipif(native.kernel_name() == "xla", reason="the native kernel was not built"),
    pytest.mark.skipif(sys.platform != "linux", reason="the limit on a process's memory is that of Linux"),
]
PROGRAM = Path(__file__).parents[2] / "scarce_memory.py"


@pytest.fixture(scope="module")
def report():
    folders = filter(None, [str(PROGRAM.parent), os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])  # -6: std::terminate
    return json.loads(done.stdout)


def test_every_call_says_how_much_it_asked_for(report):
    messages = report["messages"]
    assert len(messages) == 18
    for name, message in messages.items():
        error = "MemoryError: " if name.startswith("plain") else "JaxRuntimeError: RESOURCE_EXHAUSTED: "
        assert message.startswith(error), (name, message)
        asked = re.search(r"the native kernel needs (\d+\.\d) (GB|MB)", message)
        assert asked, (name, message)
        bytes_asked = float(asked[1]) * {"GB": 1e9, "MB": 1e6}[asked[2]]
        assert 5e7 < bytes_asked < 1e9, (name, message)


def test_calls_of_plain_functions_say_for_what(report):
    for name in ("plain: outputs", "plain: summarize"):
        assert "a network with layers of 1,000,000, 1 and 2" in report["messages"][name]


def test_the_next_call_works(report):
    assert report["still works"]
