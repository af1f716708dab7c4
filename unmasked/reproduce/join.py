"""Join seeds, or methods, of an image table that were run apart into one table."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

from unmasked.errors import InputError
from unmasked.io.output_folder import all_or_nothing, prepare_folder, to_json
from unmasked.reproduce.image_figures import joined_masks, save_masks
from unmasked.reproduce.image_tables import comparable, image_lead, image_tables, sentences
from unmasked.reproduce.images import PICTURES, WRITES
from unmasked.reproduce.judging import Reproduction, check_same_run, run_digest
from unmasked.reproduce.render import CXR, MNIST, REFERENCES, Subject, write_tables

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
    """Read what a run, or a join of several, wrote into its folder; refuse damaged results."""
    if not (folder / "results.json").is_file():
        raise InputError(
            f"{folder} must hold the results.json of `unmasked reproduce mnist` or `cxr`, but has "
            "none; check the path, or let the run end."
        )
    try:
        found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        _check_finished(found)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder} must hold the results.json of `unmasked reproduce mnist` or `cxr`, but it "
            f"cannot be read ({error}): it is damaged, or an earlier version wrote it; run the "
            "command again."
        ) from error
    return dict(found)


def _check_finished(found: Any) -> None:
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


_SUBJECTS = {subject.dataset: subject for subject in (MNIST, CXR)}


def join_tables(folders: list[Path], out: Path, command: str) -> Reproduction:
    """Write one table of runs that differ in their seeds alone, or in their methods alone.

    Pictures, and where selections lie, are of the first seed in a run of several too: they are
    taken from the first folder. Of other methods the pictures stay where they are. Masks are
    joined where all folders have them.
    """
    _check_out(folders, out)
    runs = [read_results(folder) for folder in folders]
    by_method = _check(folders, runs)
    first = runs[0]
    subject = _subject(folders[0], first)
    rows = [
        row
        for number, run in enumerate(runs)
        for row in run["rows"]
        if not (by_method and number and row["method"] in REFERENCES)  # the first has it already
    ]
    seconds: dict[str, float] = {}
    for run in runs:
        for name, value in run["seconds"].items():
            seconds[name] = seconds.get(name, 0.0) + value
    facts = {"command": command}
    for key in FACTS:
        facts[key] = "; ".join(dict.fromkeys(str(run[key]) for run in runs))
    words = _words(runs if by_method else [first], rows, subject)
    recipe = first["recipe"]
    paths = [folder / "masks.npz" for folder in folders]
    masks = joined_masks(paths) if all(path.is_file() for path in paths) else {}
    own = run_digest(recipe, "joined", sorted(map(_digest, runs)))
    prepare_folder(out, writes=WRITES)
    check_same_run(out, recipe["preset"], own)
    with all_or_nothing(out, replaces=WRITES) as part:
        whole = {**first, **facts, "run": own, "seconds": seconds, "summary": words, "rows": rows}
        whole["joined"] = [command for run in runs for command in _commands(run)]
        if by_method and "places" in whole:
            whole["places"] = _places(runs)
        (part / "results.json").write_text(to_json(whole), encoding="utf-8")
        tables = image_tables(rows, recipe["tolerance"], subject)
        title = comparable(subject, rows).title
        write_tables(part, tables, facts, words, recipe["deviations"], title=title)
        if masks:
            save_masks(part / "masks.npz", masks)
        for name in () if by_method else PICTURES:
            source = folders[0] / name
            if source.is_dir():
                shutil.copytree(source, part / name)
            elif source.is_file():
                shutil.copy(source, part / name)
    return Reproduction(rows, words, out, seconds, joined=True)


def _check_out(folders: list[Path], out: Path) -> None:
    """Refuse to write into what is joined."""
    if out.resolve() in (folder.resolve() for folder in folders):
        raise InputError(
            f"--out must be another folder than those that are joined but is {out}, one of them; "
            "name a new one."
        )


def _digest(run: dict[str, Any]) -> str:
    """Hash the recipe, images, methods and seeds of a run, which results of all versions hold."""
    seeds = sorted({row["seed"] for row in run["rows"]})
    return run_digest(run["recipe"], run["images"], sorted(_methods(run)), seeds)


def _places(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the places of all methods' selections, from runs of the first one's seed."""
    seed = runs[0]["rows"][0]["seed"]
    like = [run["places"] for run in runs if "places" in run and run["rows"][0]["seed"] == seed]
    methods = {name: found for places in like for name, found in places["methods"].items()}
    return {**like[0], "methods": methods}


def _words(runs: list[dict[str, Any]], rows: list[dict[str, Any]], subject: Subject) -> list[str]:
    """Put the findings of all rows in place of each run's own, and keep other sentences once."""
    others: list[str] = []
    at = 0
    for number, run in enumerate(runs):
        # earlier versions said the paper's figures beside drawn images too
        own = [*image_lead(run["rows"], subject), *sentences(run["rows"], subject)]
        if number == 0:
            at = next((i for i, words in enumerate(run["summary"]) if words in own), 0)
        others += [said for said in run["summary"] if said not in own and said not in others]
    return [*others[:at], *image_lead(rows, subject), *others[at:]]


def _subject(folder: Path, run: dict[str, Any]) -> Subject:
    names = {row["dataset"] for row in run["rows"]}
    if len(names) != 1 or not names <= _SUBJECTS.keys():
        raise InputError(
            f"only tables of {' or '.join(_SUBJECTS)} can be joined, but {folder} is of "
            f"{', '.join(sorted(names)) or 'nothing'}."
        )
    return _SUBJECTS[names.pop()]


def _check(folders: list[Path], runs: list[dict[str, Any]]) -> bool:
    """Refuse runs that do not belong together; whether they differ in their methods."""
    if len(folders) < 2:
        raise InputError("joining needs two folders or more.")
    seeds = [{row["seed"] for row in run["rows"]} for run in runs]
    methods = [_methods(run) for run in runs]
    by_method = any(own != methods[0] for own in methods) and all(own == seeds[0] for own in seeds)
    for folder, run in zip(folders, runs, strict=True):
        for words, what in (
            ("another recipe", lambda run: run["recipe"]),
            ("other images", lambda run: (run["images"], {row["dataset"] for row in run["rows"]})),
            ("other methods and seeds", lambda run: by_method or _methods(run)),
            ("other figures", lambda run: {key for row in run["rows"] for key in row["metrics"]}),
        ):
            if what(run) != what(runs[0]):
                raise InputError(
                    f"{folder} has {words} than {folders[0]}; join runs that differ in their "
                    "seeds alone, or in their methods alone."
                )
        own, others = _references(run), _references(runs[0])
        if by_method and own.keys() != others.keys():
            (name, _), *_ = sorted(own.keys() ^ others.keys())
            raise InputError(
                f"{name} is in one of {folder} and {folders[0]} only: versions of this program "
                "that differ wrote them; run one of them again."
            )
        if by_method and own != others:
            raise InputError(
                f"FULL has other figures in {folder} than in {folders[0]}: the methods were judged "
                "by other networks and cannot stand in one table; run them on one machine."
            )
    if by_method:
        _apart("method", methods, folders, "give others with --methods when running them")
    else:
        _apart("seed", seeds, folders, "give --first-seed when running them")
    return by_method


def _commands(run: dict[str, Any]) -> list[str]:
    """List the command that made a run, or those that made the runs of which it was joined."""
    return list(run.get("joined", [run["command"]]))


def _methods(run: dict[str, Any]) -> set[str]:
    """Name the methods that are compared with FULL and, where it is known, the truth."""
    return {row["method"] for row in run["rows"]} - set(REFERENCES)


def _references(run: dict[str, Any]) -> dict[tuple[str, int], Any]:
    """Collect the metrics of FULL and the truth by seed, which differ if other networks judged."""
    return {
        (row["method"], row["seed"]): row["metrics"]
        for row in run["rows"]
        if row["method"] in REFERENCES
    }


def _apart(what: str, owned: Sequence[set[Any]], folders: list[Path], advice: str) -> None:
    """Refuse a seed or a method that two folders have."""
    owners: dict[Any, Path] = {}
    for folder, names in zip(folders, owned, strict=True):
        for name in sorted(names):
            if name in owners:
                raise InputError(f"{what} {name} is in {owners[name]} and in {folder}; {advice}.")
            owners[name] = folder
