"""Registries: what files declare is what is registered, names are found without imports, and files ask for names."""

import dataclasses
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
from models import made_fit

import mile
from mile import Normal, UntrustedFileError, _registry
from mile._registry import IN_FILES, REGISTRIES
from mile.configuration import build, describe
from mile.priors import choose_prior
from mile.samplers import configure

ROOT = Path(__file__).parents[2]
ALL = {*REGISTRIES, *IN_FILES}


@pytest.fixture
def fresh(monkeypatch):
    """Forget what a test registers."""
    for each in ALL:
        monkeypatch.setattr(each, "_classes", each.classes)


def test_what_the_source_declares_is_what_is_registered():
    for each in ALL:
        own = {name: kind for name, kind in each.classes.items() if kind.__module__.startswith("mile.")}
        places = each.declared.items()
        assert {name: getattr(importlib.import_module(at.module), at.class_name) for name, at in places} == own
    known = "gaussian normal mile mlp standardizer dask linear convolution training patience"
    assert {*known.split()} <= {name for each in ALL for name in each.declared}


def test_every_decorator_of_a_class_is_seen():
    pattern = re.compile(r"^@.*registry\.\w+\(", re.MULTILINE)
    decorators = sum(len(pattern.findall(path.read_text())) for path in (ROOT / "src" / "mile").rglob("*.py"))
    assert decorators == sum(len(each.declared) for each in ALL)


def test_names_and_public_names_are_found_without_jax():
    program = (
        "import sys, mile; from mile import _registry as r; print(r.sampler.names, mile.__all__, dir(mile));"
        "sys.exit(bool({'jax', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert found.returncode == 0
    assert "'naive_mclmc'" in found.stdout
    assert "'NaiveMclmc'" in found.stdout


def test_names_are_in_alphabetical_order():
    for each in ALL:
        assert list(each) == list(each.classes) == each.names == sorted(each)


def test_a_name_belongs_to_one_class(fresh):
    with pytest.raises(ValueError, match=r"another prior named 'normal': mile\.priors\.normal\.Normal"):
        _registry.prior("normal")(type("Other", (), {}))
    assert _registry.prior["normal"] is Normal
    again = type("Normal", (), {"__module__": Normal.__module__})
    assert _registry.prior("normal")(again) is _registry.prior["normal"] is again


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'gibbs' is not a sampler: it must be one of \['adjusted', .*'stochastic'\]"):
        _registry.sampler["gibbs"]
    assert _registry.sampler.name_of(int) is None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flat:
    """A prior of the user's own, in a box."""

    width: float = 1.0

    @classmethod
    def of_scale(cls, scale):
        return cls(width=scale)

    def bind(self, network):
        return self

    def log_prob(self, position):
        return jnp.where(jnp.abs(position).max() < self.width, 0.0, -jnp.inf)

    def sample(self, key, dimension):
        return jnp.zeros(dimension)

    def tempered(self, temperature):
        return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class Longer(mile.Mile):
    """A sampler of the user's own."""

    title = "longer MILE"

    @property
    def name(self):
        return "longer"

    @classmethod
    def presets(cls):
        return {"paper": cls(warmup_steps=90)}


class TestAClassOfTheUsersOwn:
    def test_is_chosen_and_kept_in_files_by_its_name(self, fresh, tmp_path):
        _registry.prior("flat")(Flat)
        _registry.sampler("longer")(Longer)
        prior, sampler = choose_prior("flat", 3.0), Longer(**vars(made_fit().sampler))
        assert prior == Flat(width=3.0)
        fit = dataclasses.replace(made_fit(), prior=prior, sampler=sampler)
        fit.save(tmp_path / "own.mile")
        loaded = mile.load(tmp_path / "own.mile")
        assert (loaded.prior, loaded.sampler) == (prior, sampler)
        assert type(loaded.sampler) is Longer
        assert mile.FanIn(family=prior).family == prior

    def test_is_refused_where_its_module_was_not_imported(self, fresh, tmp_path):
        _registry.prior("flat")(Flat)
        dataclasses.replace(made_fit(), prior=Flat()).save(tmp_path / "own.mile")
        del _registry.prior._classes["flat"]
        with pytest.raises(UntrustedFileError, match=r"the prior 'flat' is not registered: import the module that reg"):
            mile.load(tmp_path / "own.mile")

    def test_may_have_the_name_of_another_kind(self, fresh):
        """A name is looked for in the registry of what is expected first."""
        _registry.network("normal")(Flat)
        assert build(describe(Flat()), _registry.network) == Flat()
        assert build(describe(Normal()), _registry.prior) == Normal()
        assert build(describe(mile.FanIn()), _registry.prior) == mile.FanIn()

    def test_that_is_no_dataclass_is_not_built_from_a_file(self, fresh):
        _registry.prior("plain")(type("Plain", (), {}))
        assert describe(_registry.prior["plain"]())["kind"] == "custom"
        with pytest.raises(UntrustedFileError, match="plain"):
            build({"kind": "plain"}, _registry.prior)


def test_a_file_cannot_choose_where_chains_run():
    assert "dask" in _registry.backend
    with pytest.raises(UntrustedFileError, match="the sampler 'dask' is not registered"):
        build({"kind": "dask"}, _registry.sampler)


def test_a_sampler_of_a_new_file_can_be_configured(fresh):
    _registry.sampler("longer")(Longer)
    with pytest.raises(ValueError, match="preset must be one of"):
        configure("longer", "fast")
    for preset in ("paper", "default"):
        assert configure("longer", preset, n_draws=7) == Longer(warmup_steps=90, n_draws=7)


class TestDocumentation:
    def test_has_the_tables_of_all_parts(self):
        """After a change: python docs/make_parts.py."""
        spec = importlib.util.spec_from_file_location("make_parts", ROOT / "docs" / "make_parts.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.PAGE.read_text() == module.page()

    def test_says_when_to_use_each_sampler_and_prior(self):
        text = (ROOT / "docs" / "choose-a-sampler.md").read_text()
        for name, kind in (_registry.sampler.classes | _registry.prior.classes).items():
            assert f'"{name}"' in text or f"`{kind.__name__}(" in text, name
