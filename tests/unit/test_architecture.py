"""The house rules that a reader relies on, held by reading the source."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "mile"
FILES = sorted(SOURCE.rglob("*.py"))

# Each module may import from ranks before its own, and from those that stand before it in its rank.
RANKS = [
    [
        "_json",
        "_types",
        "_errors",
        "_printable",
        "_schema",
        "_registry",
        "_checks",
        "_compilation",
        "_random",
        "_ess",
        "_progress",
        "_deadline",
    ],
    ["networks", "features", "kaplan_meier", "_scored", "metrics", "likelihoods", "priors", "data"],
    ["configuration", "native"],
    ["padded_rows", "posterior", "folded"],
    ["storage", "execution"],
    ["ensemble", "samplers"],
    ["sampling"],
    ["predict"],
    ["fitting"],
    ["diagnose", "plot", "explain", "comparison", "report", "export"],
    ["estimators", "serving", "service"],
    ["datasets", "cli"],
]
RANK = {name: (rank, place) for rank, names in enumerate(RANKS) for place, name in enumerate(names)}


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


def test_imports_go_one_way():
    for path in FILES:
        module = module_of(path)
        if path != SOURCE / "__init__.py":
            for imported in imported_modules(path) - {module}:
                assert RANK[imported] < RANK[module], (path.name, imported)
    assert len(RANKS) <= 12


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
    # Public names and registered classes are imported on first use, by names of modules of this package.
    assert [path for path in FILES if "importlib.import_module" in calls_in(path)] == [
        SOURCE / "__init__.py",
        SOURCE / "_registry.py",
    ]


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
    "timing.py": {"read_text"},
    "_explorer.py": {"read_text"},  # of the package's own script
    "_compilation.py": {"mkdir", "unlink", "os.unlink"},
    "_console.py": {"os.open", "open"},
}


def test_only_storage_touches_files():
    for path in FILES:
        calls = calls_in(path) if module_of(path) != "storage" else set()
        found = calls & FILE_FUNCTIONS | {name.rpartition(".")[2] for name in calls if "." in name} & FILE_METHODS
        assert found <= FILE_EXCEPTIONS.get(path.name, set()), (path.name, found)


def test_the_rule_about_files_would_notice():
    known = set().union(*(calls_in(path) for path in FILES if module_of(path) == "storage"))
    assert {"os.open", "os.replace"} <= known & FILE_FUNCTIONS
    assert {"open", "unlink", "mkdir"} <= {name.rpartition(".")[2] for name in known} & FILE_METHODS


# `Any` says nothing, and a class asked for by isinstance could have been asked by a method. Both may only become fewer.
MOST_ANYS = 15
MOST_ISINSTANCE_PER_THOUSAND_LINES = 5.0


def test_annotations_rarely_say_any():
    counts = {path: anys_in(path.read_text()) for path in FILES}
    assert sum(counts.values()) <= MOST_ANYS, sorted(counts.items(), key=lambda item: -item[1])[:5]


def test_the_count_of_anys_would_notice():
    source = (
        "def f(a: Any, *b: list[Any], **c: 'Any') -> Callable[..., Any]:\n    d: dict[str, Any] = Any\n    return d"
    )
    assert anys_in(source) == 5


def test_objects_are_seldom_asked_for_their_class():
    texts = [path.read_text() for path in FILES]
    asked = sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        for text in texts
        for node in ast.walk(ast.parse(text))
    )
    assert 1000 * asked / sum(text.count("\n") for text in texts) <= MOST_ISINSTANCE_PER_THOUSAND_LINES


def test_a_name_stands_for_one_class_in_the_computing_core():
    folders = ("networks", "native", "ensemble", "samplers", "sampling")
    names = [
        node.name
        for path in FILES
        if module_of(path) in folders or path.name == "posterior.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert len(names) > 50
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}


def test_no_optional_attribute_of_a_network_or_target_is_looked_for():
    for path in FILES:
        if module_of(path) in ("networks", "native", "posterior", "ensemble", "samplers", "sampling"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                    assert not ast.unparse(node.args[0]).endswith(("network", "target")), (path.name, node.lineno)


def anys_in(source: str) -> int:
    """How often annotations of arguments, results and assignments name `Any`."""
    found = 0
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            annotation = node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign):
            annotation = node.annotation
        else:
            continue
        for part in ast.walk(annotation) if annotation is not None else ():
            found += isinstance(part, ast.Name) and part.id == "Any"
            if isinstance(part, ast.Constant) and isinstance(part.value, str):  # quoted
                found += re.findall(r"\w+", part.value).count("Any")
    return found


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
