"""An encoder of one's own: ranks, so that only the order of numbers counts, however skewed they are.

An encoder turns what users pass as X into rows of finite float32 numbers. It is immutable: `fit` returns a new one
that has learned from the training rows. Files keep what it has learned as tensors and plain values, and `restore`
checks what comes from a file.
"""

from dataclasses import dataclass, field

import numpy as np

from mile import MileRegressor, UntrustedFileError, _registry
from mile.features.base import AbstractFeatureEncoder, as_array

KNOTS = 100  # quantiles kept of each column


@_registry.encoder("ranks")
@dataclass(frozen=True, kw_only=True, eq=False)
class Ranks(AbstractFeatureEncoder):
    """Each column becomes the place of its values among those of the training rows, from -1.7 to 1.7."""

    knots: np.ndarray = field(default_factory=lambda: np.zeros((KNOTS, 0)))

    def fit(self, x, rows=None, weight=None):
        """Return an encoder that knows the quantiles of the given rows."""
        values = as_array(x).astype(np.float64)
        values = values if rows is None else values[rows]
        return Ranks(knots=np.quantile(values, np.linspace(0, 1, KNOTS), axis=0))

    def transform(self, x, rows=None):
        """Return places; values beyond the training rows stay at the ends."""
        values = as_array(x).astype(np.float64)
        values = values if rows is None else values[rows]
        if values.shape[1:] != self.knots.shape[1:]:
            raise ValueError(f"x must have {self.knots.shape[1]} columns; got shape {values.shape}.")
        places = np.linspace(-np.sqrt(3), np.sqrt(3), KNOTS)  # mean 0, standard deviation 1
        columns = [np.interp(column, knots, places) for column, knots in zip(values.T, self.knots.T, strict=True)]
        return np.stack(columns, axis=1).astype(np.float32)

    def tensors(self):
        """Return what a file must keep."""
        return {"knots": self.knots}

    @classmethod
    def restore(cls, tensors, settings, n_features):
        """Return the encoder that a file has kept; believe nothing that it says."""
        knots = np.asarray(tensors.get("knots"))
        if set(tensors) != {"knots"} or settings or knots.shape != (KNOTS, n_features) or not np.isfinite(knots).all():
            raise UntrustedFileError(f"ranks: expected finite knots of shape {(KNOTS, n_features)}.")
        return cls(knots=knots.astype(np.float64))

    def n_columns(self, n_features):
        """Return one column for each feature."""
        return n_features

    def origins(self, n_features):
        """Return each column's own place."""
        return np.arange(n_features)


def main() -> None:
    """Fit to columns that span many orders of magnitude, with ranks and without."""
    rng = np.random.default_rng(0)
    x = np.exp(3.0 * rng.normal(size=(200, 2)))
    y = np.tanh(np.log(x[:, 0])) + 0.1 * rng.normal(size=200)
    for encoder in (None, "ranks"):
        model = MileRegressor(encoder=encoder, preset="quick", n_chains=4, random_state=0).fit(x, y)
        print(encoder, "out-of-fold log density:", round(model.oof_.scores["lppd"].value, 2))


if __name__ == "__main__":
    main()
