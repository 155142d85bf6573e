"""Why one prediction is what it is: what each column adds to it, rows like it, and what would make it surer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile._checks import check_count
from mile.explain import figures
from mile.explain._columns import ColumnTable
from mile.explain._progress import late_bar
from mile.explain._single import contributions_as_html, contributions_as_text
from mile.explain._thinned import ThinnedFit
from mile.fitting.result import Fit
from mile.likelihoods.base import PerDraw
from mile.likelihoods.weights import DrawWeights
from mile.plot._style import even_choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_BACKGROUND = 100
N_DRAWS = 300
_N_NEAREST = 5
_N_PLAUSIBLE = 40  # rows that say which values a column may plausibly have
_MOST_CELLS = 1 << 23  # features of changed rows that are made at once


class Nearest(NamedTuple):
    """Rows that are most like the one explained.

    Attributes
    ----------
    number
        Their places in the table that was given.
    distance
        The root of the mean square of what columns differ by, where 1 is the typical difference of two rows.
    y
        What was observed, if it was given.
    """

    number: Int[np.ndarray, " row"]
    distance: Float[np.ndarray, " row"]
    y: np.ndarray | None


class Narrowing(NamedTuple):
    """What knowing a column is worth, by values of it that occur in rows that are otherwise alike.

    Attributes
    ----------
    spread
        Standard deviation of the predicted value over these values.
    known
        Typical standard deviation of the response once the value is known.
    unknown
        The same if it is not: the root of the sum of the squares of both.
    missing
        Whether this row does not have the column.
    """

    spread: Float[np.ndarray, " column"]
    known: Float[np.ndarray, " column"]
    unknown: Float[np.ndarray, " column"]
    missing: np.ndarray

    @property
    def share(self) -> Float[np.ndarray, " column"]:
        """Share of the variance that knowing the column removes."""
        return np.square(self.spread) / np.maximum(np.square(self.unknown), np.finfo(float).tiny)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowExplanation:
    """Why one prediction is what it is. Its repr is a table; notebooks show it with pictures.

    Quantities are the value that is followed ("mean", or the probability of a class), and then how unsure it is: the
    standard deviation, or the entropy, with its parts "noise" and "ignorance". Of each quantity the contributions of
    all columns add up to its prediction less its average.

    Attributes
    ----------
    columns
        Their names.
    values
        What the row has in them, in words.
    prediction, average
        Each quantity for this row, and its mean over the background rows, by the draws that were asked.
    contributions
        Of each quantity, what each column adds: Shapley values, by orders of the columns drawn at random.
    standard_error
        Of the contributions, over background rows and orders.
    over_draws
        Standard deviation over draws of the contributions to the first quantity: how sure the model is of them.
    nearest
        Rows like this one.
    narrowing
        What knowing each column better is worth.
    n_background
        How many rows the average is of.
    """

    columns: tuple[str, ...]
    values: tuple[str, ...]
    prediction: dict[str, float]
    average: dict[str, float]
    contributions: dict[str, Float[np.ndarray, " column"]]
    standard_error: dict[str, Float[np.ndarray, " column"]]
    over_draws: Float[np.ndarray, " column"]
    nearest: Nearest
    narrowing: Narrowing
    n_background: int

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of what is explained, the value first."""
        return tuple(self.prediction)

    @property
    def order(self) -> Int[np.ndarray, " column"]:
        """Places of the columns, those that move the value most first."""
        return np.argsort(-np.abs(self.contributions[self.quantities[0]]), kind="stable")

    def advice(self) -> list[str]:
        """Say in sentences what would narrow the prediction."""
        found, first = [], self.narrowing
        known = {name: value for name, value in self.prediction.items() if name in ("noise", "ignorance")}
        if known and known["noise"] + known["ignorance"] > 0.0:
            is_ignorance = known["ignorance"] > known["noise"]
            found.append(
                "Most of the uncertainty is ignorance: more training rows like this one would narrow it."
                if is_ignorance
                else "Most of the uncertainty is noise, which more rows of the same columns would not remove."
            )
        absent = np.flatnonzero(first.missing)
        if absent.size:
            best = absent[np.argmax(first.spread[absent])]
            found.append(
                f"{self.columns[best]} is missing: knowing it would bring the standard deviation from about "
                f"{first.unknown[best]:.3g} to {first.known[best]:.3g}."
            )
        best = int(np.argmax(np.where(first.missing, -1.0, first.spread)))
        if not first.missing[best] and first.spread[best] > 0.0:
            found.append(
                f"Of what is known, {self.columns[best]} narrows most, {100 * first.share[best]:.0f} % of the variance "
                f"in rows like this one; an error in it would cost most."
            )
        return found

    def frames(self) -> dict[str, dict[str, np.ndarray]]:
        """Return tables by name, each a mapping of names to columns: "contributions", "nearest" and "narrowing"."""
        names, cells = np.array(self.columns, object), np.array(self.values, object)
        errors = {f"standard error of {name}": error for name, error in self.standard_error.items()}
        added = {"column": names, "value": cells} | self.contributions | {"over draws": self.over_draws} | errors
        near = {"row": self.nearest.number, "distance": self.nearest.distance}
        near |= {} if self.nearest.y is None else {"y": self.nearest.y}
        narrowing = {"column": names, "value": cells} | self.narrowing._asdict() | {"share": self.narrowing.share}
        best = np.argsort(-self.narrowing.spread, kind="stable")
        return {
            "contributions": {name: column[self.order] for name, column in added.items()},
            "nearest": near,
            "narrowing": {name: column[best] for name, column in narrowing.items()},
        }

    def plot(self, quantity: str | None = None, *, ax: "Axes | None" = None) -> "Axes":
        """Draw what each column adds to a quantity.

        Parameters
        ----------
        quantity
            One of `quantities`; None is the first.
        ax
            Where to draw; None makes a new figure.
        """
        name = self.quantities[0] if quantity is None else quantity
        if name not in self.prediction:
            raise ValueError(f"quantity must be one of {list(self.prediction)}; got {quantity!r}.")
        error = self.over_draws if name == self.quantities[0] else self.standard_error[name]
        labels = [f"{column} = {value}" for column, value in zip(self.columns, self.values, strict=True)]
        ends = self.average[name], self.prediction[name]
        return figures.contributions(name, labels, self.contributions[name], error, ends, ax=ax)

    def __repr__(self) -> str:
        return contributions_as_text(self)

    def _repr_html_(self) -> str:
        return contributions_as_html(
            self, [figures.svg(lambda ax, name=name: self.plot(name, ax=ax)) for name in self.quantities[:2]]
        )


def explain_row(
    fit: Fit,
    row: ColumnTable,
    background: ColumnTable,
    y: np.ndarray | None = None,
    *,
    label: object = None,
    n_background: int = N_BACKGROUND,
    n_draws: int = N_DRAWS,
    random_state: int = 0,
    progress: bool = True,
) -> RowExplanation:
    """Explain one prediction; see `MileRegressor.explain_row`.

    Parameters
    ----------
    fit
        That predicts.
    row
        The row to explain, encoded, with its columns.
    background
        Rows to compare with.
    y
        What was observed of them.
    label, n_background, n_draws, random_state, progress
        As in `MileRegressor.explain_row`.
    """
    check_count("n_background", n_background)
    check_count("n_draws", n_draws)
    if len(row) != 1:
        raise ValueError(f"x must be one row; got {len(row)}. `explain` is of many.")
    if row.names != background.names or not len(background):
        raise ValueError(f"X must have at least one row, of the columns {list(row.names)}.")
    if fit.classes is not None and label is None:
        label = fit.for_encoded.predictive(row.x).point[0]
    elif fit.classes is None and label is not None:
        raise ValueError(f"label chooses a class, and this model predicts numbers; got {label!r}.")
    model = ThinnedFit.of(fit, n_draws, label)
    return explain_one(model, row, background, y, n_background, np.random.default_rng(random_state), progress)


def explain_one(
    model: ThinnedFit,
    row: ColumnTable,
    background: ColumnTable,
    y: np.ndarray | None,
    n_background: int,
    rng: np.random.Generator,
    progress: bool = True,
) -> RowExplanation:
    """Explain one prediction by the draws of a model."""
    compared = background.take(even_choice(len(background), n_background))
    n_columns = len(row.columns)
    with late_bar(len(compared) + n_columns, wanted=progress) as bar:
        walks = _Walks(model, row.x[0], compared)
        for start in range(0, len(compared), walks.block):
            chosen = np.arange(start, min(start + walks.block, len(compared)))
            walks.add(compared.x[chosen], rng)
            bar.advance(len(chosen))
        distance = _distances(row, background)
        narrowing = _narrowing(model, row, background, distance, bar.advance)
    whole = distance.mean(axis=1)
    near = np.argsort(whole, kind="stable")[:_N_NEAREST]
    observed = None if y is None else np.asarray(y)[near]
    return RowExplanation(
        columns=row.names,
        values=tuple(column.spelled(column.values[0]) for column in row.columns),
        prediction={name: float(values[0]) for name, values in walks.predicted.items()},
        average={name: float(np.mean(np.concatenate(parts))) for name, parts in walks.start.items()},
        contributions={name: np.concatenate(parts).mean(axis=0) for name, parts in walks.added.items()},
        standard_error={name: _standard_error(np.concatenate(parts)) for name, parts in walks.added.items()},
        over_draws=np.sqrt(walks.weights.variance(walks.by_draw / len(compared))),
        nearest=Nearest(background.number[near], np.sqrt(whole[near]), observed),
        narrowing=narrowing,
        n_background=len(compared),
    )


class _Walks:
    """Ways from background rows to a row, a column at a time: one in a random order of the columns, one back.

    What is added along a way is the difference between its ends, so means over ways add up exactly.
    """

    def __init__(self, model: ThinnedFit, goal: Float[np.ndarray, " feature"], table: ColumnTable) -> None:
        self._model, self._goal = model, goal
        self._of_feature = np.zeros(len(goal), int)
        for place, column in enumerate(table.columns):
            self._of_feature[column.features] = place
        self._n_columns = len(table.columns)
        self.predicted = model.row_quantities(goal[None])
        self.goal_by_draw = model.per_draw(goal[None])[0]
        self.weights = model.weights(goal[None])
        self.block = max(1, _MOST_CELLS // (2 * self._n_columns * len(goal)))
        self.start: dict[str, list[np.ndarray]] = {name: [] for name in self.predicted}
        self.added: dict[str, list[np.ndarray]] = {name: [] for name in self.predicted}
        self.by_draw: PerDraw = np.zeros((len(self.goal_by_draw), self._n_columns))

    def add(self, rows: Float[np.ndarray, "row feature"], rng: np.random.Generator) -> None:
        """Walk from each of the rows, once in an order and once in its reverse."""
        n_rows, n_columns = len(rows), self._n_columns
        order = rng.permuted(np.tile(np.arange(n_columns), (n_rows, 1)), axis=1)
        order = np.concatenate([order, order[:, ::-1]])
        turn = np.argsort(order, axis=1)  # when each column changes
        step = np.arange(1, n_columns)
        changed = turn[:, None, self._of_feature] < step[:, None]
        between = np.where(changed, self._goal, np.concatenate([rows, rows])[:, None]).reshape(-1, len(self._goal))
        asked = np.concatenate([rows, between])
        found = self._model.row_quantities(asked)
        for name, values in found.items():
            self.start[name].append(values[:n_rows])
            by_turn = self._differences(values[None], self.predicted[name][None], n_rows)[0]
            both = np.take_along_axis(by_turn, turn, axis=1)
            self.added[name].append(0.5 * (both[:n_rows] + both[n_rows:]))
        by_turn = self._differences(self._model.per_draw(asked)[0], self.goal_by_draw, n_rows)
        self.by_draw += 0.5 * np.take_along_axis(by_turn, turn[None], axis=2).sum(axis=1)

    def _differences(self, asked: PerDraw, goal: PerDraw, n_rows: int) -> Float[np.ndarray, "draw way turn"]:
        n_draws, n_ways = len(asked), 2 * n_rows
        start = np.tile(asked[:, :n_rows], 2)[:, :, None]
        between = asked[:, n_rows:].reshape(n_draws, n_ways, self._n_columns - 1)
        end = np.broadcast_to(goal[:, :, None], (n_draws, n_ways, 1))
        return np.diff(np.concatenate([start, between, end], axis=2), axis=2)


def _distances(row: ColumnTable, table: ColumnTable) -> Float[np.ndarray, "row column"]:
    """Return squared distances column by column, each divided by what two rows differ by on average."""
    found = np.zeros((len(table), len(table.columns)))
    for place, column in enumerate(table.columns):
        x = table.x[:, column.features].astype(np.float64)
        typical = 2.0 * float(x.var(axis=0).sum())
        squared = np.square(x - row.x[0, column.features]).sum(axis=1)
        found[:, place] = squared / (typical or 1.0)
    return found


def _narrowing(
    model: ThinnedFit, row: ColumnTable, table: ColumnTable, distance: np.ndarray, advance: Callable[[int], None]
) -> Narrowing:
    spread, known, missing = (np.zeros(len(row.columns)) for _ in range(3))
    whole, weights = distance.sum(axis=1), model.weights(row.x)
    for place, column in enumerate(row.columns):
        cells = table.columns[place].values
        usable = np.flatnonzero(~np.isnan(cells))
        missing[place] = np.isnan(column.values[0])
        if usable.size:
            others = whole[usable] - distance[usable, place]
            donors = usable[np.argsort(others, kind="stable")[:_N_PLAUSIBLE]]
            changed = np.repeat(row.x, len(donors), axis=0)
            changed[:, column.features] = table.x[np.ix_(donors, column.features)]
            value, noise = model.per_draw(changed)
            spread[place] = float(np.std(weights.mean(value)))
            known[place] = np.sqrt(np.mean(_variance(value, noise, weights)))
        advance(1)
    return Narrowing(spread, known, np.hypot(spread, known), missing.astype(bool))


def _variance(value: PerDraw, noise: PerDraw, weights: DrawWeights) -> Float[np.ndarray, " row"]:
    return weights.variance(value) + weights.mean(np.square(noise))


def _standard_error(parts: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " column"]:
    return parts.std(axis=0) / np.sqrt(max(len(parts) - 1, 1))
