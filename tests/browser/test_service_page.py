"""The page of a service in a real browser: the picture follows a slider, nothing else is loaded, everything fits.

Needs playwright and a chromium, and leaves screenshots in the folder that MILE_SCREENSHOTS names.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

import mile

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("fastapi")
CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
COMMAND = [sys.executable, "-c", "from mile.cli import app; app()", "serve"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A service with a model of numbers and categories, and one of classes."""
    rng, n = np.random.default_rng(0), 400
    table = pd.DataFrame(
        {
            "size": rng.uniform(20, 120, n),
            "rooms": rng.integers(1, 6, n).astype(float),
            "city": rng.choice(["Oslo", "Rome", "Bern"], n),
            "balcony": rng.choice(["yes", "no"], n),
            "built": pd.date_range("1990-01-01", periods=n, freq="31D").strftime("%Y-%m-%d"),
        }
    )
    rent = 12 * table["size"] + 300 * (table["city"] == "Oslo") + 3 * table["size"] ** 0.5 * rng.normal(size=n) + 100
    folder = tmp_path_factory.mktemp("service")
    quick = {
        "preset": "quick",
        "n_chains": 3,
        "warmup_steps": 200,
        "sampling_steps": 200,
        "n_draws": 40,
        "random_state": 0,
    }
    mile.MileRegressor(**quick).fit(table, rent.rename("rent")).save(folder / "rent.mile")
    grade = np.select([rent < 700, rent < 1000], ["low", "middle"], "high")
    mile.MileClassifier(**quick).fit(table, pd.Series(grade, name="grade")).save(folder / "grade.mile")
    table.head(30).to_csv(folder / "rows.csv", index=False)
    arguments = [*COMMAND, folder / "rent.mile", folder / "grade.mile", "--port", "0"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            process.stdout.readline()
            yield process.stdout.readline().split()[1], folder / "rows.csv"
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def color_of(page, selector, name):
    found = page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{name}")
    return np.array([float(part) for part in found.split("(")[1].rstrip(")").split(",")[:3]])


def settled(page):
    """Wait until the page shows what was asked last."""
    page.wait_for_selector('#prediction-section[aria-busy="false"]')
    assert page.locator("#error").is_hidden(), page.locator("#error").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark"), (390, "light"), (1280, "dark")])
def test_the_page_shows_a_row_follows_a_slider_and_takes_a_table(browser, address, width, scheme, tmp_path):
    url, rows = address
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, requests, complaints = context.new_page(), [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    settled(page)
    folder = Path(os.environ.get("MILE_SCREENSHOTS", tmp_path))

    before = page.locator(".curve").get_attribute("d")
    slider = page.get_by_label("size, slider")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("PageUp")  # the keyboard alone is enough
    settled(page)
    assert page.locator(".curve").get_attribute("d") != before
    assert float(page.get_by_label("size", exact=True).input_value()) > 60
    assert page.locator("#effects tbody th").first.inner_text() == "size"

    answer = page.locator("#answer").inner_text()
    page.get_by_label("city").select_option("Oslo")
    page.get_by_label("Interval that holds").fill("50")
    settled(page)
    assert page.locator("#answer").inner_text() != answer
    assert "50 %" in page.locator("#answer").inner_text()
    page.get_by_label("rooms", exact=True).fill("")  # a gap
    settled(page)
    page.locator("#file").set_input_files(rows)
    page.wait_for_selector("#predictions tbody tr")
    assert "30 rows" in page.locator("#table-note").inner_text()
    assert page.locator("#predictions tbody tr").count() == 20
    page.screenshot(path=folder / f"service-{width}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") == width

    page.get_by_label("Model").select_option("grade")
    page.get_by_text("Model grade").wait_for()
    settled(page)
    assert "with probability" in page.locator("#answer").inner_text()
    page.screenshot(path=folder / f"service-classes-{width}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") == width

    ink, paper = (color_of(page, "body", name) for name in ("color", "backgroundColor"))
    assert (ink.mean() < paper.mean()) == (scheme == "light")
    assert abs(ink.mean() - paper.mean()) > 150
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select, button')].filter(one => !one.labels?.length "
        "&& !one.getAttribute('aria-label') && !one.textContent.trim()).map(one => one.outerHTML)"
    )
    assert unnamed == []
    assert {urlsplit(one).netloc for one in requests if not one.startswith(("data:", "blob:"))} == {
        urlsplit(url).netloc
    }
    assert complaints == []
    context.close()
