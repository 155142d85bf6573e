"""The page that predicts by itself: the same numbers as the student, nothing fetched, and it answers a slider.

Needs playwright and a chromium, and leaves a screenshot in the folder that MILE_SCREENSHOTS names.
"""

import importlib.util
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from mile import MileRegressor

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
TINY = {"warmup_steps": 60, "sampling_steps": 100, "n_draws": 50, "max_epochs": 10, "random_state": 0}
EXAMPLE = Path(__file__).parents[2] / "examples" / "gallery" / "in_a_browser.py"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]


def example():
    found = importlib.util.spec_from_file_location("in_a_browser", EXAMPLE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_page_computes_what_the_student_predicts(tmp_path):
    script = example()
    x, y = script.mixtures(np.random.default_rng(0), 200)
    # A compressed model has the form of a student, and takes no training.
    model = MileRegressor(n_chains=4, **TINY).fit(x, y)
    student = model.compress(x, n_draws=24)
    path = tmp_path / "page.html"
    path.write_text(script.PAGE.replace("/*MODEL*/", json.dumps(script.as_numbers(student, y))), encoding="utf-8")
    assert path.stat().st_size < 200_000
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, requests, complaints = browser.new_page(viewport={"width": 390, "height": 800}), [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        for row in script.HERE:
            found = page.evaluate("row => { const {parts, ...rest} = summary(row); return rest }", row.tolist())
            wanted = student.predictive(row[None])
            scale = wanted.std[0]
            assert abs(found["mean"] - wanted.mean[0]) < 1e-3 * scale
            assert abs(found["noise"] - wanted.aleatoric_std[0]) < 1e-3 * scale
            assert abs(found["ignorance"] - wanted.epistemic_std[0]) < 1e-3 * scale
            assert np.abs(np.subtract(found["interval"], wanted.interval(0.9)[0])).max() < 0.02 * scale
        before = page.text_content("#words")
        first = page.locator("input").first
        first.focus()
        first.press("End")
        assert page.text_content("#words") != before
        if folder := os.environ.get("MILE_SCREENSHOTS"):
            page.screenshot(path=str(Path(folder) / "student_page.png"), full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        browser.close()
    assert requests == [path.as_uri()]
    assert not complaints
