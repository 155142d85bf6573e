"""The report in a real browser: nothing is fetched, nothing overflows, every figure is seen, in light and in dark.

Needs playwright and a chromium, and leaves screenshots in the folder that MILE_SCREENSHOTS names.
"""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from mile import MileRegressor

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine"),
]
WIDTHS = (1280, 390)
FIGURES = {
    *("intervals", "coverage", "pit", "uncertainty", "accumulation", "trace", "energy", "step-size"),
    *("ess", "rhat", "variances", "virial"),
}
SMALLEST_TEXT = 10.5  # pixels on a phone


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    names = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"]
    return X, y, names, "disease progression"


def airfoil():
    folder = os.environ.get("MILE_DATA")
    for name in ("airfoil.csv", "airfoil.csv.gz") if folder else ():
        path = Path(folder) / name
        if path.exists():
            table = np.loadtxt(path, delimiter=",", skiprows=1)
            return table[:, :-1], table[:, -1], None, "sound pressure level (dB)"
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1052 + 301, 5))
    y = 125 + 5 * np.sin(2 * X[:, 0]) - 3 * X[:, 1] * X[:, 2] + rng.standard_normal(len(X)) * np.exp(0.5 * X[:, 3])
    return X, y, None, "sound pressure level (dB)"


@pytest.fixture(scope="module", params=[diabetes, airfoil], ids=["diabetes", "airfoil"])
def page_file(request, tmp_path_factory):
    X, y, names, target = request.param()
    parts = train_test_split(X, y, test_size=0.2, random_state=0)
    X_train, X_test, y_train, y_test = parts
    columns = names or [f"column {place}" for place in range(X.shape[1])]
    X_train, X_test = (dict(zip(columns, part.T, strict=True)) for part in (X_train, X_test))
    model = MileRegressor(random_state=0, preset="quick").fit(X_train, y_train)
    model.target_name_ = target
    path = tmp_path_factory.mktemp("report") / f"{request.param.__name__}.html"
    model.report(path, X_test, y_test, title=request.param.__name__.capitalize())
    return path


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, page_file, width, scheme):
    """Return the page, what it asked for and what it complained about."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, requests, complaints = context.new_page(), [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(page_file.as_uri())
    page.evaluate("document.getElementById('experts').open = true")  # its figures are measured too
    yield page, requests, complaints
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
class TestPage:
    def test_is_whole_quiet_and_fits(self, opened, page_file, width, scheme, tmp_path):
        page, requests, complaints = opened
        assert requests == [page_file.as_uri()]
        assert complaints == []
        assert page.evaluate("document.documentElement.scrollWidth") == width

        boxes = {
            figure.get_attribute("id").removeprefix("figure-"): figure.query_selector("svg").bounding_box()
            for figure in page.query_selector_all("figure")
        }
        assert FIGURES | {"importance", "effect-0"} <= set(boxes)
        for name, box in boxes.items():
            assert box["width"] > 250, name
            assert box["height"] > 150, name
            assert box["x"] >= 0, name
            assert box["x"] + box["width"] <= width, name
        lefts = {round(box["x"]) for box in boxes.values()}
        assert len(lefts) == (2 if width == 1280 else 1)

        folder = Path(os.environ.get("MILE_SCREENSHOTS", tmp_path))
        page.screenshot(path=folder / f"{page_file.stem}-{width}-{scheme}.png", full_page=True)

    def test_has_text_that_can_be_read_and_is_not_cut_off(self, opened, width, scheme):
        page, _, _ = opened
        found = page.evaluate(
            """() => [...document.querySelectorAll("figure svg")].flatMap(svg => {
                const frame = svg.getBoundingClientRect();
                return [...svg.querySelectorAll("text")].filter(text => text.textContent.trim()).map(text => {
                    const box = text.getBoundingClientRect();
                    const size = parseFloat(getComputedStyle(text).fontSize) * frame.width / svg.viewBox.baseVal.width;
                    const outside = Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top,
                        box.bottom - frame.bottom);
                    return [text.textContent, size, outside];
                });
            })"""
        )
        assert len(found) > 100
        for text, size, outside in found:
            assert size >= SMALLEST_TEXT, text
            assert outside <= 3.0, text

    def test_still_fits_with_everything_opened(self, opened, page_file, width, scheme, tmp_path):
        page, _, _ = opened
        page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.query_selector("#configuration pre").bounding_box()["height"] > 200
        folder = Path(os.environ.get("MILE_SCREENSHOTS", tmp_path))
        page.query_selector("#about").screenshot(path=folder / f"{page_file.stem}-{width}-{scheme}-about.png")

    def test_is_printed_on_few_pages(self, opened, width, scheme):
        page, _, _ = opened
        page.evaluate("document.getElementById('experts').open = false")
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 6

    def test_has_contrast(self, opened, width, scheme):
        page, _, _ = opened
        colors = page.evaluate(
            """() => {
                const style = getComputedStyle(document.body);
                return [style.color, style.backgroundColor];
            }"""
        )
        ink, paper = (np.array([float(part) for part in color[4:-1].split(",")]).mean() for color in colors)
        assert (ink < paper) == (scheme == "light")
        assert abs(ink - paper) > 150

    def test_shows_the_numbers_of_the_scores_without_scrolling(self, opened, width, scheme):
        page, _, _ = opened
        last = page.query_selector("#scores tbody tr td:last-child").bounding_box()
        assert last["x"] + last["width"] <= width
