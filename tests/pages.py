"""The code on pages: which blocks a page has, and how they are run with small budgets.

Blocks of `python` share one namespace and one folder from the top of a page to its end, as for a reader who copies
them in turn; lines of `sh` run in the same folder. `<!-- setup ... -->` holds Python that a page needs and readers
have of their own; `<!-- not run: REASON -->` stands before a block that no test can run. Blocks of `text` show output.
"""

import ast
import contextlib
import os
import re
import shlex
import subprocess
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from typer.testing import CliRunner

import mile
from mile import samplers
from mile.cli import app
from mile.estimators import _arguments

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$"
    r"|^<!-- setup\n(?P<setup>.*?)^-->$",
    flags=re.DOTALL | re.MULTILINE,
)
_SHOWN = ("text", "json", "toml", "mermaid")  # languages of blocks that are no commands
_SMALL = {"warmup_steps": 60, "sampling_steps": 30, "n_draws": 20}


@dataclass(frozen=True)
class Block:
    """One block: `language` is `setup` for hidden code, `reason` says why it is not run."""

    language: str
    code: str
    line: int
    reason: str | None = None


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page from top to bottom."""
    text, found = page.read_text(encoding="utf-8"), []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("setup") if match["setup"] else match.start("code")) + 1
        language, code = ("setup", match["setup"]) if match["setup"] else (match["language"], match["code"])
        found.append(Block(language, code, line, match["reason"]))
    return found


def run_page(page: Path, folder: Path) -> int:
    """Run the blocks of a page in a folder, which has the examples; return how many ran."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    n_run, namespace = 0, {"__name__": "__page__"}
    with contextlib.chdir(folder), small_budgets(), warnings.catch_warnings():
        warnings.simplefilter("ignore", mile.FitWarning)
        warnings.simplefilter("ignore", UserWarning)
        for block in blocks(page):
            if block.reason is not None or block.language in _SHOWN:
                continue
            if block.language in ("python", "setup"):
                _run_python(block, page, namespace)
            elif block.language == "sh":
                _run_shell(block, page)
            else:
                raise AssertionError(f"{page}:{block.line}: a block has no language, or an unknown one")
            n_run += block.language != "setup"
    return n_run


def _run_python(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    tree = ast.parse(block.code)
    ast.increment_lineno(tree, block.line - 1)
    exec(compile(tree, str(page), "exec"), namespace)


def _run_shell(block: Block, page: Path) -> None:
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            _run_command(words, f"{page}: {line}")


def _run_command(words: list[str], where: str) -> None:
    """Run `mile` in this process, ask `make` for a plan, look up what `pip` would install; run anything else."""
    if words[0] == "mile":
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, f"{where}\n{result.output}\n{result.exception!r}"
    elif words[0] == "make":
        assert subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True).returncode == 0, where
    elif words[:2] == ["pip", "install"]:
        (wanted,) = words[2:]
        extras = re.fullmatch(r"(?:\.|mile_bnn-\S+\.whl)(?:\[([\w,]+)\])?", wanted)
        assert extras, f"{where}: the package is on no index, so install '.' or a wheel"
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set((extras[1] or "").split(",")) - {""} <= known.keys(), where
    else:
        subprocess.run(words, check=True, env={**os.environ, "MILE_NATIVE": ""})


@contextlib.contextmanager
def small_budgets() -> Iterator[None]:
    """Let every preset take few steps and epochs; whoever asks for budgets gets them."""
    presets_of, table_defaults = samplers.presets_of, _arguments.table_defaults

    def presets(name: str) -> dict[str, Any]:
        return {key: samplers._with_budgets(found, _SMALL) for key, found in presets_of(name).items()}

    def defaults(*arguments: Any, **named: Any) -> Any:
        found = table_defaults(*arguments, **named)
        return found._replace(steps={}, training=replace(found.training, max_epochs=min(3, found.training.max_epochs)))

    with mock.patch.object(samplers, "presets_of", presets), mock.patch.object(_arguments, "table_defaults", defaults):
        yield
