"""Explanations as they come: arrays, tables, files, and what SHAP, LIME and Captum return."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.auditing.given import Given, compact, numbers
from unmasked.auditing.libraries import (
    from_captum,
    from_lime,
    from_shap,
    is_captum,
    is_lime,
    is_shap,
)
from unmasked.data.tables import read_table
from unmasked.errors import InputError, SavedError
from unmasked.explanation import Explanation
from unmasked.targets import as_array

ROW_COLUMN = "row"
"""The column of row numbers in masks that ``unmasked explain`` writes."""
_ARRAYS = ("masks", "values", "attributions", "arr_0")
_TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")


def read_all(
    explanations: Any, features: Sequence[str], *, id_column: str | None = None
) -> list[Given]:
    """All explanations with their names: a mapping, a list or a single one."""
    if isinstance(explanations, Mapping):
        named = [(str(name), thing) for name, thing in explanations.items()]
    elif _is_several(explanations):
        named = [(_own_name(thing, i), thing) for i, thing in enumerate(explanations)]
    else:
        named = [(_own_name(explanations, 0), explanations)]
    if not named:
        raise InputError("at least one explanation is needed to audit but none came; give masks.")
    names = [name for name, _ in named]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"two explanations are called {twice!r}; give each a name of its own, as NAME=FILE or "
            "in a dictionary."
        )
    return [read_one(name, thing, features, id_column=id_column) for name, thing in named]


def read_one(
    name: str, thing: Any, features: Sequence[str], *, id_column: str | None = None
) -> Given:
    """One explanation in any of the forms that are understood."""
    if isinstance(thing, str | Path):
        return _file(name, Path(thing), features, id_column)
    if isinstance(thing, Explanation):
        return _explanation(name, thing)
    if isinstance(thing, pd.DataFrame):
        return _frame(name, thing, features, id_column)
    if is_lime(thing):
        thing = [thing]
    if _is_lime_rows(thing):
        return from_lime(name, thing, len(features))
    if is_shap(thing):
        return from_shap(name, thing)
    if is_captum(thing):
        return from_captum(name, thing)
    if isinstance(thing, list) and thing and all(np.ndim(as_array(t)) == 2 for t in thing):
        return Given(name, np.stack([numbers(name, t) for t in thing], axis=-1))
    return Given(name, numbers(name, thing))


def _is_several(explanations: Any) -> bool:
    """A list of explanations, rather than one that came as a list (numbers, LIME's, a tuple)."""
    if not isinstance(explanations, list) or _is_lime_rows(explanations):
        return False
    return all(
        isinstance(one, str | Path | Explanation | pd.DataFrame)
        or is_shap(one)
        or is_captum(one)
        or _is_lime_rows(one)
        or np.ndim(as_array(one)) >= 2
        for one in explanations
    )


def _is_lime_rows(thing: Any) -> bool:
    """LIME's explanations of several rows, which are one explanation of a table."""
    return isinstance(thing, list | tuple) and bool(thing) and all(map(is_lime, thing))


def _own_name(thing: Any, number: int) -> str:
    if isinstance(thing, str | Path):
        return Path(thing).stem
    if isinstance(thing, Explanation) and "method" in thing.about:
        return str(thing.about["method"])
    return f"explanation {number + 1}"


def _explanation(name: str, thing: Explanation) -> Given:
    if thing.pixels is not None:
        raise InputError(
            f"explanation {name!r} is of images but the audit is of tables; give masks of columns."
        )
    features = thing.feature_names
    unnamed = features == [f"x{i + 1}" for i in range(len(features))]
    ranks = None if np.isin(thing.probabilities, (0, 1)).all() else thing.probabilities
    return Given(name, thing.masks, None if unnamed else list(features), thing.index, ranks)


def _frame(name: str, frame: pd.DataFrame, features: Sequence[str], id_column: str | None) -> Given:
    """A table with an id column, or row labels in its index."""
    frame = frame.rename(columns=str)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError(
            f"explanation {name!r} has the column {twice[0]!r} twice; rename or drop one."
        )
    ids: NDArray[Any] | None = None
    found = _id_column(frame, features, id_column)
    if found is not None:
        ids = frame[found].to_numpy()
        frame = frame.drop(columns=found)
    elif not _plain(frame.index):
        ids = frame.index.to_numpy()
    numbers = all(pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes)
    if not numbers:
        text = next(n for n in frame.columns if not pd.api.types.is_numeric_dtype(frame[n].dtype))
        raise InputError(
            f"explanation {name!r} must hold numbers but its column {text!r} holds text; if it "
            "labels the rows, name it with id (--id)."
        )
    names = None if _positions(list(frame.columns)) else list(frame.columns)
    kinds = set(frame.dtypes)
    values = frame.to_numpy(dtype=bool if kinds == {np.dtype(bool)} else np.float64)
    return Given(name, compact(values), names, ids)


def _id_column(frame: pd.DataFrame, features: Sequence[str], asked: str | None) -> str | None:
    if asked is not None and asked in frame.columns:
        return asked
    known = set(features)
    for column in (ROW_COLUMN, "Unnamed: 0"):
        if asked is None and column in frame.columns and column not in known:
            return column
    return None


def _plain(index: pd.Index) -> bool:
    """Whether an index only counts: 0, 1, 2, …"""
    return index.dtype.kind in "iu" and bool(np.array_equal(index, np.arange(len(index))))


def _positions(columns: list[str]) -> bool:
    """Whether column names only count: 0, 1, 2, …, as pandas names an array's."""
    return columns == [str(i) for i in range(len(columns))]


# ---------------------------------------------------------------------- files


def _file(name: str, path: Path, features: Sequence[str], id_column: str | None) -> Given:
    if not path.is_file():
        raise InputError(f"the masks {path} are not a file; check the path.")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return Given(name, numbers(name, _array(path)))
    if suffix == ".npz":
        return _archive(name, path)
    if suffix not in _TABLES:
        raise InputError(
            f"the masks {path} must be a .csv, .tsv, .parquet, .npy or .npz file but end in "
            f"{suffix or 'nothing'!r}."
        )
    if suffix in (".parquet", ".pq"):
        frame = read_table(path)
        frame.index = pd.read_parquet(path, columns=[]).index
        return _frame(name, frame, features, id_column)
    header = check_header(path)
    if _all_numbers(header) and not _positions(header):  # no names: the first line is a row
        separator = "\t" if suffix == ".tsv" else ","
        plain = pd.read_csv(path, header=None, sep=separator)
        return _frame(name, plain, features, None)
    return _frame(name, read_table(path), features, id_column)


def check_header(path: Path) -> list[str]:
    """The first line's cells; a name that comes twice is refused (pandas would rename it)."""
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file, delimiter=separator), [])
    except UnicodeDecodeError:
        return []  # read_table says what is wrong
    header = [cell.strip() for cell in header]
    twice = next((cell for cell in header if cell and header.count(cell) > 1), None)
    if twice is not None and not _all_numbers(header):
        raise InputError(f"{path} has the column {twice!r} twice; rename or drop one.")
    return header


def _all_numbers(cells: list[str]) -> bool:
    try:
        return bool(cells) and all(np.isfinite(float(cell)) for cell in cells)
    except ValueError:
        return False


def _array(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{path} cannot be read as a numpy file of numbers; write it with numpy.save."
        ) from error


def _archive(name: str, path: Path) -> Given:
    """One of our own explanations, or an archive with an array of numbers in it."""
    try:
        with np.load(path, allow_pickle=False) as file:
            parts = {key: file[key] for key in file.files}
    except Exception as error:  # zip, zlib and numpy have a dozen ways to fail
        raise InputError(
            f"{path} cannot be read as a numpy archive of numbers; write it with numpy.savez."
        ) from error
    if "header" in parts:
        try:
            return _explanation(name, Explanation.load(path))
        except SavedError as error:
            raise InputError(f"explanation {name!r}: {error}") from error
    key = next((k for k in _ARRAYS if k in parts), None)
    if key is None and len(parts) == 1:
        key = next(iter(parts))
    if key is None:
        raise InputError(
            f"{path} holds {', '.join(map(repr, parts)) or 'nothing'} but one array called "
            "'masks' or 'values' is needed."
        )
    names = parts.get("feature_names")
    ids = next((parts[k] for k in ("index", "ids") if k in parts), None)
    return Given(
        name,
        numbers(name, parts[key]),
        None if names is None else [str(n) for n in names],
        ids,
    )
