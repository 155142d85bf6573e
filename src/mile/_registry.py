"""What can be chosen by name: one registry per kind of part, filled by a decorator in each class's own file.

Files, the command line, the package's public names, the conformance tests and the tables of the documentation are made
from these registries. To add a part, write one file in the folder of its kind:

    from mile import _registry

    @_registry.prior("cauchy")
    @dataclass(frozen=True, kw_only=True)
    class Cauchy: ...
"""

import importlib
import os.path
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, TypeVar

Class = TypeVar("Class", bound=type)

# Key of a dataclass field's metadata: the value that a file without the field stands for. A field that a registered
# class gains needs one, so that older files are still read; files do not name a field with that value.
ABSENT = "absent"

_PACKAGE = __name__.partition(".")[0]
# How a class is registered, as text: the decorator with the kind and the name, other decorators, the class.
_DECLARATION = re.compile(rb'^@_registry\.(\w+)\("(\w+)"\)\n(?:(?!class ).*\n)*?class (\w+)', re.MULTILINE)


class Declared(NamedTuple):
    """Where a class is that its file registers."""

    module: str
    class_name: str


class Registry:
    """Classes of one kind by name.

    Parameters
    ----------
    kind
        What they are, such as "likelihood"; the decorator's name.
    folder
        Folder of the package whose modules register them. Those without a leading underscore are imported when the
        classes are first asked for.
    """

    def __init__(self, kind: str, folder: str) -> None:
        self.kind = kind
        self._folder = folder
        self._classes: dict[str, type] = {}
        self._is_loaded = False

    def __call__(self, name: str) -> Callable[[Class], Class]:
        """Return a decorator that registers a class under a name.

        Raises
        ------
        ValueError
            If the name is taken by another class.
        """

        def register(registered: Class) -> Class:
            other = self._classes.get(name)
            # The same file may be loaded twice, by a test or in a notebook: the newer class counts then.
            if other is not None and (other.__module__, other.__qualname__) != (
                registered.__module__,
                registered.__qualname__,
            ):
                raise ValueError(
                    f"there is another {self.kind} named {name!r}: {other.__module__}.{other.__qualname__}."
                )
            self._classes[name] = registered
            return registered

        return register

    def __getitem__(self, name: str) -> type:
        """Return the class of a name.

        Raises
        ------
        ValueError
            If there is none.
        """
        if name not in self:
            raise ValueError(f"{name[:80]!r} is not a {self.kind}: it must be one of {list(self)}.")
        return self.classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self.classes

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    @property
    def classes(self) -> dict[str, type]:
        """All classes by name, in alphabetical order, after every module of the folder has registered its own."""
        if not self._is_loaded:
            folder = importlib.import_module(f"{_PACKAGE}.{self._folder}")
            for module in pkgutil.iter_modules(folder.__path__):
                if not module.name.startswith("_"):
                    importlib.import_module(f"{folder.__name__}.{module.name}")
            self._is_loaded = True
        return dict(sorted(self._classes.items()))

    @property
    def names(self) -> list[str]:
        """All names, in alphabetical order; nothing is imported to find them."""
        return sorted({*self.declared, *self._classes})

    @cached_property
    def declared(self) -> dict[str, Declared]:
        """Where the package's own classes are, by name, as the source says: importing a folder takes a second."""
        found: dict[str, Declared] = {}
        for info in pkgutil.iter_modules([os.path.join(os.path.dirname(__file__), self._folder)]):
            source = pkgutil.get_data(_PACKAGE, f"{self._folder}/{info.name}.py") or b""
            for kind, name, class_name in _DECLARATION.findall(source):
                if kind.decode() == self.kind:
                    found[name.decode()] = Declared(f"{_PACKAGE}.{self._folder}.{info.name}", class_name.decode())
        return found

    def name_of(self, registered: type) -> str | None:
        """Return the name of a class, None if it is not registered."""
        return next((name for name, known in self.classes.items() if known is registered), None)


likelihood = Registry("likelihood", "likelihoods")
prior = Registry("prior", "priors")
sampler = Registry("sampler", "samplers")
network = Registry("network", "networks")
encoder = Registry("encoder", "features")
backend = Registry("backend", "execution")
exporter = Registry("exporter", "export")  # by the suffix of its files
# Parts of those parts.
schedule = Registry("schedule", "samplers")
layer = Registry("layer", "networks")
training = Registry("training", "ensemble")
stopping = Registry("stopping", "ensemble")
rate_schedule = Registry("rate_schedule", "ensemble")

REGISTRIES = (likelihood, prior, sampler, network, encoder, backend, exporter)
# What a description in a file may name. Encoders are kept as arrays; where chains run is not for a file to say.
IN_FILES = (likelihood, prior, sampler, network, schedule, layer, training, stopping, rate_schedule)
