"""Check that a version can be released, write it into the files, commit and tag; nothing is published from here.

Usage: python tools/release.py VERSION [--dry-run]    (make release VERSION=0.2.0 DRY=1)
       python tools/release.py VERSION --tagged       (on a tag: do tag, version and changelog agree?)

Pushing the tag starts .github/workflows/release.yml, which builds the wheels of all systems and publishes them.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNRELEASED = "## Unreleased"
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# What must pass between writing the files and making the tag.
COMMANDS = ("make lint", "make test", "make test-docs", "make wheel", "make check-wheel")


def git(root: Path, *words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def declared(root: Path) -> str:
    """Return the version that pyproject.toml has."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]


def section(root: Path, heading: str) -> str | None:
    """Return the changelog's text under a heading of the second level, None if there is none."""
    found = re.search(rf"^{re.escape(heading)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog(root), re.DOTALL | re.MULTILINE)
    return found and found[1].strip()


def changelog(root: Path) -> str:
    """Return the whole changelog."""
    return (root / "CHANGELOG.md").read_text(encoding="utf-8")


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared."""
    return tuple(map(int, version.split(".")))


def obstacles(root: Path, version: str) -> Iterator[str]:
    """Yield why this version cannot be released, each with what to do."""
    if VERSION.fullmatch(version) is None:
        yield f"the version must be three numbers, such as 0.2.0; got {version!r}."
        return
    tags = git(root, "tag", "--list", "v*").split()
    if f"v{version}" in tags:
        yield f"the tag v{version} exists: choose the next version."
    released = [tag[1:] for tag in tags if VERSION.fullmatch(tag[1:])]
    newest = max([*released, declared(root)], key=numbers)
    if numbers(version) < numbers(newest):
        yield f"{version} is older than {newest}, which is released or in pyproject.toml."
    if section(root, f"## {version}") is not None and section(root, UNRELEASED):
        yield f"the changelog has a section {version} and unreleased changes: choose the next version."
    if section(root, f"## {version}") is None and not section(root, UNRELEASED):
        yield f"the changelog has no changes under {UNRELEASED!r}: there is nothing to release."
    if git(root, "status", "--porcelain"):
        yield "there are changes that are not committed: commit or remove them."
    for command in COMMANDS:
        program, target = command.split()
        plan = subprocess.run([program, "--dry-run", target], cwd=root, capture_output=True, text=True)
        if plan.returncode != 0:
            yield f"{command} cannot be run: {plan.stderr.strip()}"
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    if cited and cited[1] not in (version, declared(root)):
        yield f"CITATION.cff names version {cited[1]}: remove it, pyproject.toml is the only place."


def disagreements(root: Path, version: str) -> Iterator[str]:
    """Yield what in the files does not fit a tag that is already made."""
    if declared(root) != version:
        yield f"pyproject.toml has version {declared(root)}, the tag {version}."
    if not section(root, f"## {version}"):
        yield f"CHANGELOG.md has no section '## {version}'."
    elif not re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", changelog(root), re.MULTILINE):
        yield f"the changelog's heading of {version} has no date: '## {version} - 2026-01-31'."


def written(root: Path, version: str, today: date) -> dict[str, str]:
    """Return the files that name the version, as they will be."""
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    project = re.sub(r'^version = "[^"]+"', f'version = "{version}"', project, count=1, flags=re.MULTILINE)
    changes = changelog(root)
    if section(root, f"## {version}") is None:
        changes = changes.replace(UNRELEASED, f"{UNRELEASED}\n\n## {version} - {today.isoformat()}", 1)
    return {"pyproject.toml": project, "CHANGELOG.md": changes}


def release(root: Path, version: str, dry_run: bool) -> None:
    """Write the files, run what must pass, commit and tag; or say that it would."""
    files = written(root, version, datetime.now(UTC).date())
    changed = [name for name, text in files.items() if (root / name).read_text(encoding="utf-8") != text]
    n_changes = len(re.findall(r"^- ", section(root, UNRELEASED) or section(root, f"## {version}") or "", re.MULTILINE))
    steps = [f"write {version} into {' and '.join(changed)}"] if changed else []
    steps += [f"run {command}" for command in COMMANDS]
    steps += [f"commit 'Release {version}'"] if changed else []
    steps += [f"make the tag v{version}"]
    print(f"Version {version}, after {declared(root)}: {n_changes} entries in the changelog.")
    if dry_run:
        print("\n".join(["All checks pass. Without DRY=1 this would", *(f"  {step}" for step in steps)]))
        print(f"Then: git push origin HEAD v{version}, which publishes.")
        return
    for name in changed:
        (root / name).write_text(files[name], encoding="utf-8")
    for command in COMMANDS:
        print(f"-- {command}", flush=True)
        if subprocess.run(command.split(), cwd=root).returncode != 0:
            sys.exit(f"{command} failed: no tag was made. git checkout {' '.join(files)} takes the version back.")
    if changed:
        git(root, "add", *changed)
        git(root, "commit", "--quiet", "--message", f"Release {version}")
    git(root, "tag", "--annotate", f"v{version}", "--message", f"Version {version}")
    print(f"Made the tag v{version}. To publish it: git push origin HEAD v{version}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="three numbers, such as 0.2.0")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--tagged", action="store_true", help="check a tag that is there")
    asked = parser.parse_args()
    found = list((disagreements if asked.tagged else obstacles)(ROOT, asked.version))
    if found:
        sys.exit("\n".join([f"{asked.version or 'No version'} cannot be released:", *(f"  {line}" for line in found)]))
    if not asked.tagged:
        release(ROOT, asked.version, asked.dry_run)


if __name__ == "__main__":
    main()
