"""Warnings point to the user's line, however deep in the package they are issued."""

import ast
from pathlib import Path

import pytest

import mile
from mile import FitWarning
from mile._errors import warn

PACKAGE = Path(mile.__file__).parent


def test_a_warning_points_to_the_first_line_outside_the_package():
    deep = "def inner():\n    warn('told')\ndef outer():\n    inner()\n"
    names = {"warn": warn}
    exec(compile(deep, str(PACKAGE / "deep.py"), "exec"), names)
    with pytest.warns(FitWarning, match="told") as caught:
        names["outer"]()
    assert caught[0].filename == __file__


def test_a_warning_of_a_function_outside_points_to_that_function():
    with pytest.warns(UserWarning, match="told") as caught:
        warn("told", UserWarning)
    assert caught[0].filename == __file__


def test_only_one_function_counts_frames():
    users = [
        path.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "stacklevel"
    ]
    assert users == ["_errors.py"]
