"""Every case that has ever failed under `make test-fuzz` does not fail any more, nor do a few of each kind."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
import fuzz
import fuzz_targets

_FEW = 3  # of each target, besides the corpus


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "good").mkdir()
    fuzz_targets.prepare(folder / "good")
    return folder


def test_cases_that_failed_once_are_mended(root, monkeypatch):
    monkeypatch.setattr(fuzz_targets, "RESUMED", 0.0)  # crash-and-resume tests do that
    fence = fuzz.Fence(root)
    cases = fuzz.read_corpus() + [(name, number) for name in fuzz_targets.TARGETS for number in range(_FEW)]
    wrong = {case: found for case in cases if (found := fuzz.try_case(*case, root, fence))}
    assert not wrong, "\n\n".join(f"{case}\n{found}" for case, found in wrong.items())
