"""Workflows, the configuration of wheels, and what `make release` accepts."""

import importlib.util
import re
import subprocess
import tomllib
from datetime import date

import pytest
from pages import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- Something.\n\n## 0.1.0 - 2025-01-02\n\n- All.\n"


def tool(name):
    specification = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path):
    """A repository with the three files that a release looks at."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mile-bnn"\nversion = "0.1.0" # the only place\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "CITATION.cff").write_text("title: it\n")
    (tmp_path / "Makefile").write_text("lint test test-docs wheel check-wheel:\n\t@true\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "Begin"], ["tag", "v0.1.0"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_actions_are_pinned_by_major_version_and_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert len(WORKFLOWS) == 5
    for path in WORKFLOWS:
        text = path.read_text()
        used = re.findall(r"uses: (\S+)", text)
        assert used
        assert all(re.fullmatch(r"[\w./-]+@(v\d+|release/v\d+)", name) for name in used), path
        assert set(re.findall(r"run: make ([a-z-]+)", text)) <= targets, path
        assert "permissions:\n  contents: read" in text, path


def test_kernel_is_compiled_against_the_oldest_allowed_jaxlib():
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lower = tool("make_wheels").oldest_jaxlib()
    assert f"jaxlib=={lower}" in configuration["tool"]["cibuildwheel"]["before-build"]
    assert any(line.startswith(f"jax>={lower},") for line in configuration["project"]["dependencies"])
    versions = configuration["project"]["requires-python"]
    assert versions == ">=3.11,<3.14"
    assert configuration["tool"]["cibuildwheel"]["build"] == ["cp311-*", "cp312-*", "cp313-*"]


def test_release_is_refused_with_reasons(repository):
    release = tool("release")
    assert list(release.obstacles(repository, "0.2.0")) == []
    for version, reason in (("0.1.0", "exists"), ("0.0.9", "older"), ("v0.2", "three numbers")):
        assert reason in next(release.obstacles(repository, version)), version
    (repository / "CHANGELOG.md").write_text(CHANGELOG.replace("- Something.\n", "").replace("### Added\n", ""))
    found = " ".join(release.obstacles(repository, "0.2.0"))
    assert "nothing to release" in found
    assert "not committed" in found
    (repository / "Makefile").write_text("lint:\n")
    assert "make test cannot be run" in " ".join(release.obstacles(repository, "0.2.0"))


def test_release_writes_version_and_date_and_then_a_tag_fits(repository):
    release = tool("release")
    assert len(list(release.disagreements(repository, "0.2.0"))) == 2
    for name, text in release.written(repository, "0.2.0", date(2026, 2, 1)).items():
        (repository / name).write_text(text)
    assert "## Unreleased\n\n## 0.2.0 - 2026-02-01\n\n### Added\n\n- Something.\n" in release.changelog(repository)
    assert release.section(repository, "## Unreleased") == ""
    assert release.declared(repository) == "0.2.0"
    assert list(release.disagreements(repository, "0.2.0")) == []
