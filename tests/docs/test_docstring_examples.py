"""Every example in a docstring of the package runs and shows what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

import mile

# Examples that take six seconds of processor time or more. `MileRegressor` and `sample` do too, and are the first that
# users run, so they stay among the fast tests.
SLOW = {
    "mile.diagnose.diagnosis.diagnose",
    "mile.estimators._classifier.MileClassifier",
    "mile.estimators._fitted.AbstractFittedModel.report",
    "mile.estimators._text.MileTextClassifier",
    "mile.report.render",
}


def modules() -> list[str]:
    """Return the modules whose source has an example; to import all others would take longer than to run some."""
    root = Path(mile.__file__).parent
    paths = [path.relative_to(root.parent) for path in sorted(root.rglob("*.py")) if ">>> " in path.read_text()]
    return [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]


def examples() -> dict[str, doctest.DocTest]:
    """Return the examples of each docstring, by the name of what it documents."""
    finder, found = doctest.DocTestFinder(), {}
    for name in modules():
        tests = finder.find(importlib.import_module(name), name, globs={})
        found |= {test.name: test for test in tests if test.examples}
    return found


EXAMPLES = examples()
CASES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in sorted(EXAMPLES)]


@pytest.mark.parametrize("name", CASES)
def test_example_runs_and_shows_what_it_says(name):
    runner = doctest.DocTestRunner(verbose=False)
    report = []
    runner.run(EXAMPLES[name], out=report.append)
    assert runner.failures == 0, "".join(report)


def test_examples_were_found_and_the_slow_ones_are_among_them():
    assert len(EXAMPLES) >= 20
    assert EXAMPLES.keys() >= SLOW
    assert len(SLOW) < len(EXAMPLES)
