"""The house rules that a reader relies on, held by reading the source."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "mile"
FILES = sorted(SOURCE.rglob("*.py"))

# Each module may import only from ranks before its own; modules of one rank are siblings and stay apart,
# except inside `samplers`, a folder with an order of its own.
RANKS = [
    ["_types", "_checks", "_compilation", "_errors", "_random", "_ess", "_progress", "_watch"],
    ["data", "networks", "likelihoods", "priors", "text"],
    ["native"],
    ["posterior"],
    ["storage", "execution"],
    ["optimize", "samplers"],
    ["blocks", "forecast", "configuration", "ensemble"],
    ["itinerary", "pretraining", "whereabouts"],
    ["journey"],
    ["sampling"],
    ["predict"],
    ["metrics", "labels"],
    ["datasets"],
    ["kept"],
    ["results", "convergence"],
    ["diagnose"],
    ["plot"],
    ["attempts", "monitoring"],
    ["fitting", "inputs", "report"],
    ["expectation", "images"],
    ["estimators"],
    ["loading", "mapping"],
    ["cli"],
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


def test_only_nuts_uses_blackjax():
    users = [path for path in FILES if "blackjax" in {name.split(".")[0] for name in top_level_imports(path)}]
    assert users == [SOURCE / "samplers" / "nuts.py"]


def test_nothing_sums_around_missing_values():
    for path in FILES:
        assert not names_in(path) & {"nansum", "nanmean"}, path.name


def test_nothing_turns_text_or_files_into_code():
    modules = {"pickle", "_pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve", "yaml", "runpy", "code"}
    words = {"pickle", "joblib", "dill", "marshal", "shelve", "yaml", "eval", "exec", "__import__", "allow_pickle"}
    words |= {"__reduce__", "__reduce_ex__", "find_class"}
    for path in FILES:
        assert not {name.split(".")[0] for name in top_level_imports(path)} & modules, path.name
        assert not names_in(path) & words, (path.name, names_in(path) & words)
        assert not {"np.load", "numpy.load", "jnp.load", "compile"} & calls_in(path), path.name
    # Public names are imported on first use, from a closed list.
    assert [path for path in FILES if "importlib.import_module" in calls_in(path)] == [SOURCE / "__init__.py"]


# What opens, changes or removes a file: functions, and methods of paths and arrays.
FILE_FUNCTIONS = {
    *("open", "os.open", "os.fdopen", "os.remove", "os.unlink", "os.rename", "os.replace", "os.truncate", "io.open"),
    *("np.memmap", "np.fromfile", "np.save", "np.savez", "np.savez_compressed", "np.savetxt", "np.loadtxt"),
    *("np.genfromtxt", "np.lib.format.open_memmap", "shutil.move", "shutil.copy", "shutil.copyfile"),
}
FILE_METHODS = {
    *("open", "read_bytes", "write_bytes", "read_text", "write_text", "unlink", "mkdir", "rmdir", "touch", "tofile"),
    *("makedirs", "rmtree", "copytree", "symlink_to", "hardlink_to", "chmod", "memmap", "fromfile"),
    *("TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory", "mkstemp", "mkdtemp"),
}
# Files that are not the user's: what the system says of its memory, JAX's cache of programs, the null device.
FILE_EXCEPTIONS = {
    "forecast.py": {"read_text"},
    "_compilation.py": {"mkdir", "unlink", "os.unlink"},
    "_console.py": {"os.open", "open"},
}


@pytest.mark.parametrize("path", [path for path in FILES if module_of(path) != "storage"], ids=str)
def test_only_storage_touches_files(path):
    calls = calls_in(path)
    found = calls & FILE_FUNCTIONS | {name.rpartition(".")[2] for name in calls if "." in name} & FILE_METHODS
    assert found <= FILE_EXCEPTIONS.get(path.name, set()), (path.name, found)


def test_the_rule_about_files_would_notice():
    known = set().union(*(calls_in(path) for path in FILES if module_of(path) == "storage"))
    assert {"os.open", "os.replace", "np.memmap"} <= known & FILE_FUNCTIONS
    assert {"open", "unlink", "mkdir"} <= {name.rpartition(".")[2] for name in known} & FILE_METHODS


def names_in(path: Path) -> set[str]:
    """Every name, attribute, function and keyword of a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        found |= {getattr(node, field, None) for field in ("id", "attr", "name", "arg")}
    return found - {None}


def calls_in(path: Path) -> set[str]:
    """What a file calls: `name`, or `owner.name` with `?` for an owner that is not a plain name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            found.add(node.func.id)
        elif isinstance(node.func, ast.Attribute):
            found.add(f"{getattr(node.func.value, 'id', '?')}.{node.func.attr}")
    return found


def top_level_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found
