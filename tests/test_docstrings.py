"""Docstrings open with what they say, and describe every parameter of every exported name."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import unmasked

PACKAGE = Path(unmasked.__file__).parent
OPENERS = re.compile(r"\s*(What|Which|Who|Whose|Where|When|Whether|How|The same)\b")
ENTRY = re.compile(r"^\s*(\w+(, \w+)*) : ", re.MULTILINE)
HAS_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
SEVERAL = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def openings(source: str) -> Iterator[str]:
    """Yield each docstring that opens with a word of a question, after the name it is of."""
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, HAS_DOCSTRING) else None
        if text is not None and OPENERS.match(text):
            yield f"{getattr(node, 'name', 'module')}: {text.splitlines()[0]}"


def described(*texts: str | None) -> set[str]:
    """Return the names that have an entry in one of the docstrings."""
    entries = (match[1] for text in texts for match in ENTRY.finditer(text or ""))
    return {name for names in entries for name in names.split(", ")}


def parameters(of: Any) -> list[str]:
    """Return the names that a user can pass."""
    return [
        name
        for name, one in inspect.signature(of).parameters.items()
        if one.kind not in SEVERAL and name not in ("self", "cls") and not name.startswith("_")
    ]


def is_ours(thing: Any) -> bool:
    return str(thing.__module__).partition(".")[0] == "unmasked"


def callables(exported: Any) -> Iterator[tuple[str, list[str], set[str]]]:
    """Yield name, parameters and described names of a function, or of a constructor and methods."""
    if not isinstance(exported, type):
        yield exported.__name__, parameters(exported), described(exported.__doc__)
        return
    classes = [one for one in exported.__mro__ if is_ours(one)]
    texts = [text for one in classes for text in (one.__doc__, one.__init__.__doc__)]
    yield exported.__name__, parameters(exported), described(*texts)
    for one in classes:
        for name, member in vars(one).items():
            method = getattr(member, "__func__", member)  # of a class method or a static one
            if inspect.isfunction(method) and is_ours(method) and not name.startswith("_"):
                yield f"{one.__name__}.{name}", parameters(method), described(method.__doc__)


def missing(exported: Any) -> list[str]:
    """Return the parameters without an entry, as "RealX.explain: X"."""
    return [
        f"{name}: {', '.join(lacking)}"
        for name, asked, told in callables(exported)
        if (lacking := [one for one in asked if one not in told])
    ]


def is_error(exported: Any) -> bool:
    return isinstance(exported, type) and issubclass(exported, BaseException)


EXPORTED = [name for name in unmasked.__all__ if not is_error(getattr(unmasked, name))]


def test_no_docstring_opens_with_a_word_of_a_question():
    files = sorted(PACKAGE.rglob("*.py"))
    found = [
        f"{path.relative_to(PACKAGE)}: {opening}"
        for path in files
        for opening in openings(path.read_text(encoding="utf-8"))
    ]
    assert len(files) > 100
    assert not found, "\n".join(["these docstrings should open with a verb or a noun:", *found])


@pytest.mark.parametrize("name", EXPORTED)
def test_every_parameter_of_an_exported_name_is_described(name):
    found = missing(getattr(unmasked, name))
    assert not found, "\n".join(["these parameters have no entry 'name : …':", *found])


def test_the_rules_see_what_they_are_for():
    source = 'class A:\n    """Hides."""\n\n    def f(self):\n        """How it is."""\n'
    assert list(openings(source)) == ["f: How it is."]
    assert described("Do.\n\n    a, b : two.\n    c: none.\n", None) == {"a", "b"}

    def untold(told: int, other: int, *more: int, _own: int = 0) -> None:
        """Do.

        told : a number.
        """

    assert missing(untold) == ["untold: other"]
    asked = {
        name for one in EXPORTED for name, given, _ in callables(getattr(unmasked, one)) if given
    }
    assert {"RealX", "Explainer.load", "Priced.explain", "Explainer.transform", "audit"} <= asked
