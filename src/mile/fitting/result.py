"""A fitted ensemble: what prediction needs, and the files it can be kept in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from mile import _registry
from mile._checks import check_number
from mile._compilation import use_compilation_cache
from mile._errors import Status, UntrustedFileError
from mile.configuration import build, describe, is_custom, is_own, supply
from mile.ensemble.members import Members
from mile.ensemble.training import Training
from mile.features.base import AbstractFeatureEncoder
from mile.features.numbers import Standardizer
from mile.fitting.tensors import prediction_names, prediction_tensors, read_encodings, read_fixed
from mile.likelihoods import AbstractLikelihood, AbstractPredictive, AbstractResponse
from mile.networks import FixedArray
from mile.predict import DEFAULT_MEMORY, predict
from mile.priors import Prior
from mile.samplers import Sampler, Tuned
from mile.sampling.chains import Chains
from mile.storage import DRAWS_IN_MEMORY, StoredDraws, read_tensors, sync_folders, write_tensors

FORMAT = 2  # of model files; this reader knows all formats up to this one
_VECTORS = (".virial", ".inverse_mass")  # reports with a number for each parameter
_CHECKED_VALUES = 1 << 20  # weights looked at at a time
_PARTS = ("network", "likelihood", "prior", "sampler", "training", "temperature")


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A fitted ensemble: everything that prediction and diagnosis need, and nothing of the data."""

    network: Any
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

    @property
    def seed(self) -> int:
        """Seed of all randomness of the fit."""
        return self.chains.seed

    @property
    def ok(self) -> np.ndarray:
        """Mask of the chains that predictions use."""
        return np.array([code == Status.OK for code in self.status])

    @property
    def classes(self) -> np.ndarray | None:
        """The labels that class codes stand for; None where y has none."""
        return self.response.labels

    @property
    def for_encoded(self) -> "Fit":
        """The same fit for rows of features that are encoded already, such as validation rows of a run."""
        return replace(self, encoder=Standardizer.identity(self.network.n_inputs))

    def predictive(
        self, x: Float[np.ndarray, "row feature"], memory: int = DEFAULT_MEMORY, *, chains: Sequence[int] | None = None
    ) -> AbstractPredictive:
        """Return the predictive distribution of each row of raw features.

        By all good chains, or by those at the given places alone.
        """
        return self._mixture(flat_draws(self.chains.draws, self._chosen(chains)), x, memory)

    def ensemble_predictive(
        self, x: Float[np.ndarray, "row feature"], memory: int = DEFAULT_MEMORY, *, chains: Sequence[int] | None = None
    ) -> AbstractPredictive:
        """Return what the deep ensemble predicts whose members started these chains, or those of some chains alone."""
        return self._mixture(flat_draws(self.members.positions[:, None], self._chosen(chains)), x, memory)

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

    def _mixture(self, draws: Any, x: np.ndarray, memory: int) -> AbstractPredictive:
        use_compilation_cache()
        return predict(self.network, self.likelihood, draws, self.encoder.transform(x), self.response, memory)

    def save(self, path: str | Path, extra: dict[str, Any] | None = None) -> None:
        """Write one file that `mile.load` reads; it holds numbers and names from a closed list, never code.

        `extra` is kept as it is: what the caller needs to build itself again.

        Raises
        ------
        TypeError
            If the network or the sampler is of a class that a file cannot describe.
        StorageError
            If the file could not be written.
        """
        configuration = {name: describe(getattr(self, name)) for name in _PARTS}
        for name, description in configuration.items():
            if is_custom(description):
                raise TypeError(f"a file cannot hold a {name} of your own: {description!r}. Keep the draws instead.")
        metadata = {"format": FORMAT, "configuration": configuration, "seed": self.seed, "extra": extra or {}}
        write_tensors(Path(path), self._tensors(), metadata)
        sync_folders([Path(path)], Path(path).parent)

    def _tensors(self) -> dict[str, Any]:
        chains, members = self.chains, self.members
        found: dict[str, Any] = prediction_tensors(self.network, self.encoder, self.response)
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
        for phase, report in chains.info.items():
            found |= {f"info.{phase}.{name}": value for name, value in report.items()}
        for phase, history in chains.history.items():
            found |= {f"history.{phase}.{name}": leaf for name, leaf in zip(history._fields, history, strict=True)}
        return found

    def to_arviz(self) -> Any:
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


def flat_draws(draws: Any, ok: np.ndarray) -> Any:
    """Return the draws of the good chains one after another, in memory or on disk as they are."""
    if isinstance(draws, np.memmap):
        _, n_draws, dimension = draws.shape
        draws = StoredDraws([[chain] for chain in draws], n_draws, n_draws, dimension, draws.dtype)
    if isinstance(draws, StoredDraws):
        return draws.select(ok).flat
    kept = draws if ok.all() else draws[ok]  # a copy of all draws takes longer than predicting one row
    return kept.reshape(-1, kept.shape[-1])


def read_fit(path: Path, network: Any = None) -> tuple[Fit, dict[str, Any]]:
    """Read a file that `Fit.save` wrote; return also what its writer kept for itself.

    A network of the user's own must be given again.

    Raises
    ------
    CorruptFileError, UntrustedFileError
        If the file is damaged, or holds what no file of ours would.
    """
    arrays, metadata = read_tensors(path, mapped_above=DRAWS_IN_MEMORY)
    number = metadata.get("format")
    if type(number) is not int or not 1 <= number <= FORMAT:
        raise UntrustedFileError(f"{path} has format {str(number)[:20]}; this version of mile reads up to {FORMAT}.")
    if set(metadata) != {"format", "configuration", "seed", "extra"} or not isinstance(metadata["extra"], dict):
        raise UntrustedFileError(f"{path} does not describe a model: it has {sorted(metadata)[:8]}.")
    configuration = metadata["configuration"]
    if not isinstance(configuration, dict) or set(configuration) != set(_PARTS):
        raise UntrustedFileError(f"{path} must describe {list(_PARTS)} and nothing else.")
    try:
        fit = assemble(build_parts(configuration, read_fixed(arrays), network), arrays, metadata["seed"])
    except UntrustedFileError as error:
        raise UntrustedFileError(f"{path}: {error}") from error
    return fit, metadata["extra"]


def build_parts(configuration: Any, fixed: Mapping[str, FixedArray], network: Any = None) -> dict[str, Any]:
    """Return the objects that a configuration describes, some of which hold fixed arrays.

    A network of the user's own is not described; it must be given.
    """
    if not isinstance(configuration, dict) or not set(_PARTS) <= set(configuration):
        raise UntrustedFileError(f"a configuration must describe {list(_PARTS)}.")
    kinds = (_registry.network, _registry.likelihood, _registry.prior, _registry.sampler, _registry.training)
    own = is_own(configuration["network"])
    if network is not None and not own:
        raise ValueError("the network of this model is described in its file: leave network= out.")
    supplied = {"network": supply(configuration["network"], network)} if own else {}
    described = {known.kind: known for known in kinds if known.kind not in supplied}
    parts = supplied | {name: build(configuration[name], known, fixed=fixed) for name, known in described.items()}
    try:
        return parts | {"temperature": check_number("temperature", configuration["temperature"], positive=True)}
    except ValueError as error:
        raise UntrustedFileError(str(error)[:200]) from None


def assemble(parts: dict[str, Any], arrays: Mapping[str, Any], seed: Any) -> Fit:
    """Put a fit together, every array checked against the others and the network.

    Arrays have the names of `Fit.save`; draws may be on disk.

    Raises
    ------
    UntrustedFileError
        If anything is missing, unknown, or does not fit the rest.
    """
    network, likelihood = parts["network"], parts["likelihood"]
    _check_arrays(arrays, network)
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise UntrustedFileError("there must be a seed.")
    if network.n_outputs != likelihood.n_outputs:
        raise UntrustedFileError("the network's outputs are not those that the likelihood needs.")
    try:
        parts["prior"].bind(network).tempered(parts["temperature"])
    except ValueError as error:
        raise UntrustedFileError(str(error)) from error
    encoder, response = read_encodings(arrays, likelihood, network.input_shape)
    info = by_phase(arrays, "info", parts["sampler"])
    records = {phase.name: getattr(phase, "record", None) for phase in parts["sampler"].phases}
    history = {
        phase: record_of(records[phase], fields)
        for phase, fields in by_phase(arrays, "history", parts["sampler"]).items()
    }
    status = _read_status(arrays)
    good = np.array([code == Status.OK for code in status])
    _check_finite("draws", arrays["draws"], good)
    _check_finite("member", arrays["member"], good)
    last = list(info.values())[-1] if info else {}
    if not {"step_size", "L"} <= set(last):
        raise UntrustedFileError("there must be a step size and a length for each chain.")
    return Fit(
        **parts,
        encoder=encoder,
        response=response,
        members=Members(
            arrays["member"], _codes(arrays, "member_status"), arrays["member_epochs"], arrays["validation_loss"]
        ),
        chains=Chains(
            draws=arrays["draws"],
            logdensity=arrays["logdensity"],
            energy_change=arrays["energy_change"],
            status=_codes(arrays, "chain_status"),
            tuned=Tuned(last["step_size"], last["L"], last.get("inverse_mass")),
            info=info,
            history=history,
            gradient_evaluations=arrays["gradient_evaluations"],
            seed=seed,
        ),
        chain_ids=arrays["chain_ids"],
        status=status,
    )


def _check_arrays(arrays: Mapping[str, Any], network: Any) -> None:
    """Check names, types and shapes of all arrays."""
    n_chains, n_draws, _ = _check(arrays, "draws", "f", None, None, network.dimension)
    if n_chains < 1 or n_draws < 1:
        raise UntrustedFileError("there must be at least one chain and draw.")
    floats: dict[str, tuple[int | None, ...]] = {
        "logdensity": (n_chains, n_draws),
        "energy_change": (n_chains, n_draws),
        "member": (n_chains, network.dimension),
        "validation_loss": (n_chains, None),
    }
    counts = ("chain_status", "gradient_evaluations", "chain_ids", "status", "member_status", "member_epochs")
    floats |= {name: (n_chains,) for name in arrays if name.startswith("info.")}
    floats |= {name: (n_chains, network.dimension) for name in floats if name.endswith(_VECTORS)}
    floats |= {name: (n_chains, None) for name in arrays if name.startswith("history.")}
    for name, shape in floats.items():
        _check(arrays, name, "f", *shape)
    for name in counts:
        _check(arrays, name, "i", n_chains)
    unknown = set(arrays) - prediction_names(arrays) - {"draws", *floats, *counts}
    if unknown:
        raise UntrustedFileError(f"no fit has the array {sorted(unknown)[0][:80]!r}.")
    ids = arrays["chain_ids"]
    if len(np.unique(ids)) < n_chains or ids.min() < 0:
        raise UntrustedFileError("the chains must have different names.")


def _check(arrays: Mapping[str, Any], name: str, kind: str, *wanted: int | None) -> tuple[int, ...]:
    if name not in arrays:
        raise UntrustedFileError(f"there is no {name}.")
    dtype, shape = arrays[name].dtype, arrays[name].shape
    if len(shape) != len(wanted) or any(want not in (None, size) for want, size in zip(wanted, shape, strict=True)):
        raise UntrustedFileError(f"{name} has shape {shape}, which does not fit the network and the other arrays.")
    if dtype.kind != kind:
        raise UntrustedFileError(f"{name} has the wrong type, {dtype}.")
    return shape


def by_phase(arrays: Mapping[str, Any], kind: str, sampler: Any) -> dict[str, dict[str, Any]]:
    """Group arrays named kind.phase.name, in the order of the sampler's phases."""
    try:
        phases = [phase.name for phase in sampler.phases]
    except ValueError as error:  # its step size is open
        raise UntrustedFileError(str(error)) from error
    found: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        start, _, rest = name.partition(".")
        if start != kind:
            continue
        phase, _, entry = rest.rpartition(".")
        if phase not in phases or not (entry.isascii() and entry.isidentifier()):
            raise UntrustedFileError(f"no phase of this sampler reports {name[:80]!r}.")
        found.setdefault(phase, {})[entry] = array
    return {phase: found[phase] for phase in phases if phase in found}


def record_of(kind: Any, fields: dict[str, Any]) -> Any:
    """Return a phase's history as the tuple that the phase recorded."""
    if kind is None or set(fields) != set(kind._fields):
        raise UntrustedFileError(f"no phase of this sampler records {sorted(fields)[:8]}.")
    return kind(**fields)


def _read_status(arrays: Mapping[str, Any]) -> tuple[Status, ...]:
    """Return the status of each chain, which is that of its member or that of its sampling."""
    status, trained, sampled = (_codes(arrays, name) for name in ("status", "member_status", "chain_status"))
    for code, before, after in zip(status, trained, sampled, strict=True):
        if code != (after if before == Status.OK else before):
            raise UntrustedFileError("the status of a chain contradicts that of its member and its sampling.")
    if Status.OK not in status:
        raise UntrustedFileError("there must be at least one good chain.")
    return status


def _codes(arrays: Mapping[str, Any], name: str) -> tuple[Status, ...]:
    try:
        return tuple(Status(int(number)) for number in arrays[name])
    except ValueError as error:
        raise UntrustedFileError(f"{name}: {error}.") from None


def _check_finite(name: str, weights: Any, good: np.ndarray) -> None:
    """Look at the weights of the good chains, in pieces: they may be on disk."""
    n_rows = max(1, _CHECKED_VALUES // weights.shape[-1])
    for chain in np.flatnonzero(good):
        on_disk = isinstance(weights, StoredDraws)
        rows = weights.select([chain]).flat if on_disk else weights[chain].reshape(-1, weights.shape[-1])
        for start in range(0, len(rows), n_rows):
            if not np.isfinite(rows[start : start + n_rows]).all():
                raise UntrustedFileError(
                    f"{name}: chain {chain} is said to be good but has weights that are not finite."
                )
