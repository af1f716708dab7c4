"""The job behind ``unmasked audit``: a table, files of masks, an answer in words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from unmasked.auditing.page import markdown, page
from unmasked.auditing.plan import plan
from unmasked.auditing.reading import ROW_COLUMN, check_header
from unmasked.auditing.result import AuditResult
from unmasked.auditing.settings import AuditSettings
from unmasked.columns import nearest
from unmasked.data.tables import check_present, check_target, read_table
from unmasked.engine.progress import Show
from unmasked.errors import InputError
from unmasked.report.results import (
    CHECKPOINTS,
    all_or_nothing,
    prepare_folder,
    provenance,
    remove_checkpoints,
    to_json,
)


def audit_table(
    path: Path,
    target: str,
    masks: Sequence[str],
    folder: Path,
    *,
    id_column: str | None = None,
    group: str | None = None,
    drop: Sequence[str] = (),
    train: Path | None = None,
    rest: Any = None,
    top: list[int] | None = None,
    fraction: list[float] | None = None,
    of_class: str | None = None,
    signed: bool = False,
    settings: AuditSettings | None = None,
    seed: int = 0,
    show: Show = "auto",
    command: str = "unmasked audit",
) -> tuple[AuditResult, dict[str, Any]]:
    """Audit files of masks; returns the result and the content of results.json."""
    files = _named(masks)
    table = _read(path, target)
    other = [name for name in (id_column, group) if name is not None and name != ROW_COLUMN]
    for name in [*other, *drop]:
        if name not in table.columns:
            raise InputError(
                f"the table has no column {name!r}; {nearest(name, list(table.columns))}"
            )
        if name == target:
            raise InputError(f"the column {name!r} is the target; name another column.")
    ids = table[id_column] if id_column in table.columns else None
    aside = {target, *other, *drop}
    X = table[[name for name in table.columns if name not in aside]]
    if not X.shape[1]:
        raise InputError("the table has no feature columns besides the named ones; give some.")
    work = plan(
        files,
        X,
        table[target],
        top=top,
        fraction=fraction,
        of_class=of_class,
        signed=signed,
        model=None,
        groups=None if group is None else table[group],
        ids=ids,
        train=None if train is None else _training(train, target, list(X.columns)),
        rest=rest,
        settings=settings,
        checkpoint=folder / CHECKPOINTS,
        random_state=seed,
        id_column=id_column,
    )
    prepare_folder(folder)
    result = work.run(show)
    results = {
        **provenance(command),
        "table": path.name,
        "target": target,
        "inputs": {name: _digest(file) for name, file in {path.name: path, **files}.items()},
        **result.to_json(),
    }
    title = f"Audit of explanations of {target} in {path.name}"
    with all_or_nothing(folder) as part:
        (part / "results.json").write_text(to_json(results), encoding="utf-8")
        (part / "report.html").write_text(page(result, title, results), encoding="utf-8")
        (part / "summary.md").write_text(markdown(result, title, results), encoding="utf-8")
    remove_checkpoints(folder)
    return result, results


def _read(path: Path, target: str) -> pd.DataFrame:
    table = read_table(path)
    if path.suffix.lower() not in (".parquet", ".pq"):
        check_header(path)
    check_present(table, target)
    values = table[target]
    if len(values) > 1 and values.is_unique:
        raise InputError(
            f"the target {target!r} has another value in every one of the {len(values):,} rows "
            "and looks like an identifier; name the column to predict."
        )
    check_target(table, target)
    return table


def _training(path: Path, target: str, features: list[str]) -> tuple[pd.DataFrame, pd.Series[Any]]:
    table = read_table(path)
    check_present(table, target)
    missing = [name for name in features if name not in table.columns]
    if missing:
        raise InputError(
            f"the training rows {path} lack the column {missing[0]!r}; "
            f"{nearest(missing[0], list(table.columns))}"
        )
    return table[features], table[target]


def _named(masks: Sequence[str]) -> dict[str, Path]:
    """FILE, called by its stem, or NAME=FILE."""
    found: dict[str, Path] = {}
    for text in masks:
        name, separator, file = text.partition("=")
        path = Path(text)
        if separator and name and not path.exists():
            path = Path(file)
        else:
            name = path.stem
        if name in found:
            raise InputError(
                f"two files of masks are called {name!r}; give one another name, as NAME=FILE."
            )
        found[name] = path
    if not found:
        raise InputError("at least one file of masks is needed; give --masks FILE.")
    return found


def _digest(path: Path) -> dict[str, str]:
    with open(path, "rb") as file:
        return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
