"""Functions with a version for each class: of the very class only, because a derived one may compute something else."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")
Version = TypeVar("Version", bound=Callable)


class ByClass(Generic[Arguments, Returned]):
    """A function that is chosen by the class of its first argument; the decorated one is for all other classes."""

    def __init__(self, otherwise: Callable[Arguments, Returned]) -> None:
        update_wrapper(self, otherwise)
        self._otherwise = otherwise
        self._versions: dict[type, Callable[..., Returned]] = {}

    def of(self, kind: type) -> Callable[[Version], Version]:
        """Return a decorator for the version of a class."""

        def add(version: Version) -> Version:
            self._versions[kind] = version
            return version

        return add

    def __call__(self, *arguments: Arguments.args, **options: Arguments.kwargs) -> Returned:
        return self._versions.get(type(arguments[0]), self._otherwise)(*arguments, **options)
