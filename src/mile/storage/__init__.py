"""All files: run directories with draws and checkpoints, and the tensors of saved models."""

from mile.storage._draws import FlatDraws, Layout, StoredDraws
from mile.storage._durable import sync_folders
from mile.storage._manifest import Manifest, read_manifest
from mile.storage._memory import Unsaved
from mile.storage._platform import fingerprint
from mile.storage._repair import repair
from mile.storage._run import (
    DATA,
    DRAWS_IN_MEMORY,
    SCALES,
    Record,
    Run,
    check_space,
    damaged_files,
    has_run,
    open_run,
    read_draws,
    read_layout,
    read_record,
)
from mile.storage._tensors import Tensors, read_tensors, write_tensors
from mile.storage._trust import check_draws, read_checked_manifest, read_checked_record

__all__ = [
    "DATA",
    "DRAWS_IN_MEMORY",
    "SCALES",
    "FlatDraws",
    "Layout",
    "Manifest",
    "Record",
    "Run",
    "StoredDraws",
    "Tensors",
    "Unsaved",
    "check_draws",
    "check_space",
    "damaged_files",
    "fingerprint",
    "has_run",
    "open_run",
    "read_checked_manifest",
    "read_checked_record",
    "read_draws",
    "read_layout",
    "read_manifest",
    "read_record",
    "read_tensors",
    "repair",
    "sync_folders",
    "write_tensors",
]
