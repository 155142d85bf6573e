"""What a value from a file must be, as data: a schema reads a value, or refuses it and names the field.

A schema reads what JSON holds, or arrays by name. It returns the value in a known type. It refuses everything else with
one exception, whose message has the place of the field, what was expected and what came. The schemas of whole files are
in `storage/schema.py`; what a registered class keeps of itself is declared beside the class.
"""

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, NoReturn, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from mile._errors import CorruptFileError, UntrustedFileError
from mile._json import Json

LARGEST = (1 << 62) - 1  # of sizes and counts: sums and products of a few stay exact in numpy
_MOST_QUOTED = 80  # characters of a file that a message repeats
_LONGEST_REASON = 500  # characters of another error that a message repeats

Value = TypeVar("Value", covariant=True)
Item = TypeVar("Item")
Place = tuple[str | int, ...]  # names and positions that lead to a field
Plain = str | int | float | bool | None

_quotes = reprlib.Repr()
_quotes.maxlevel, _quotes.maxstring, _quotes.maxother = 2, _MOST_QUOTED, _MOST_QUOTED


def quote(value: object) -> str:
    """Return a value from a file as a message may show it: short, however large or deep the value is."""
    text = _quotes.repr(value)
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}..."


def require(condition: object, sentence: str, source: object = "") -> None:
    """Refuse a file unless a condition holds that involves several of its fields.

    Raises
    ------
    UntrustedFileError
        If it does not.
    """
    if not condition:
        raise UntrustedFileError(f"{source}: {sentence}" if source else sentence)


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Refuse a file if an object that it describes does not pass its own checks.

    Raises
    ------
    UntrustedFileError
        Instead of the error of the object.
    """
    try:
        yield
    except (CorruptFileError, UntrustedFileError):
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UntrustedFileError(f"{what}: {str(error)[:_LONGEST_REASON]}") from error


class Schema(ABC, Generic[Value]):
    """What one value must be."""

    @abstractmethod
    def read(self, value: object, source: object = "", place: Place = ()) -> Value:
        """Return the value in its type.

        Parameters
        ----------
        value
            What a file holds.
        source
            The file, for messages.
        place
            Names that lead to the value.

        Raises
        ------
        UntrustedFileError
            If it is anything else.
        """


def _refuse(expected: str, value: object, source: object, place: Place) -> NoReturn:
    require(False, f"{_where(place)} must be {expected}; got {quote(value)}.", source)
    raise AssertionError("unreachable")


def _where(place: Place) -> str:
    return ".".join(str(name)[:_MOST_QUOTED] for name in place) or "the content"


# Single values


@dataclass(frozen=True)
class Text(Schema[str]):
    """A text: any, one of some, or one that passes a test."""

    expected: str = "a text"
    is_right: Callable[[str], bool] | None = None
    choices: Collection[str] | None = None
    longest: int = LARGEST

    def read(self, value: object, source: object = "", place: Place = ()) -> str:
        """Return the text."""
        if not isinstance(value, str) or len(value) > self.longest:
            _refuse(self.expected, value, source, place)
        if self.choices is not None and value not in self.choices:
            _refuse(f"one of {sorted(self.choices)}", value, source, place)
        if self.is_right is not None and not self.is_right(value):
            _refuse(self.expected, value, source, place)
        return value


@dataclass(frozen=True)
class Count(Schema[int]):
    """An integer between two bounds, both included."""

    smallest: int = 0
    largest: int = LARGEST

    def read(self, value: object, source: object = "", place: Place = ()) -> int:
        """Return the integer."""
        if type(value) is not int or not self.smallest <= value <= self.largest:
            bounds = f"of at least {self.smallest}"
            if self.largest < LARGEST:
                bounds = f"between {self.smallest} and {self.largest}"
            _refuse(f"an integer {bounds}", value, source, place)
        return value


@dataclass(frozen=True)
class Number(Schema[float]):
    """A finite floating-point number."""

    def read(self, value: object, source: object = "", place: Place = ()) -> float:
        """Return the number."""
        if type(value) is not float or not np.isfinite(value):
            _refuse("a finite number", value, source, place)
        return value


@dataclass(frozen=True)
class Flag(Schema[bool]):
    """True or false."""

    def read(self, value: object, source: object = "", place: Place = ()) -> bool:
        """Return the flag."""
        if type(value) is not bool:
            _refuse("true or false", value, source, place)
        return value


@dataclass(frozen=True)
class PlainValue(Schema[Plain]):
    """A text, a number, a flag or null."""

    def read(self, value: object, source: object = "", place: Place = ()) -> Plain:
        """Return the value."""
        if not isinstance(value, Plain):
            _refuse("a text, a number, true, false or null", value, source, place)
        return value


@dataclass(frozen=True)
class Unchecked(Schema[Json]):
    """Whatever JSON holds; its reader checks it, as `configuration.build` checks descriptions."""

    def read(self, value: object, source: object = "", place: Place = ()) -> Json:
        """Return the value."""
        return cast("Json", value)


@dataclass(frozen=True)
class Nullable(Schema[Value | None]):
    """A value or null."""

    schema: Schema[Value]

    def read(self, value: object, source: object = "", place: Place = ()) -> Value | None:
        """Return the value or None."""
        return None if value is None else self.schema.read(value, source, place)


# Many values


@dataclass(frozen=True)
class Several(Schema[tuple[Value, ...]]):
    """A list of values of one schema."""

    schema: Schema[Value]
    fewest: int = 0
    most: int = LARGEST
    are_distinct: bool = False

    def read(self, value: object, source: object = "", place: Place = ()) -> tuple[Value, ...]:
        """Return the values."""
        if not isinstance(value, list) or not self.fewest <= len(value) <= self.most:
            bounds = f" of at least {self.fewest}" if self.most == LARGEST else f" of {self.fewest} to {self.most}"
            _refuse(f"a list{bounds} values", value, source, place)
        found = tuple(self.schema.read(entry, source, (*place, index)) for index, entry in enumerate(value))
        if self.are_distinct and len(set(found)) < len(found):
            _refuse("a list of different values", value, source, place)
        return found


@dataclass(frozen=True)
class ByName(Schema[dict[str, Item]]):
    """Values of one schema by names that the file chooses."""

    schema: Schema[Item]
    name: Text = Text()
    most: int = LARGEST

    def read(self, value: object, source: object = "", place: Place = ()) -> dict[str, Item]:
        """Return the values by name."""
        if not isinstance(value, dict) or len(value) > self.most:
            few = "" if self.most == LARGEST else f" of at most {self.most:,}"
            _refuse(f"an object{few}", value, source, place)
        for name in value:
            self.name.read(name, source, (f"a name in {_where(place)}",))
        return {name: self.schema.read(entry, source, (*place, name)) for name, entry in value.items()}


@dataclass(frozen=True)
class Fields(Schema[Value]):
    """An object, or arrays by name, with these fields and no others; `make` is called with them."""

    make: Callable[..., Value]
    schemas: Mapping[str, Schema[object]]
    optional: Mapping[str, Schema[object]] = field(default_factory=dict)

    def read(self, value: object, source: object = "", place: Place = ()) -> Value:
        """Return what is made of the fields."""
        if not isinstance(value, Mapping):
            _refuse(f"an object with {sorted(self.schemas)}", value, source, place)
        wrong = sorted(name for name in {*value, *self.schemas} if self._is_wrong(name, value))
        if wrong:
            what = "missing" if wrong[0] in self.schemas else "not a field that is known here"
            require(False, f"{_where((*place, wrong[0]))} is {what}.", source)
        known = {**self.schemas, **self.optional}
        return self.make(**{name: known[name].read(value[name], source, (*place, name)) for name in value})

    def _is_wrong(self, name: str, value: Mapping[str, object]) -> bool:
        return name not in value if name in self.schemas else name not in self.optional


# Arrays


@runtime_checkable
class HasShape(Protocol):
    """An array in memory or on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Type of its numbers."""
        ...


@dataclass(frozen=True)
class Tensor(Schema[np.ndarray]):
    """An array of a type and a shape; None stands for an axis of any length.

    `dtype` is a type such as "float32", or a letter for any width: "f" for floats, "i" for integers.
    """

    dtype: str
    shape: tuple[int | None, ...]
    is_finite: bool = False
    is_positive: bool = False
    largest: int = LARGEST  # numbers that it may have

    def read(self, value: object, source: object = "", place: Place = ()) -> np.ndarray:
        """Return the array."""
        if not isinstance(value, HasShape) or not self._has_shape(value.shape) or not self._has_type(value.dtype):
            found = f"{value.dtype} of shape {value.shape}" if isinstance(value, HasShape) else value
            _refuse(self._expected, found, source, place)
        array = cast("np.ndarray", value)
        if (self.is_finite and not np.isfinite(array).all()) or (self.is_positive and not (array > 0).all()):
            _refuse(self._expected, f"{array.dtype} with other values", source, place)
        return array

    def _has_shape(self, shape: tuple[int, ...]) -> bool:
        is_small = math.prod(shape) <= self.largest
        pairs = zip(self.shape, shape, strict=False)
        return is_small and len(shape) == len(self.shape) and all(wanted in (None, size) for wanted, size in pairs)

    def _has_type(self, dtype: np.dtype) -> bool:
        return dtype.kind == self.dtype if len(self.dtype) == 1 else dtype == np.dtype(self.dtype)

    @property
    def _expected(self) -> str:
        kinds = {"f": "floats", "i": "integers"}
        limits = [word for word, asked in (("finite", self.is_finite), ("positive", self.is_positive)) if asked]
        shape = ", ".join("any" if size is None else str(size) for size in self.shape)
        return " ".join(["an array of", *limits, kinds.get(self.dtype, self.dtype), f"with shape ({shape})"])
