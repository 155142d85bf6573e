"""The names of this package; they are imported on first use, because some of them need JAX. `__init__` lists them."""

from mile.storage import schema
from mile.storage._downloads import downloaded, read_arrays, read_members, read_packed_lines, write_arrays
from mile.storage._draw_files import DRAWS_IN_MEMORY, read_draws
from mile.storage._draws import FlatDraws, Layout, StoredDraws
from mile.storage._durable import sync_folders, write_binary, write_page
from mile.storage._extension import extend_run
from mile.storage._inside import check_entries, inside
from mile.storage._manifest import Manifest, read_manifest
from mile.storage._memory import Remembered, Unsaved
from mile.storage._platform import fingerprint
from mile.storage._records import (
    FINISHED,
    TRAINING,
    Record,
    check_member,
    check_members,
    check_pending,
    read_record,
    read_status_of,
)
from mile.storage._repair import repair
from mile.storage._run import Run, open_run
from mile.storage._run_folder import DATA, OUT_OF_FOLD, SCALES, check_space, damaged_files, has_run, run_seconds
from mile.storage._table import Table
from mile.storage._table_writing import csv_lines, write_table
from mile.storage._tables import read_table
from mile.storage._tensors import Tensors, read_tensors, write_tensors
from mile.storage._unpacking import ReadOptions, read_size
from mile.storage.schema import check_draws
