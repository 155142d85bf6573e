"""Active learning: ask for the labels that teach most.

Labels cost money. Starting with ten labeled tumors, the model asks for five more at a time: those on which its draws
disagree most, that is of the highest mutual information between label and weights. Asking at random is the
comparison.

Picture: Accuracy against the number of labels. The line of asking where the draws disagree rises faster than the line
of asking at random.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from mile import MileClassifier

START, BATCH, ROUNDS = 10, 5, 7


def learn(x: np.ndarray, y: np.ndarray, test: slice, by_disagreement: bool, seed: int) -> list[float]:
    """Return the accuracy after each round of asking."""
    rng = np.random.default_rng(seed)
    pool = np.arange(test.stop, len(x))
    classes = [rng.choice(pool[y[pool] == label], START // 2, replace=False) for label in (0, 1)]
    chosen, scores = list(np.concatenate(classes)), []
    for _ in range(ROUNDS):
        model = MileClassifier(hidden_layer_sizes=(8,), preset="quick", n_chains=4, random_state=seed)
        model.fit(x[chosen], y[chosen])
        scores.append(model.score(x[test], y[test]))
        rest = np.setdiff1d(pool, chosen)
        worth = model.predictive(x[rest]).mutual_information if by_disagreement else rng.uniform(size=len(rest))
        chosen += list(rest[np.argsort(worth)[-BATCH:]])
    return scores


def main() -> None:
    """Learn both ways and draw the curves."""
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = np.log1p(x[order]), y[order]
    labels = START + BATCH * np.arange(ROUNDS)
    _, axis = plt.subplots(figsize=(8, 3.4), layout="constrained", dpi=110)
    ways = {"where the draws disagree": (True, "#1f6f8b"), "at random": (False, "#7a7a7a")}
    for name, (by_disagreement, color) in ways.items():
        scores = np.array([learn(x, y, slice(0, 250), by_disagreement, seed) for seed in (0, 1)])
        axis.plot(labels, scores.mean(axis=0), color=color, marker="o", label=name)
        first, *_, last = scores.mean(axis=0)
        print(f"asking {name}: accuracy {first:.3f} with {labels[0]} labels, {last:.3f} with {labels[-1]}")
    axis.set(xlabel="labels", ylabel="accuracy on 250 other tumors")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("active_learning.png")


if __name__ == "__main__":
    main()
