"""Any table: whatever its columns hold, a fit to some rows predicts the others, also from a file and in any order."""

import warnings

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mile
from mile import FitWarning, MileRegressor
from mile.features.table import TableEncoder

N_ROWS, N_TRAIN = 40, 30
N_FEATURES = 40  # of every table, by columns of numbers at its end, so that one compiled program serves all of them
BUDGET = {
    "hidden_layer_sizes": (2,),
    "n_chains": 2,
    "warmup_steps": 6,
    "sampling_steps": 4,
    "n_draws": 2,
    "max_epochs": 1,
    "validation_fraction": 0.0,
    "random_state": 0,
}
CELLS = {
    "numbers": st.floats(-1e6, 1e6),
    "huge numbers": st.floats(allow_nan=True, allow_infinity=False),
    "integers": st.integers(-(2**62), 2**62),
    "few integers": st.integers(0, 3),
    "levels": st.sampled_from(["a", "b", "c", "<i>", "=1+1", "\x1b[31m"]),
    "texts": st.text(max_size=12),
    "codes": st.integers(0, 20).map("{:05}".format),
    "flags": st.booleans(),
    "words for flags": st.sampled_from(["yes", "no"]),
    "dates": st.datetimes(),
    "texts of dates": st.dates().map(str),
    "numbers as texts": st.floats(-10, 10).map("{:.2f}".format),
    "anything": st.one_of(st.integers(), st.text(max_size=3), st.booleans(), st.dates()),
    "one value": st.just("always"),
    "nothing": st.none(),
}


@st.composite
def columns(draw):
    """Cells of one kind, some of them missing, and perhaps cells of another kind in the rows to predict."""
    kind = draw(st.sampled_from(sorted(CELLS)))
    cells = draw(st.lists(CELLS[kind], min_size=N_ROWS, max_size=N_ROWS))
    later = draw(st.sampled_from([kind, kind, "texts", "levels", "nothing"]))
    if later != kind:
        cells[N_TRAIN:] = draw(st.lists(CELLS[later], min_size=N_ROWS - N_TRAIN, max_size=N_ROWS - N_TRAIN))
    share = draw(st.sampled_from([0.0, 0.0, 0.3]))
    missing = np.random.default_rng(draw(st.integers(0, 99))).random(N_ROWS) < share
    return [None if gone else cell for cell, gone in zip(cells, missing, strict=True)]


def frame_of(cells):
    """Return a table of so many features that every table has the same number."""
    frame = pd.DataFrame({f"column {place}": pd.Series(column, dtype=object) for place, column in enumerate(cells)})
    numbers = np.random.default_rng(0).normal(size=(N_FEATURES, N_ROWS))
    frame["flag"] = ["yes", "no"] * (N_ROWS // 2)
    n_features = TableEncoder().fit(frame[:N_TRAIN], y=numbers[0, :N_TRAIN]).n_features
    for place in range(N_FEATURES - n_features):
        frame[f"number {place}"] = numbers[place]
    return frame


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(cells=st.lists(columns(), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_any_table_can_be_fitted_saved_and_predicted(tmp_path_factory, cells, seed):
    frame = frame_of(cells)
    rng = np.random.default_rng(seed)
    train, rest = frame[:N_TRAIN], frame[N_TRAIN:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # of what training did not have, and of chains this short
        model = MileRegressor(**BUDGET).fit(train, rng.normal(size=N_TRAIN))
        assert model.fit_.network.n_inputs == N_FEATURES
        found = model.predictive(rest)
        assert np.isfinite(found.mean).all()
        assert (found.std > 0).all()
        path = tmp_path_factory.mktemp("tables") / "model.mile"
        model.save(path)
        shuffled = rest[rng.permutation(frame.columns)]
        for other in (mile.load(path).predict(rest), model.predict(shuffled)):
            np.testing.assert_array_equal(other, found.mean)
