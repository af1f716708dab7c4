"""Tables from files, and their split into training, validation and test rows."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold, train_test_split

from unmasked.checks import check_labels
from unmasked.errors import DataWarning, InputError, MissingExtra
from unmasked.inputs.table import Columns, nearest

_LEAST_ROWS = 3  # of each class
_BINARY = "is a binary file, not a table; give a CSV or Parquet file"


@dataclass(frozen=True)
class TableSplit:
    """Feature columns and target of the three parts of a table."""

    target: str
    train: tuple[pd.DataFrame, pd.Series]
    valid: tuple[pd.DataFrame, pd.Series]
    test: tuple[pd.DataFrame, pd.Series]

    @property
    def balance(self) -> dict[str, float]:
        """The share of each class among all rows, the most frequent first."""
        y = pd.concat([part[1] for part in (self.train, self.valid, self.test)])
        return {str(name): float(v) for name, v in y.value_counts(normalize=True).items()}


def read_table(path: Path, text: Sequence[str] = (), *, as_written: bool = False) -> pd.DataFrame:
    """Read a CSV, TSV or Parquet file; anything else gets one clear sentence.

    ``text`` names columns to be read as they are written, so that 01 stays "01". ``as_written``
    reads all so, also what ; or tabs separate; holes are "", a name that comes twice stays.
    """
    if not path.exists():
        raise InputError(f"the table {path} does not exist; check the path.")
    if path.is_dir():
        raise InputError(f"the table {path} is a folder; name a CSV or Parquet file.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path, as_written=as_written)
    with open(path, "rb") as file:
        start = file.read(4096)
    if start[:4] == b"PAR1":
        return _parquet(path, as_written=as_written)
    if b"\0" in start:
        wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")
        what = "is written in UTF-16; save it as UTF-8" if wide else _BINARY
        raise InputError(f"{path} {what}.")
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        if as_written:
            table = _written(path, separator)
        else:
            table = _csv(path, separator, dtype=dict.fromkeys(text, str))
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{path} is empty; a table needs a header and rows.") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} must be written in UTF-8 but is not; save it as UTF-8."
        ) from error
    except pd.errors.ParserError as error:
        raise InputError(f"{path} {_misread(str(error))}") from error
    return _checked(table, path)


def _misread(said: str) -> str:
    """Say what is wrong with a CSV file, by what pandas says of it."""
    if ragged := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", said):
        expected, line, came = map(int, ragged.groups())
        return (
            f"must have {expected} cells in each line, as in those above, but line {line} has "
            f"{came}; correct it, or put cells that hold the separator into quotation marks."
        )
    if unclosed := re.search(r"EOF inside string starting at row (\d+)", said):
        return (
            f"has a quotation mark in line {int(unclosed[1]) + 1} that is never closed; close or "
            "remove it."
        )
    return f"cannot be read as a CSV table ({said.splitlines()[0]})."


def _csv(path: Path, separator: str, **options: Any) -> pd.DataFrame:
    """A CSV file, also one whose rows end with separators that its header does not have.

    Where rows have more cells than the header, pandas takes the first for the rows' names.
    """
    header, row = _first_lines(path, separator)
    table = pd.read_csv(path, sep=separator, **options)
    if len(row) <= len(header):
        return table
    written = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False)  # NA is no hole
    more, named = written.index.nlevels, written.shape[1]
    names: Any = written.index.to_frame(index=False)
    beyond = pd.concat([names, written.reset_index(drop=True)], axis=1).iloc[:, named:]
    if (beyond.isna() | (beyond == "")).all(axis=None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.ParserWarning)  # that they are left out
            return pd.read_csv(path, sep=separator, index_col=False, **options)
    if more == 1 and _row_numbers(table.index):  # as R writes them
        return table
    raise InputError(
        f"the rows of {path} have {named + more} cells but its header names {named}; name all "
        "columns in it, or remove what is beyond them."
    )


def _row_numbers(index: pd.Index) -> bool:
    numbers = [str(number) for number in range(len(index) + 1)]
    return [str(cell) for cell in index] in (numbers[1:], numbers[:-1])


def _written(path: Path, separator: str) -> pd.DataFrame:
    """All cells of a CSV file as they are written, whatever separates them."""
    header, _ = _first_lines(path, separator)
    if len(header) == 1:  # as spreadsheets write it in many countries
        separator = next((usual for usual in ("\t", ";") if usual in header[0]), separator)
        header, _ = _first_lines(path, separator)
    table = _csv(path, separator, dtype=str, keep_default_na=False)
    if len(header) == table.shape[1]:
        table.columns = [own or str(new) for own, new in zip(header, table.columns, strict=True)]
    return table


def _first_lines(path: Path, separator: str) -> tuple[list[str], list[str]]:
    """The cells of the header and of the first row, as they are written."""
    csv.field_size_limit(max(csv.field_size_limit(), path.stat().st_size))  # cells may be long
    with open(path, newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, delimiter=separator)
        filled = (cells for cells in lines if len(cells) > 1 or "".join(cells).strip())
        try:
            return next(filled, []), next(filled, [])
        except csv.Error:  # such as a cell without an end: pandas says what is wrong
            return [], []


def _parquet(path: Path, *, as_written: bool = False) -> pd.DataFrame:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra("pyarrow", "parquet", "reading Parquet files") from error
    try:
        table = pd.read_parquet(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        detail = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read as a Parquet table ({detail}).") from error
    if as_written:
        table = table.astype(object).where(table.notna(), "").astype(str)
    return _checked(table, path)


def _checked(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    table = table.reset_index(drop=True)
    table.columns = [str(name) for name in table.columns]
    if not len(table):
        raise InputError(
            f"{path} has {table.shape[1]} columns but no rows; give rows to learn from."
        )
    return table


def check_columns(X: pd.DataFrame) -> None:
    """Refuse what cannot be learned from, in any row, before hours are spent on the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        Columns.learn(X)


def check_parts(learned: pd.DataFrame, *others: pd.DataFrame) -> None:
    """Refuse rows that cannot be read by what the others teach, before hours are spent on those.

    Such as a single word in a column that holds numbers in all rows to learn from.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        columns = Columns.learn(learned)
        for other in others:
            columns.check(other)


def check_present(table: pd.DataFrame, target: str) -> None:
    """The target must be a column without holes."""
    if target not in table.columns:
        raise InputError(
            f"the table has no column {target!r}; {nearest(target, list(table.columns))}"
        )
    missing = int(table[target].isna().sum())
    if missing:
        raise InputError(f"the target {target!r} is missing in {missing:,} rows; drop these rows.")


def check_target(table: pd.DataFrame, target: str) -> None:
    """The target must be there, complete, and a class rather than a measurement."""
    check_present(table, target)
    if table.shape[1] < 2:
        raise InputError(f"the table has the target {target!r} only; it needs other columns too.")
    values = table[target]
    if values.nunique() < 2:
        raise InputError(
            f"the target {target!r} has one class only ({values.iloc[0]!r}); it needs at least two."
        )
    check_labels(values, f"the target {target!r}")


@dataclass(frozen=True)
class Roles:
    """Columns that are no features: what they say about the rows.

    id : a name for each row, no two alike, carried through to what is written.
    group : rows of one group, such as a patient, stay in one part.
    time : the earliest rows are for training and the latest for testing.
    drop : left out.
    """

    id: str | None = None
    group: str | None = None
    time: str | None = None
    drop: tuple[str, ...] = ()

    def check(self, table: pd.DataFrame, target: str | None) -> None:
        """Refuse columns that are not there, or that cannot be what they are to be."""
        if self.group is not None and self.time is not None:
            raise InputError(
                "--group keeps rows together and --time orders them, but both came; give one."
            )
        named = {"--id": self.id, "--group": self.group, "--time": self.time}
        for option, name in [*named.items(), *(("--drop", name) for name in self.drop)]:
            if name is None:
                continue
            if name not in table.columns:
                raise InputError(
                    f"{option} names the column {name!r}, which is not in the table; "
                    f"{nearest(name, list(table.columns))}"
                )
            if name == target:
                raise InputError(f"{option} names {name!r}, which is the target; name another.")
            missing = int(table[name].isna().sum())
            if missing and option != "--drop":
                raise InputError(
                    f"{option} names {name!r}, which is missing in {missing:,} rows; fill it in or "
                    "drop these rows."
                )
        if self.id is not None:
            twice = table[self.id][table[self.id].duplicated()]
            if len(twice):
                raise InputError(
                    f"--id names {self.id!r}, in which {twice.iloc[0]} comes more than once; "
                    "ids must differ."
                )

    def features(self, table: pd.DataFrame, target: str | None) -> pd.DataFrame:
        """Return the columns that are left to learn from, indexed by the ids if there are any."""
        names = {self.id, self.group, self.time, target, *self.drop} - {None}
        left = table.drop(columns=[name for name in table.columns if name in names])
        if not left.shape[1]:
            raise InputError(
                "the table has no columns besides those that are named as something else; it "
                "needs other columns to learn from."
            )
        if self.id is not None:
            left.index = pd.Index(table[self.id], name=self.id)
        return left


def split_table(
    table: pd.DataFrame, target: str, *, seed: int, roles: Roles | None = None
) -> TableSplit:
    """60% of the rows to train on, 20% to validate, 20% to test, classes in proportion.

    With a group column about so many, since groups stay whole; with a time column in its order,
    rows of one time together.
    """
    check_target(table, target)
    roles = roles or Roles()
    roles.check(table, target)
    X = roles.features(table, target)
    y = table[target].set_axis(X.index)
    if len(table) < 10:
        raise InputError(
            f"the table has {len(table)} rows but at least 10 are needed to train, validate and "
            "test."
        )
    rare = y.value_counts().loc[lambda counts: counts < _LEAST_ROWS]
    if len(rare):
        raise InputError(
            f"the class {rare.index[0]!r} of {target!r} has {rare.iloc[0]} row(s) but needs "
            f"{_LEAST_ROWS} to train, validate and test; drop these rows or merge classes."
        )
    if roles.group is not None:
        parts = _by_group(y, table[roles.group], roles.group, seed)
    elif roles.time is not None:
        parts = _by_time(y, table[roles.time], roles.time)
    else:
        rest, test = _part(y, 0.2, seed)
        train, valid = _part(y.iloc[rest], 0.25, seed)
        parts = [rest[train], rest[valid], test]
    return TableSplit(target, *((X.iloc[p], y.iloc[p]) for p in parts))


def _by_group(y: pd.Series, group: pd.Series, name: str, seed: int) -> list[np.ndarray]:
    """Whole groups in each part, classes in proportion as far as that goes."""
    groups, label = group.astype(str).to_numpy(), y.astype(str).to_numpy()
    count = len(set(groups))
    if count < 5:
        raise InputError(
            f"--group names {name!r}, which has {count} different values, but at least 5 groups "
            "are needed to train, validate and test."
        )
    rest, test = _fold(label, groups, 5, seed)
    train, valid = _fold(label[rest], groups[rest], 4, seed)
    parts = [rest[train], rest[valid], test]
    _check_classes(y, parts, f"groups of {name!r}")
    return parts


def _fold(
    label: np.ndarray, groups: np.ndarray, folds: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """One of so many folds apart from the others."""
    maker = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():  # a rare class is looked at below
        warnings.simplefilter("ignore", UserWarning)
        rest, held_out = next(iter(maker.split(np.zeros(len(label)), label, groups)))
    return rest, held_out


def _by_time(y: pd.Series, time: pd.Series, name: str) -> list[np.ndarray]:
    """The earliest rows to train on, the latest to test on; rows of one time stay together."""
    values = as_times(time, f"--time names {name!r}, which")
    rank = values.rank(method="dense").to_numpy(dtype=np.int64)  # 1, 2, … one for each time
    share = np.cumsum(np.bincount(rank)) / len(rank)  # of the rows up to each time
    first, second = (int(np.argmin(np.abs(share - cut))) for cut in (0.6, 0.8))
    parts = [
        np.flatnonzero(rank <= first),
        np.flatnonzero((rank > first) & (rank <= second)),
        np.flatnonzero(rank > second),
    ]
    _check_classes(y, parts, f"times of {name!r}")
    return parts


def as_times(values: pd.Series, what: str) -> pd.Series:
    """Numbers as they are, anything else as dates; ``what`` begins the sentence of an error."""
    if pd.api.types.is_numeric_dtype(values.dtype):
        return values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a format that pandas has to guess
        try:
            return pd.to_datetime(values)
        except (ValueError, TypeError) as error:
            unread = values[pd.to_datetime(values, errors="coerce", utc=True).isna()]
            wrong = (unread if len(unread) else values).iloc[0]
            raise InputError(
                f"{what} must hold numbers or dates but holds {wrong!r}; write dates as 2024-12-31."
            ) from error


def not_before(times: pd.Series, since: Any, what: str) -> np.ndarray:
    """Mark the times, as `as_times` gave them, that lie at ``since`` or later, (rows,) bool."""
    numeric = pd.api.types.is_numeric_dtype(times.dtype)
    try:
        if numeric:
            return (times >= float(since)).to_numpy()
        start = pd.Timestamp(since)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{what} must be a {'number' if numeric else 'date such as 2024-12-31'}, as the times "
            f"are, but is {since!r}."
        ) from error
    zone = times.dt.tz
    if zone is not None and start.tzinfo is None:
        start = start.tz_localize(zone)
    elif zone is None and start.tzinfo is not None:
        start = start.tz_localize(None)
    return (times >= start).to_numpy()


def _check_classes(y: pd.Series, parts: list[np.ndarray], what: str) -> None:
    for part, use in zip(parts, ("train", "validate", "test"), strict=True):
        found = y.iloc[part].nunique()
        if found < 2:
            raise InputError(
                f"the {what} leave {len(part)} rows of {found} class(es) to {use} on, but at least "
                "two classes are needed; use another column, or none."
            )


def _part(y: pd.Series, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    held_out = max(1, round(share * len(y)))
    counts = y.value_counts()
    fits = counts.min() >= 2 and len(counts) <= min(held_out, len(y) - held_out)
    one, other = train_test_split(
        np.arange(len(y)),
        test_size=held_out,
        random_state=seed,
        stratify=y.astype(str) if fits else None,
    )
    return np.sort(one), np.sort(other)
