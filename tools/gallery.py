"""Run the examples of the gallery and keep what the site shows of them: docs/gallery/NAME.png and NAME.txt.

Usage: python tools/gallery.py [NAME ...]    (default: all; make gallery)

An example is a script in examples/gallery. The first line of its docstring is its title; the last paragraph begins with
`Picture:` and says what the picture shows, for those who cannot see it; the rest is the text of its page.
"""

import ast
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
KEPT = ROOT / "docs" / "gallery"
_PICTURE = "Picture: "


@dataclass(frozen=True, kw_only=True)
class Example:
    """What the site shows of one script."""

    name: str
    title: str
    text: str
    alternative: str  # text of the picture
    code: str
    output: str


@cache
def examples() -> tuple[Example, ...]:
    """Return all examples, in the order of the gallery's page.

    Raises
    ------
    ValueError
        If a script lacks a part of its docstring, or the page does not show it.
    """
    index = (KEPT / "index.md").read_text(encoding="utf-8")
    found = [read(path) for path in SCRIPTS.glob("*.py")]
    for example in found:
        if f"({example.name}.md)" not in index:
            raise ValueError(f"docs/gallery/index.md must link to {example.name}.md.")
    return tuple(sorted(found, key=lambda example: index.index(f"({example.name}.md)")))


def read(path: Path) -> Example:
    """Return the example of one script."""
    code = path.read_text(encoding="utf-8")
    title, *paragraphs = (ast.get_docstring(ast.parse(code)) or "").split("\n\n")
    if not paragraphs or not paragraphs[-1].startswith(_PICTURE):
        raise ValueError(f"{path}: the docstring must be a title, text, and a last paragraph 'Picture: ...'.")
    output = KEPT / f"{path.stem}.txt"
    return Example(
        name=path.stem,
        title=title.rstrip("."),
        text="\n\n".join(paragraphs[:-1]),
        alternative=" ".join(paragraphs[-1].removeprefix(_PICTURE).split()),
        code=code,
        output=output.read_text(encoding="utf-8") if output.exists() else "",
    )


def main(names: list[str]) -> None:
    """Run scripts one after the other and say how long each took."""
    for path in sorted(SCRIPTS.glob("*.py")):
        if names and path.stem not in names:
            continue
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-W", "ignore", path], cwd=KEPT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{path.name} failed:\n{done.stderr}")
        (KEPT / f"{path.stem}.txt").write_text(done.stdout, encoding="utf-8")
        print(f"{time.perf_counter() - start:6.1f} s  {path.name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
