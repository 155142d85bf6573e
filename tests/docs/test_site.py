"""The site: it builds without complaints, nothing leads nowhere or elsewhere, and its code runs (make test-docs)."""

import os
import re
import runpy
import subprocess
import sys
import warnings
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import matplotlib.pyplot as plt
import pytest
from pages import ROOT, blocks, run_page, small_budgets

pytestmark = pytest.mark.site

DOCS = ROOT / "docs"
PAGES = [path for path in (*sorted(DOCS.rglob("*.md")), ROOT / "CONTRIBUTING.md") if blocks(path)]
EXAMPLES = sorted((ROOT / "examples").glob("*/*.py"))
LARGEST = 30_000_000  # bytes


class Links(HTMLParser):
    """What a page refers to, and where others can lead."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links, self.loaded, self.anchors, self.silent = [], [], {""}, []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("img", "script", "iframe", "source") and found.get("src"):
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.loaded.append(found["href"])
        if tag == "img" and not (found.get("alt") or "").strip():
            self.silent.append(found.get("src"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Links(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_links_lead_somewhere(site, pages):
    assert len(pages) > 60
    missing = []
    for page, found in pages.items():
        for link in {*found.links, *found.loaded}:
            if re.match(r"[a-z]+:", link) or page.name == "404.html":
                continue
            target, anchor = urldefrag(link)
            path = (page.parent / unquote(target)).resolve() if target else page
            path = path / "index.html" if path.is_dir() else path
            is_there = path.is_file() and (path.suffix != ".html" or unquote(anchor) in pages[path].anchors)
            if not is_there and anchor != "__codelineno":
                missing.append(f"{page.relative_to(site)}: {link}")
    assert not missing, "\n".join(missing)


def test_nothing_is_loaded_from_elsewhere(site, pages):
    loaded = {link for found in pages.values() for link in found.loaded}
    assert not [link for link in loaded if re.match(r"(https?:)?//", link)]
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()\s*[\"']?https?:", styles)


def test_pictures_have_a_text(pages):
    silent = {page.name: found.silent for page, found in pages.items() if found.silent}
    assert not silent


def test_it_is_small(site):
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < LARGEST


def test_pages_of_people_have_no_machine_paths(site):
    assert not [path for path in site.rglob("*.html") if str(ROOT) in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_code_of_a_page_runs(page, tmp_path):
    run_page(page, tmp_path)
    plt.close("all")


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with small_budgets(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(script), run_name="__main__")
    plt.close("all")
    assert capsys.readouterr().out
    assert script.parent.name != "gallery" or (tmp_path / f"{script.stem}.png").stat().st_size > 5_000


def test_every_example_of_the_gallery_was_run():
    kept = {path.stem for path in (DOCS / "gallery").glob("*.png")}
    wanted = {path.stem for path in EXAMPLES if path.parent.name == "gallery"}
    assert kept == {path.stem for path in (DOCS / "gallery").glob("*.txt")} == wanted
    assert len(wanted) >= 12


def test_workflows_and_forms_are_yaml():
    import yaml

    for path in (ROOT / ".github").rglob("*.yml"):
        found = yaml.safe_load(path.read_text())
        assert isinstance(found, dict), path
        if path.parent.name == "workflows":
            assert found["name"]
            assert all("runs-on" in job and "timeout-minutes" in job for job in found["jobs"].values()), path
