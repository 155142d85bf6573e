"""House prices: a table with texts, dates and empty cells, as it is.

400 made-up sales go in without any preparation. The last 60 are kept back. For each the model gives an interval, and
nine of ten should hold the price that was paid. Dear homes scatter more, and the intervals know it.

Picture: Intervals for 60 homes in order of their predicted price, with the prices that were paid as dots. The
intervals grow with the price, and nearly all dots lie inside.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mile import MileRegressor, metrics

TABLE = Path(__file__).parents[1] / "homes.csv"


def main() -> None:
    """Fit, score and draw."""
    homes = pd.read_csv(TABLE)
    known, asked = homes[:-60], homes[-60:]
    model = MileRegressor(likelihood="lognormal", random_state=0).fit(known.drop(columns="price"), known["price"])

    prices = model.predictive(asked.drop(columns="price"))
    paid = asked["price"].to_numpy()
    lower, upper = prices.interval(0.9).T
    print(f"inside the 90 % interval: {np.mean((paid >= lower) & (paid <= upper)):.0%}")
    print(f"typical error: {metrics.rmse(prices, paid):,.0f}, typical price: {np.median(paid):,.0f}")
    print("columns:", ", ".join(f"{column.name} is {column.kind}" for column in model.columns_))

    place = np.argsort(np.argsort(prices.quantile(0.5)))
    _, axis = plt.subplots(figsize=(8, 3.6), layout="constrained", dpi=110)
    axis.vlines(place, lower / 1e3, upper / 1e3, color="#1f6f8b", linewidth=5, alpha=0.35)
    axis.scatter(place, paid / 1e3, s=16, color="#e07a2f", zorder=3)
    axis.set(xlabel="homes, from cheap to dear as predicted", ylabel="price in thousands", xticks=[])
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("house_prices.png")


if __name__ == "__main__":
    main()
