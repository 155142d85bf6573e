"""Texts: sort messages, and hand the doubtful ones to a person.

Messages to a shop are made from a few building blocks: orders, complaints, and some that mix both. The classifier
reads texts as they are. Its probabilities say which messages it is unsure of. If a person reads the least sure fifth,
the share of mistakes among the rest is nearly halved.

Picture: Share of wrong labels among messages that are decided by the model, against the share that is handed to a
person. The line falls.
"""

import matplotlib.pyplot as plt
import numpy as np

from mile import MileTextClassifier
from mile.networks import Attention

ORDERS = ["i would like to buy", "please send me", "can i order", "i need another", "how much is"]
COMPLAINTS = ["i am not happy with", "please take back", "this is the wrong", "i want my money for", "it broke:"]
THINGS = ["a lamp", "two chairs", "the blue table", "a set of knives", "that kettle", "my last parcel", "a rug"]
ENDINGS = ["thank you", "best regards", "as soon as you can", "my address is the same", "call me", "it is urgent"]


def messages(rng: np.random.Generator, n: int) -> tuple[list[str], list[str]]:
    """Return texts and labels; one of eight texts begins like the other kind, which makes it hard."""
    texts, labels = [], []
    for _ in range(n):
        label = str(rng.choice(["order", "complaint"]))
        own, other = (ORDERS, COMPLAINTS) if label == "order" else (COMPLAINTS, ORDERS)
        parts = [rng.choice(own), rng.choice(THINGS), rng.choice(ENDINGS)]
        if rng.uniform() < 0.125:
            parts = [
                rng.choice(other),
                rng.choice(THINGS),
                *(["and", *parts[:2]] if rng.uniform() < 0.7 else parts[2:]),
            ]
        texts.append(" ".join(map(str, parts)))
        labels.append(label)
    return texts, labels


def main() -> None:
    """Fit, sort new messages by certainty, draw the mistakes that remain."""
    rng = np.random.default_rng(0)
    texts, labels = messages(rng, 400)
    new, truth = messages(rng, 600)
    network = Attention(vocabulary=400, context=24, width=16, heads=2, attention_width=16, hidden=(8,))
    model = MileTextClassifier(network, prior="fan_in", preset="quick", n_chains=4, random_state=0).fit(texts, labels)

    found = model.predictive(new)
    certain = np.argsort(found.entropy)
    wrong = (model.predict(new) != np.array(truth))[certain]
    print(f"wrong labels: {wrong.mean():.1%} of all, {wrong[:480].mean():.1%} of the most certain four fifths")
    print("least certain:", *(f"\n  {new[row]}" for row in certain[-3:]))

    kept = np.arange(30, 601)
    _, axis = plt.subplots(figsize=(8, 3.2), layout="constrained", dpi=110)
    axis.plot(100 - kept / 6, 100 * np.cumsum(wrong)[kept - 1] / kept, color="#1f6f8b", linewidth=2)
    axis.set(xlabel="% of messages handed to a person", ylabel="% of the rest labeled wrongly", ylim=(0, None))
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("messages.png")


if __name__ == "__main__":
    main()
