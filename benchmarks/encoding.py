"""Time and memory to encode a table of mixed columns from Parquet, against reading it and giving categories numbers.

A million rows of 50 columns, 20 of them categories of 2 to 1,000 levels, are read, learned from and encoded as for
training, categories of many levels by the response. The peer reads the same file with pandas and gives the categories
numbers with scikit-learn's `OrdinalEncoder`; it does nothing with numbers, missing values or the response. Each runs in
a fresh process. The bars are twice its time, and three times the encoded float32 rows in memory, the table included.
"""

import tempfile
from pathlib import Path

from _common import Row, command_line, interleave, progress, run_child


def main(quick: bool = False) -> list[Row]:
    n_rows, repetitions = (20_000, 1) if quick else (1_000_000, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        run_child("_encoding_child.py", "make", path, n_rows)
        progress(f"encoding: {n_rows:,} rows of 50 columns")
        results: dict[str, dict[str, float]] = {}

        def measure(what: str) -> float:
            results[what] = run_child("_encoding_child.py", what, path)
            return results[what]["seconds"]

        ours, peer = interleave(lambda: measure("encode"), lambda: measure("peer"), repetitions=repetitions)
    encoded = results["encode"]
    stages = ", ".join(f"{stage} {encoded[stage]:.2f} s" for stage in ("read", "frame", "fit"))
    return [
        Row(
            name="encoding of a mixed table",
            value=ours,
            unit="s",
            peer=peer,
            ratio=ours / peer,
            high=2.0,
            note=f"{n_rows:,} x 50 to {encoded['features']:.0f} features: {stages} with the encoding; processor time "
            f"{encoded['processor']:.1f} s, of the peer {results['peer']['processor']:.1f} s",
        ),
        Row(
            name="memory to encode a mixed table",
            value=encoded["above"],
            unit="MB",
            ratio=encoded["above"] / encoded["result"],
            high=3.0,
            note=f"encoded rows have {encoded['result']:,.0f} MB; peak of the peer {results['peer']['above']:,.0f} MB",
        ),
    ]


if __name__ == "__main__":
    command_line(main)
