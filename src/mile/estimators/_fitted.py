"""What both estimators can do once they are fitted: predict, score, write files and reports."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mile.data.folds import FEWEST_FOLDS, FEWEST_ROWS_OF_A_FOLD
from mile.estimators._arguments import NOT_KEPT
from mile.estimators._frames import frame_like
from mile.estimators._responses import refuse_masked
from mile.estimators._smaller import AbstractModelToShrink
from mile.estimators._task import check_weights, encode_rows
from mile.explain import (
    ColumnTable,
    Explanation,
    RowExplanation,
    column_table,
    encoded_table,
    explain,
    explain_briefly,
    explain_row,
)
from mile.explain._rows import as_outcomes
from mile.export import export_fit
from mile.features.accepted import InputLike, ResponseLike, WeightsLike
from mile.features.base import ColumnReport, Encoded, Table
from mile.features.exposure import without_exposure
from mile.features.kinds import REASONS
from mile.fitting.result import Fit
from mile.fitting.unseen import OutOfFold
from mile.likelihoods import AbstractPredictive
from mile.predict import DEFAULT_MEMORY
from mile.report import render
from mile.samplers import Tuned, budgets_of
from mile.storage import write_page

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame


class AbstractFittedModel(AbstractModelToShrink):
    """An estimator from the moment that `fit_` is set."""

    _asked_steps: int = 0  # sampling steps that the last fit might have made

    @abstractmethod
    def _features(self, X: InputLike) -> Table:
        """Check rows to predict and return them as the encoder takes them."""

    def _encoded(self, X: InputLike) -> Encoded:
        """Return rows to predict as the network takes them, and warn of what training did not have."""
        return encode_rows(self.fit_.encoder, self._features(X))

    @classmethod
    def _check_restored(cls, fitted: Fit) -> None:
        """Refuse a fit from a file that cannot belong to this kind of estimator."""

    @property
    def columns_(self) -> list[ColumnReport]:
        """What each column of a table was taken for and what became of it; empty for arrays of numbers."""
        return self.fit_.encoder.describe()

    @property
    def seed_(self) -> int:
        """The seed that reproduces this fit."""
        return self.fit_.seed

    @property
    def chain_status_(self) -> list[str]:
        """Status of each chain: OK, or what went wrong."""
        return [code.name.lower() for code in self.fit_.status]

    @property
    def steps_saved_(self) -> int:
        """How many sampling steps of each chain `stop_when` has saved; 0 where all were made, or a file was read."""
        return max(0, self._asked_steps - budgets_of(self.fit_.sampler).get("sampling_steps", 0))

    @property
    def tuned_(self) -> Tuned[np.ndarray]:
        """Step size and L of each chain."""
        return self.fit_.chains.tuned

    @property
    def gradient_evaluations_(self) -> np.ndarray:
        """Gradient evaluations on all rows that each chain cost."""
        return self.fit_.chains.gradient_evaluations

    @property
    def oof_(self) -> OutOfFold:
        """Out-of-fold scores: each row is predicted by chains that never saw it. Its repr is a table.

        Raises
        ------
        AttributeError
            If the fit has none.
        """
        found = self.fit_.out_of_fold
        if found is None:
            raise AttributeError(
                "this model has no out-of-fold scores: no folds rotated (n_folds=0, or too few rows or chains), or its "
                f"run is not finished. Fit with at least {FEWEST_FOLDS} chains, as many folds, and "
                f"{FEWEST_ROWS_OF_A_FOLD} rows for each."
            )
        return found

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fit_")

    def save(self, path: str | Path) -> None:
        """Write this fitted model to one file, which `mile.load` reads; it cannot hold code.

        Parameters
        ----------
        path
            Such as "model.mile".

        Raises
        ------
        StorageError
            If the file could not be written.
        TypeError
            If the sampler is of a class of your own, which a file cannot describe.
        """
        check_is_fitted(self)
        self.fit_.save(path, extra=self._origin(self.seed_))

    def report(
        self,
        path: str | Path,
        X: InputLike | None = None,
        y: ResponseLike | None = None,
        *,
        title: str | None = None,
        explain: bool = True,
    ) -> None:
        """Write one HTML page about this model: scores, calibration, what matters, advice, diagnostics of the chains.

        Parameters
        ----------
        path
            Such as "report.html".
        X, y
            Test rows. Without them the page has the diagnostics of the chains only.
        title
            Heading of the page.
        explain
            Whether to say which columns of X matter, and how, which takes some seconds; only of tables.

        Raises
        ------
        StorageError
            If the file could not be written.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> import pathlib, tempfile
        >>> from mile import MileRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X[50:], y[50:])
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
        >>> model.report(path, X[:50], y[:50])
        >>> path.stat().st_size < 3_000_000
        True
        """
        check_is_fitted(self)
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither.")
        names = getattr(self, "feature_names_in_", None)
        encoder, n_inputs = self.fit_.encoder, self.fit_.network.n_inputs
        explanation = None
        if X is not None and explain and encoder.origins(n_inputs) is not None:
            explanation = explain_briefly(self.fit_, self._column_table(X, "feature "), np.asarray(y))
        page = render(
            self.fit_.for_encoded,
            None if X is None else self._encoded(X),
            None if y is None else np.asarray(y),
            title=title or f"MILE {self._kind}",
            rows="test rows",
            numbers=None if X is None else self._row_names(X),
            training=self._training_rows(),
            reproduce=self.reproducing_line(),
            feature_names=encoder.names(None if names is None else [str(name) for name in names], n_inputs),
            target=getattr(self, "target_name_", None),
            seconds=getattr(self, "fit_seconds_", None),
            notes=[] if self.likelihood_choice_ is None else self.likelihood_choice_.lines,
            columns=self.columns_,
            explanation=explanation,
        )
        write_page(Path(path), page)

    def _column_table(self, X: InputLike, unnamed: str = "x") -> ColumnTable:
        features, names = self._features(X), getattr(self, "feature_names_in_", None)
        if names is None and isinstance(features, np.ndarray):
            names = [f"{unnamed}{place}" for place in range(self.n_features_in_)]
        known = None if names is None else self.fit_.encoder.column_names(list(map(str, names)))
        return column_table(self.fit_.encoder, encode_rows(self.fit_.encoder, features), features, known)

    def explain(
        self,
        X: InputLike,
        y: ResponseLike | None = None,
        *,
        label: object = None,
        columns: Sequence[str] | None = None,
        pairs: bool = True,
        n_rows: int = 1_000,
        n_draws: int = 300,
        n_repeats: int = 5,
        out_of_fold: bool | None = None,
        random_state: int = 0,
        progress: bool = True,
    ) -> Explanation:
        """Say which columns matter, and what the model believes about them, each with its uncertainty.

        Parameters
        ----------
        X, y
            Rows to explain by: those of the fit, which are then judged by chains that left them out, or new ones.
            Without y, importance says how much the model's own predictions depend on a column.
        label
            For classes, the one whose probability is explained; None takes the second of two, else the most frequent.
        columns
            Names of the columns that get effect curves; None: all.
        pairs
            Whether to find the strongest interactions among the five most important columns.
        n_rows
            Most rows to use; of more, an even selection.
        n_draws
            How many draws to ask, about.
        n_repeats
            How often each column is shuffled.
        out_of_fold
            Whether X and y are those of the fit; None finds out.
        random_state
            Seed of the shuffling.
        progress
            Whether a terminal or notebook shows a bar once this has taken two seconds.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from mile import MileRegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X[50:], y[50:])
        >>> explanation = model.explain(X[:50], y[:50], n_draws=50, columns=["bmi"])
        >>> explanation.frames()["effect bmi"]["value"].shape
        (20,)
        """
        check_is_fitted(self)
        return explain(
            self.fit_,
            self._column_table(X),
            None if y is None else np.asarray(y),
            label=label,
            columns=columns,
            pairs=pairs,
            n_rows=n_rows,
            n_draws=n_draws,
            n_repeats=n_repeats,
            out_of_fold=out_of_fold,
            random_state=random_state,
            progress=progress,
        )

    def explain_row(
        self,
        x: InputLike | Mapping[str, object],
        X: InputLike | None = None,
        y: ResponseLike | None = None,
        *,
        label: object = None,
        n_background: int = 100,
        n_draws: int = 300,
        random_state: int = 0,
        progress: bool = True,
    ) -> RowExplanation:
        """Say why one prediction is what it is, and as sure as it is.

        Parameters
        ----------
        x
            The row: a table of one row, one row of an array, or a mapping of the names of columns to cells.
        X, y
            Rows to compare with, best those of the fit, and what was observed of them. Without X those of `run_dir`.
        label
            For classes, the one whose probability is explained; None takes the one that is predicted.
        n_background
            Rows that the average is of; of more, an even selection.
        n_draws
            How many draws to ask, about.
        random_state
            Seed of the orders of the columns.
        progress
            Whether a terminal or notebook shows a bar once this has taken two seconds.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from mile import MileRegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X[50:], y[50:])
        >>> found = model.explain_row(X[:1], X[50:], y[50:], n_draws=50)
        >>> total = found.average["mean"] + found.contributions["mean"].sum()
        >>> bool(abs(total - found.prediction["mean"]) < 1e-6)
        True
        """
        check_is_fitted(self)
        background = self._background(None if X is None else self._column_table(X), y)
        return explain_row(
            self.fit_,
            self._column_table(self._as_table(x)),
            *background,
            label=label,
            n_background=n_background,
            n_draws=n_draws,
            random_state=random_state,
            progress=progress,
        )

    def _as_table(self, x: InputLike | Mapping[str, object]) -> InputLike:
        """Return one row, however it is given, as a table."""
        names = getattr(self, "feature_names_in_", None)
        if np.ndim(x) == 1 and names is not None:  # pyright: ignore[reportArgumentType]
            x = dict(zip(map(str, names), x, strict=True))  # pyright: ignore[reportArgumentType]
        elif np.ndim(x) == 1:  # pyright: ignore[reportArgumentType]
            x = np.asarray(x)[None]
        if isinstance(x, Mapping):
            return {name: cell if np.ndim(cell) else [cell] for name, cell in x.items()}  # pyright: ignore
        return x

    def _training_rows(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return encoded training rows and what was observed of them, if there is a run that keeps them."""
        if self.run_dir is None or self.fit_.encoder.origins(self.fit_.network.n_inputs) is None:
            return None
        from mile.estimators.loading import read_training  # it imports the estimators

        return read_training(self.run_dir, self.fit_)

    def _row_names(self, X: InputLike) -> np.ndarray | None:
        """Return what the user calls each row: an identifier among the columns, or a frame's index; else None."""
        features = self._features(X)
        known = [column.name for column in self.columns_ if column.reason == REASONS["identifier"]]
        if known and not isinstance(features, np.ndarray) and known[0] in features:
            texts = features[known[0]].texts()
            return np.array([*texts.levels, ""], object)[texts.codes]
        index = np.asarray(getattr(X, "index", None)) if hasattr(X, "iloc") else None
        return None if index is None or np.array_equal(index, np.arange(len(index))) else index

    def reproducing_line(self) -> str:
        """Return the line of code that makes this fit again, of the same rows."""
        usual, own = type(self)().get_params(deep=False), self.get_params(deep=False)
        kept = {name: value for name, value in own.items() if name not in NOT_KEPT and repr(value) != repr(usual[name])}
        arguments = ", ".join(f"{name}={value!r}" for name, value in (kept | {"random_state": self.seed_}).items())
        return f"{type(self).__name__}({arguments}).fit(X, y)"

    def _background(self, table: ColumnTable | None, y: ResponseLike | None) -> tuple[ColumnTable, np.ndarray | None]:
        """Return rows to compare with and what was observed of them: the given ones, or those that the run keeps."""
        if table is not None:
            return table, as_outcomes(None if y is None else np.asarray(y), len(table))
        kept, fitted = self._training_rows(), self.fit_
        origins = fitted.encoder.origins(fitted.network.n_inputs)
        if kept is None or origins is None:
            raise ValueError("explain_row compares with other rows: pass X, best the rows of the fit.")
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{place}" for place in range(origins.max() + 1)] if names is None else list(map(str, names))
        return encoded_table(kept[0], origins, names), kept[1]

    def export(self, path: str | Path, **options: object) -> None:
        """Write this model as a file for other programs, by the suffix of its name.

        Parameters
        ----------
        path
            ".onnx": a graph that onnxruntime computes by itself (`mile.Onnx`; needs the `onnx` extra). ".stablehlo": a
            program for XLA (`mile.StableHlo`). ".nc": the draws, for ArviZ (`mile.NetCdf`; needs the `arviz` extra).
        options
            Of ".onnx": `quantiles`, levels of the quantiles that the graph computes, by default 0.05 and 0.95; `half`,
            whether draws are kept as float16.

        Raises
        ------
        ValueError
            If there is no such kind of file, it has no such option, or it cannot hold this model.
        ImportError
            If a package is missing; the message says which extra has it.
        StorageError
            If the file could not be written.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        export_fit(self.fit_, path, None if names is None else [str(name) for name in names], **options)

    def to_arviz(self) -> Any:  # xarray is optional
        """Return draws and sampler statistics as an xarray `DataTree` in ArviZ's layout (needs the `arviz` extra)."""
        check_is_fitted(self)
        return self.fit_.to_arviz()

    def predictive(self, X: InputLike, memory: int = DEFAULT_MEMORY) -> AbstractPredictive:
        """Return the predictive distribution of each row: a `Predictive`, or a `ClassPredictive` for classes.

        Parameters
        ----------
        X
            Rows as at fit.
        memory
            Bytes that intermediate results may take.
        """
        check_is_fitted(self)
        return self.fit_.for_encoded.predictive(self._encoded(X), memory)

    def predict_frame(self, X: InputLike, interval: float = 0.9, quantiles: Sequence[float] = ()) -> "IntoDataFrame":
        """Return predictions as a frame of the library of X, with the columns of `mile predict`.

        For numbers these are mean, std and the ends of the interval, such as lower_90 and upper_90; for classes the
        label, its probability, and the probability of each class.

        Parameters
        ----------
        X
            Rows as at fit. The frame is one of pandas, with the same index, of polars or of pyarrow, as X is; for
            arrays, lists and mappings it is one of pandas.
        interval
            Probability that the interval shall hold.
        quantiles
            Levels such as 0.05 or 0.5, a column each; classes have none.

        Raises
        ------
        ImportError
            If X is no frame, and pandas is not installed.

        Examples
        --------
        >>> import pandas as pd
        >>> from mile import MileRegressor
        >>> houses = pd.DataFrame({"size": range(40), "city": ["Oslo", "Rome"] * 20}, index=range(100, 140))
        >>> model = MileRegressor(sampler="deep_ensemble", n_chains=2, max_epochs=3, random_state=0)
        >>> model = model.fit(houses, houses["size"] * 2.0)
        >>> model.predict_frame(houses.head(2), interval=0.5).columns.tolist()
        ['mean', 'std', 'lower_50', 'upper_50']
        """
        if not 0.0 < interval < 1.0:
            raise ValueError(f"interval must lie strictly between 0 and 1; got {interval!r}.")
        return frame_like(without_exposure(X)[0], self.predictive(X).columns(interval, quantiles))

    def sample_predictive(self, X: InputLike, n: int = 1, random_state: int | None = None) -> np.ndarray:
        """Draw n responses per row, shape (n, rows)."""
        return self.predictive(X).sample(n, random_state)

    def lppd(self, X: InputLike, y: ResponseLike, sample_weight: WeightsLike | None = None) -> float:
        """Return the log pointwise predictive density: the mean over rows of the log density at y, by weight."""
        refuse_masked("y", y)
        density = self.predictive(X).log_prob(np.asarray(y))
        weight = check_weights(sample_weight, density)
        return float(np.mean(density) if weight is None else np.average(density, weights=weight))
