"""Explanations of fitted models: the user's columns, rows that draws have not seen, words and pictures."""

import numpy as np
import pytest

from mile import MileClassifier, MileRegressor
from mile.explain import column_table
from mile.features.frame import Frame

RNG = np.random.default_rng(0)
SIZE, CITY = RNG.uniform(size=120), RNG.choice(["Oslo", "Rome", "Bern"], 120)
HOUSES = {
    "size": [None, *SIZE[1:]],
    "city": CITY.tolist(),
    "built": (np.datetime64("2001-01-01") + np.arange(120)).tolist(),
    "id": [f"house {place}" for place in range(120)],
}
PRICE = 4.0 * SIZE + 2.0 * (CITY == "Rome") + 0.1 * RNG.standard_normal(120)
TINY = {"sampler": "deep_ensemble", "n_chains": 6, "n_folds": 3, "hidden_layer_sizes": (8,), "random_state": 0}


@pytest.fixture(scope="module")
def model():
    return MileRegressor(**TINY, max_epochs=60, learning_rate=0.02).fit(HOUSES, PRICE)


@pytest.fixture(scope="module")
def explanation(model):
    return model.explain(HOUSES, PRICE)


def test_a_changed_column_is_encoded_as_the_users_table_with_it_changed(model):
    frame, encoder = Frame.of(HOUSES), model.fit_.encoder
    table = column_table(encoder, encoder.transform(frame), frame)
    donors = RNG.permutation(120)
    assert table.names == ("size", "city", "built")
    for name in table.names:
        changed = HOUSES | {name: [HOUSES[name][row] for row in donors]}
        place = table.names.index(name)
        np.testing.assert_array_equal(table.with_column(place, donors), encoder.transform(changed))


def test_rows_of_the_fit_are_judged_by_chains_that_left_them_out(model, explanation):
    assert explanation.rows == "out-of-fold rows"
    assert abs(explanation.importance.lppd - model.oof_.scores["lppd"].value) < 0.02
    others = model.explain(HOUSES, PRICE[::-1], columns=[])
    assert others.rows == "rows given"
    with pytest.raises(ValueError, match="the rows that the model was fitted on"):
        model.explain(HOUSES, PRICE[::-1], out_of_fold=True)


def test_columns_that_matter_are_found(explanation):
    assert set(explanation.important) == {"size", "city"}
    frames = explanation.frames()
    assert set(frames) == {"importance", "interactions", "effect size", "effect city", "effect built"}
    levels = dict(zip(frames["effect city"]["value"], frames["effect city"]["dependence_mean"], strict=True))
    assert levels["Rome"] > levels["Oslo"] + 1.0
    assert frames["effect size"]["accumulated_mean"][-1] > frames["effect size"]["accumulated_mean"][0] + 2.0
    assert explanation.effects["built"].label[0] == "2001-01-01"


def test_explanations_repeat_themselves(model, explanation):
    again = model.explain(HOUSES, PRICE, columns=["size"])
    np.testing.assert_array_equal(again.importance.loss, explanation.importance.loss)
    assert list(again.effects) == ["size"]


def test_without_outcomes_importance_is_of_the_models_own_predictions(model):
    found = model.explain(HOUSES, columns=[])
    assert "as the model predicts them" in repr(found)
    assert set(found.important) >= {"size", "city"}


def test_explanations_can_be_read_and_seen(explanation):
    import matplotlib

    matplotlib.use("Agg")
    text, page = repr(explanation), explanation._repr_html_()
    assert "3 columns, 120 out-of-fold rows" in text
    assert "important" in text
    assert page.count("<svg") == 3
    for column in (None, "size", "city", "built"):
        assert explanation.plot(column, target="price").get_title(loc="left")
    with pytest.raises(ValueError, match="column must be one of"):
        explanation.plot("garden")


def test_of_classes_a_probability_is_explained():
    labels = np.where(PRICE > 4.0, "dear", np.where(PRICE > 2.0, "fair", "cheap"))
    model = MileClassifier(**TINY, max_epochs=60, learning_rate=0.02).fit(SIZE[:, None], labels)
    found = model.explain(SIZE[:, None], labels, label="dear")
    curve = found.effects["x0"].dependence
    assert found.quantity == "probability of dear"
    assert 0.0 <= curve.mean.min() < curve.mean[-1] <= 1.0
    assert np.all(curve.aleatoric <= 0.5)
    assert model.explain(SIZE[:, None], labels, columns=[]).quantity in {"probability of fair", "probability of cheap"}
    with pytest.raises(ValueError, match="label must be one of"):
        model.explain(SIZE[:, None], labels, label="free")
    row = model.explain_row(SIZE[5:6], SIZE[:, None], labels)
    assert row.quantities == (f"probability of {model.predict(SIZE[5:6, None])[0]}", "entropy", "noise", "ignorance")
    for name in row.quantities:
        assert abs(whole_of(row, name) - row.prediction[name]) < 1e-6
    with pytest.raises(ValueError, match="label must be one of"):
        model.explain_row(SIZE[5:6], SIZE[:, None], label="free")


def test_scales_of_inputs_become_relevance_of_columns():
    from mile import Hierarchical

    x = RNG.standard_normal((60, 2))
    model = MileRegressor(**TINY, max_epochs=30, prior=Hierarchical(groups="input")).fit(x, x[:, 0])
    found = model.explain(x, x[:, 0], columns=[])
    assert found.relevance[0] > found.relevance[1] > 0.0
    assert "relevance" in repr(found)


def whole_of(found, name):
    return found.average[name] + found.contributions[name].sum()


def test_contributions_of_a_row_add_up_for_each_quantity(model):
    """Also of a row with a gap: it makes the prediction less sure, and knowing the cell would narrow it."""
    full = {"size": 0.9, "city": "Rome", "built": np.datetime64("2001-02-01")}
    known, gap = (model.explain_row(row, HOUSES, PRICE) for row in (full, full | {"size": None}))
    for found in (known, gap):
        assert found.quantities == ("mean", "standard deviation", "noise", "ignorance")
        for name in found.quantities:
            assert abs(whole_of(found, name) - found.prediction[name]) < 1e-6
    frame = {name: [cell] for name, cell in full.items()}
    np.testing.assert_allclose(known.prediction["mean"], model.predict(frame), rtol=1e-5)
    assert known.values == ("0.9", "Rome", "2001-02-01")
    assert known.contributions["mean"][:2].min() > 0.5 > abs(known.contributions["mean"][2])
    assert gap.contributions["standard deviation"][0] > 0.1
    assert gap.narrowing.missing.tolist() == [True, False, False]
    assert any("size is missing" in sentence for sentence in gap.advice())
    assert gap.narrowing.known[0] < gap.narrowing.unknown[0]


def test_nearest_rows_are_those_of_the_table_with_their_outcomes(model):
    row = {name: [cells[17]] for name, cells in HOUSES.items() if name != "id"}
    found = model.explain_row(row, HOUSES, PRICE).frames()["nearest"]
    assert found["row"][0] == 17
    assert found["distance"][0] == 0.0
    assert found["y"][0] == PRICE[17]
    assert (np.diff(found["distance"]) >= 0.0).all()


def test_a_row_of_an_explanation_is_explained_by_the_others(explanation):
    found = explanation.explain_row(3)
    assert 3 not in found.nearest.number
    assert abs(whole_of(found, "mean") - found.prediction["mean"]) < 1e-6
    with pytest.raises(ValueError, match="the place of one of the 120 rows"):
        explanation.explain_row(999)


def test_an_explained_row_can_be_read_and_seen(model):
    found = model.explain_row({name: cells[:1] for name, cells in HOUSES.items()}, HOUSES, PRICE)
    assert "nearest rows" in repr(found)
    assert "adds to standard deviation" in repr(found)
    assert found._repr_html_().count("<svg") == 2
    assert "on average" in found.plot("noise").get_title(loc="left")
    assert set(found.frames()) == {"contributions", "nearest", "narrowing"}
    with pytest.raises(ValueError, match="quantity must be one of"):
        found.plot("median")


def test_rows_that_cannot_be_explained_are_refused(model):
    for row, rows, message in [
        (HOUSES, HOUSES, "x must be one row"),
        ({name: cells[:1] for name, cells in HOUSES.items()}, None, "pass X"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.explain_row(row, rows)


def test_pairs_that_are_only_added_do_not_interact(explanation):
    assert {(pair.first, pair.second) for pair in explanation.interactions} <= {
        (a, b) for a in explanation.columns for b in explanation.columns
    }
    assert len(explanation.interactions) == 3
    assert "strongest pairs" in repr(explanation)
    assert "interact most" in explanation.plot_interactions().get_title(loc="left")
    assert len(explanation.frames()["interactions"]["share"]) == 3
