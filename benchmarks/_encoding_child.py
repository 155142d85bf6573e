"""Make a table of mixed columns, encode it, or give its categories numbers.

Usage: _encoding_child.py make PATH N_ROWS | encode PATH | peer PATH.
"""

import json
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from _memory_child import peak, resident
from sklearn.preprocessing import OrdinalEncoder

from mile.features.frame import Frame
from mile.features.table import TableEncoder

N_NUMBERS = 30
N_LEVELS = [2, 2, 3, 5, 5, 8, 10, 10, 12, 15, 20, 20, 25, 30, 50, 100, 200, 500, 1_000, 1_000]


def make(path: str, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, pa.Array] = {"y": pa.array(rng.standard_normal(n_rows))}
    for place in range(N_NUMBERS):
        if place < 10:
            columns[f"count {place}"] = pa.array(rng.poisson(3 * (place + 1), n_rows))
        else:
            empty = rng.random(n_rows) < 0.02 * (place % 3)
            columns[f"number {place}"] = pa.array(rng.standard_normal(n_rows) ** 3, mask=empty)
    for place, n_levels in enumerate(N_LEVELS):
        levels = pa.array([f"level {level} of {place}" for level in range(n_levels)])
        codes = np.minimum(rng.geometric(4 / (n_levels + 4), n_rows) - 1, n_levels - 1)
        columns[f"category {place}"] = levels.take(pa.array(codes, mask=rng.random(n_rows) < 0.01 * (place % 2)))
    pa.parquet.write_table(pa.table(columns), path)
    print("{}")


def encode(path: str) -> dict[str, float]:
    began = time.perf_counter()
    table = pa.parquet.read_table(path)
    read = time.perf_counter()
    y = table["y"].to_numpy()
    frame = Frame.of(table.drop_columns("y"))
    framed = time.perf_counter()
    encoder, x = TableEncoder().fit_and_transform(frame, None, None, y)
    ended = time.perf_counter()
    stages = {"read": read - began, "frame": framed - read, "fit": ended - framed}
    return {"seconds": ended - began, "result": 1e-6 * x.nbytes, "features": encoder.n_features} | stages


def peer(path: str) -> dict[str, float]:
    began = time.perf_counter()
    table = pd.read_parquet(path)
    OrdinalEncoder().fit_transform(table[[name for name in table if name.startswith("category")]])
    return {"seconds": time.perf_counter() - began}


if __name__ == "__main__":
    what, path = sys.argv[1:3]
    if what == "make":
        make(path, int(sys.argv[3]))
    else:
        before, started = resident(), time.process_time()
        result = {"encode": encode, "peer": peer}[what](path)
        print(json.dumps(result | {"above": peak() - before, "processor": time.process_time() - started}))
