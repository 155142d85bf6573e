"""Run directories that may come from anywhere: records and draws are checked before anything relies on them."""

from pathlib import Path

from mile._errors import UntrustedFileError
from mile.storage._draws import VARIABLES, Layout
from mile.storage._fields import TYPES, is_count
from mile.storage._manifest import Manifest
from mile.storage._run import Record, read_record


def read_checked_record(folder: Path, name: str) -> Record:
    """Read what is known of one chain.

    Raises
    ------
    CorruptFileError, UntrustedFileError
        If the file is damaged, or not of a chain.
    """
    path = folder / name
    try:
        record = read_record(folder, name)
    except TypeError as error:
        raise UntrustedFileError(f"{path} is not a record of a chain: {error}.") from error
    status = record.arrays.get("status")
    if not isinstance(record.stage, str) or not is_count(record.step) or not is_count(record.n_draws):
        raise UntrustedFileError(f"{path} is not a record of a chain.")
    if status is not None and (status.shape != () or status.dtype.kind != "i"):
        raise UntrustedFileError(f"{path} has no readable status.")
    return record


def check_draws(folder: Path, manifest: Manifest, layout: Layout, rows: list[int], n_draws: int) -> None:
    """Check that the first draws of some rows of the store are in files of the right size.

    Raises
    ------
    UntrustedFileError
        If one is not.
    """
    n_chunks = -(-n_draws // layout.chunk)
    if n_draws > layout.n_draws or len(rows) * n_chunks * len(VARIABLES) > len(manifest.files):
        raise UntrustedFileError(f"{folder}: there are fewer draws than the manifest says.")
    for variable in VARIABLES:
        width = layout.dimension if variable == "weights" else 1
        n_bytes = layout.chunk * width * TYPES[layout.dtype] + 4  # and a CRC
        for name in (layout.path(variable, row, number) for row in rows for number in range(n_chunks)):
            if manifest.files.get(name, {}).get("bytes") != n_bytes:
                raise UntrustedFileError(f"{folder / name} is not in the manifest, or has the wrong size.")
