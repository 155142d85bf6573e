"""The front page: short, its code runs, its numbers are measured."""

import csv
import re
from pathlib import Path
from statistics import mean

from pages import ROOT, blocks, run_page

README = ROOT / "README.md"


def test_code_runs(tmp_path):
    assert run_page(README, tmp_path) == len(blocks(README)) == 4
    assert {path.name for path in tmp_path.iterdir()} >= {"homes.mile", "homes.run", "predictions.csv"}


def test_it_is_short():
    text = README.read_text()
    assert len(text.split()) <= 550
    assert len(text.splitlines()) <= 90


def test_numbers_of_the_table_are_means_of_the_summary():
    with (ROOT / "experiments" / "uci" / "summary.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["protocol"] == "paper"]
    tables, *lines = re.findall(r"^\| ?(.*) \|$", README.read_text(), flags=re.MULTILINE)
    names = [name.strip("| ") for name in tables.split(" | ")]
    for line, method in zip(lines, ["DE-0.01", "MILE"], strict=True):
        shown = re.findall(r"([−\d.]+)\**? \(", line)
        for name, value in zip(names, shown, strict=True):
            scores = [float(row["lppd"]) for row in rows if (row["dataset"], row["method"]) == (name, method)]
            assert f"{mean(scores):.2f}".replace("-", "−") == value, (name, method)


def test_links_lead_to_files():
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", README.read_text())
    assert len(targets) > 10
    missing = [target for target in targets if "://" not in target and not (ROOT / target).exists()]
    assert not missing
    assert Path(ROOT / "docs" / "pictures" / "front-page.png").stat().st_size < 200_000
