"""Bike counts by the hour: rows in order of time.

Rentals of a made-up station for nine weeks. Rows change along time, so shuffled folds would be too kind: with
`order=` each fold is one stretch of time. The last week is predicted hour by hour. A date column is enough: the
encoder makes the place in day and week from it.

Picture: A week of rentals by the hour with a band of 90 %. The band follows the two peaks of working days and the
single wide one of the weekend.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mile import MileRegressor, metrics


def rentals(rng: np.random.Generator) -> pd.DataFrame:
    """Return nine weeks with working days, weekends, rain and a slow rise."""
    hours = pd.date_range("2025-04-07", periods=9 * 7 * 24, freq="h")
    hour, weekend = hours.hour.to_numpy(), hours.dayofweek.to_numpy() >= 5
    commute = np.exp(-((hour - 8) ** 2) / 3) + 1.2 * np.exp(-((hour - 17.5) ** 2) / 5)
    outing = 0.9 * np.exp(-((hour - 14) ** 2) / 18)
    rain = np.repeat(rng.uniform(size=len(hours) // 6) < 0.2, 6)
    level = (4 + 90 * np.where(weekend, outing, commute)) * np.where(rain, 0.5, 1.0) * np.linspace(0.8, 1.2, len(hours))
    return pd.DataFrame({"time": hours, "rain": np.where(rain, "yes", "no"), "rentals": rng.poisson(level) + 1.0})


def main() -> None:
    """Fit eight weeks and predict the ninth."""
    table = rentals(np.random.default_rng(5))
    past, week = table[: -7 * 24], table[-7 * 24 :]
    model = MileRegressor(likelihood="gamma", preset="quick", n_chains=6, random_state=0)
    model.fit(past.drop(columns="rentals"), past["rentals"], order=past["time"])

    predicted = model.predictive(week.drop(columns="rentals"))
    seen = week["rentals"].to_numpy()
    print(f"typical error in the last week: {metrics.rmse(predicted, seen):.1f} rentals an hour")
    print(f"same hour of the week before:   {np.sqrt(np.mean((past['rentals'].to_numpy()[-168:] - seen) ** 2)):.1f}")
    print(f"inside the 90 % interval: {metrics.coverage(predicted, seen, [0.9])[0]:.0%}")

    _, axis = plt.subplots(figsize=(8, 3.4), layout="constrained", dpi=110)
    axis.fill_between(week["time"], *predicted.interval(0.9).T, color="#1f6f8b", alpha=0.3, linewidth=0)
    axis.plot(week["time"], predicted.mean, color="#0b3c49", linewidth=1.2)
    axis.scatter(week["time"], seen, s=6, color="#e07a2f", zorder=3)
    axis.set(ylabel="rentals an hour")
    axis.xaxis.set_major_formatter(plt.matplotlib.dates.DateFormatter("%a"))
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("hourly_rentals.png")


if __name__ == "__main__":
    main()
