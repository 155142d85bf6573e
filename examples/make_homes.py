"""Write examples/homes.csv, a made table with texts, dates and gaps that the pages and the examples use.

Usage: python examples/make_homes.py
"""

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

N_ROWS = 400
DISTRICTS = {"Harbor": 1.35, "Old Town": 1.25, "Station": 0.95, "Hillside": 1.1, "Mill": 0.8}
HEATING = {"gas": 1.0, "district heat": 1.03, "heat pump": 1.08, "oil": 0.94}
HEADER = ["id", "area", "rooms", "built", "district", "heating", "sold", "price"]


def rows(rng: np.random.Generator) -> list[list[object]]:
    """Return homes whose prices scatter more the larger they are; some cells are empty."""
    found = []
    for number in range(N_ROWS):
        area = round(float(np.exp(rng.normal(4.4, 0.35))), 1)
        rooms = int(np.clip(round(area / 28 + rng.normal(0, 0.6)), 1, 9))
        built = int(rng.choice([rng.integers(1890, 1940), rng.integers(1950, 1990), rng.integers(1990, 2025)]))
        district, heating = rng.choice(list(DISTRICTS)), rng.choice(list(HEATING), p=[0.5, 0.2, 0.15, 0.15])
        day = date(2022, 1, 1) + timedelta(days=int(rng.integers(0, 1_300)))
        age = 1.0 + 0.002 * abs(built - 1965)  # the very old and the new are dear
        trend = 1.0 + 0.12 * (day - date(2022, 1, 1)).days / 1_300
        price = 2_600 * area**0.95 * DISTRICTS[district] * HEATING[heating] * age * trend
        price *= np.exp(rng.normal(0, 0.04 + 0.0008 * area))
        cells = [f"H{number:04d}", area, rooms, built, district, heating, day.isoformat(), round(float(price), -2)]
        for place, share in ((1, 0.05), (3, 0.12), (5, 0.15)):
            if rng.random() < share:
                cells[place] = ""
        found.append(cells)
    return found


def main() -> None:
    """Write the table beside this file."""
    with (Path(__file__).parent / "homes.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([HEADER, *rows(np.random.default_rng(7))])


if __name__ == "__main__":
    main()
