"""``unmasked reproduce join``: seeds of an image table that were run apart, as one table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from unmasked.errors import InputError
from unmasked.report.results import all_or_nothing, prepare_folder, to_json
from unmasked.reproduce.folder import check_same_preset
from unmasked.reproduce.imagemasks import joined_masks, save_masks
from unmasked.reproduce.imagetables import image_lead, image_tables
from unmasked.reproduce.render import write_tables
from unmasked.reproduce.rows import Reproduction
from unmasked.reproduce.subjects import CXR, MNIST, Subject

_PICTURES = ("samples.png", "single-pixel.png", "gallery.html", "study")
_FACTS = ("version", "commit", "hardware", "python", "torch")
_CONTENT = ("command", "recipe", "images", "seconds", "summary", "rows")
_ROW = ("dataset", "method", "setting", "seed", "chosen", "metrics")
_SUBJECTS = {subject.dataset: subject for subject in (MNIST, CXR)}


def join_tables(folders: list[Path], out: Path, command: str) -> Reproduction:
    """Write the table of all seeds of runs that differ in nothing else.

    Pictures, and where selections lie, are of the first seed in a run of several too: they are
    taken from the first folder. Masks are joined where all folders have them.
    """
    runs = [_read(folder) for folder in folders]
    _check(folders, runs)
    first = runs[0]
    subject = _subject(folders[0], first)
    rows = [row for run in runs for row in run["rows"]]
    seconds: dict[str, float] = {}
    for run in runs:
        for name, value in run["seconds"].items():
            seconds[name] = seconds.get(name, 0.0) + value
    facts = {"command": command}
    for key in _FACTS:
        facts[key] = "; ".join(dict.fromkeys(str(run[key]) for run in runs))
    own = image_lead(first["rows"], subject)
    at = next((i for i, words in enumerate(first["summary"]) if words in own), 0)
    words = [sentence for sentence in first["summary"] if sentence not in own]
    words[at:at] = image_lead(rows, subject)
    recipe = first["recipe"]
    paths = [folder / "masks.npz" for folder in folders]
    masks = joined_masks(paths) if all(path.is_file() for path in paths) else {}
    prepare_folder(out)
    check_same_preset(out, recipe["preset"])
    with all_or_nothing(out) as part:
        whole = {**first, **facts, "seconds": seconds, "summary": words, "rows": rows}
        whole["joined"] = [run["command"] for run in runs]
        (part / "results.json").write_text(to_json(whole), encoding="utf-8")
        tables = image_tables(rows, recipe["tolerance"], subject)
        write_tables(part, tables, facts, words, recipe["deviations"], title=subject.title)
        if masks:
            save_masks(part / "masks.npz", masks)
        for name in _PICTURES:
            source = folders[0] / name
            if source.is_dir():
                shutil.copytree(source, part / name)
            elif source.is_file():
                shutil.copy(source, part / name)
    return Reproduction(rows, words, out, seconds)


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "results.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = [key for key in (*_FACTS, *_CONTENT) if key not in found]
        missing += [key for row in found.get("rows", []) for key in _ROW if key not in row]
        if missing or not found["rows"]:
            raise ValueError(f"it lacks {missing[0] if missing else 'rows'}")
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(
            f"{folder} must hold the results.json of `unmasked reproduce mnist` or `cxr`, but it "
            f"cannot be read ({error})."
        ) from error
    return found


def _subject(folder: Path, run: dict[str, Any]) -> Subject:
    names = {row["dataset"] for row in run["rows"]}
    if len(names) != 1 or not names <= _SUBJECTS.keys():
        raise InputError(
            f"only tables of {' or '.join(_SUBJECTS)} can be joined, but {folder} is of "
            f"{', '.join(sorted(names)) or 'nothing'}."
        )
    return _SUBJECTS[names.pop()]


def _check(folders: list[Path], runs: list[dict[str, Any]]) -> None:
    if len(folders) < 2:
        raise InputError("joining needs two folders or more.")
    owners: dict[int, Path] = {}
    for folder, run in zip(folders, runs, strict=True):
        for words, what in (
            ("another recipe", lambda run: run["recipe"]),
            ("other images", lambda run: (run["images"], {row["dataset"] for row in run["rows"]})),
            ("other methods", lambda run: {row["method"] for row in run["rows"]}),
            ("other figures", lambda run: {key for row in run["rows"] for key in row["metrics"]}),
        ):
            if what(run) != what(runs[0]):
                raise InputError(
                    f"{folder} has {words} than {folders[0]}; join runs that differ in their "
                    "seeds alone."
                )
        for seed in sorted({row["seed"] for row in run["rows"]}):
            if seed in owners:
                raise InputError(
                    f"seed {seed} is in {owners[seed]} and in {folder}; give --first-seed when "
                    "running them."
                )
            owners[seed] = folder
