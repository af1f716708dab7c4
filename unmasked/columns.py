"""What is known about a table's columns: names, kinds, statistics, and which feature each is.

`Columns` turns a table into the standardised numeric matrix that networks take. A numeric column
becomes one standardised column. A column of text, categories or truth values becomes one column
per category, and stays *one* feature: its columns are shown or hidden together.

Missing is a value. A column that had missing values in training becomes one column more, 1 where
the value is missing, of the same feature: shown, it says that the value is missing; hidden, it
says nothing, so a missing value that is shown is never taken for a hidden one.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from unmasked.checks import is_whole
from unmasked.errors import DataWarning, InputError

GroupSpec = Mapping[str, Sequence[Any]] | Sequence[Sequence[Any]]
_MOST_CATEGORIES = 100
_NORMAL, _LUMP = 0.97, 0.3


@dataclass(frozen=True)
class Column:
    """One column of the user's table."""

    name: str
    mean: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] | None = None
    missing: bool = False
    """Whether training rows lacked a value: then the last matrix column says where."""
    cuts: tuple[float, ...] = ()
    """Edges of bins, in units of the matrix, where a number is far from normally distributed."""

    @property
    def width(self) -> int:
        """How many columns of the matrix it becomes."""
        return (1 if self.categories is None else len(self.categories)) + self.missing


@dataclass(frozen=True)
class Columns:
    """The columns of a fitted table, and the feature that each belongs to.

    Attributes
    ----------
    columns : one entry per column of the user's table.
    features : names of the features, in order.
    feature_of : for each column of the table, the number of its feature.
    """

    columns: tuple[Column, ...]
    features: tuple[str, ...]
    feature_of: tuple[int, ...]

    @classmethod
    def learn(cls, table: pd.DataFrame, groups: GroupSpec | None = None) -> Columns:
        """Read kinds and statistics off the training rows."""
        columns = []
        constant = []
        for name in table.columns:
            values = table[name]
            missing = bool(values.isna().any())
            if missing and values.isna().all():
                raise InputError(
                    f"column {str(name)!r} has no value in any training row; drop the column."
                )
            if is_categorical(values):
                column = _categorical(str(name), values)
                if column.width < 2:
                    constant.append(str(name))
            else:
                numbers = _numbers(str(name), values)
                numbers = numbers[~np.isnan(numbers)]
                with np.errstate(over="ignore"):
                    scale = float(numbers.std())
                if not np.isfinite(scale):
                    raise InputError(
                        f"column {str(name)!r} holds values as large as "
                        f"{np.abs(numbers).max():.3g}, too large to standardise; rescale it."
                    )
                if scale <= 1e-12 * max(1.0, float(np.abs(numbers).max())):
                    if not missing:
                        constant.append(str(name))
                    scale = 1.0
                mean = float(numbers.mean())
                cuts = bin_edges((numbers - mean) / scale)
                column = Column(str(name), mean, scale, missing=missing, cuts=cuts)
            columns.append(column)
        if constant:
            warnings.warn(
                f"{_some(constant)} {'is' if len(constant) == 1 else 'are'} constant in the "
                "training rows: kept, but it can explain nothing.",
                DataWarning,
                stacklevel=4,
            )
        names = [column.name for column in columns]
        features, feature_of = _assign(names, groups)
        return cls(tuple(columns), features, feature_of)

    @property
    def index(self) -> tuple[int, ...]:
        """For each column of the *matrix*, the number of its feature."""
        return tuple(
            feature
            for column, feature in zip(self.columns, self.feature_of, strict=True)
            for _ in range(column.width)
        )

    @property
    def plain(self) -> bool:
        """Whether every matrix column is a feature of its own, in order."""
        return self.index == tuple(range(len(self.index)))

    def matrix(self, table: pd.DataFrame) -> NDArray[np.float32]:
        """The table as standardised numbers, (rows, matrix columns)."""
        parts: list[NDArray[Any]] = []
        for position, column in enumerate(self.columns):
            values = table.iloc[:, position]
            lacks = values.isna().to_numpy(dtype=bool)
            if lacks.any() and not column.missing:
                warnings.warn(
                    f"column {column.name!r} has {int(lacks.sum()):,} missing values but had none "
                    "in training: treated as "
                    + ("the mean." if column.categories is None else "none of the known values."),
                    DataWarning,
                    stacklevel=4,
                )
            if column.categories is None:
                if is_categorical(values):
                    raise InputError(
                        f"column {column.name!r} held numbers in training but holds text now; "
                        "give the same kind of table."
                    )
                numbers = _numbers(column.name, values)
                numbers = np.where(lacks, 0.0, (numbers - column.mean) / column.scale)
                parts.append(numbers[:, None])
            else:
                parts.append(_one_hot(column, values))
            if column.missing:
                parts.append(lacks[:, None])
        if not parts:
            return np.zeros((len(table), 0), dtype=np.float32)
        return np.concatenate(parts, axis=1, dtype=np.float32)

    @property
    def numeric(self) -> dict[int, tuple[float, ...]]:
        """{matrix column: its `Column.cuts`} of those that hold numbers."""
        starts = np.cumsum([0, *(column.width for column in self.columns)])
        return {
            int(start): column.cuts
            for column, start in zip(self.columns, starts, strict=False)
            if column.categories is None
        }

    @property
    def lacking(self) -> tuple[int, ...]:
        """The matrix columns that say where a value is missing."""
        ends = np.cumsum([column.width for column in self.columns])
        return tuple(
            int(end) - 1 for column, end in zip(self.columns, ends, strict=True) if column.missing
        )

    def to_config(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "columns": [
                {
                    "name": c.name,
                    "mean": c.mean,
                    "scale": c.scale,
                    "categories": None if c.categories is None else list(c.categories),
                    "missing": c.missing,
                    "cuts": list(c.cuts),
                }
                for c in self.columns
            ],
            "features": list(self.features),
            "feature_of": list(self.feature_of),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Columns:
        """The inverse of `to_config`."""
        columns = tuple(
            Column(
                c["name"],
                float(c["mean"]),
                float(c["scale"]),
                None if c["categories"] is None else tuple(c["categories"]),
                bool(c.get("missing", False)),
                tuple(c.get("cuts", ())),
            )
            for c in config["columns"]
        )
        return cls(columns, tuple(config["features"]), tuple(config["feature_of"]))


def bin_edges(values: NDArray[np.float64], bins: int = 16) -> tuple[float, ...]:
    """Cut numbers that are far from normally distributed at their quantiles.

    Where one value takes more than 30% of the rows, the others are cut at quantiles of their own
    as well. Numbers near a normal distribution (a squared correlation of 0.97 with its quantiles),
    and those with two values, need no bins.

    >>> bin_edges(np.array([0.0, 0.0, 1.0, 1.0]))
    ()
    >>> bin_edges(np.array([0.0, 0.0, 0.0, 1.0, 2.0, 40.0]), bins=2)
    (0.0, 0.5, 1.0, 2.0, 40.0)
    """
    different, counts = np.unique(values, return_counts=True)
    if len(different) <= 2:
        return ()
    ranks = (np.cumsum(counts) - counts / 2) / len(values)
    normal = norm.ppf(np.clip(ranks, 1e-3, 1 - 1e-3))
    if _correlation(different, normal, counts) ** 2 >= _NORMAL:
        return ()
    shares = np.linspace(0, 1, bins + 1)
    edges = np.quantile(values, shares)
    mode = counts.argmax()
    if counts[mode] > _LUMP * len(values):
        edges = np.concatenate([edges, np.quantile(values[values != different[mode]], shares)])
    return tuple(float(edge) for edge in np.unique(edges))


def _correlation(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.int64]
) -> float:
    covariance = np.cov(x, y, aweights=weights)
    return float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))


def is_categorical(values: pd.Series[Any]) -> bool:
    """Text, categories and truth values are categorical; numbers are not."""
    kind = values.dtype
    if isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(kind):
        return True
    if pd.api.types.is_object_dtype(kind):
        return any(isinstance(value, str | bool) for value in values.head(1000))
    return pd.api.types.is_string_dtype(kind)


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint for a name that is not among the known ones.

    >>> nearest("outcom", ["age", "outcome"])
    "did you mean 'outcome'?"
    """
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if not close:  # people also get the case wrong
        close = [k for k in known if k.lower() == name.lower()][:1]
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are: {_some(list(known))}."


def _numbers(name: str, values: pd.Series[Any]) -> NDArray[np.float64]:
    if pd.api.types.is_datetime64_any_dtype(values.dtype) or isinstance(
        values.dtype, pd.PeriodDtype
    ):
        raise InputError(
            f"column {name!r} holds dates; turn them into numbers first, such as days since a "
            "fixed date, or drop the column."
        )
    if pd.api.types.is_complex_dtype(values.dtype):
        raise InputError(f"Complex data not supported: column {name!r} holds complex numbers.")
    try:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        wrong = next((v for v in values if not isinstance(v, int | float | np.number)), None)
        text = (
            f"column {name!r} must hold numbers or text but holds {wrong!r} "
            f"({type(wrong).__name__}); argument must be a string or a number."
        )
        raise (TypeError if isinstance(error, TypeError) else InputError)(text) from error
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise InputError(
            f"column {name!r} has {infinite:,} infinite values (inf); replace them by large "
            "numbers or drop these rows."
        )
    return numbers


def _categorical(name: str, values: pd.Series[Any]) -> Column:
    missing = values.isna()
    categories = sorted(set(values[~missing].astype(str)))
    if len(categories) > _MOST_CATEGORIES:
        raise InputError(
            f"column {name!r} holds {len(categories):,} different texts, more than the "
            f"{_MOST_CATEGORIES} that can be encoded; drop it if it is an identifier, or group "
            "rare values."
        )
    return Column(name, categories=tuple(categories), missing=bool(missing.any()))


def _one_hot(column: Column, values: pd.Series[Any]) -> NDArray[np.float32]:
    missing = values.isna().to_numpy(dtype=bool)
    text = values.astype(object).where(~missing, "").astype(str).to_numpy()
    categories = np.array(column.categories, dtype=object)
    unseen = sorted(set(text[~missing]) - set(column.categories or ()))
    if unseen:
        warnings.warn(
            f"column {column.name!r} holds {_some(unseen)}, not seen in training: treated as "
            "none of the known values.",
            DataWarning,
            stacklevel=5,
        )
    same = (text[:, None] == categories[None, :]) & ~missing[:, None]
    return same.astype(np.float32)


def _assign(names: list[str], groups: GroupSpec | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Feature names and, for each column, its feature; ungrouped columns stand alone."""
    owner: dict[int, str] = {}
    if groups is not None:
        items = (
            list(groups.items())
            if isinstance(groups, Mapping)
            else [("", members) for members in groups]
        )
        for label, members in items:
            where = [_position(member, names) for member in members]
            if not where:
                raise InputError(f"the group {label!r} has no columns; name at least one.")
            label = str(label) or "+".join(names[i] for i in where)
            for i in where:
                if i in owner:
                    raise InputError(
                        f"column {names[i]!r} is in the groups {owner[i]!r} and {label!r}; "
                        "a column can be in one group only."
                    )
                owner[i] = label
    features: list[str] = []
    feature_of = []
    number: dict[str, int] = {}
    for i, name in enumerate(names):
        key = f"group {owner[i]}" if i in owner else f"column {i}"
        if key not in number:
            number[key] = len(features)
            features.append(owner.get(i, name))
        feature_of.append(number[key])
    for name in features:
        if features.count(name) > 1:
            raise InputError(f"a group is called {name!r}, like another feature; rename the group.")
    return tuple(features), tuple(feature_of)


def _position(member: Any, names: list[str]) -> int:
    if is_whole(member):
        if not -len(names) <= member < len(names):
            raise InputError(f"a group names column {member} but there are {len(names)} columns.")
        return int(member) % len(names)
    if str(member) not in names:
        raise InputError(
            f"a group names the column {member!r}, which is not in the table; "
            f"{nearest(str(member), names)}"
        )
    return names.index(str(member))


def _some(names: Sequence[str], most: int = 8) -> str:
    text = ", ".join(repr(name) for name in names[:most])
    return text + (f" and {len(names) - most} more" if len(names) > most else "")
