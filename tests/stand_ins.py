"""Tables that look like the benchmark's, for tests of the experiments."""

from pathlib import Path

import numpy as np

from mile.storage import write_table

YACHT_FEATURES = (
    "longitudinal_position",
    "prismatic_coefficient",
    "length_displacement_ratio",
    "beam_draught_ratio",
    "length_beam_ratio",
    "froude_number",
)


def write_yacht(folder: Path, rng: np.random.Generator) -> None:
    """Write 308 rows that can be learned."""
    columns = dict(zip(YACHT_FEATURES, rng.normal(size=(6, 308)), strict=True))
    target = np.sin(columns["froude_number"]) + 0.1 * rng.normal(size=308)
    write_table(folder / "yacht.csv.gz", columns | {"residuary_resistance": target})
