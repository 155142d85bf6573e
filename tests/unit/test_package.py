"""The package as users meet it: a light import, the public names, and examples that run."""

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mile

ROOT = Path(__file__).parents[2]
README_BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
MODULES = {*mile._MODULES}


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


def names_taken_from_mile(tree: ast.AST) -> set[str]:
    """Names imported from the package or read as its attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mile":
            names |= {alias.name if node.module == "mile" else node.module for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mile":
            names.add(node.attr)
    return names


def test_modules_of_functions_need_no_import_of_their_own():
    run_python("import mile; mile.plot.trace, mile.metrics.lppd, mile.convergence.ess, mile.diagnose.diagnose")


def test_the_readme_has_examples():
    assert len(README_BLOCKS) >= 2


@pytest.mark.parametrize("block", README_BLOCKS, ids=range(len(README_BLOCKS)))
def test_readme_code_compiles_and_uses_public_names_only(block):
    compile(block, "README.md", "exec")
    names = names_taken_from_mile(ast.parse(block))
    assert names
    assert names <= {*mile.__all__, *MODULES}


@pytest.mark.parametrize("block", README_BLOCKS, ids=range(len(README_BLOCKS)))
def test_readme_code_gives_arguments_and_asks_for_attributes_that_exist(block):
    """Each keyword given to a name of the package is one of its arguments, each method called on a model is one."""
    tree = ast.parse(block)
    checked = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if called in mile.__all__:
            assert {keyword.arg for keyword in node.keywords} <= set(
                inspect.signature(getattr(mile, called)).parameters
            )
            checked += 1
        elif isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "model":
            assert hasattr(mile.MileRegressor, called)
            checked += 1
    assert checked
