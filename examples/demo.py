"""Fit MILE on a data set that ships with scikit-learn and print what it knows; run by `make demo`."""

import time

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from mile import MileRegressor, metrics


def main() -> None:
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    print(f"Diabetes progression: {len(X_train)} training rows, {len(X_test)} test rows, {X.shape[1]} features.")
    print("Training 12 networks, then sampling 12 chains of 60,000 steps (about a minute on two cores).\n")
    began = time.perf_counter()
    model = MileRegressor(random_state=0, verbose=1).fit(X_train, y_train)
    seconds = time.perf_counter() - began

    mile = model.predictive(X_test)
    ensemble = model.fit_.ensemble_predictive(X_test)
    print(f"\n{'':<28}{'deep ensemble':>14}{'MILE':>10}")
    for name, score in [("LPPD (higher is better)", metrics.lppd), ("RMSE (lower is better)", metrics.rmse)]:
        print(f"{name:<28}{score(ensemble, y_test):>14.3f}{score(mile, y_test):>10.3f}")
    for level in (0.5, 0.9):
        shares = [metrics.coverage(predictive, y_test, [level])[0] for predictive in (ensemble, mile)]
        print(f"{f'inside the {level:.0%} interval':<28}{shares[0]:>14.0%}{shares[1]:>10.0%}")

    print("\nFirst test rows:   predicted mean     50 % interval     90 % interval     observed")
    half, most = mile.interval(0.5), mile.interval(0.9)
    for row in range(5):
        intervals = "".join(f"{f'[{low:.0f}, {high:.0f}]':>18}" for low, high in (half[row], most[row]))
        print(f"{mile.mean[row]:>33.0f}{intervals}{y_test[row]:>13.0f}")
    states, counts = np.unique(model.chain_status_, return_counts=True)
    summary = ", ".join(f"{count} {state}" for state, count in zip(states, counts, strict=True))
    gradients = int(model.gradient_evaluations_.sum())
    print(f"\nChains: {summary}. {gradients:,} gradient evaluations in {seconds:.0f} s (seed {model.seed_}).")


if __name__ == "__main__":
    main()
