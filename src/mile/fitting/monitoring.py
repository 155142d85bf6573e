"""What is watched while a fit runs and right after it: a running score, and remarks of the likelihood."""

import jax
import numpy as np
from jaxtyping import Array, Float

from mile._errors import warn
from mile.data import Rows
from mile.likelihoods import AbstractLikelihood, AbstractResponse
from mile.networks.base import Network
from mile.posterior import Posterior
from mile.predict import predict
from mile.storage import StoredDraws

_SCORED_ROWS = 256  # validation rows of the running score
_REMARK_ROWS = 512  # training rows whose outputs remarks are made of


class RunningScore:
    """LPPD on validation rows, from one draw of each chain at every block so far: a glimpse, not the result."""

    def __init__(
        self,
        network: Network,
        likelihood: AbstractLikelihood,
        rows: Rows,
        response: AbstractResponse,
        good: np.ndarray,
    ) -> None:
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), _SCORED_ROWS)).astype(int)
        self._network, self._likelihood, self._response, self._good = network, likelihood, response, good
        self._x, self._y, self._weight = rows.x[chosen], response.decode(rows.y[chosen]), rows.weight[chosen]
        self._total, self._count = np.full(len(chosen), -np.inf), 0

    def __call__(self, positions: Float[np.ndarray, "chain d"]) -> str:
        """Add one draw of each chain and say how well all so far predict."""
        draws = positions[self._good & np.isfinite(positions).all(axis=1)]
        if len(draws):
            predictive = predict(self._network, self._likelihood, draws, self._x, self._response)
            self._total = np.logaddexp(self._total, predictive.log_prob(self._y) + np.log(len(draws)))
            self._count += len(draws)
        score = float(np.average(self._total - np.log(max(self._count, 1)), weights=self._weight))
        return f"validation LPPD {score:.3f}"


def warn_of_remarks(draws: np.ndarray | StoredDraws, ok: np.ndarray, posterior: Posterior, rows: Rows) -> None:
    """Warn of everything that the likelihood remarks on a finished fit."""

    def outputs() -> np.ndarray:
        return np.asarray(_outputs(posterior, draws[ok, -1]))[:, :, : len(rows)]

    for sentence in posterior.likelihood.remarks(outputs, rows.y):
        warn(sentence)


@jax.jit
def _outputs(posterior: Posterior, draws: Float[Array, "chain d"]) -> Float[Array, "chain output row"]:
    """Return the outputs of the networks for the first rows."""
    x = posterior.rows.x[:, :_REMARK_ROWS]
    return jax.vmap(lambda draw: posterior.network.apply(draw, x))(draws)
