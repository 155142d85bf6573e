"""What terminals and notebooks show of predictions and fits."""

import re

import numpy as np
from models import N_INPUTS, made_estimator, made_fit

X = np.random.default_rng(0).standard_normal((9, N_INPUTS))


def test_numbers_are_shown_by_their_first_rows_with_a_strip_each():
    predictive = made_estimator().predictive(X)
    text, page = repr(predictive), predictive._repr_html_()
    assert text.startswith("Predictive of 9 rows, 12 draws, the first 5")
    assert len(text.splitlines()) == 2 + 5
    lower, upper = predictive.interval(0.9)[2]
    assert f"{predictive.mean[2]:.4g}" in text.splitlines()[4]
    assert f"{lower:.4g} to {upper:.4g}" in text.splitlines()[4]
    assert page.count("<svg") == 5
    ends = re.findall(r'<line x1="([\d.]+)" x2="([\d.]+)" y1="8"', page)[::2]
    widths = [float(end) - float(start) for start, end in ends]
    expected = np.diff(predictive.interval(0.9)[:5], axis=1)[:, 0]
    np.testing.assert_allclose(widths / np.max(widths), expected / expected.max(), atol=0.01)


def test_labels_cannot_bring_markup_into_a_page():
    page = made_estimator(classes=["<script>", "b"]).predictive(X)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page or "b" in page


def test_no_rows_and_one_row_are_shown():
    model = made_estimator()
    assert repr(model.fit_.predictive(X[:0])) == "Predictive of 0 rows, 12 draws\n"
    assert repr(model.predictive(X[:1])).startswith("Predictive of 1 row, 12 draws\n")
    assert "<svg" in model.predictive(X[:1])._repr_html_()


def test_a_fit_is_shown_in_a_few_lines_with_the_chains_that_failed():
    text = repr(made_fit(failed={1: "sampling"}))
    assert text.startswith("Fit by mile: 1 of 2 chains, 6 draws")
    assert "failed      1 (diverged)" in text
    assert len(text.splitlines()) == 6
