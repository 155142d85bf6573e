"""What a fit has learned: which columns matter, and what it believes about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mile._checks import check_count
from mile.explain import figures
from mile.explain._columns import ColumnTable
from mile.explain._progress import late_bar
from mile.explain._rows import as_outcomes, choose_rows, imagined, judges
from mile.explain._text import as_html, as_text
from mile.explain._thinned import ThinnedFit
from mile.explain.contributions import N_BACKGROUND, RowExplanation, explain_one
from mile.explain.effects import Effect, effect
from mile.explain.importance import Importance, permutation_importance
from mile.explain.interactions import MOST_COLUMNS, Interaction, frame, interactions
from mile.fitting.result import Fit
from mile.priors.base import relevance_of_inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_DRAWS = 300
_MOST_ROWS = 1_000
_REPEATS = 5
_FEW_ROWS, _FEW_DRAWS, _FEW_REPEATS = 500, 200, 3


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """What a model has learned from its columns. Its repr is a table; notebooks show it with pictures.

    Attributes
    ----------
    importance
        What shuffling each column costs.
    effects
        Curves of each column, by name.
    relevance
        Posterior mean of the scale of each column's weights, under `Hierarchical(groups="input")`; else None.
    quantity
        What effects are of: "mean", or the probability of a class.
    rows
        What the rows are: "out-of-fold rows", or "rows given".
    table
        The rows themselves, as the network takes them, and the columns that they are made of.
    model
        The draws that were asked.
    interactions
        Pairs of the columns that matter most, the strongest first; empty if they were not asked for.
    y
        What was observed of the rows, if it was given.
    """

    importance: Importance
    effects: dict[str, Effect]
    relevance: Float[np.ndarray, " column"] | None
    quantity: str
    rows: str
    table: ColumnTable
    model: ThinnedFit
    interactions: tuple[Interaction, ...] = ()
    y: np.ndarray | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.table.names

    @property
    def important(self) -> list[str]:
        """Names of the columns that matter beyond chance, the most important first."""
        found = self.importance
        return [found.names[place] for place in found.order if found.important[place]]

    def frames(self) -> dict[str, dict[str, np.ndarray]]:
        """Return all tables, each a mapping of names to columns, as `pandas.DataFrame` takes it.

        They are "importance", "interactions" of pairs, and of every effect a table by the name of its column after
        "effect ".
        """
        found = {"importance": self._importance_frame()}
        found |= {"interactions": frame(self.interactions)} if self.interactions else {}
        return found | {f"effect {name}": curve.frame() for name, curve in self.effects.items()}

    def plot(self, column: str | None = None, *, target: str = "y", ax: "Axes | None" = None) -> "Axes":
        """Draw the importance of all columns, or the effect of one.

        Parameters
        ----------
        column
            Its name; None draws importance.
        target
            What y is, for the axis.
        ax
            Where to draw; None makes a new figure.
        """
        if column is None:
            return figures.importance(self.importance, ax=ax)
        return figures.effect(self.effects[self.table.names[self.table.place(column)]], target=target, ax=ax)

    def plot_interactions(self, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the strength of the interactions of pairs, with 90 % intervals.

        Parameters
        ----------
        ax
            Where to draw; None makes a new figure.
        """
        return figures.interactions(self.interactions, ax=ax)

    def explain_row(
        self, number: int, *, n_background: int = N_BACKGROUND, random_state: int = 0, progress: bool = True
    ) -> RowExplanation:
        """Say why the prediction of one of these rows is what it is, compared with the others.

        Parameters
        ----------
        number
            Its place in the table that was explained.
        n_background, random_state, progress
            As in `MileRegressor.explain_row`.
        """
        place = np.flatnonzero(self.table.number == number)
        if not place.size:
            raise ValueError(f"number must be the place of one of the {len(self.table)} rows; got {number!r}.")
        rng = np.random.default_rng(random_state)
        others = np.flatnonzero(self.table.number != number)
        if not others.size:
            raise ValueError("there are no other rows to compare with.")
        y = None if self.y is None else self.y[others]
        return explain_one(self.model, self.table.take(place), self.table.take(others), y, n_background, rng, progress)

    def __repr__(self) -> str:
        return as_text(self._heading(), self._importance_frame(), self.interactions)

    def _repr_html_(self) -> str:
        curves = [self.effects[name] for name in self.important[:4] if name in self.effects]
        return as_html(self._heading(), self._importance_frame(), self.importance, curves, self.interactions)

    def _heading(self) -> str:
        found = self.importance
        told = "" if found.is_observed else ", outcomes as the model predicts them"
        return f"{len(self.columns)} columns, {found.n_rows:,} {self.rows}{told}, LPPD {found.lppd:.4g}"

    def _importance_frame(self) -> dict[str, np.ndarray]:
        found = self.importance.frame()
        return found if self.relevance is None else found | {"relevance": self.relevance[self.importance.order]}


def explain(
    fit: Fit,
    table: ColumnTable,
    y: np.ndarray | None = None,
    *,
    label: object = None,
    n_rows: int = _MOST_ROWS,
    n_draws: int = N_DRAWS,
    n_repeats: int = _REPEATS,
    out_of_fold: bool | None = None,
    columns: Sequence[str] | None = None,
    pairs: bool = True,
    random_state: int = 0,
    progress: bool = True,
) -> Explanation:
    """Explain a fit; see `MileRegressor.explain`.

    Parameters
    ----------
    fit
        To explain.
    table
        Encoded rows with their columns: see `column_table`.
    y
        What was observed.
    label, n_rows, n_draws, n_repeats, out_of_fold, columns, pairs, random_state, progress
        As in `MileRegressor.explain`.
    """
    check_count("n_rows", n_rows, 2)
    check_count("n_draws", n_draws)
    check_count("n_repeats", n_repeats)
    rng = np.random.default_rng(random_state)
    rows = choose_rows(fit, table, as_outcomes(y, len(table)), n_rows, out_of_fold)
    model = ThinnedFit.of(fit, n_draws, followed_label(fit, rows.table, label))
    quantity = model.fit.predictive(rows.table.x[:1]).explained(model.label).label
    wanted = range(len(table.columns)) if columns is None else [table.place(name) for name in columns]
    parts = judges(fit, rows, n_draws, model.label)
    n_paired = min(len(table.columns), MOST_COLUMNS) if pairs else 0
    total = len(parts) * len(table.columns) + len(wanted) + n_paired * (n_paired - 1) // 2
    with late_bar(total, wanted=progress) as bar:
        importance = permutation_importance(
            parts,
            rows.table,
            imagined(model, rows.table, random_state) if rows.y is None else rows.y,
            weight=rows.weight,
            n_repeats=n_repeats,
            rng=rng,
            advance=bar.advance,
            is_observed=rows.y is not None,
        )
        effects = {}
        for place in wanted:
            effects[table.names[place]] = effect(model, rows.table, place, quantity, rng)
            bar.advance(1)
        foremost = importance.order[:n_paired].tolist()
        between = interactions(model, rows.table, foremost, rng, bar.advance) if n_paired > 1 else []
    return Explanation(
        importance=importance,
        effects=effects,
        relevance=relevance_of(fit, table),
        quantity=quantity,
        rows=rows.words,
        table=rows.table,
        model=model,
        interactions=tuple(between),
        y=rows.y,
    )


def explain_briefly(fit: Fit, table: ColumnTable, y: np.ndarray, n_effects: int = 5) -> Explanation:
    """Explain a fit by fewer rows and draws, with the effects of the columns that matter most; for a page.

    Where fewer than two matter beyond chance, the first two have their effects all the same.
    """
    found = explain(
        fit, table, y, n_rows=_FEW_ROWS, n_draws=_FEW_DRAWS, n_repeats=_FEW_REPEATS, columns=(), pairs=False
    )
    rng, order = np.random.default_rng(0), found.importance.order
    foremost = [found.columns[place] for place in order[: min(max(2, len(found.important)), n_effects)]]
    curves = {name: effect(found.model, found.table, found.table.place(name), found.quantity, rng) for name in foremost}
    return replace(found, effects=curves)


def followed_label(fit: Fit, table: ColumnTable, label: object) -> object:
    """Return the class to follow: the one asked for, the second of two, or the most frequent; None for numbers."""
    classes, outputs = fit.classes, fit.likelihood.output_names
    if classes is None:
        if label is not None and label not in outputs:
            one_of = f"one of the outputs {list(outputs)}" if outputs else "None, as there are no classes"
            raise ValueError(f"label must be {one_of} in a model that predicts numbers; got {label!r}.")
        return label
    if label is not None:
        if label not in classes:
            raise ValueError(f"label must be one of {classes.tolist()}; got {label!r}.")
        return label
    if len(classes) == 2:
        return classes[1]
    few = ThinnedFit.of(fit, 1).fit.predictive(table.x)
    return classes[int(np.argmax([few.explained(one).value.mean() for one in classes]))]


def relevance_of(fit: Fit, table: ColumnTable) -> Float[np.ndarray, " column"] | None:
    """Return the scale of each column's weights: of several features the root of the mean square."""
    chosen = [np.asarray(fit.chains.draws[chain]) for chain in np.flatnonzero(fit.ok).tolist()]
    scales = relevance_of_inputs(fit.prior.bind(fit.network), np.stack(chosen))
    if scales is None:
        return None
    handed_on = table.x.shape[1] - len(scales)  # features without weights
    scales = np.append(scales, np.full(handed_on, np.nan))
    return np.array([np.sqrt(np.mean(np.square(scales[column.features]))) for column in table.columns])
