"""Configuration as data: every object survives the way to JSON and back, and nothing else comes back."""

import dataclasses
import json

import numpy as np
import pytest
from cases import case

from mile import (
    MLP,
    Categorical,
    DeepEnsemble,
    FanIn,
    Gaussian,
    Hierarchical,
    Independent,
    Laplace,
    LogNormal,
    Mile,
    MultivariateGaussian,
    Normal,
    NormalMixture,
    Nuts,
    OrderedClasses,
    Ordinal,
    PerLayer,
    Poisson,
    Stochastic,
    StudentT,
    UntrustedFileError,
    _registry,
)
from mile._registry import IN_FILES
from mile.configuration import build, describe, is_custom
from mile.ensemble.rate_schedules import Cosine, CosLog
from mile.ensemble.training import Patience, Training
from mile.networks import ATT_V2, CNN_V1, LENET5, Convolution
from mile.networks.offset import Offset
from mile.samplers import configure, presets_of
from mile.samplers._step_size import Exponential
from mile.samplers.mile import Geometric, Linear

NEED_ARGUMENTS = {"categorical", "ordered_classes", "ordinal", "independent", "multivariate_gaussian"}
NUMBERS = set(_registry.likelihood.declared) - NEED_ARGUMENTS
OBJECTS = [
    MLP(n_inputs=3),
    MLP(n_inputs=7, hidden=(), n_outputs=1, activation="gelu", initializer="he_uniform"),
    MLP(n_inputs=1, hidden=(5, 4, 3), n_outputs=9, activation="sigmoid", initializer="glorot_normal"),
    LENET5.sized((28, 28), 10),
    ATT_V2.sized((70,), 2),
    CNN_V1,
    Offset(network=MLP(n_inputs=3)),
    Convolution(filters=2, kernel=5, padding=1, pool=3),
    Gaussian(),
    Gaussian(link="bounded"),
    Gaussian(link="bounded", floor=1 / 3),
    Categorical(2),
    Categorical(1000),
    *(family() for name, family in _registry.likelihood.classes.items() if name in NUMBERS),
    NormalMixture(floor=1 / 3, n_parts=5),
    Independent((Gaussian(link="bounded"), Poisson())),
    MultivariateGaussian(3),
    Ordinal(grades=(1.0, 2.5, 4.0)),
    Ordinal(grades=(0.0, 1.0), cuts=(-0.3,)),
    OrderedClasses(3, cuts=(-1.0, 1.0)),
    LogNormal(center=-0.1, spread=1 / 3, below=2.0, above=3.0, floor=0.01),
    Nuts(warmup_steps=7, sampling_steps=9, n_draws=3, target_acceptance=0.9, max_depth=5, step_size=0.1),
    Normal(),
    Normal(scale=0.1),
    Laplace(),
    Laplace(scale=0.1),
    StudentT(),
    StudentT(df=1 / 3, scale=7.0),
    FanIn(),
    FanIn(family=StudentT(df=5.0, scale=0.1), gain=1 / 3, bias=2.0),
    Hierarchical(),
    Hierarchical(groups="input", degrees=1 / 3, scale=0.1, bias=7.0),
    PerLayer(scales=(1.0,)),
    PerLayer(scales=(0.1, 1 / 3, 7.0), family=Laplace(scale=0.5)),
    Training(),
    Training(learning_rate=1 / 3, weight_decay=0.0, batch_size=1, max_epochs=1, stopping=Patience(epochs=3)),
    Training(second_decay=0.95, schedule=Cosine()),
    Patience(epochs=7),
    Cosine(),
    Cosine(end=1 / 3),
    CosLog(),
    CosLog(cycles=2),
    *(sampler for name in _registry.sampler for sampler in presets_of(name).values()),
    configure("auto").with_start(0.1),
    Stochastic(batch_size=7, step_size=0.1, precondition=False, schedule=Geometric()),
    Mile(step_size=1e-300, trust=np.pi, fractions=(0.2, 0.3, 0.5), length_factor=2.0, n_coordinates=1),
    Linear(),
    Linear(start=0.1, end=0.7),
    Geometric(start=1.0, end=1e-9, fraction=0.25),
    Exponential(),
    Exponential(start=3.0, end=0.2, decay=2.0),
]


def test_an_object_comes_back_from_json_equal_and_of_its_class():
    for value in OBJECTS:
        with case(value):
            text = json.dumps(describe(value), allow_nan=False)
            built = build(json.loads(text), type(value))
            assert type(built) is type(value)
            assert built == value
            assert hash(built) == hash(value)


def test_every_kind_is_tried():
    known = {kind for registry in IN_FILES for kind in registry.classes.values()}
    assert {type(value) for value in OBJECTS} == {kind for kind in known if kind.__module__.startswith("mile.")}


def test_a_description_names_every_field_and_no_class():
    for value in OBJECTS:
        with case(value):
            description = describe(value)
            fields = {field.name: field.metadata for field in dataclasses.fields(value)}
            gained = {
                name for name, given in fields.items() if getattr(value, name) == given.get(_registry.ABSENT, ...)
            }
            assert set(description) == {"kind", *fields} - gained
            assert any(description["kind"] in registry for registry in IN_FILES)
            assert not is_custom(description)


def test_a_field_that_a_class_has_gained_may_be_missing():
    """Files that were written before say nothing of it, and files that need it do."""
    assert describe(Gaussian()) == {"kind": "gaussian"}
    assert build({"kind": "gaussian"}, Gaussian) == Gaussian(link="exponential", floor=None)
    assert describe(Gaussian(link="bounded")) == {"kind": "gaussian", "link": "bounded"}
    assert build({"kind": "gaussian", "link": "bounded", "floor": 0.5}, Gaussian) == Gaussian(link="bounded", floor=0.5)
    for wrong in ({"link": "other"}, {"link": None}, {"floor": 0.5}, {"link": "bounded", "floor": "0.5"}, {"other": 1}):
        with pytest.raises(UntrustedFileError):
            build({"kind": "gaussian"} | wrong, Gaussian)


def test_trainings_of_older_files_are_those_of_today():
    old = {"kind": "training", "learning_rate": 0.001, "weight_decay": 0.001, "batch_size": 32, "max_epochs": 500}
    old["stopping"] = {"kind": "patience", "epochs": 10}
    assert describe(Training()) == old
    assert build(old, Training) == Training(second_decay=0.999, schedule=None)
    assert describe(Training(second_decay=0.95, schedule=CosLog())) == old | {
        "second_decay": 0.95,
        "schedule": {"kind": "coslog", "cycles": 4},
    }
    for wrong in ({"second_decay": 1.0}, {"second_decay": None}, {"schedule": 3}, {"schedule": {"kind": "normal"}}):
        with pytest.raises(UntrustedFileError):
            build(old | wrong, Training)


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.1, 0.1),
        ("word", "word"),
        ((1, (2.0, "x")), [1, [2.0, "x"]]),
        ([1, 2], [1, 2]),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    ],
)
def test_plain_values_are_described_by_themselves(value, described):
    found = describe(value)
    assert found == described
    assert type(found) is type(described)
    assert json.loads(json.dumps(found)) == described


@pytest.mark.parametrize("value", [None, True, 3, 0.1, "word"])
def test_plain_values_are_built_from_themselves(value):
    assert build(value, type(value)) is value


def test_lists_become_tuples():
    assert build([1, [2, 3], []], tuple) == (1, (2, 3), ())


class Own:
    """An object of the user's."""

    def __repr__(self):
        return "Own()"

    def init(self):
        return 0

    def update(self, waiting, loss):
        return waiting, True, False


class OwnMile(Mile):
    """A subclass may behave otherwise."""


@pytest.mark.parametrize(
    "value", [Own(), OwnMile(), Training(stopping=Own()), (1, Own()), [[Own()]], Own, len, {"a": 1}], ids=str
)
def test_an_object_of_the_user_s_is_described_by_what_it_prints_and_cannot_be_built(value):
    description = json.loads(json.dumps(describe(value)))
    assert is_custom(description)
    with pytest.raises(UntrustedFileError):
        build(description, object)


def test_two_objects_of_the_user_s_differ_if_they_print_differently():
    assert describe(OwnMile(trust=2.0)) != describe(OwnMile(trust=2.5))
    assert describe(OwnMile()) != describe(Mile())


MILE = describe(Mile())


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"kind": None},
        {"kind": 7},
        {"kind": ["mlp"]},
        {"kind": "os:system"},
        {"kind": "mile.samplers.Mile"},
        {"kind": "Mile"},
        {"kind": "mile "},
        {"kind": "custom", "text": "Mile()"},
        {"kind": "__init__"},
        {"kind": "mile"},
        MILE | {"other": 1},
        MILE | {"__class__": "os"},
        MILE | {"warmup_steps": 0},
        MILE | {"warmup_steps": True},
        MILE | {"warmup_steps": 10**400},
        MILE | {"trust": "1.5"},
        MILE | {"trust": 10**400},
        MILE | {"trust": -1.0},
        MILE | {"fractions": [0.5, 0.5]},
        MILE | {"fractions": 1},
        MILE | {"schedule": None},
        MILE | {"schedule": "linear"},
        MILE | {"schedule": MILE},
        MILE | {"schedule": {"kind": "linear", "start": 0.5}},
        MILE | {"schedule": {"kind": "linear", "start": 0.5, "end": -1}},
        {name: value for name, value in MILE.items() if name != "trust"},
        {name: value for name, value in MILE.items() if name != "kind"},
        describe(DeepEnsemble()),
        [MILE],
        None,
        7,
        "mile",
    ],
    ids=lambda description: str(description)[:60],
)
def test_anything_else_is_refused(description):
    with pytest.raises(UntrustedFileError):
        build(description, Mile)


@pytest.mark.parametrize(
    "stopping", [None, 5, "patience", [], MILE, describe(Linear())], ids=lambda value: str(value)[:40]
)
def test_a_stopping_rule_must_be_one(stopping):
    with pytest.raises(UntrustedFileError, match="stopping must be a rule such as Patience"):
        build(describe(Training()) | {"stopping": stopping}, Training)


@pytest.mark.parametrize("family", [None, 5, "normal", [], MILE, describe(FanIn())], ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("prior", [FanIn(), PerLayer(scales=(1.0,))], ids=lambda value: type(value).__name__)
def test_a_family_of_a_prior_must_be_one(prior, family):
    with pytest.raises(UntrustedFileError, match="family must be one of Laplace, Normal, StudentT"):
        build(describe(prior) | {"family": family}, type(prior))


@pytest.mark.parametrize("scales", [[], None, 1.0, "1", [0.0], [1.0, -1.0], [[1.0]], ["1"], [10**400], [None]], ids=str)
def test_scales_of_a_prior_must_be_positive_numbers(scales):
    with pytest.raises(UntrustedFileError, match="scales"):
        build(describe(PerLayer(scales=(1.0,))) | {"scales": scales}, PerLayer)


@pytest.mark.parametrize("depth", [500, 5_000, 50_000])
def test_a_description_nested_without_end_is_refused(depth):
    lists, objects = [], MILE
    for _ in range(depth):
        lists = [lists]
        objects = MILE | {"schedule": objects}
    for description in (lists, objects):
        with pytest.raises(UntrustedFileError):
            build(description, Mile)


def test_what_is_refused_is_quoted_only_in_part():
    for description in ({"kind": "x" * 10_000}, MILE | {"y" * 10_000: 1}, ["z" * 10_000], "w" * 10_000):
        with pytest.raises(UntrustedFileError) as caught:
            build(description, Mile)
        assert len(str(caught.value)) < 1_000
