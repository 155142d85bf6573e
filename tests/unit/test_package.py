"""The package as users meet it: a light import, the public names, and examples that run."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mile

ROOT = Path(__file__).parents[2]


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_loads_nothing_heavy():
    loaded = run_python("import sys, mile; print(*{name.split('.')[0] for name in sys.modules})").split()
    assert "mile" in loaded
    assert not {"jax", "jaxlib", "sklearn", "numpy", "scipy", "optax", "rich", "pandas", "matplotlib"} & set(loaded)


def test_a_name_loads_what_it_needs():
    loaded = run_python("import sys, mile; mile.Gaussian; print(*{name.split('.')[0] for name in sys.modules})").split()
    assert "jax" in loaded
    assert "sklearn" not in loaded


def test_every_public_name_resolves_to_the_object_of_that_name():
    for name in mile.__all__:
        assert getattr(mile, name).__name__ == name


def test_public_names_are_listed_once_and_shown_by_dir():
    assert len(set(mile.__all__)) == len(mile.__all__)
    assert set(mile.__all__) <= set(dir(mile))


def test_every_public_name_has_a_docstring():
    assert not [name for name in mile.__all__ if not getattr(mile, name).__doc__]


def test_names_for_type_checkers_are_the_public_names():
    tree = ast.parse((ROOT / "src" / "mile" / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert {alias.name for statement in block.body for alias in statement.names} == set(mile.__all__)


def test_star_import_gives_the_public_names():
    names = run_python("from mile import *; print(*dir())").split()
    assert set(mile.__all__) <= set(names)


def test_version_is_that_of_the_installed_package():
    assert mile.__version__ == importlib.metadata.version("mile-bnn")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", mile.__version__)


@pytest.mark.parametrize("name", ["mile_regressor", "Regressor", "_private", "__wrapped__"])
def test_an_unknown_name_is_an_attribute_error_that_repeats_it(name):
    with pytest.raises(AttributeError, match=f"module 'mile' has no attribute '{name}'"):
        getattr(mile, name)
    assert not hasattr(mile, name)


def test_an_unknown_name_cannot_be_imported():
    with pytest.raises(ImportError, match="MileTransformer"):
        from mile import MileTransformer  # noqa: F401


def test_modules_of_functions_need_no_import_of_their_own():
    run_python("import mile; mile.plot.trace, mile.metrics.lppd, mile.convergence.ess, mile.diagnose.diagnose")
