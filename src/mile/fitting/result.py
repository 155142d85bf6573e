"""A fitted ensemble: what prediction needs, and the files that keep it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile import _registry, native
from mile._checks import check_number
from mile._compilation import use_compilation_cache
from mile._errors import Status
from mile._json import Json
from mile._schema import quote, refused, require
from mile.configuration import build, describe, is_custom, is_own, supply
from mile.ensemble.members import Members
from mile.ensemble.training import Training
from mile.features.base import AbstractFeatureEncoder
from mile.features.numbers import Standardizer
from mile.fitting.candidates import check_candidate_weights, flat_draws, weighted_draws
from mile.fitting.tensors import Arrays, prediction_names, prediction_tensors, read_encodings, read_fixed
from mile.fitting.unseen import OutOfFold
from mile.likelihoods import AbstractLikelihood, AbstractPredictive, AbstractResponse
from mile.likelihoods.weights import EQUAL, DrawWeights
from mile.networks import FixedArray
from mile.networks.base import Network
from mile.predict import DEFAULT_MEMORY, JoinedDraws, predict
from mile.priors import Prior
from mile.samplers import Sampler, Tuned
from mile.sampling.chains import Chains
from mile.storage import DRAWS_IN_MEMORY, FlatDraws, StoredDraws, read_tensors, schema, sync_folders, write_tensors

if TYPE_CHECKING:
    import xarray  # pyright: ignore[reportMissingImports]

_CHECKED_VALUES = 1 << 20  # weights that are checked at once
_LARGEST_WEIGHT = 1e18  # beyond it products of two are near the end of float32; no prior is that wide


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fit:
    """A fitted ensemble: everything that prediction and diagnosis need, and nothing of the data.

    Candidates are the chains and then, in the same order, the members of the ensemble that they start from. `weights`
    says how much each of them counts in predictions; None means that all good chains count the same, and no member.
    """

    network: Network
    likelihood: AbstractLikelihood
    prior: Prior
    sampler: Sampler
    training: Training
    encoder: AbstractFeatureEncoder
    response: AbstractResponse
    members: Members
    chains: Chains
    chain_ids: Int[np.ndarray, " chain"]  # a replaced chain has an id of K or more
    status: tuple[Status, ...]
    temperature: float = 1.0  # of the chains; their log density is that of the posterior divided by it
    weights: Float[np.ndarray, " candidate"] | None = None
    out_of_fold: OutOfFold | None = None  # predictions of rows by chains that never saw them, if there were folds

    def __post_init__(self) -> None:
        if self.weights is not None:
            check_candidate_weights(self.weights, self.ok)

    @property
    def seed(self) -> int:
        """Seed of all randomness of the fit."""
        return self.chains.seed

    @property
    def ok(self) -> np.ndarray:
        """Mask of the good chains."""
        return np.array([code == Status.OK for code in self.status])

    @property
    def chain_weights(self) -> Float[np.ndarray, " chain"]:
        """How much each chain counts in predictions."""
        return self.ok / self.ok.sum() if self.weights is None else self.weights[: len(self.status)]

    @property
    def member_weights(self) -> Float[np.ndarray, " chain"]:
        """How much each member of the starting ensemble counts in predictions."""
        return np.zeros(len(self.status)) if self.weights is None else self.weights[len(self.status) :]

    @property
    def classes(self) -> np.ndarray | None:
        """The labels that class codes stand for; None where y has none."""
        return self.response.labels

    @property
    def for_encoded(self) -> "Fit":
        """The same fit for rows of features that are encoded already, such as validation rows of a run."""
        return replace(self, encoder=Standardizer.identity(self.network.n_inputs))

    def __repr__(self) -> str:
        good, n_draws = int(self.ok.sum()), self.chains.logdensity.shape[1]
        lines = [
            f"Fit by {self.sampler.name}: {good} of {len(self.status)} chains, {good * n_draws:,} draws",
            f"network     {self.network.dimension:,} weights, {self.network.n_inputs} inputs",
            f"likelihood  {self.likelihood}",
            f"prior       {self.prior}",
            f"seed        {self.seed}",
        ]
        failed = [f"{chain} ({code.name.lower()})" for chain, code in enumerate(self.status) if code != Status.OK]
        lines += [f"failed      {', '.join(failed)}"] if failed else []
        scores = [] if self.out_of_fold is None else repr(self.out_of_fold).splitlines()
        return "\n".join([*lines, *scores])

    def predictive(
        self, x: Float[np.ndarray, "row feature"], memory: int = DEFAULT_MEMORY, *, chains: Sequence[int] | None = None
    ) -> AbstractPredictive:
        """Return the predictive distribution of each row of raw features.

        By all candidates with their weights, or by the chains at the given places alone, which then count the same.
        """
        if chains is None and self.weights is not None:
            return self._mixture(*weighted_draws(self.chains.draws, self.members.positions, self.weights), x, memory)
        return self._mixture(flat_draws(self.chains.draws, self._chosen(chains)), EQUAL, x, memory)

    def ensemble_predictive(
        self, x: Float[np.ndarray, "row feature"], memory: int = DEFAULT_MEMORY, *, chains: Sequence[int] | None = None
    ) -> AbstractPredictive:
        """Return the predictive distribution of the deep ensemble, whose members are the starts of the chains.

        Of all good chains, or of those at the given places alone. All members count the same.
        """
        return self._mixture(flat_draws(self.members.positions[:, None], self._chosen(chains)), EQUAL, x, memory)

    def thinned(self, n_draws: int) -> "Fit":
        """Return the same fit with so many draws of each chain, evenly chosen."""
        stored = self.chains.draws
        chosen = np.linspace(0, stored.shape[1] - 1, n_draws).round().astype(int)
        draws = np.stack([np.asarray(stored[chain, chosen]) for chain in range(stored.shape[0])])
        return replace(self, chains=self.chains._replace(draws=draws))

    def _chosen(self, chains: Sequence[int] | None) -> np.ndarray:
        if chains is None:
            return self.ok
        chosen = np.zeros(len(self.status), bool)
        chosen[list(chains)] = True
        if not chosen.any() or (chosen & ~self.ok).any():
            raise ValueError(
                f"chains must name good chains, places {np.flatnonzero(self.ok).tolist()}; got {chains!r}."
            )
        return chosen

    def _mixture(
        self, draws: np.ndarray | FlatDraws | JoinedDraws, weights: DrawWeights, x: np.ndarray, memory: int
    ) -> AbstractPredictive:
        use_compilation_cache()
        return predict(self.network, self.likelihood, draws, self.encoder.transform(x), self.response, memory, weights)

    def save(self, path: str | Path, extra: Mapping[str, Json] | None = None) -> None:
        """Write one file that `mile.load` reads. It holds numbers and registered names, never code.

        `extra` is kept as it is; an estimator describes itself there.

        Raises
        ------
        TypeError
            If the network or the sampler is of a class that a file cannot describe.
        StorageError
            If the file could not be written.
        """
        configuration = {name: describe(getattr(self, name)) for name in schema.PARTS}
        for name, description in configuration.items():
            if is_custom(description):
                raise TypeError(f"a file cannot hold a {name} of your own: {description!r}. Keep the draws instead.")
        header = schema.ModelHeader(schema.MODEL_FORMAT, configuration, self.seed, dict(extra or {}))._asdict()
        kernel = native.described_form(self.network, self.likelihood)
        header |= {"kernel": None if kernel is None else kernel._asdict()}
        write_tensors(Path(path), self._tensors(), {name: part for name, part in header.items() if part is not None})
        sync_folders([Path(path)], Path(path).parent)

    def _tensors(self) -> dict[str, np.ndarray | StoredDraws]:
        chains, members = self.chains, self.members
        found: dict[str, np.ndarray | StoredDraws] = {}
        found |= prediction_tensors(self.network, self.encoder, self.response)
        found |= {
            "draws": chains.draws,
            "logdensity": chains.logdensity,
            "energy_change": chains.energy_change,
            "chain_status": np.array(chains.status, np.int32),
            "gradient_evaluations": np.asarray(chains.gradient_evaluations, np.int64),
            "chain_ids": np.asarray(self.chain_ids, np.int64),
            "status": np.array(self.status, np.int32),
            "member": members.positions,
            "member_status": np.array(members.status, np.int32),
            "member_epochs": np.asarray(members.epochs),
            "validation_loss": members.validation_loss,
        }
        if self.weights is not None:
            found[schema.CANDIDATE_WEIGHTS] = self.weights
        if self.out_of_fold is not None:
            found |= self.out_of_fold.tensors()
        for phase, report in chains.info.items():
            found |= {f"info.{phase}.{name}": value for name, value in report.items()}
        for phase, history in chains.history.items():
            found |= {f"history.{phase}.{name}": leaf for name, leaf in zip(history._fields, history, strict=True)}
        return found

    def to_arviz(self) -> "xarray.DataTree":
        """Return draws and sampler statistics of the good chains as an xarray `DataTree` in ArviZ's layout.

        Its `to_netcdf` and `to_zarr` write files. Needs the `arviz` extra.

        Raises
        ------
        ImportError
            If xarray is not installed.
        """
        try:
            import xarray  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError("to_arviz needs xarray: pip install 'mile-bnn[arviz]'.") from error
        ok, chains = self.ok, self.chains
        coordinates = {"chain": np.asarray(self.chain_ids)[ok], "draw": np.arange(chains.logdensity.shape[1])}
        pair = ("chain", "draw")
        posterior = {"weights": ((*pair, "weight"), chains.draws[ok])}
        statistics = {"lp": (pair, chains.logdensity[ok]), "energy_change": (pair, chains.energy_change[ok])}
        attributes = {"inference_library": "mile", "sampler": self.sampler.name, "seed": self.seed}
        return xarray.DataTree.from_dict(
            {
                "posterior": xarray.Dataset(posterior, coordinates, attributes),
                "sample_stats": xarray.Dataset(statistics, coordinates, attributes),
            }
        )


def read_fit(path: Path, network: object = None) -> tuple[Fit, dict[str, Json]]:
    """Read a file that `Fit.save` wrote; return also what its estimator keeps.

    A network of the user's own must be given again.

    Raises
    ------
    CorruptFileError, UntrustedFileError
        If the file is damaged, or not a model file.
    """
    arrays, metadata = read_tensors(path, mapped_above=DRAWS_IN_MEMORY)
    schema.check_format(metadata, schema.MODEL_FORMAT, path)
    header = schema.MODEL.read(metadata, path)
    parts = build_parts(header.configuration, read_fixed(arrays), network)
    is_same = header.kernel in (None, native.described_form(parts.network, parts.likelihood))
    require(is_same, "what the file says for the native kernel is not what its network and likelihood are.")
    return assemble(parts, arrays, header.seed), header.extra


class Parts(NamedTuple):
    """The objects that a configuration describes."""

    network: Network
    likelihood: AbstractLikelihood
    prior: Prior
    sampler: Sampler
    training: Training
    temperature: float


def build_parts(configuration: Mapping[str, Json], fixed: Mapping[str, FixedArray], network: object = None) -> Parts:
    """Return the objects that a configuration describes, some of which hold fixed arrays.

    A network of the user's own is not described; it must be given.

    Raises
    ------
    UntrustedFileError
        If a description is missing or impossible.
    ValueError
        If a network is given where the file describes one, or is missing where it does not.
    """
    missing = sorted(set(schema.PARTS) - set(configuration))
    require(not missing, f"a configuration must describe {missing}.")
    own = is_own(configuration["network"])
    if network is not None and not own:
        raise ValueError("the network of this model is described in its file: leave network= out.")

    def part(known: _registry.Registry) -> Any:  # an object of a class of that registry
        return build(configuration[known.kind], known, fixed=fixed)

    with refused("the configuration"):
        temperature = check_number("temperature", configuration["temperature"], positive=True)
    return Parts(
        network=supply(configuration["network"], network) if own else part(_registry.network),
        likelihood=part(_registry.likelihood),
        prior=part(_registry.prior),
        sampler=part(_registry.sampler),
        training=part(_registry.training),
        temperature=temperature,
    )


def assemble(parts: Parts, arrays: Arrays, seed: int) -> Fit:
    """Build a fit, with every array checked against the others and the network.

    Arrays have the names of `Fit.save`; draws may be on disk.

    Raises
    ------
    UntrustedFileError
        If an array is missing or unknown, or does not fit the rest.
    """
    network, likelihood = parts.network, parts.likelihood
    others = prediction_names(arrays)
    others |= {name for name in arrays if name.startswith(schema.OUT_OF_FOLD_PREFIX)}
    schema.check_fit_tensors({name: arrays[name] for name in arrays if name not in others}, network.dimension)
    require(network.n_outputs == likelihood.n_outputs, "the network must have the outputs that the likelihood needs.")
    with refused("the prior"):
        parts.prior.bind(network).tempered(parts.temperature)
    encoder, response = read_encodings(arrays, likelihood, network.input_shape)
    info = by_phase(arrays, "info", parts.sampler)
    records = {phase.name: getattr(phase, "record", None) for phase in parts.sampler.phases}
    history = {
        phase: record_of(records[phase], fields) for phase, fields in by_phase(arrays, "history", parts.sampler).items()
    }
    status, member_status, chain_status = schema.read_status(arrays)
    good = [chain for chain, code in enumerate(status) if code == Status.OK]
    _check_finite("draws", arrays["draws"], good)
    _check_finite("member", arrays["member"][:, None], good)
    weights = arrays.get(schema.CANDIDATE_WEIGHTS)
    if weights is not None:
        with refused(schema.CANDIDATE_WEIGHTS):
            check_candidate_weights(weights, np.array([code == Status.OK for code in status]))
    last = list(info.values())[-1] if info else {}
    require({"step_size", "L"} <= set(last), "there must be a step size and a length L for each chain.")
    return Fit(
        **parts._asdict(),
        encoder=encoder,
        response=response,
        members=Members(arrays["member"], member_status, arrays["member_epochs"], arrays["validation_loss"]),
        chains=Chains(
            draws=arrays["draws"],
            logdensity=arrays["logdensity"],
            energy_change=arrays["energy_change"],
            status=chain_status,
            tuned=Tuned(last["step_size"], last["L"], last.get("inverse_mass")),
            info=info,
            history=history,
            gradient_evaluations=arrays["gradient_evaluations"],
            seed=seed,
        ),
        chain_ids=arrays["chain_ids"],
        status=status,
        weights=weights,
        out_of_fold=OutOfFold.read(arrays, len(status)),
    )


def by_phase(arrays: Arrays, kind: str, sampler: Sampler) -> dict[str, dict[str, np.ndarray]]:
    """Group arrays named kind.phase.name, in the order of the sampler's phases."""
    with refused("the sampler"):  # its step size may be open
        phases = [phase.name for phase in sampler.phases]
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        start, _, rest = name.partition(".")
        if start != kind:
            continue
        phase, _, entry = rest.rpartition(".")
        is_known = phase in phases and entry.isascii() and entry.isidentifier()
        require(is_known, f"no phase of this sampler reports {quote(name)}.")
        found.setdefault(phase, {})[entry] = array
    return {phase: found[phase] for phase in phases if phase in found}


def record_of(kind: type[NamedTuple] | None, fields: Mapping[str, np.ndarray]) -> NamedTuple:
    """Return a phase's history as the tuple that the phase recorded."""
    known = () if kind is None else kind._fields
    require(kind and set(fields) == set(known), f"no phase of this sampler records {quote(sorted(fields))}.")
    assert kind is not None
    return kind._make(fields[name] for name in known)


def _check_finite(name: str, weights: np.ndarray, good: Sequence[int]) -> None:
    """Check the weights (chain, draw, d) of the good chains, in pieces: they may be on disk."""
    n_rows = max(1, _CHECKED_VALUES // weights.shape[-1])
    for chain in good:
        rows = flat_draws(weights, np.arange(len(weights)) == chain)
        for start in range(0, len(rows), n_rows):
            piece = rows[start : start + n_rows]
            require(np.isfinite(piece).all(), f"{name}: chain {chain} has status ok, but weights that are not finite.")
            is_possible = bool((np.abs(piece) <= _LARGEST_WEIGHT).all())
            require(is_possible, f"{name}: chain {chain} has weights beyond {_LARGEST_WEIGHT:g}, which no network has.")
