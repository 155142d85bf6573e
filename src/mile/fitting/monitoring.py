"""What is watched while a fit runs and right after it: a running score, and remarks of the likelihood."""

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from mile._errors import warn
from mile.data import Rows
from mile.fitting.result import Fit
from mile.likelihoods import AbstractLikelihood, AbstractResponse
from mile.networks.base import Network
from mile.posterior import Posterior
from mile.predict import predict
from mile.storage import StoredDraws

_FEWEST_SCORED, _MOST_SCORED = 256, 2_000  # rows of the running score, so that it means something on tables
_SCORED_WEIGHTS = (
    4_000_000  # rows x weights of the network; of a large network few rows take as long as many of a small
)
_REMARK_ROWS = 512  # training rows whose outputs remarks are made of


class UnseenRows:
    """Rows that chains have not seen, an even selection of many, and what chains say of them.

    The rows are those set aside for validation; with folds each chain has the rows that it left out.
    """

    def __init__(
        self,
        network: Network,
        likelihood: AbstractLikelihood,
        rows: Rows,
        response: AbstractResponse,
        good: np.ndarray,
        folds: Int[np.ndarray, " row"] | None = None,
        left_out: Int[np.ndarray, " chain"] | None = None,
    ) -> None:
        most = int(np.clip(_SCORED_WEIGHTS // network.dimension, _FEWEST_SCORED, _MOST_SCORED))
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)
        self._network, self._likelihood, self._response, self._good = network, likelihood, response, good
        self._x, self._y, self._weight = rows.x[chosen], response.decode(rows.y[chosen]), rows.weight[chosen]
        self._folds = np.zeros(len(chosen), int) if folds is None else folds[chosen]
        self._left_out = np.zeros(len(good), int) if left_out is None else left_out
        self.name = "validation" if left_out is None else "out-of-fold"

    def __len__(self) -> int:
        return len(self._y)

    @property
    def chains(self) -> list[int]:
        """Places of the chains whose members are good."""
        return np.flatnonzero(self._good).tolist()

    def nothing(self) -> Float[np.ndarray, "chain row"]:
        """Return the log of a sum over no draws, for each chain and row."""
        return np.full((len(self._good), len(self)), -np.inf)

    def add(self, total: Float[np.ndarray, " row"], draws: Float[np.ndarray, "draw d"], chain: int) -> np.ndarray:
        """Add the densities under draws of a chain to sums, which are logarithms; return the rows that it has."""
        rows = np.flatnonzero(self._folds == self._left_out[chain])
        if len(rows):
            predictive = predict(self._network, self._likelihood, draws, self._x[rows], self._response)
            density = predictive.log_prob(self._y[rows]) + np.log(len(draws))
            total[rows] = np.logaddexp(total[rows], density)
        return rows

    def score(self, total: Float[np.ndarray, "chain row"], n_draws: int) -> float:
        """Return the LPPD of rows by sums over so many draws of each chain that has not seen them."""
        has_row = (self._left_out[:, None] == self._folds) & np.isfinite(total).any(axis=1, keepdims=True)
        count = n_draws * has_row.sum(axis=0)
        return self.mean(np.logaddexp.reduce(total, axis=0), count)

    def mean(self, total: Float[np.ndarray, " row"], count: Int[np.ndarray, " row"]) -> float:
        """Return the LPPD of rows by sums over so many draws."""
        known = count > 0
        if not known.any():
            return -np.inf
        return float(np.average(total[known] - np.log(count[known]), weights=self._weight[known]))

    def usable(self, positions: Float[np.ndarray, "chain d"]) -> dict[int, np.ndarray]:
        """Return positions of good chains, by one of the chains that have the same rows."""
        usable = self._good & np.isfinite(positions).all(axis=1)
        alike = [np.flatnonzero(usable & (self._left_out == fold)) for fold in np.unique(self._left_out[usable])]
        return {int(chains[0]): positions[chains] for chains in alike}


class RunningScore:
    """LPPD on rows that chains have not seen, from one draw of each at every block so far: a glimpse only."""

    def __init__(self, rows: UnseenRows) -> None:
        self._rows = rows
        self._total, self._count = np.full(len(rows), -np.inf), np.zeros(len(rows), int)

    def __call__(self, positions: Float[np.ndarray, "chain d"]) -> str:
        """Add one draw of each chain and say how well all so far predict."""
        for chain, draws in self._rows.usable(positions).items():
            self._count[self._rows.add(self._total, draws, chain)] += len(draws)
        return f"{self._rows.name} LPPD {self._rows.mean(self._total, self._count):.3f}"


def warn_of_weightless(fit: Fit) -> None:
    """Name the good chains that got no weight, because left-out rows are predicted better without them."""
    without = np.flatnonzero(fit.ok & (fit.chain_weights == 0.0))
    if not without.size:
        return
    names = ", ".join(str(fit.chain_ids[place]) for place in without)
    subject = f"Chain {names} adds" if without.size == 1 else f"Chains {names} add"
    warn(f"{subject} nothing to the prediction of rows that they left out, and get no weight in predictions.")


def warn_of_response(likelihood: AbstractLikelihood, response: AbstractResponse, rows: Rows) -> None:
    """Issue a warning for each thing that the likelihood has to say of the training rows before a fit."""
    for sentence in likelihood.cautions(response.decode(rows.y), rows.number):
        warn(sentence)


def warn_of_remarks(draws: np.ndarray | StoredDraws, ok: np.ndarray, posterior: Posterior, rows: Rows) -> None:
    """Issue a warning for each remark of the likelihood on a finished fit."""

    def outputs() -> np.ndarray:
        return np.asarray(_outputs(posterior, draws[ok, -1]))[:, :, : len(rows)]

    for sentence in posterior.likelihood.remarks(outputs, rows.y):
        warn(sentence)


@jax.jit
def _outputs(posterior: Posterior, draws: Float[Array, "chain d"]) -> Float[Array, "chain output row"]:
    """Return the outputs of the networks for the first rows."""
    x = posterior.rows.x[:, :_REMARK_ROWS]
    return jax.vmap(lambda draw: posterior.network.apply(draw, x))(draws)
