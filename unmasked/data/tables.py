"""Tables from files, and their split into training, validation and test rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from unmasked.columns import Columns, nearest
from unmasked.errors import DataWarning, InputError, MissingExtra

_LEAST_ROWS = 3  # of each class
_MANY_NUMBERS = 20  # more different numbers than this in a target look like a measurement


@dataclass(frozen=True)
class TableSplit:
    """Feature columns and target of the three parts of a table."""

    target: str
    train: tuple[pd.DataFrame, pd.Series]
    valid: tuple[pd.DataFrame, pd.Series]
    test: tuple[pd.DataFrame, pd.Series]


def read_table(path: Path, text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a CSV, TSV or Parquet file; anything else gets one clear sentence.

    ``text`` names columns to be read as they are written, so that 01 stays "01".
    """
    if not path.exists():
        raise InputError(f"the table {path} does not exist; check the path.")
    if path.is_dir():
        raise InputError(f"the table {path} is a folder; name a CSV or Parquet file.")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path)
    with open(path, "rb") as file:
        start = file.read(4096)
    if start[:4] == b"PAR1":
        return _parquet(path)
    if b"\0" in start:
        raise InputError(f"{path} is a binary file, not a table; give a CSV or Parquet file.")
    try:
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        table = pd.read_csv(path, sep=separator, dtype=dict.fromkeys(text, str))
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{path} is empty; a table needs a header and rows.") from error
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        detail = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read as a CSV table ({detail}).") from error
    return _checked(table, path)


def _parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtra("pyarrow", "parquet", "reading Parquet files") from error
    try:
        table = pd.read_parquet(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        detail = str(error).splitlines()[0]
        raise InputError(f"{path} cannot be read as a Parquet table ({detail}).") from error
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
    missing = X.isna().sum()
    missing = missing[missing > 0]
    if len(missing):
        named = ", ".join(f"{name!r} has {count:,}" for name, count in list(missing.items())[:5])
        more = f" and {len(missing) - 5} more columns" if len(missing) > 5 else ""
        raise InputError(
            f"missing values are not supported yet, but column {named} missing{more}; fill them in "
            "or drop these rows."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        Columns.learn(X)


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
    different = values.nunique()
    if different < 2:
        raise InputError(
            f"the target {target!r} has one class only ({values.iloc[0]!r}); it needs at least two."
        )
    numeric = pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(
        values.dtype
    )
    if numeric and different > _MANY_NUMBERS and different > 0.05 * len(values):
        raise InputError(
            f"the target {target!r} has {different:,} different numbers and looks like a "
            "measurement; only classes can be explained, so cut it into ranges first."
        )
    if not numeric and different > 0.5 * len(values):
        raise InputError(
            f"the target {target!r} has {different:,} different values in {len(values):,} rows "
            "and looks like an identifier; name the column to predict."
        )


def split_table(table: pd.DataFrame, target: str, *, seed: int) -> TableSplit:
    """60% of the rows to train on, 20% to validate, 20% to test, classes in proportion."""
    check_target(table, target)
    X, y = table.drop(columns=target), table[target]
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
    rest, test = _part(y, 0.2, seed)
    train, valid = _part(y.iloc[rest], 0.25, seed)
    parts = [rest[train], rest[valid], test]
    return TableSplit(target, *((X.iloc[p], y.iloc[p]) for p in parts))


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
