"""Class labels: one logit per class, and the predictive distribution of a class."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import entr, log_softmax

from mile import _registry
from mile._checks import check_count
from mile._errors import UntrustedFileError
from mile._random import draw_seed
from mile._types import Outputs
from mile.likelihoods._labels import labels_of, read_labels, write_labels
from mile.likelihoods.base import (
    AbstractLikelihood,
    AbstractPredictive,
    AbstractResponse,
    Encoded,
    Explained,
    Mixture,
    OutputsOfDraws,
    PerDraw,
    PerRow,
    Table,
    Tensors,
    Uncertainty,
)


@dataclass(frozen=True, eq=False)
class LabeledResponse(AbstractResponse):
    """The labels of class codes from 0; None means the codes themselves."""

    n_classes: int
    given: np.ndarray | None = None

    @property
    def labels(self) -> np.ndarray | None:
        """The labels that were given."""
        return self.given

    @property
    def classes(self) -> np.ndarray:
        """One label for each code."""
        return np.arange(self.n_classes) if self.given is None else self.given

    def encode(self, y: np.ndarray) -> Encoded:
        """Return the code of each label."""
        y, classes = np.asarray(y), self.classes
        known = np.isin(y, classes)
        if not known.all():
            raise ValueError(f"y contains the label {y[~known][0]!r}, which is not among classes {classes!r}.")
        order = np.argsort(classes)
        return order[np.searchsorted(classes, y, sorter=order)].astype(np.int32)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """Return the label of each code."""
        return self.classes[encoded]

    def cast(self, y: np.ndarray) -> np.ndarray:
        """Return labels as texts where the labels of the training rows are."""
        kind = self.classes.dtype.kind  # without its length, which would cut longer labels
        return y.astype(kind) if kind in "US" else y

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which entries are labels that training has seen."""
        return np.isin(y, self.classes)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the labels that were given."""
        return {} if self.given is None else write_labels(self.given)


@_registry.likelihood("categorical")
@dataclass(frozen=True)
class Categorical(AbstractLikelihood):
    """Class label with one logit per class."""

    n_classes: int

    task = "classification"
    head = "categorical"
    dtype = np.int32
    is_numeric = False

    def __post_init__(self) -> None:
        check_count("n_classes", self.n_classes, smallest=2)

    @property
    def n_outputs(self) -> int:
        """One logit per class, also for two classes."""
        return self.n_classes

    def log_prob(self, outputs: Outputs, y: Int[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of each row's class."""
        return jnp.take_along_axis(jax.nn.log_softmax(outputs, axis=0), y[None], axis=0)[0]

    def with_softmax_twice(self) -> "SoftmaxTwice":
        """Return the likelihood of the published code of path-guided particles."""
        return SoftmaxTwice(self.n_classes)

    def log_probs(self, outputs: OutputsOfDraws) -> OutputsOfDraws:
        """Return the log probability of every class for each row under each draw, in float64."""
        return log_softmax(outputs.astype(np.float64), axis=1)

    @classmethod
    def for_response(cls, y: np.ndarray) -> "Categorical":
        """Return the likelihood of as many classes as there are labels."""
        return cls(len(np.unique(y)))

    @classmethod
    def check(cls, y: np.ndarray) -> np.ndarray:
        """Return labels, which must be of at least two classes."""
        from sklearn.utils.multiclass import check_classification_targets  # heavy, and of use to estimators only

        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"y must have at least 2 classes; it has only 1 class, {classes.tolist()[0]!r}.")
        return y

    @classmethod
    def parse(cls, values: np.ndarray, name: str) -> np.ndarray:
        """Return labels: texts, or whole numbers as such."""
        return labels_of(values, name)

    @classmethod
    def read(cls, table: Table, name: str) -> np.ndarray:
        """Return a column as labels: texts, or whole numbers as such."""
        return labels_of(table.column(name), f"{table.source}: the target {name!r}")

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> AbstractResponse:
        """Learn the labels, from all rows."""
        return LabeledResponse(self.n_classes, np.unique(y))

    def plain_response(self) -> AbstractResponse:
        """Return the encoding of codes as themselves."""
        return LabeledResponse(self.n_classes)

    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse what is not a class code from 0 to one less than the number of classes."""
        if y.dtype.kind not in "iu":
            raise ValueError(f"{name} must hold class codes, which are integers; it has {y.dtype}.")
        wrong = np.flatnonzero((y < 0) | (y >= self.n_classes))
        if wrong.size:
            raise ValueError(
                f"{name} has the class code {y[wrong[0]]} in row {wrong[0]}; with {self.n_classes} classes the codes "
                f"are 0 to {self.n_classes - 1}."
            )

    def restore_response(self, tensors: Tensors) -> AbstractResponse:
        """Return the labels that a file has kept."""
        labels = read_labels(tensors)
        if labels is not None and len(labels) != self.n_classes:
            raise UntrustedFileError("there must be one label for each class.")
        return LabeledResponse(self.n_classes, labels)

    def strata(self, y: np.ndarray) -> Int[np.ndarray, " row"] | None:
        """Return the classes: a split takes the same share of each."""
        return np.unique(y, return_inverse=True)[1]

    def predictive(self, mixture: Mixture, response: AbstractResponse) -> "ClassPredictive":
        """Return the predictive distribution of a class."""
        return ClassPredictive(mixture, self, cast(LabeledResponse, response))

    def aim(self, target: str) -> str:
        """Say of how many classes one is predicted."""
        return f"{target}, one of {self.n_classes:,} classes,"


@dataclass(frozen=True)
class SoftmaxTwice(Categorical):
    """A loss that expects logits, given probabilities: no row's log probability is above 1 - log(e + n_classes - 1).

    For the target of a sampler that reproduces such code, inside compiled code; it cannot be chosen by name.
    """

    head = None  # the native kernel does not have it

    def log_prob(self, outputs: Outputs, y: Int[Array, " row"]) -> Float[Array, " row"]:
        """Return the log of the softmax of the softmax at each row's class."""
        return super().log_prob(jax.nn.softmax(outputs, axis=0), y)


class ClassPredictive(AbstractPredictive):
    """Predictive distribution of a class for each row."""

    score_names: ClassVar[tuple[str, ...]] = ("lppd", "accuracy", "brier", "expected_calibration_error")
    figure_names = ("reliability", "confusion", "roc", "confidence", "uncertainty", "surprises")
    caution_names = ("confidence",)
    log_prob_label = "log probability of the observed"
    _likelihood: Categorical
    _response: LabeledResponse

    def __init__(self, mixture: Mixture, likelihood: Categorical, response: LabeledResponse) -> None:
        self._mixture, self._weights = mixture, mixture.weights
        self._likelihood = likelihood
        self._response = response

    def __len__(self) -> int:
        return self._mixture.n_rows

    @property
    def classes(self) -> np.ndarray:
        """The labels, in the order of the columns of `probs`."""
        return self._response.classes

    def row_scores(self, y: np.ndarray, thinned: "AbstractPredictive | None" = None) -> dict[str, PerRow]:
        """Return log probability, 1 where the most probable class is right, the Brier score, and its probability."""
        truth = np.asarray(y)[:, None] == self.classes
        brier = np.sum(np.square(self.probs - truth), axis=1)
        found = super().row_scores(y) | {"accuracy": (self.labels == y).astype(float), "brier": brier}
        return found | {"confidence": self.probs.max(axis=1)}

    @property
    def point(self) -> np.ndarray:
        """Most probable class of each row."""
        return self.labels

    @property
    def probs(self) -> Float[np.ndarray, "row class"]:
        """Probability of each class, the mean over draws; a row sums to one."""
        return self._summary[0].T

    @property
    def labels(self) -> np.ndarray:
        """Most probable class of each row."""
        return self.classes[np.argmax(self.probs, axis=1)]

    @property
    def entropy(self) -> Float[np.ndarray, " row"]:
        """Entropy of the predicted class in nats: total uncertainty."""
        return entr(self.probs).sum(axis=1)

    @property
    def mutual_information(self) -> Float[np.ndarray, " row"]:
        """Part of the entropy that knowing the weights would remove, in nats: epistemic uncertainty."""
        return np.maximum(self.entropy - self._summary[1], 0.0)

    @cached_property
    def _summary(self) -> tuple[np.ndarray, np.ndarray]:
        found = self._mixture.native_means()
        if found is not None:
            _, means = found
            return means[:-1] / means[:-1].sum(axis=0), means[-1]

        def summarize(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            probs = np.exp(self._likelihood.log_probs(outputs))
            mean = self._weights.mean(probs)
            return mean / mean.sum(axis=0), self._weights.mean(entr(probs).sum(axis=1))

        return cast(tuple[np.ndarray, np.ndarray], self._mixture.over_blocks(summarize))

    def log_prob(self, y: np.ndarray) -> Float[np.ndarray, " row"]:
        """Return the log predictive probability of one label per row.

        Raises
        ------
        ValueError
            If a label was not among the classes of the training data.
        """

        def log_probability(outputs: np.ndarray, codes: np.ndarray) -> np.ndarray:
            return self._weights.log_mean_exp(self._of_class(outputs, codes))

        return cast(PerRow, self._mixture.over_blocks(log_probability, self._encode(y)))

    def log_prob_per_draw(self, y: np.ndarray) -> Float[np.ndarray, "draw row"]:
        """Return the log probability of one label per row under each draw alone."""
        return cast(PerDraw, self._mixture.over_blocks(self._of_class, self._encode(y)))

    @property
    def draw_weights(self) -> Float[np.ndarray, " draw"] | None:
        """How much each draw counts in the mixture; None if all count the same."""
        return self._weights.values

    def _of_class(self, outputs: np.ndarray, codes: np.ndarray) -> np.ndarray:
        log_probs = self._likelihood.log_probs(outputs)
        return np.take_along_axis(log_probs, codes[None, None], axis=1)[:, 0]

    def explained(self, label: object = None) -> Explained:
        """Return the probability of a class under each draw; None takes the class that is most probable on average.

        As a number, 1 for that class and 0 for others, y has this mean and the standard deviation sqrt(p (1 - p)).
        """
        code = self._code(label)
        prob = cast(
            PerDraw, self._mixture.over_blocks(lambda found: np.exp(self._likelihood.log_probs(found))[:, code])
        )
        return Explained(prob, np.sqrt(prob * (1.0 - prob)), f"probability of {self.classes[code]}")

    def row_quantities(self, label: object = None) -> dict[str, PerRow]:
        """Return the probability of a class, and the entropy with its two parts."""
        code, entropy, ignorance = self._code(label), self.entropy, self.mutual_information
        parts = {"entropy": entropy, "noise": entropy - ignorance, "ignorance": ignorance}
        return {f"probability of {self.classes[code]}": self.probs[:, code]} | parts

    def _code(self, label: object) -> int:
        if label is None:
            return int(np.argmax(self.probs.mean(axis=0)))
        found = np.flatnonzero(self.classes == label)
        if not len(found):
            raise ValueError(f"label must be one of {self.classes.tolist()}; got {label!r}.")
        return int(found[0])

    def sample(self, n: int = 1, random_state: int | None = None) -> np.ndarray:
        """Draw n labels per row, shape (n, row)."""
        rng = np.random.default_rng(draw_seed(random_state))
        uniform = rng.uniform(size=(check_count("n", n), len(self)))
        edges = np.cumsum(self.probs, axis=1)[:, :-1].T
        return self.classes[sum((uniform > edge for edge in edges), start=np.zeros(uniform.shape, int))]

    def quantile(self, *_: object, **__: object) -> NoReturn:
        """Refuse: classes have no order."""
        raise TypeError("classes have no quantiles; use `probs` for the probability of each class.")

    interval = cdf = quantile

    def columns(self, interval: float = 0.9, quantiles: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return the label, its probability, and the probability of each class."""
        if len(quantiles):
            raise ValueError("quantiles need a model of numbers; this one predicts classes.")
        probs = self.probs
        found = {"label": self.labels, "probability": probs.max(axis=1)}
        return found | {f"p_{label}": probs[:, code] for code, label in enumerate(self.classes)}

    def shares(self) -> dict[str, PerRow]:
        """Return the probability of each label."""
        return {str(label): self.probs[:, code] for code, label in enumerate(self.classes)}

    def brief(self, rows: Int[np.ndarray, " chosen"]) -> dict[str, np.ndarray]:
        """Return the label and its probability."""
        return {"predicted": self.labels[rows], "probability of it": self.probs.max(axis=1)[rows]}

    def uncertainty(self) -> Uncertainty:
        """Return the two parts of the entropy."""
        entropy, epistemic = self.entropy, self.mutual_information
        share = epistemic / np.maximum(entropy, np.finfo(float).tiny)
        labels = ("noise, expected entropy (nats)", "ignorance (nats)")
        return Uncertainty(entropy - epistemic, epistemic, share, "entropy", *labels)

    def followed(self) -> dict[str, PerDraw]:
        """Return the log probability of the class that is predicted, under each draw."""
        return {"log probability": self.log_prob_per_draw(self.labels)}

    def _encode(self, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y)
        if y.shape != (len(self),):
            raise ValueError(f"y must have one label per row, shape {(len(self),)}; got shape {y.shape}.")
        return self._response.encode(y)
