"""The house rules that a reader relies on, held by reading the source."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "mile"
FILES = sorted(SOURCE.rglob("*.py"))

# Each module may import only from ranks before its own; modules of one rank are siblings and stay apart,
# except inside `samplers`, a folder with an order of its own.
RANKS = [
    ["_types", "_checks", "_compilation", "_errors", "_random", "_ess", "_progress"],
    ["data", "networks", "likelihoods", "priors"],
    ["native"],
    ["posterior"],
    ["execution"],
    ["optimize", "samplers"],
    ["sampling"],
    ["predict"],
    ["metrics"],
    ["fitting", "inputs"],
    ["estimators"],
]
RANK = {name: rank for rank, names in enumerate(RANKS) for name in names}


def module_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_modules(path: Path) -> set[str]:
    """First part below `mile` of everything a file imports from it, type-checking blocks left out."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "mile" else [f"mile.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("mile.")}
    return found


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "__init__.py"], ids=str)
def test_imports_go_one_way(path):
    module = module_of(path)
    for imported in imported_modules(path) - {module}:
        assert RANK[imported] < RANK[module] or (RANK[module] == 0 and imported == "_types"), (module, imported)


def test_every_module_has_a_rank():
    assert {module_of(path) for path in FILES if path.parent == SOURCE} - {"__init__"} <= set(RANK)


def test_blackjax_serves_as_an_oracle_in_tests_only():
    assert not [path for path in FILES if "blackjax" in {name.split(".")[0] for name in top_level_imports(path)}]


def test_nothing_sums_around_missing_values_and_nothing_unpickles():
    forbidden = {"nansum", "nanmean", "pickle", "eval", "exec"}
    for path in FILES:
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not names & forbidden, (path.name, names & forbidden)


def test_only_storage_opens_files():
    for path in FILES:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not [call for call in calls if getattr(call.func, "id", "") == "open"], path.name


def top_level_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found
