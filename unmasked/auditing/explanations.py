"""Read explanations as they come: arrays, tables, files, and what SHAP, LIME and Captum return.

Nothing of those libraries is imported. What they return is known by its looks: a
``shap.Explanation`` has values and feature_names, LIME's has as_map(), Captum's is a tensor.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.errors import InputError, SavedError
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.targets import as_array
from unmasked.io.tables import read_table


@dataclass(frozen=True)
class Given:
    """One explanation as it came.

    values : (rows, features), 0/1 masks or attributions; (rows, features, classes) where
    attributions came for each class, NaN where a row has none for a class. features, ids : names
    of its columns and labels of its rows, where it has any. ranks : (rows, features) numbers that
    order the features of masks, if known. classes : what the third axis holds, where that is
    known: names of classes, or their numbers in the model's order. listed : how many features
    every row weighs, where the others merely have no weight.
    """

    name: str
    values: NDArray[Any]
    features: list[str] | None = None
    ids: NDArray[Any] | None = None
    ranks: NDArray[Any] | None = None
    classes: list[str] | list[int] | None = None
    listed: int | None = None


def numbers(name: str, thing: Any) -> NDArray[Any]:
    """Read numbers of shape (rows, features) or (rows, features, classes); refuse all else."""
    values = as_array(thing)
    if values.dtype == object:
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            values = np.asarray(None)
    if values.dtype.kind not in "biuf" or values.ndim not in (2, 3):
        shape = "" if values.ndim == 0 else f" of shape {values.shape}"
        raise InputError(
            f"explanation {name!r} must be a table of numbers (rows, features) but is a "
            f"{type(thing).__name__}{shape}."
        )
    if values.ndim == 3 and _are_interactions(values):
        raise InputError(
            f"explanation {name!r} holds interactions of {values.shape[1]} features with each "
            "other but one attribution for each feature is needed; sum them over the last axis."
        )
    return compact(values)


def _are_interactions(values: NDArray[Any]) -> bool:
    """Square and symmetric in every row, as SHAP's interaction values are."""
    rows, first, second = values.shape
    if first != second or first < 2 or not rows:
        return False
    some = values[:100]
    return bool(np.allclose(some, some.transpose(0, 2, 1)) and some.any())


def compact(values: NDArray[Any]) -> NDArray[Any]:
    """Zeros and ones as booleans: an eighth of the memory, for a million rows."""
    if values.dtype != bool and bool(np.isin(values, (0, 1)).all()):
        return values.astype(bool)
    return values


_LIME_OUTPUT = 1  # LIME calls a regression's one output 1, and its negative 0


def is_shap(thing: Any) -> bool:
    """A ``shap.Explanation``, or what looks like one."""
    values = getattr(thing, "values", None)
    return (
        values is not None
        and not callable(values)
        and hasattr(thing, "feature_names")
        and not isinstance(thing, pd.DataFrame | pd.Series)
    )


def from_shap(name: str, thing: Any) -> Given:
    """Its values, (rows, features) or (rows, features, outputs), with the names that it carries.

    SHAP names outputs "Output 0", "Output 1", … where it knows no better; those are no names.
    """
    values = numbers(name, thing.values)
    features = _names(getattr(thing, "feature_names", None), values.shape[1])
    outputs = None
    if values.ndim == 3:
        outputs = _names(getattr(thing, "output_names", None), values.shape[2])
        if outputs == [f"Output {i}" for i in range(values.shape[2])]:
            outputs = None
    return Given(name, values, features, classes=outputs)


def _names(names: Any, count: int) -> list[str] | None:
    if names is None or isinstance(names, str) or len(names) != count:
        return None
    return [str(one) for one in names]


def is_lime(thing: Any) -> bool:
    """LIME's explanation of one row."""
    return callable(getattr(thing, "as_map", None))


def from_lime(name: str, rows: Sequence[Any], width: int) -> Given:
    """LIME's weights, (rows, features), 0 for features that it left out.

    Where rows were explained for several classes there is a third axis, with NaN where a row has
    no weights for a class. Where each was explained for one class alone (its likeliest, with
    top_labels=1) there is none. A regression has one output.
    """
    maps = [_weights(row) for row in rows]
    labels = sorted({label for found in maps for label in found})
    single = all(len(found) == 1 for found in maps)
    values = np.full((len(rows), width, 1 if single else len(labels)), np.nan)
    for i, found in enumerate(maps):
        for label, pairs in found.items():
            place = 0 if single else labels.index(label)
            values[i, :, place] = 0
            for feature, weight in pairs:
                if not 0 <= feature < width:
                    raise InputError(
                        f"explanation {name!r} names feature {feature} but the table has {width} "
                        "features; LIME must have explained its numeric columns as they are."
                    )
                values[i, feature, place] = weight
    listed = min((len(pairs) for found in maps for pairs in found.values()), default=0)
    if _is_regression(rows[0]) or (single and len(labels) > 1):
        return Given(name, values[:, :, 0], listed=listed)
    return Given(name, values, classes=_lime_classes(rows[0], labels), listed=listed)


def _weights(row: Any) -> dict[int, list[tuple[int, float]]]:
    """For each explained label, pairs of feature and weight."""
    found = {
        int(label): [(int(feature), float(weight)) for feature, weight in pairs]
        for label, pairs in row.as_map().items()
    }
    return {_LIME_OUTPUT: found[_LIME_OUTPUT]} if _is_regression(row) else found


def _is_regression(row: Any) -> bool:
    return getattr(row, "mode", "classification") == "regression"


def _lime_classes(row: Any, labels: list[int]) -> list[str] | list[int]:
    """LIME's names of some labels; their numbers where it was given no names and counts them."""
    names = getattr(row, "class_names", None)
    if names is None or [str(n) for n in names] == [str(i) for i in range(len(names))]:
        return labels
    return [str(names[label]) for label in labels]


def is_captum(thing: Any) -> bool:
    """A tuple as Captum returns it: of tensors, or of such a tuple and the convergence delta."""
    return isinstance(thing, tuple) and len(thing) > 0 and all(map(_is_tensors, thing))


def from_captum(name: str, thing: tuple[Any, ...]) -> Given:
    """The attributions of a model's one input; a convergence delta beside them is left out."""
    first, *others = thing
    if len(others) == 1 and np.ndim(others[0]) == 1 and not _is_vector(first):
        return from_captum(name, first if isinstance(first, tuple) else (first,))
    if others:
        raise InputError(
            f"explanation {name!r} has {len(thing)} tensors, one for each input of the model, "
            "but one table is needed; join them with torch.cat(tensors, 1)."
        )
    return Given(name, numbers(name, first))


def _is_vector(thing: Any) -> bool:
    return not isinstance(thing, tuple) and np.ndim(thing) == 1


def _is_tensors(thing: Any) -> bool:
    if isinstance(thing, tuple):
        return len(thing) > 0 and all(map(_is_tensors, thing))
    return hasattr(thing, "detach")


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
    """Return true if an index merely counts its rows: 0, 1, 2, …"""
    return index.dtype.kind in "iu" and bool(np.array_equal(index, np.arange(len(index))))


def _positions(columns: list[str]) -> bool:
    """Return true if column names merely count: 0, 1, 2, …, as pandas names an array's."""
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
