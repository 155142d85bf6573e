"""Small data that pages take for granted: `from page_data import X, y` in their hidden setup."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(60, 3)).astype(np.float32)
y = (X[:, 0] - 0.5 * X[:, 1] + 0.1 * _RNG.normal(size=60)).astype(np.float64)
X_train, X_test, y_train, y_test = X[:45], X[45:], y[:45], y[45:]
X_new = new = _RNG.normal(size=(15, 3)).astype(np.float32)
y_new = (new[:, 0] - 0.5 * new[:, 1]).astype(np.float64)
weight = np.ones(60)
labels = np.where(y > 0, "yes", "no")
customer, day = np.repeat(np.arange(12), 5), np.arange(60)
frame = pd.DataFrame({"income": X[:, 0], "age": X[:, 1], "size": X[:, 2]})


def write_sales(*names: str) -> None:
    """Write tables with numbers and a target into the working directory."""
    for name in names:
        pd.DataFrame({"customer": customer, "day": day, "size": X[:, 0], "amount": y}).to_csv(name, index=False)


def write_reviews(*names: str) -> None:
    """Write tables of texts with labels."""
    for name in names:
        with Path(name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows(
                [["a good film", "good"], ["a bad film", "bad"], ["dull and bad", "bad"], ["fun", "good"]] * 12
            )


def write_images(*names: str) -> None:
    """Write files of small images with two classes."""
    digits = np.arange(48) % 2
    images = np.zeros((48, 28, 28), np.uint8)
    images[digits == 1, 8:20, 8:20] = 200
    for name in names:
        np.savez(name, X=images, y=digits)
