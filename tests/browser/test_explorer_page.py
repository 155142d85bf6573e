"""Reports of all kinds of response in a real browser: quiet, within the screen, and answering to the reader.

Needs playwright and a chromium, and leaves screenshots in the folder that MILE_SCREENSHOTS names.
"""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from mile import MileClassifier, MileRegressor

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
RNG = np.random.default_rng(0)
N_ROWS, N_TRAIN = 160, 110
TINY = {"sampler": "deep_ensemble", "n_chains": 2, "hidden_layer_sizes": (4,), "max_epochs": 30, "random_state": 0}
X = RNG.standard_normal((N_ROWS, 3))
HOSTILE = "<script>alert('x')</script>&\"'$$"
NUMBERS = {"age": X[:, 0].tolist(), "bmi": X[:, 1].tolist(), "s1": X[:, 2].tolist()}
MIXED = {
    HOSTILE: X[:, 0].tolist(),
    "city <b>": np.array(["Oslo", "<i>Rome", "Bern"])[RNG.integers(3, size=N_ROWS)].tolist(),
    "house": [f"house <{place}>" for place in range(N_ROWS)],
    "gap": [None if place % 5 == 0 else value for place, value in enumerate(X[:, 1].tolist())],
}
MEAN = 2.0 * X[:, 0] + X[:, 1]
NOISY = MEAN + 0.5 * RNG.standard_normal(N_ROWS)
TIMES = np.zeros(N_ROWS, [("event", bool), ("time", float)])
TIMES["event"], TIMES["time"] = RNG.uniform(size=N_ROWS) < 0.7, RNG.weibull(1.5, N_ROWS) * np.exp(0.4 * X[:, 0])
KINDS = {
    "regression": (MileRegressor(**TINY), NUMBERS, NOISY),
    "classes": (MileClassifier(**TINY), NUMBERS, np.array(["low", "mid", "<b>top"])[np.digitize(NOISY, [-1, 1])]),
    "counts": (MileRegressor(**TINY, likelihood="poisson"), NUMBERS, RNG.poisson(np.exp(0.4 * MEAN)).astype(float)),
    "survival": (MileRegressor(**TINY, likelihood="weibull"), NUMBERS, TIMES),
    "mixed": (MileRegressor(**TINY), MIXED, NOISY),
}


def rows_of(table, rows):
    return {name: [cells[row] for row in rows] for name, cells in table.items()}


@pytest.fixture(scope="module", params=[*KINDS])
def page_file(request, tmp_path_factory):
    model, table, y = KINDS[request.param]
    train, test = np.arange(N_TRAIN), np.arange(N_TRAIN, N_ROWS)
    model.fit(rows_of(table, train), y[train])
    model.target_name_ = HOSTILE
    path = tmp_path_factory.mktemp("report") / f"{request.param}.html"
    model.report(path, rows_of(table, test), y[test], title=request.param)
    return path


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_a_page_answers_and_is_quiet_small_and_within_the_screen(browser, page_file, tmp_path):
    assert page_file.stat().st_size < 3_000_000
    folder = Path(os.environ.get("MILE_SCREENSHOTS", tmp_path))
    for width, scheme in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page, requests, complaints = context.new_page(), [], []
        page.on("request", lambda request, into=requests: into.append(request.url))
        page.on("console", lambda message, into=complaints: into.append(message.text))
        page.on("pageerror", lambda error, into=complaints: into.append(str(error)))
        page.on("dialog", lambda dialog, into=complaints: into.append(dialog.message))
        page.goto(page_file.as_uri())
        hover_and_pick(page)
        move_the_slider(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert requests == [page_file.as_uri()]
        assert complaints == []
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 6
        assert page.query_selector("#baselines tbody tr") is not None
        page.screenshot(path=folder / f"{page_file.stem}-{width}-{scheme}.png", full_page=True)
        context.close()


def hover_and_pick(page):
    chart = page.query_selector("#explorer .chart")
    chart.scroll_into_view_if_needed()
    box, before = chart.bounding_box(), page.inner_text("#explorer .said")
    place = box["x"] + 0.9 * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.move(*place)
    pointed = page.inner_text("#explorer .said")
    assert pointed.startswith("Row ")
    assert pointed != before
    density = page.inner_html("#explorer .density")
    page.mouse.click(*place)
    assert page.inner_html("#explorer .density") != density
    page.mouse.move(0, 0)
    assert page.inner_text("#explorer .said") == pointed


def move_the_slider(page):
    before = page.inner_text("#explorer output")
    page.fill("#explorer input", "3")
    assert page.inner_text("#explorer output") != before
