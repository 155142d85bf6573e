"""Digits, and pictures that are none.

A small convolutional network learns handwritten digits from 0 to 7. Then it is shown new digits of these kinds,
digits 8 and 9 that it has never seen, and noise. A single network is often sure of itself on all of them. A posterior
of networks disagrees with itself where it does not know: the entropy of its answer is high for what it has not
learned.

Picture: Three histograms of the entropy of predictions. Known digits are near zero, unseen digits spread to higher
values, and noise lies highest.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from mile import MileClassifier
from mile.networks import ConvNet, Convolution

NETWORK = ConvNet(convolutions=(Convolution(filters=6, pool=2),), hidden=(16,))


def main() -> None:
    """Fit, compare entropies and draw."""
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    known = digits < 8
    train, test = np.flatnonzero(known)[:700], np.flatnonzero(known)[1_000:1_300]
    groups = {
        "digits 0 to 7": images[test],
        "digits 8 and 9": images[~known][:300],
        "noise": np.random.default_rng(0).uniform(size=(300, 8, 8)),
    }
    model = MileClassifier(network=NETWORK, preset="quick", n_chains=4, random_state=0)
    model.fit(images[train], digits[train])

    print(f"accuracy on digits of known kinds: {model.score(images[test], digits[test]):.3f}")
    entropy = {name: model.predictive(found).entropy for name, found in groups.items()}
    for name in ("digits 8 and 9", "noise"):
        is_new = np.repeat([0, 1], 300)
        area = roc_auc_score(is_new, np.concatenate([entropy["digits 0 to 7"], entropy[name]]))
        print(f"{name} told from known digits by entropy: area under the curve {area:.2f}")

    _, axis = plt.subplots(figsize=(8, 3.4), layout="constrained", dpi=110)
    for (name, values), color in zip(entropy.items(), ("#1f6f8b", "#e07a2f", "#7a7a7a"), strict=True):
        axis.hist(values, bins=np.linspace(0, np.log(8), 40), alpha=0.6, label=name, color=color)
    axis.set(xlabel="entropy of the predicted classes", ylabel="pictures", yscale="log")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("unknown_digits.png")


if __name__ == "__main__":
    main()
