"""``unmasked reproduce join``: seeds, or methods, of an image table run apart, as one table."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmasked.errors import InputError
from unmasked.report.results import all_or_nothing, prepare_folder, to_json
from unmasked.reproduce.folder import check_same_run, run_digest
from unmasked.reproduce.imagemasks import joined_masks, save_masks
from unmasked.reproduce.imageresults import FACTS, read_results
from unmasked.reproduce.images import PICTURES, WRITES
from unmasked.reproduce.imagetables import comparable, image_lead, image_tables, sentences
from unmasked.reproduce.render import write_tables
from unmasked.reproduce.rows import Reproduction
from unmasked.reproduce.subjects import CXR, MNIST, REFERENCES, Subject

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
    """What tells one of the runs joined from others, also where an earlier version wrote it."""
    seeds = sorted({row["seed"] for row in run["rows"]})
    return run_digest(run["recipe"], run["images"], sorted(_methods(run)), seeds)


def _places(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Where the selections of all methods lie, as far as they are of the same seed."""
    seed = runs[0]["rows"][0]["seed"]
    like = [run["places"] for run in runs if "places" in run and run["rows"][0]["seed"] == seed]
    methods = {name: found for places in like for name, found in places["methods"].items()}
    return {**like[0], "methods": methods}


def _words(runs: list[dict[str, Any]], rows: list[dict[str, Any]], subject: Subject) -> list[str]:
    """What was found in all rows, among what else the runs say, each sentence once."""
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
    """What made a run, or what made the runs of which it was joined."""
    return list(run.get("joined", [run["command"]]))


def _methods(run: dict[str, Any]) -> set[str]:
    """What is compared with FULL and, where it is known, the truth."""
    return {row["method"] for row in run["rows"]} - set(REFERENCES)


def _references(run: dict[str, Any]) -> dict[tuple[str, int], Any]:
    """What FULL and both evaluators say of whole images, and evaluators of the truth: other
    networks say something else."""
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
