"""New customers: scores that hold for people who are not in the data.

Each of 40 customers has ten rows and habits of their own. If rows are shuffled into folds, the model has met every
customer it is tested on, and looks better than it will be. With `groups=` a customer is in one fold only, and the
score is what new customers will see.

Picture: Three bars of the typical error: shuffled folds promise little, folds of whole customers say more, and really
new customers agree with the latter.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mile import MileRegressor, metrics


def purchases(rng: np.random.Generator, n_customers: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return rows, amounts and who bought; a customer's own columns give the customer away."""
    customer = np.repeat(np.arange(n_customers), 10)
    age, income, habit = rng.uniform(20, 70, n_customers), rng.normal(0, 1, n_customers), rng.normal(0, 1, n_customers)
    offer = rng.uniform(0, 1, len(customer))
    amount = 2 * offer + 0.5 * income[customer] + habit[customer] + 0.3 * rng.normal(size=len(customer))
    return pd.DataFrame({"offer": offer, "age": age[customer], "income": income[customer]}), amount, customer


def main() -> None:
    """Fit with both kinds of folds and look at new customers."""
    rng = np.random.default_rng(0)
    X, y, customer = purchases(rng, 40)
    X_new, y_new, _ = purchases(rng, 200)
    options = {"preset": "quick", "n_chains": 6, "n_folds": 6, "random_state": 0}
    shuffled = MileRegressor(**options).fit(X, y)
    grouped = MileRegressor(**options).fit(X, y, groups=customer)
    errors = {
        "promised by\nshuffled folds": shuffled.oof_.scores["rmse"].value,
        "promised by\nfolds of customers": grouped.oof_.scores["rmse"].value,
        "found with\nnew customers": metrics.rmse(grouped.predictive(X_new), y_new),
    }
    for name, error in errors.items():
        print(f"{name.replace(chr(10), ' ')}: typical error {error:.2f}")

    _, axis = plt.subplots(figsize=(7, 3.2), layout="constrained", dpi=110)
    axis.bar(list(errors), list(errors.values()), color=["#b9d7e2", "#1f6f8b", "#e07a2f"], width=0.6)
    axis.set(ylabel="typical error (RMSE)")
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("new_customers.png")


if __name__ == "__main__":
    main()
