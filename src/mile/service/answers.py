"""What a served model can say of rows: by the native kernel alone where that is enough, else by the whole model."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import numpy as np

from mile.features.base import ColumnFacts
from mile.service.limits import wrong
from mile.service.rows import Cells, Options, Rows
from mile.serving.model import Predictor, read_predictor

_TAILS = (0.0005, 0.05, 0.95, 0.9995)  # by which a density's picture begins and ends
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Columns = dict[str, np.ndarray]


class Curve(NamedTuple):
    """The density of one row."""

    y: np.ndarray
    density: np.ndarray


class Effect(NamedTuple):
    """What one column does in one row: each quantity less what it is with a typical value in that column."""

    column: str
    change: dict[str, float]


class AbstractAnswers(ABC):
    """Answers for encoded rows."""

    target: str
    task: str
    n_draws: int
    facts: tuple[ColumnFacts, ...]
    origins: np.ndarray  # column of each feature
    classes: tuple[object, ...] = ()

    @abstractmethod
    def encode(self, rows: Rows) -> tuple[np.ndarray, list[str]]:
        """Return rows as the network takes them, and remarks on what training did not have."""

    @abstractmethod
    def columns(self, x: np.ndarray, options: Options) -> Columns:
        """Return the columns of a table of predictions."""

    @abstractmethod
    def density(self, x: np.ndarray, n_points: int) -> list[Curve]:
        """Return the density of each row."""

    @abstractmethod
    def outcomes(self, x: np.ndarray, y: Sequence[object]) -> Columns:
        """Return "pit" for numbers; "hit" and "confidence" for classes."""

    @abstractmethod
    def quantities(self, x: np.ndarray) -> Columns:
        """Return the quantities that single predictions are explained by; those of classes are of the first row's."""

    def typical(self) -> dict[str, object]:
        """Return a row of typical values."""
        return {one.name: _typical(one) for one in self.facts if not one.reason}

    def effects(self, x: np.ndarray) -> list[Effect]:
        """Return what each column does in one encoded row, the largest effect on the first quantity first."""
        typical = self.typical()
        usual, _ = self.encode(Rows({name: [cell] for name, cell in typical.items()}, 1))
        used = [place for place, one in enumerate(self.facts) if not one.reason]
        rows = np.repeat(x[:1], 1 + len(used), axis=0)
        for row, place in enumerate(used, start=1):
            features = self.origins == place
            rows[row, features] = usual[0, features]
        found = self.quantities(rows)
        effects = [
            Effect(self.facts[place].name, {name: float(value[0] - value[row]) for name, value in found.items()})
            for row, place in enumerate(used, start=1)
        ]
        first = next(iter(found))
        return sorted(effects, key=lambda effect: -abs(effect.change[first]))


class KernelAnswers(AbstractAnswers):
    """A regression of numbers with normal noise: neither JAX nor scikit-learn is needed."""

    task = "regression"

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.target, self.n_draws = predictor.target or "y", predictor.n_draws
        names = predictor.names or tuple(f"x{place}" for place in range(len(predictor.shift)))
        numbers = zip(names, predictor.shift.tolist(), predictor.scale.tolist(), strict=True)
        self.facts = tuple(ColumnFacts(name, "number", center=at, spread=scale) for name, at, scale in numbers)
        self.origins = np.arange(len(names))

    def encode(self, rows: Rows) -> tuple[np.ndarray, list[str]]:
        """Standardize; the mean stands for an empty cell."""
        values = _matrix(rows.cells)
        missing = np.isnan(values)
        remarks = []
        if missing.any():
            values = np.where(missing, self._predictor.shift, values)
            remarks = _filled([one.name for one in self.facts], missing)
        return cast(np.ndarray, self._predictor.encoded(values)), remarks

    def columns(self, x: np.ndarray, options: Options) -> Columns:
        """Return mean, standard deviation, ends of the interval, quantiles."""
        if options.times:
            raise wrong("survival at times needs a model of times with limits; this one predicts a number.")
        tail = 0.5 - options.interval / 2
        found = self._predictor.mixtures.summarize(x, (tail, 1.0 - tail, *options.quantiles))
        center, unit = self._predictor.center, self._predictor.unit
        lower, upper, *others = center + unit * found.quantiles
        name = f"{100 * options.interval:g}"
        columns = {"mean": center + unit * found.mean, "std": unit * np.sqrt(found.noise + found.ignorance)}
        columns |= {f"lower_{name}": lower, f"upper_{name}": upper}
        return columns | {f"q{level:g}": column for level, column in zip(options.quantiles, others, strict=True)}

    def density(self, x: np.ndarray, n_points: int) -> list[Curve]:
        """Return densities between far quantiles."""
        curves = []
        for row, ends in zip(x, self._predictor.quantiles(x, _TAILS), strict=True):
            y = _grid(ends, n_points)
            curves.append(Curve(y, self._predictor.evaluate(np.repeat(row[None], n_points, axis=0), y)[1]))
        return curves

    def outcomes(self, x: np.ndarray, y: Sequence[object]) -> Columns:
        """Return P(Y <= y)."""
        return {"pit": self._predictor.evaluate(x, _as_numbers(y))[0]}

    def quantities(self, x: np.ndarray) -> Columns:
        """Return mean, standard deviation and its parts."""
        found, unit = self._predictor.mixtures.summarize(x), self._predictor.unit
        parts = {"noise": unit * np.sqrt(found.noise), "ignorance": unit * np.sqrt(found.ignorance)}
        std = unit * np.sqrt(found.noise + found.ignorance)
        return {"mean": self._predictor.center + unit * found.mean, "standard deviation": std} | parts


class Distribution(Protocol):
    """What predictions of numbers have besides those of classes."""

    def quantile(self, q: object) -> np.ndarray:
        """Return quantiles (row, level)."""
        ...

    def points(self, y: np.ndarray) -> np.ndarray:
        """Return where to draw the density."""
        ...

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """Return log densities."""
        ...

    def pit(self, y: np.ndarray) -> np.ndarray:
        """Return what is uniform if the prediction is right."""
        ...


class WholeAnswers(AbstractAnswers):
    """Any model of a table."""

    def __init__(self, path: Path) -> None:
        from mile.estimators.loading import load
        from mile.fitting.result import Fit

        model = load(path)
        fit = model if isinstance(model, Fit) else model.fit_
        self._encoder, self._fit = fit.encoder, fit.for_encoded
        n_features, names = fit.network.n_inputs, getattr(model, "feature_names_in_", None)
        given = None if names is None else [str(name) for name in names]
        facts = fit.encoder.facts(given, n_features) if len(fit.network.input_shape) == 1 else None
        if not facts or fit.network.describe_rows() is not None:
            raise ValueError(f"{path} was not fitted to a table: mile serve takes models of tables.")
        self.facts, self.origins = tuple(facts), np.asarray(fit.encoder.origins(n_features))
        self.target, self.task = getattr(model, "target_name_", None) or "y", fit.likelihood.task
        self.n_draws = self._fit.predictive(np.zeros((1, n_features), np.float32)).n_draws
        self.classes = () if fit.classes is None else tuple(fit.classes.tolist())

    def encode(self, rows: Rows) -> tuple[np.ndarray, list[str]]:
        """Encode as the model does, and refuse cells that are not of their column's kind."""
        if not self._encoder.takes_tables:
            return self._encoder.transform_and_remark(_matrix(rows.cells))
        from mile.features.frame import Frame

        numbers = {one.name for one in self.facts if one.kind == "number"}
        columns = {
            name: np.array([np.nan if cell is None else cell for cell in cells], float) if name in numbers else cells
            for name, cells in rows.cells.items()
        }
        frame = Frame.of(columns | {one.name: [None] * rows.n_rows for one in self.facts if one.reason})
        lost = self._encoder.unreadable(frame)
        if lost is not None:
            name, row = lost
            kind = next(one.kind for one in self.facts if one.name == name)
            raise wrong(f"row {row}, column {name!r}: {str(rows.cells[name][row])[:60]!r} is no {kind}.")
        return self._encoder.transform_and_remark(frame)

    def columns(self, x: np.ndarray, options: Options) -> Columns:
        """Return what `mile predict` writes."""
        predictive = self._fit.predictive(x)
        try:
            found = predictive.columns(options.interval, options.quantiles)
            return found | (predictive.survival_columns(options.times) if options.times else {})
        except ValueError as error:
            raise wrong(str(error)) from error

    def density(self, x: np.ndarray, n_points: int) -> list[Curve]:
        """Return densities between far quantiles; of a response with values of their own, probabilities of these."""
        if self.classes:
            raise wrong("classes have no density; every prediction has their probabilities.")
        curves = []
        for row in x:
            one = cast(Distribution, self._fit.predictive(row[None]))
            y = one.points(_grid(one.quantile(_TAILS)[0], n_points))
            many = cast(Distribution, self._fit.predictive(np.repeat(row[None], len(y), axis=0)))
            curves.append(Curve(y, np.exp(many.log_prob(y))))
        return curves

    def outcomes(self, x: np.ndarray, y: Sequence[object]) -> Columns:
        """Judge what was observed."""
        predictive = self._fit.predictive(x)
        if not self.classes:
            return {"pit": cast(Distribution, predictive).pit(_as_numbers(y))}
        for place, label in enumerate(y):
            if label not in self.classes:
                raise wrong(f"outcome {place} must be one of {list(self.classes)[:10]}; got {str(label)[:60]!r}.")
        columns = predictive.columns()
        hits = [found == label for found, label in zip(columns["label"].tolist(), y, strict=True)]
        return {"hit": np.array(hits, float), "confidence": columns["probability"]}

    def quantities(self, x: np.ndarray) -> Columns:
        """Return what the likelihood says explains a row."""
        label = self._fit.predictive(x[:1]).point[0] if self.classes else None
        return self._fit.predictive(x).row_quantities(label)


def load_answers(path: Path) -> AbstractAnswers:
    """Load a model file or a run.

    Raises
    ------
    ValueError, OSError
        If it cannot be read or served.
    """
    light = read_predictor(path) if path.is_file() else None
    return WholeAnswers(path) if light is None else KernelAnswers(light)


def _grid(quantiles: np.ndarray, n_points: int) -> np.ndarray:
    """Return numbers over which most of a distribution lies; heavy tails are cut, or they would be all there is."""
    first, lower, upper, last = quantiles.tolist()
    low, high = max(first, 2.0 * lower - upper), min(last, 2.0 * upper - lower)
    return np.linspace(low, high, n_points) if high > low else np.linspace(low - 0.5, low + 0.5, n_points)


def _matrix(cells: dict[str, Cells]) -> np.ndarray:
    columns = [[np.nan if cell is None else cell for cell in column] for column in cells.values()]
    return np.array(columns, np.float64).T


def _filled(names: Sequence[str], missing: np.ndarray) -> list[str]:
    counts = missing.sum(axis=0)
    return [
        f"Empty cells, which were filled because training had none, in column {names[place]!r}: {count:,}."
        for place, count in enumerate(counts.tolist())
        if count
    ]


def _as_numbers(y: Sequence[object]) -> np.ndarray:
    for place, value in enumerate(y):
        if type(value) not in (int, float) or not abs(cast(float, value)) <= 1e300:
            raise wrong(f"outcome {place} must be a finite number; got {str(value)[:60]!r}.")
    return np.array(y, np.float64)


def _typical(one: ColumnFacts) -> object:
    """Return a value that a column may well have: its median or mean, or its most frequent level."""
    if one.kind == "date" and one.center is not None:
        return (_EPOCH + timedelta(days=one.center)).date().isoformat()
    return one.usual if one.kind in ("category", "boolean") else one.center
