"""The job behind ``unmasked audit``: a table, files of masks, an answer in words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from unmasked.auditing.api import plan
from unmasked.auditing.explanations import ROW_COLUMN, check_header
from unmasked.auditing.model import load_model
from unmasked.auditing.page import markdown, page
from unmasked.auditing.result import FILES, AuditResult
from unmasked.auditing.settings import AuditSettings
from unmasked.errors import InputError
from unmasked.inputs.table import nearest
from unmasked.io.output_folder import (
    CHECKPOINTS,
    all_or_nothing,
    prepare_folder,
    provenance,
    remove_checkpoints,
    to_json,
)
from unmasked.io.tables import Roles, as_times, check_present, check_target, read_table
from unmasked.training.progress import Show


def audit_table(
    path: Path,
    target: str | None,
    masks: Sequence[str],
    folder: Path,
    *,
    roles: Roles | None = None,
    since: str | None = None,
    model: Path | None = None,
    trust: bool = False,
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
    """Audit files of masks; returns the result and the content of results.json.

    target : the column of labels; without one, ``model``'s likeliest classes are the labels.
    model : a file of the explained model; trust : whether it may hold any code.
    since : audit rows of this time (of ``roles.time``) or later.
    """
    files = _named(masks)
    table = _read(path, target)
    roles = Roles() if roles is None else roles
    id_column = roles.id
    if roles.id == ROW_COLUMN and ROW_COLUMN not in table.columns:
        roles = replace(roles, id=None)  # masks that ``unmasked explain`` wrote count the rows
    if since is not None and roles.time is None:
        raise InputError(
            "--since says from which time on rows are audited, but which column holds the time is "
            "not known; give --time too."
        )
    roles.check(table, target)
    X = roles.features(table, target).reset_index(drop=True)
    times = None
    if roles.time is not None:
        times = as_times(table[roles.time], f"--time names {roles.time!r}, which")
    work = plan(
        files,
        X,
        None if target is None else table[target],
        top=top,
        fraction=fraction,
        of_class=of_class,
        signed=signed,
        model=None if model is None else load_model(model, trust=trust),
        groups=None if roles.group is None else table[roles.group],
        times=times,
        since=since,
        ids=None if roles.id is None else table[roles.id],
        train=None if train is None else _training(train, target, list(X.columns)),
        rest=rest,
        settings=settings,
        checkpoint=folder / CHECKPOINTS,
        random_state=seed,
        id_column=id_column,
    )
    prepare_folder(folder, writes=FILES)
    result = work.run(show)
    inputs = {path.name: path, **files} | ({} if model is None else {"model": model})
    results = {
        **provenance(command),
        "table": path.name,
        "target": target,
        "roles": {name: value for name, value in asdict(roles).items() if value},
        "inputs": {name: _digest(file) for name, file in inputs.items()},
        **result.to_json(),
    }
    what = "the model's prediction" if target is None else target
    title = f"Audit of explanations of {what} in {path.name}"
    with all_or_nothing(folder) as part:
        (part / "results.json").write_text(to_json(results), encoding="utf-8")
        (part / "report.html").write_text(page(result, title, results), encoding="utf-8")
        (part / "summary.md").write_text(markdown(result, title, results), encoding="utf-8")
    remove_checkpoints(folder)
    return result, results


def _read(path: Path, target: str | None) -> pd.DataFrame:
    table = read_table(path)
    if path.suffix.lower() not in (".parquet", ".pq"):
        check_header(path)
    if target is None:
        return table
    check_present(table, target)
    values = table[target]
    if len(values) > 1 and values.is_unique:
        raise InputError(
            f"the target {target!r} has another value in every one of the {len(values):,} rows "
            "and looks like an identifier; name the column to predict."
        )
    check_target(table, target)
    return table


def _training(
    path: Path, target: str | None, features: list[str]
) -> tuple[pd.DataFrame, pd.Series[Any] | None]:
    table = read_table(path)
    if target is not None:
        check_present(table, target)
    missing = [name for name in features if name not in table.columns]
    if missing:
        raise InputError(
            f"the training rows {path} lack the column {missing[0]!r}; "
            f"{nearest(missing[0], list(table.columns))}"
        )
    return table[features], None if target is None else table[target]


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
