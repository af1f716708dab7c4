"""The ``results.json`` of an image table read back: as it was written, or refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

from unmasked.errors import InputError

FACTS = ("version", "commit", "hardware", "python", "torch")

_Form = tuple[str, Callable[[Any], bool]]
"""What is expected, in words, and whether a value is that."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _each(value: Any, kind: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(kind, value.values()))


def _is_figure(value: Any) -> bool:
    """A number, or null: what `to_json` makes of numbers that JSON cannot hold."""
    return value is None or _is_number(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


_TEXT: _Form = ("text", lambda value: isinstance(value, str))
_TEXTS: _Form = ("a list of texts", _is_texts)
_NAMED: _Form = ("named values", lambda value: isinstance(value, dict))
_NUMBERS: _Form = ("named numbers", lambda value: _each(value, _is_number))
_FIGURES: _Form = ("named numbers or null", lambda value: _each(value, _is_figure))
_SECONDS: _Form = (
    "named numbers",
    lambda value: _each(value, lambda one: _is_number(one) and math.isfinite(one)),
)
_WHOLE: _Form = ("a whole number", lambda value: _is_number(value) and isinstance(value, int))

_CONTENT: dict[str, _Form] = {
    "command": _TEXT,
    "recipe": _NAMED,
    "images": _NAMED,
    "seconds": _SECONDS,
    "summary": _TEXTS,
    "rows": ("a list of rows", lambda value: isinstance(value, list) and bool(value)),
}
_RECIPE: dict[str, _Form] = {
    "preset": _TEXT,
    "tolerance": ("a number", _is_number),
    "deviations": _TEXTS,
}
_ROW: dict[str, _Form] = {
    "dataset": _TEXT,
    "method": _TEXT,
    "setting": _NUMBERS,
    "seed": _WHOLE,
    "chosen": ("true or false", lambda value: isinstance(value, bool)),
    "metrics": _FIGURES,
}
_ROW_MORE: dict[str, _Form] = {
    "reason": _TEXT,
    "over_random": (
        "intervals",
        lambda value: _each(
            value, lambda one: _each(one, _is_figure) and {"value", "low", "high"} <= one.keys()
        ),
    ),
}
_MORE: dict[str, _Form] = {
    "joined": _TEXTS,
    "places": ("places", lambda value: isinstance(value, dict) and _NAMED[1](value.get("methods"))),
}


def read_results(folder: Path) -> dict[str, Any]:
    """What a run, or a join of several, wrote into its folder."""
    if not (folder / "results.json").is_file():
        raise InputError(
            f"{folder} must hold the results.json of `unmasked reproduce mnist` or `cxr`, but has "
            "none; check the path, or let the run end."
        )
    try:
        found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        _check(found)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder} must hold the results.json of `unmasked reproduce mnist` or `cxr`, but it "
            f"cannot be read ({error}): it is damaged, or an earlier version wrote it; run the "
            "command again."
        ) from error
    return dict(found)


def _check(found: Any) -> None:
    _has("it", found, _CONTENT, _MORE)
    for fact in FACTS:
        if fact not in found:
            raise ValueError(f"it lacks {fact}")
    _has("its recipe", found["recipe"], _RECIPE)
    for number, row in enumerate(found["rows"], 1):
        _has(f"its row {number}", row, _ROW, _ROW_MORE)
    chosen = Counter({(row["method"], row["seed"]): 0 for row in found["rows"]})
    chosen.update((row["method"], row["seed"]) for row in found["rows"] if row["chosen"])
    for (method, seed), count in chosen.items():
        if count != 1:
            raise ValueError(f"it has {count} chosen rows of {method}, seed {seed}, not one")


def _has(
    what: str, found: Any, forms: Mapping[str, _Form], more: Mapping[str, _Form] | None = None
) -> None:
    """Refuse what lacks one of ``forms``, or has something else in its place."""
    if not isinstance(found, dict):
        raise ValueError(f"{what} is {short(found)}, not {_NAMED[0]}")
    for name in forms:
        if name not in found:
            raise ValueError(f"{what} lacks {name}")
    for name, (words, is_one) in {**forms, **(more or {})}.items():
        if name in found and not is_one(found[name]):
            raise ValueError(f"{what} has as {name} {short(found[name])}, not {words}")
