"""Hooks of MkDocs: pages made from files of the repository, and links into it.

Pages in docs/ link to files outside, as they do on a code host. Such files become part of the site under `repository/`,
Markdown as pages, so that nothing on the site leads nowhere. The gallery is made from `examples/gallery`, the list of
commands from the command line itself, and `<!-- file: PATH -->` is replaced by the file's code.
"""

import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from gallery import Example, examples
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Files of the repository that are pages in the navigation.
NAMED = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
INSIDE = "repository/"
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\(|(?:src|href)=\")([^)\s\"#]*)(#[^)\s\"]*)?(?=[)\s\"])")
_COMMENT = re.compile(r"^<!-- (?:setup\n.*?^|not run: [^\n]*?)-->\n?", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^<!-- file: (\S+) -->$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the gallery's pages in the navigation."""
    (gallery,) = (entry["Gallery"] for entry in config.nav or [] if "Gallery" in entry)
    gallery += [f"gallery/{example.name}.md" for example in examples()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages that are made, and what pages link to in the repository."""
    for name, uri in NAMED.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for example in examples():
        files.append(File.generated(config, f"gallery/{example.name}.md", content=page_of(example)))
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    waiting = [path for path in (*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in NAMED)) if path.is_file()]
    while waiting:
        page = waiting.pop()
        for target in targets(page):
            uri = uri_of(target)
            if uri.startswith(INSIDE) and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
                if target.suffix == ".md":
                    waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links into the repository into links on the site, and leave out what only tests read."""
    source = source_of(page.file)
    markdown = _FILE.sub(lambda found: f"```python\n{(ROOT / found[1]).read_text().strip()}\n```", markdown)
    markdown = _COMMENT.sub("", markdown)
    if source is None:
        return markdown
    return outside_code(markdown, lambda text: _LINK.sub(lambda link: relinked(link, source, page), text))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Let tables scroll on their own on narrow screens instead of the page."""
    return output.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Change the text between blocks of code."""
    return "".join(part if index % 2 else change(part) for index, part in enumerate(_FENCE.split(markdown)))


def source_of(file: File) -> Path | None:
    """Return the file of the repository that a page is made of, None for one that is put together."""
    path = Path(file.abs_src_path) if file.abs_src_path else None
    return path if path is not None and path.is_file() else None


def targets(page: Path) -> list[Path]:
    """Return the files that a page links to."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    found = [resolved(page, link[2]) for link in _LINK.finditer(text)]
    return [path for path in found if path is not None]


def resolved(page: Path, link: str) -> Path | None:
    """Return the file that a relative link leads to, None for other links; a folder stands for its README."""
    if not link or "://" in link or link.startswith("mailto:"):
        return None
    path = Path(os.path.normpath(page.parent / link))
    path = path / "README.md" if path.is_dir() else path
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def uri_of(path: Path) -> str:
    """Return where a file of the repository is on the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return NAMED.get(name, INSIDE + name)


def relinked(link: re.Match[str], source: Path, page: Page) -> str:
    """Return a link from a page to where its target is on the site."""
    target = resolved(source, link[2])
    if target is None:
        return link[0]
    place = posixpath.relpath(uri_of(target), posixpath.dirname(page.file.src_uri) or ".")
    return f"{link[1]}{place}{link[3] or ''}"


def page_of(example: Example) -> str:
    """Return the page of one example: what it shows, its picture, what it prints, its code."""
    printed = f"It prints\n\n```text\n{example.output.rstrip()}\n```\n" if example.output.strip() else ""
    return (
        f"# {example.title}\n\n{example.text}\n\n![{example.alternative}]({example.name}.png)\n\n{printed}\n"
        f"## The whole script\n\n`python examples/gallery/{example.name}.py` "
        f"writes `{example.name}.png` into the folder it is run in.\n\n```python\n{example.code.strip()}\n```\n"
    )


def commands() -> str:
    """Return the page of all commands, as their own help says it."""
    import click
    from typer.main import get_command

    from mile.cli import app

    group = get_command(app)
    parts = [
        "# Every command and option\n\nMade from the command line itself. [What they are for](../command-line.md).\n"
    ]
    for name, command in sorted(group.commands.items()):  # pyright: ignore[reportAttributeAccessIssue]
        context = click.Context(command, info_name=f"mile {name}")
        parts.append(f"## mile {name}\n\n{command.help or ''}\n\n```text\n{command.get_usage(context)}\n```\n")
        rows = [row for parameter in command.params if (row := parameter.get_help_record(context))]
        if rows:
            cells = (f"| `{option}` | {help_text.replace('|', chr(92) + '|')} |" for option, help_text in rows)
            parts.append("\n".join(["| option | |", "|---|---|", *cells, ""]))
    return "\n".join(parts)
