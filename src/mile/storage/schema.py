"""What the files of this library may contain: one schema for each kind of file, checked once when it is read.

A file may come from anywhere, and everything after this page relies on it. Files that are damaged are another matter:
checksums find those, before a schema is asked.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, TypedDict

import numpy as np

from mile._errors import CorruptFileError, Status
from mile._json import Json
from mile._schema import (
    LARGEST,
    ByName,
    Count,
    Fields,
    Flag,
    HasShape,
    Nullable,
    Number,
    PlainValue,
    Several,
    Tensor,
    Text,
    Unchecked,
    quote,
    require,
)
from mile.native._plain import NormalForm
from mile.storage._draws import VARIABLES, Layout
from mile.storage._inside import is_listed, is_record

SEED = Count(0, 2**32 - 1)


def check_format(content: object, newest: int, source: object) -> None:
    """Refuse a format that is newer than this library, before its fields are read."""
    number = content.get("format") if isinstance(content, Mapping) else None
    is_known = type(number) is int and 1 <= number <= newest
    require(is_known, f"the file has format {quote(number)}; this version of mile reads up to {newest}.", source)


# Files of tensors: the header says where each tensor lies, and the checksum covers header and data

TENSOR_TYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_MOST_TENSORS, _MOST_AXES = 10_000, 8


class Entry(NamedTuple):
    """One tensor of a file."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]  # from the first byte after the header

    @property
    def numpy_type(self) -> np.dtype:
        """The type of its numbers."""
        return TENSOR_TYPES[self.dtype]

    @property
    def n_bytes(self) -> int:
        """The size of its numbers."""
        return math.prod(self.shape) * self.numpy_type.itemsize


class Signature(NamedTuple):
    """What a file of tensors says of itself besides the tensors."""

    mile: str  # metadata as canonical JSON
    sha256: str


SIGNATURE = Fields(Signature, {"mile": Text(), "sha256": Text()})
METADATA = ByName(Unchecked())
ENTRIES = ByName(
    Fields(
        Entry,
        {
            "dtype": Text(choices=TENSOR_TYPES),
            "shape": Several(Count(), most=_MOST_AXES),
            "data_offsets": Several(Count(), fewest=2, most=2),
        },
    ),
    most=_MOST_TENSORS,
)


def read_entries(header: object, n_data: int, source: object) -> dict[str, Entry]:
    """Return the tensors that a header describes; they fill the data from the first byte to the last.

    Raises
    ------
    UntrustedFileError
        If tensors overlap, leave a gap, are not aligned or are too large for any file.
    CorruptFileError
        If there is more or less data than they need.
    """
    entries = ENTRIES.read(header, source)
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        size = entry.numpy_type.itemsize
        # numpy multiplies the axes of an empty array too, without those that are zero.
        largest = math.prod(max(axis, 1) for axis in entry.shape) * size
        require(largest <= LARGEST, f"tensor {quote(name)} has an impossible shape, {entry.shape}.", source)
        is_next = entry.data_offsets == (end, end + entry.n_bytes) and end % size == 0
        wanted = f"{entry.n_bytes:,} bytes from byte {end:,} on, aligned to {size}"
        require(is_next, f"tensor {quote(name)} must take {wanted}; got {entry.data_offsets}.", source)
        end += entry.n_bytes
    if end != n_data:
        raise CorruptFileError(
            f"{source}: {n_data:,} bytes of data where {end:,} belong; the file was cut short or altered."
        )
    return entries


# The manifest of a run, with the sizes of its draws

MANIFEST_FORMAT = 1  # this reader knows all formats up to this one
DRAW_TYPES = {"float32": 4, "float64": 8}  # and their bytes


class FileEntry(TypedDict):
    """What a manifest says of a file."""

    bytes: int
    sha256: str


def _is_chain(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19 and text == str(int(text))


_CHAINS = ByName(ByName(Text()), Text("the number of a chain", _is_chain))
LAYOUT = Fields(
    Layout,
    {
        "chain_ids": Several(Count(), are_distinct=True),
        "n_draws": Count(1),
        "dimension": Count(1),
        "dtype": Text(choices=DRAW_TYPES),
        "chunk": Count(1),
    },
)
MANIFEST = Fields(
    dict,
    {
        "format": Count(1, MANIFEST_FORMAT),
        "seed": SEED,
        "fingerprint": METADATA,
        "configuration": METADATA,
        "data": METADATA,
        "origin": Nullable(METADATA),
        "plan": Nullable(ByName(Count())),
        "layout": Nullable(LAYOUT),
        "files": ByName(
            Fields(FileEntry, {"bytes": Count(), "sha256": Text()}),
            Text("the name of a file that a run contains", is_listed),
        ),
        "chains": _CHAINS,
        "previous": _CHAINS,
        "status": ByName(Text()),
        "forced": Several(Text()),
        "finished": Flag(),
    },
    {"weights": Several(Number(), fewest=2), "begun": Count(1)},
)


def read_manifest_fields(content: object, source: object) -> Mapping[str, object]:
    """Return the fields of a manifest: each is what it should be, and chains have files that the manifest lists."""
    check_format(content, MANIFEST_FORMAT, source)
    found: dict = MANIFEST.read(content, source)
    Count().read(found["configuration"].get("n_chains", 0), source, ("configuration", "n_chains"))
    for field in ("chains", "previous"):
        for chain, kinds in found[field].items():
            for kind, name in kinds.items():
                is_known = name in found["files"] and is_record(name, int(chain), kind)
                require(is_known, f"{field}.{chain}: {quote(name)} is not a {kind[:20]} file of that chain.", source)
    return found | {"forced": list(found["forced"])}


def check_draws(files: Mapping[str, FileEntry], layout: Layout, rows: list[int], n_draws: int, source: object) -> None:
    """Check that the first draws of some rows of the store are in files of the right size.

    Raises
    ------
    UntrustedFileError
        If one is not.
    """
    n_chunks = -(-n_draws // layout.chunk)
    is_room = n_draws <= layout.n_draws and len(rows) * n_chunks * len(VARIABLES) <= len(files)
    require(is_room, "there are fewer draws than the manifest says.", source)
    for variable in VARIABLES:
        width = layout.dimension if variable == "weights" else 1
        n_bytes = layout.chunk * width * DRAW_TYPES[layout.dtype] + 4  # and a CRC
        for name in (layout.path(variable, row, number) for row in rows for number in range(n_chunks)):
            is_right = name in files and files[name]["bytes"] == n_bytes
            require(is_right, f"{name} must be in the manifest with {n_bytes:,} bytes.", source)


# The note of the process that writes to a run

OWNER = Fields(dict, {"pid": Count(), "host": Text()})

# A model file

MODEL_FORMAT = 2  # this reader knows all formats up to this one
PARTS = ("network", "likelihood", "prior", "sampler", "training", "temperature")
_VECTORS = (".virial", ".inverse_mass")  # reports with a number for each parameter
CANDIDATE_WEIGHTS = "candidate_weights"  # of the chains, then of their members; without them all chains count the same


class ModelHeader(NamedTuple):
    """What a model file says of a fit besides its arrays."""

    format: int
    configuration: dict[str, Json]
    seed: int
    extra: dict[str, Json]  # what the estimator keeps, see `Origin`
    kernel: NormalForm | None = None  # what the native kernel must know, if it can predict the model by itself


_MOST_LAYERS, _WIDEST = 65, 1 << 24
KERNEL = Fields(
    NormalForm,
    {
        "sizes": Several(Count(1, _WIDEST), fewest=2, most=_MOST_LAYERS),
        "activation": Count(0, 4),
        "head": Count(0, 2),
        "floor": Number(),
    },
)
MODEL = Fields(
    ModelHeader,
    {
        "format": Count(1, MODEL_FORMAT),
        "configuration": Fields(dict, dict.fromkeys(PARTS, Unchecked())),
        "seed": SEED,
        "extra": METADATA,
    },
    {"kernel": KERNEL},
)


def check_fit_tensors(arrays: Mapping[str, HasShape], dimension: int) -> None:
    """Check names, types and shapes of the arrays of a fit, those of its encodings left out.

    Raises
    ------
    UntrustedFileError
        If one is missing or unknown, or does not fit the network and the others.
    """
    require("draws" in arrays, "there are no draws.")
    draws = Tensor("f", (None, None, dimension)).read(arrays["draws"], place=("draws",))
    n_chains, n_draws, _ = draws.shape
    require(n_chains > 0 and n_draws > 0, "there must be at least one chain and one draw.")
    per_chain, per_draw = Tensor("f", (n_chains,)), Tensor("f", (n_chains, n_draws))
    per_weight, history = Tensor("f", (n_chains, dimension)), Tensor("f", (n_chains, None))
    codes = ("chain_status", "gradient_evaluations", "chain_ids", "status", "member_status", "member_epochs")
    reports = [name for name in arrays if name.startswith("info.")]
    schemas = {
        "draws": Tensor("f", (None, None, dimension)),
        "logdensity": per_draw,
        "energy_change": per_draw,
        "member": per_weight,
        "validation_loss": history,
        **dict.fromkeys(codes, Tensor("i", (n_chains,))),
        **{name: per_weight if name.endswith(_VECTORS) else per_chain for name in reports},
        **{name: history for name in arrays if name.startswith("history.")},
    }
    weights = {CANDIDATE_WEIGHTS: Tensor("float64", (2 * n_chains,), is_finite=True)}
    ids = np.asarray(Fields(dict, schemas, weights).read(arrays)["chain_ids"])
    require(len(np.unique(ids)) == n_chains and ids.min() >= 0, "chain_ids must be different numbers from 0 on.")


OUT_OF_FOLD_PREFIX = "oof."  # of arrays about rows that chains left out; a fit without folds has none
_OF_ROW = ("oof.score.", "oof.ensemble.", "oof.value.")
_MOST_NAMES = 1_000  # a few for each of several outputs


def check_out_of_fold(arrays: Mapping[str, np.ndarray], n_chains: int) -> None:
    """Check names, types, shapes and values of what was kept of left-out rows.

    Raises
    ------
    UntrustedFileError
        If one is missing or unknown, or does not fit the chains and the others.
    """
    require("oof.fold" in arrays and "oof.n_folds" in arrays, "the folds of the left-out rows are missing.")
    fold = Tensor("int32", (None,)).read(arrays["oof.fold"], place=("oof.fold",))
    count = Tensor("int32", ()).read(arrays["oof.n_folds"], place=("oof.n_folds",))
    n_folds = Count(1, n_chains).read(int(count), place=("oof.n_folds",))
    of_row = [name for name in arrays if name.startswith(_OF_ROW)]
    is_named = all(name.rpartition(".")[2].isascii() and name.rpartition(".")[2].isidentifier() for name in of_row)
    require(is_named and len(of_row) <= _MOST_NAMES, "an array of left-out rows has an impossible name.")
    of_slots = Tensor("float64", (-(-n_chains // n_folds), len(fold)))
    schemas = {
        "oof.fold": Tensor("int32", (len(fold),)),
        "oof.n_folds": Tensor("int32", ()),
        "oof.number": Tensor("int64", (len(fold),)),
        "oof.weight": Tensor("float32", (len(fold),), is_finite=True, is_positive=True),
        "oof.chain_log_density": of_slots,
        "oof.member_log_density": of_slots,
        **dict.fromkeys(of_row, Tensor("float64", (len(fold),))),
    }
    found = Fields(dict, schemas).read(arrays)
    require(len(fold) > 0 and fold.min() >= 0 and fold.max() < n_folds, "the folds of left-out rows are impossible.")
    number = found["oof.number"]
    require(number.min() >= 0 and len(np.unique(number)) == len(number), "left-out rows must be different rows.")
    require(not any(np.isnan(found[name]).any() for name in of_row), "scores of left-out rows must be numbers.")
    std, distance = (found.get(f"oof.value.{name}", np.ones(1)) for name in ("std", "distance"))
    require((std > 0.0).all() and (distance >= 0.0).all(), "predictions of left-out rows are impossible.")


class StatusCodes(NamedTuple):
    """Status of each chain as a whole, of its member's training, and of its sampling."""

    status: tuple[Status, ...]
    member_status: tuple[Status, ...]
    chain_status: tuple[Status, ...]


def read_status(arrays: Mapping[str, np.ndarray]) -> StatusCodes:
    """Return the status of each chain: that of its member if its training failed, else that of its sampling.

    Raises
    ------
    UntrustedFileError
        If a code is unknown, the three contradict each other, or no chain is good.
    """
    found = StatusCodes(*(tuple(map(read_code, arrays[name].tolist())) for name in StatusCodes._fields))
    for code, trained, sampled in zip(*found, strict=True):
        is_same = code == (sampled if trained == Status.OK else trained)
        require(is_same, "the status of a chain contradicts that of its member and its sampling.")
    require(Status.OK in found.status, "there must be at least one good chain.")
    return found


def read_code(number: object, source: object = "") -> Status:
    """Return the status that a number stands for."""
    return Status(Count(0, max(Status)).read(number, source, ("the status of a chain",)))


# What a model file or a run keeps of the estimator that began it


class Origin(NamedTuple):
    """What builds an estimator again."""

    estimator: str
    parameters: dict[str, Json]
    feature_names: tuple[str, ...] | None
    target: str | None
    n_features: int | None = None  # of X as users pass it; files of version 0.1 do not say
    event: str | None = None  # name of the column that says which times are censored
    choice: Json = None  # what likelihood="auto" chose and why; `LikelihoodChoice.read` checks it
    exposure: str | None = None  # name of the column that counts are proportional to


ORIGIN = Fields(
    Origin,
    {
        "estimator": Text(),
        "parameters": METADATA,
        "feature_names": Nullable(Several(Text())),
        "target": Nullable(Text()),
    },
    {"n_features": Count(1, 2**31 - 1), "event": Text(), "exposure": Text(), "choice": Unchecked()},
)

# The settings of an encoder: its name and plain values

ENCODER = ByName(PlainValue())
