"""What files keep of left-out rows: scores and their standard errors, and that impossible content is refused."""

import numpy as np
import pytest
from cases import case

from mile import UntrustedFileError
from mile.fitting.unseen import OutOfFold, summarize

RNG = np.random.default_rng(0)
N_ROWS, N_FOLDS, N_CHAINS = 12, 3, 5


def made():
    def numbers(*shape):
        return RNG.uniform(0.1, 1.0, shape)

    scores = {name: numbers(N_ROWS) for name in ("lppd", "crps", "squared_error", "coverage_90")}
    return OutOfFold(
        number=np.arange(N_ROWS),
        weight=np.ones(N_ROWS, np.float32),
        fold=np.arange(N_ROWS) % N_FOLDS,
        n_folds=N_FOLDS,
        chain_log_density=numbers(2, N_ROWS),
        member_log_density=numbers(2, N_ROWS),
        row_scores=scores,
        ensemble_scores=dict(scores),
        values={name: numbers(N_ROWS) for name in ("mean", "std", "distance")},
    )


def test_what_is_kept_is_read_again_and_nothing_is_nothing():
    found = made()
    again = OutOfFold.read(found.tensors() | {"draws": np.zeros(3)}, N_CHAINS)
    assert repr(again) == repr(found)
    assert again is not None
    np.testing.assert_array_equal(again.chain_log_density, found.chain_log_density)
    assert OutOfFold.read({"draws": np.zeros(3)}, N_CHAINS) is None


def test_impossible_content_is_refused():
    def changed(name, value):
        return {key: array for key, array in made().tensors().items() if key != name} | (
            {} if value is None else {name: value}
        )

    scores = np.zeros(N_ROWS)
    cases = [(name, None) for name in made().tensors() if not name.startswith("oof.value.")]
    cases += [
        ("oof.number", np.zeros(N_ROWS, np.int64)),
        ("oof.number", np.arange(N_ROWS) - 1),
        ("oof.fold", np.full(N_ROWS, N_FOLDS, np.int32)),
        ("oof.fold", np.full(N_ROWS, -1, np.int32)),
        ("oof.n_folds", np.asarray(0, np.int32)),
        ("oof.n_folds", np.asarray(N_CHAINS + 1, np.int32)),
        ("oof.weight", np.zeros(N_ROWS, np.float32)),
        ("oof.chain_log_density", np.zeros((3, N_ROWS))),
        ("oof.score.lppd", np.full(N_ROWS, np.nan)),
        ("oof.score.lppd", np.zeros(N_ROWS, np.float32)),
        ("oof.score.unknown", scores),
        ("oof.value.std", scores),
        ("oof.value.distance", scores - 1.0),
        ("oof.value.os:system", scores),
        ("oof.others", scores),
    ]
    for name, value in cases:
        with case(name), pytest.raises(UntrustedFileError):
            OutOfFold.read(changed(name, value), N_CHAINS)


def test_summaries_are_those_of_the_definitions():
    rows = 4_000
    right = (RNG.uniform(size=rows) < 0.7).astype(float)
    weight = np.ones(rows, np.float32)
    found = summarize({"accuracy": right, "confidence": np.full(rows, 0.9)}, weight)
    assert found["expected_calibration_error"].value == pytest.approx(0.9 - right.mean())
    share_error = right.std() / np.sqrt(rows)
    assert found["expected_calibration_error"].standard_error == pytest.approx(share_error, rel=0.2)
    assert found["accuracy"].standard_error == pytest.approx(share_error, rel=1e-3)
    square = RNG.normal(size=rows) ** 2
    twice = summarize({"squared_error": np.r_[square, square]}, np.ones(2 * rows, np.float32))
    heavy = summarize({"squared_error": square}, 2.0 * weight)
    assert twice["rmse"].value == pytest.approx(heavy["rmse"].value)
    # The mean of squares of normals has the variance 2 / n, and its root a quarter of that.
    assert heavy["rmse"].standard_error == pytest.approx(np.sqrt(0.5 / rows), rel=0.1)
