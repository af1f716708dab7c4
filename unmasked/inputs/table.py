"""Learn the names, kinds and statistics of a table's columns, and the feature of each.

`Columns` turns a table into the standardised numeric matrix that networks take. A numeric column
becomes one standardised column. A column of text, categories or truth values becomes one column
per category, and stays *one* feature: its columns are shown or hidden together. Of more than 100
categories the most frequent keep a column each, and the others share one. Dates become one feature
of several columns (`dates`); numbers that are written as text are numbers (`numerals`).

Missing is a value. A column that had missing values in training becomes one column more, 1 where
the value is missing, of the same feature: shown, it says that the value is missing; hidden, it
says nothing, so a missing value that is shown is never taken for a hidden one.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from unmasked.checks import is_whole
from unmasked.errors import DataWarning, InputError
from unmasked.inputs import dates
from unmasked.inputs import numbers as numerals
from unmasked.inputs.dates import Dates
from unmasked.inputs.numbers import Written
from unmasked.inputs.wording import Said, Unread, refuse, some

GroupSpec = Mapping[str, Sequence[Any]] | Sequence[Sequence[Any]]
_MOST_CATEGORIES = 100  # with a matrix column each
_SAME_KIND = "give the same kind of table"
_NORMAL, _LUMP = 0.97, 0.3
_LOOKED_AT = 200_000  # numbers of a column that say where to cut it, at the most


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
    rare: tuple[str, ...] = ()
    """Further categories, which share the matrix column after those of `categories`."""
    written: Written | None = None
    """How numbers were written, where they were text."""
    dates: Dates | None = None
    """How dates are read; mean and scale are of days since 1970."""

    @property
    def width(self) -> int:
        """Count the matrix columns that it becomes, with those for rare and missing values."""
        if self.dates is not None:
            return self.dates.width + self.missing
        return (1 if self.categories is None else len(self.categories)) + self._joins + self.missing

    @property
    def as_text(self) -> bool:
        """Return True if a file's cells must be read as they are written, not as plain numbers."""
        return not (self.categories is None and self.written is None and self.dates is None)

    @property
    def _joins(self) -> bool:
        return len(self.rare) > 0


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
    def learn(
        cls, table: pd.DataFrame, groups: GroupSpec | None = None, *, bins: bool = False
    ) -> Columns:
        """Read kinds and statistics off the training rows; refuse all that cannot be read.

        bins : whether to look for `Column.cuts`, which sorts every number.
        """
        columns, wrong = [], []
        said = Said()
        for position, name in enumerate(table.columns):
            try:
                column = _learned(str(name), table.iloc[:, position], said)
                columns.append(_binned(column, table.iloc[:, position]) if bins else column)
            except Unread as error:
                wrong.append(error)
        refuse(wrong)
        for sentence in said.sentences():
            warnings.warn(sentence, DataWarning, stacklevel=4)
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
        """Return True if every matrix column is a feature of its own, in order."""
        return self.index == tuple(range(len(self.index)))

    def matrix(self, table: pd.DataFrame) -> NDArray[np.float32]:
        """The table as standardised numbers, (rows, matrix columns)."""
        said = Said()
        parts = list(self._parts(table, said))
        for sentence in said.sentences():
            warnings.warn(sentence, DataWarning, stacklevel=4)
        if not parts:
            return np.zeros((len(table), 0), dtype=np.float32)
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def check(self, table: pd.DataFrame) -> None:
        """Refuse a table that `matrix` cannot read, without holding its matrix."""
        for _ in self._parts(table, Said()):
            pass

    def _parts(self, table: pd.DataFrame, said: Said) -> Iterator[NDArray[Any]]:
        """The matrix columns of each column, (rows, …); at the end all that cannot be read."""
        wrong = []
        for position, column in enumerate(self.columns):
            try:
                yield from _parts_of(column, table.iloc[:, position], said)
            except Unread as error:
                wrong.append(error)
        refuse(wrong)

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
            "columns": [asdict(column) for column in self.columns],
            "features": list(self.features),
            "feature_of": list(self.feature_of),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Columns:
        """The inverse of `to_config`; what older programs did not save is left at its default."""
        columns = tuple(_column_from(saved) for saved in config["columns"])
        return cls(columns, tuple(config["features"]), tuple(config["feature_of"]))


def _column_from(saved: dict[str, Any]) -> Column:
    known, written, when = saved["categories"], saved.get("written"), saved.get("dates")
    return Column(
        saved["name"],
        float(saved["mean"]),
        float(saved["scale"]),
        None if known is None else tuple(known),
        bool(saved.get("missing", False)),
        tuple(saved.get("cuts", ())),
        rare=tuple(saved.get("rare", ())),
        written=None if written is None else Written(**written),
        dates=None if when is None else Dates(**{**when, "parts": tuple(when["parts"])}),
    )


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
    if len(values) > _LOOKED_AT:
        values = np.random.default_rng(0).choice(values, _LOOKED_AT)
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
        return any(isinstance(value, str | bool) for value in values)
    return pd.api.types.is_string_dtype(kind)


def is_identifier(counts: Sequence[int] | NDArray[np.int64]) -> bool:
    """Return True for identifiers or free text, judged by the number of rows that hold each text.

    They are where there are more than 100 and most rows hold one that comes once or twice.

    >>> is_identifier([1] * 101), is_identifier([1] * 100)
    (True, False)
    >>> is_identifier([2] * 101), is_identifier([3] * 101)
    (True, False)
    >>> is_identifier([1] * 200 + [200]), is_identifier([1] * 200 + [199])
    (False, True)
    """
    rows = np.asarray(counts)
    return bool(len(rows) > _MOST_CATEGORIES and 2 * rows[rows <= 2].sum() > rows.sum())


def measured(name: str, values: pd.Series[Any]) -> NDArray[np.float64] | None:
    """Dates in days, and numbers that are written as text, (rows,); None for anything else."""
    try:
        column = _learned(name, values, Said()) if not values.isna().all() else Column(name)
        if column.dates is not None:
            return dates.days(_when(column, values))
        return None if column.written is None else _numbers_of(column, values, Said())
    except Unread:
        return None


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
    return f"there are: {some(list(known))}."


def _learned(name: str, values: pd.Series[Any], said: Said) -> Column:
    """Kind and statistics of one column."""
    if values.isna().all():
        raise Unread(name, "has no value in any training row", "drop the column")
    if dates.are_dates(values):
        return _of_dates(name, _as_dates(name, values), None, said)
    if not is_categorical(values):
        return _numeric(name, _numbers(name, values), said)
    codes, texts = _coded(values)
    if isinstance(values.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(values.dtype):
        return _categorical(name, codes, texts, said)
    return _of_text(name, codes, texts, said)


def _of_text(name: str, codes: NDArray[np.int64], texts: list[str], said: Said) -> Column:
    """A column of text: numbers or dates where all of it reads so, else categories."""
    styles = numerals.styles(texts)
    if len(styles) == 1:
        column = Column(name, written=styles[0])
        numbers = _read_numbers(column, codes, texts, said)
        example = max(texts, key=lambda text: (not numerals.is_hole(text), len(text)))
        if not example.isdecimal():
            value = numerals.read(example, styles[0].decimal)
            said.written.append(f"{name!r} ({example!r} is {value:.12g})")
        return _numeric(name, numbers, said, written=styles[0])
    orders = dates.orders(text for text in texts if not numerals.is_hole(text))
    if len(orders) == 1:
        when = _read_dates(name, codes, texts, orders[0], said)
        return _of_dates(name, when, orders[0], said)
    doubt = ""
    if orders:
        doubt = "dates whose day and month cannot be told apart; write them as 2024-12-31"
    elif styles:
        doubt = "numbers whose thousands and decimals cannot be told apart; write them as 1234.5"
    return _categorical(name, codes, texts, said, doubt)


def _numeric(
    name: str, numbers: NDArray[np.float64], said: Said, *, written: Written | None = None
) -> Column:
    """A column of numbers, NaN where one is missing."""
    there = numbers[~np.isnan(numbers)]
    missing = len(there) < len(numbers)
    with np.errstate(over="ignore"):
        scale = float(there.std())
    if not np.isfinite(scale):
        raise Unread(
            name,
            f"holds values as large as {np.abs(there).max():.3g}, too large to standardise",
            "rescale it",
        )
    if scale <= 1e-12 * max(1.0, float(np.abs(there).max())):
        if not missing:
            said.constant.append(name)
        scale = 1.0
    return Column(name, float(there.mean()), scale, missing=missing, written=written)


def _binned(column: Column, values: pd.Series[Any]) -> Column:
    """The column with edges of bins, where it holds numbers that need them."""
    if column.categories is not None or column.dates is not None:
        return column
    numbers = _numbers_of(column, values, Said())
    there = numbers[~np.isnan(numbers)]
    return replace(column, cuts=bin_edges((there - column.mean) / column.scale))


def _of_dates(name: str, when: pd.DatetimeIndex, order: str | None, said: Said) -> Column:
    """A column of dates, NaT where one is missing."""
    found = dates.learn(when.dropna(), order)
    days = dates.days(when.dropna())
    scale, missing = float(days.std()), bool(when.isna().any())
    if scale <= 1e-12 * max(1.0, float(np.abs(days).max())):
        scale = 1.0
        if not missing:
            said.constant.append(name)
    first = "" if order is None else f"{order}: "
    said.dates.append(f"{name!r} ({first}{found.said})")
    return Column(name, float(days.mean()), scale, missing=missing, dates=found)


def _categorical(
    name: str, codes: NDArray[np.int64], texts: list[str], said: Said, doubt: str = ""
) -> Column:
    """A column of categories; ``doubt`` says why it is not read as dates or numbers."""
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    if is_identifier(counts):
        what = f"holds {len(texts):,} different texts in {int(counts.sum()):,} rows"
        if doubt:
            what, _, do = f"holds {doubt}".partition("; ")
            raise Unread(name, what, do)
        do = "drop it (--drop), or let it name the rows (--id)"
        raise Unread(name, f"{what}, most of them once or twice", do)
    if doubt:
        said.others.append(f"column {name!r} is taken as text: it holds {doubt}.")
    order = sorted(range(len(texts)), key=lambda i: (-int(counts[i]), texts[i]))
    parts = order[:_MOST_CATEGORIES], order[_MOST_CATEGORIES:]
    kept, rare = (tuple(sorted(texts[i] for i in part)) for part in parts)
    if rare:
        said.joined.append(
            f"{name!r} has {len(texts):,} values, of which the {len(kept)} most frequent stay "
            f"apart and {len(rare):,} are joined"
        )
    column = Column(name, categories=kept, missing=bool((codes < 0).any()), rare=rare)
    if column.width < 2:
        said.constant.append(name)
    return column


def _parts_of(column: Column, values: pd.Series[Any], said: Said) -> list[NDArray[Any]]:
    """The matrix columns of one column, each (rows, …)."""
    parts: list[NDArray[Any]]
    if column.dates is not None:
        when = _when(column, values)
        lacks = np.asarray(when.isna())
        parts = [column.dates.matrix(when, column.mean, column.scale)]
    elif column.categories is None:
        numbers = _numbers_of(column, values, said)
        lacks = np.isnan(numbers)
        parts = [np.where(lacks, 0.0, (numbers - column.mean) / column.scale)[:, None]]
    else:
        codes, texts = _coded(values)
        lacks = codes < 0
        parts = [_one_hot(column, codes, texts, said)]
    if lacks.any() and not column.missing:
        said.others.append(
            f"column {column.name!r} has {int(lacks.sum()):,} missing values but had none in "
            "training: treated as "
            + ("the mean." if column.categories is None else "none of the known values.")
        )
    return [*parts, lacks[:, None]] if column.missing else parts


def _one_hot(
    column: Column, codes: NDArray[np.int64], texts: list[str], said: Said
) -> NDArray[np.float32]:
    """A matrix column for each category, and one for all rare ones, (rows, …)."""
    known = [*(column.categories or ()), *column.rare]
    place = pd.Index(known, dtype=object).get_indexer(pd.Index(texts, dtype=object))
    unseen = sorted(text for text, own in zip(texts, place, strict=True) if own < 0)
    if unseen:
        said.others.append(
            f"column {column.name!r} holds {some(unseen)}, not seen in training: treated as "
            "none of the known values."
        )
    width = column.width - column.missing
    shown = np.eye(width + 1, width, dtype=np.float32)  # the last line is for none of them
    lines = np.where(place < 0, width, np.minimum(place, width - 1))
    found: NDArray[np.float32] = shown[np.append(lines, width)[codes]]
    return found


def _numbers_of(column: Column, values: pd.Series[Any], said: Said) -> NDArray[np.float64]:
    """A column that held numbers in training, (rows,), NaN where one is missing."""
    held = "held numbers in training but holds"
    if values.isna().all():
        return np.full(len(values), np.nan)
    if dates.are_dates(values):
        raise Unread(column.name, f"{held} dates now", _SAME_KIND)
    if is_categorical(values):
        known = column.written is not None  # signs of missing numbers were told in training
        return _read_numbers(column, *_coded(values), Said() if known else said)
    if column.written is not None and column.written.unit == "%":
        raise Unread(column.name, "held percentages in training but plain numbers now", _SAME_KIND)
    return _numbers(column.name, values)


def _read_numbers(
    column: Column, codes: NDArray[np.int64], texts: list[str], said: Said
) -> NDArray[np.float64]:
    """Numbers that are written, (rows,), NaN where one is missing."""
    style = column.written or Written()
    found = [numerals.read_as(text, style) for text in texts]
    wrong = next((t for t, number in zip(texts, found, strict=True) if number is None), None)
    if wrong is not None:
        what = f"held numbers in training but holds text now ({wrong!r})"
        raise Unread(column.name, what, _SAME_KIND)
    _tell_holes(column.name, codes, texts, said)
    return np.array([*found, np.nan], dtype=np.float64)[codes]


def _tell_holes(name: str, codes: NDArray[np.int64], texts: list[str], said: Said) -> None:
    """Count the texts that stand for a missing value."""
    for code, text in enumerate(texts):
        if numerals.is_hole(text):
            said.holes.append(f"{text!r} in {int((codes == code).sum()):,} rows of {name!r}")


def _as_dates(name: str, values: pd.Series[Any]) -> pd.DatetimeIndex:
    try:
        return dates.from_dates(values)
    except (ValueError, TypeError, OverflowError) as error:
        what = f"holds dates that cannot be read together ({str(error).splitlines()[0]:.80})"
        raise Unread(name, what, "give all of them with a time zone, or none") from error


def _when(column: Column, values: pd.Series[Any]) -> pd.DatetimeIndex:
    """A column that held dates in training, (rows,), in its time zone; NaT where one is missing."""
    assert column.dates is not None
    zone, held = column.dates.zone, "held dates in training but holds"
    if values.isna().all():
        return pd.DatetimeIndex([pd.NaT] * len(values)).tz_localize(zone)
    if dates.are_dates(values):
        when = _as_dates(column.name, values)
    elif is_categorical(values):
        when = _read_dates(column.name, *_coded(values), column.dates.order, Said())
    else:
        raise Unread(column.name, f"{held} numbers now", _SAME_KIND)
    if when.tz is None and when.isna().all():
        return when.tz_localize(zone)
    if (when.tz is None) != (zone is None):
        one, other = ("without", "with") if zone is None else ("with", "without")
        what = f"held dates {one} a time zone in training but {other} one now"
        raise Unread(column.name, what, _SAME_KIND)
    return when if zone is None else when.tz_convert(zone)


def _read_dates(
    name: str, codes: NDArray[np.int64], texts: list[str], order: str | None, said: Said
) -> pd.DatetimeIndex:
    """Dates that are written, (rows,), NaT where one is missing."""
    when, wrong = dates.from_texts(
        ["" if numerals.is_hole(text) else text for text in texts], order
    )
    if wrong:
        what = f"held dates in training but holds {wrong[0]!r} now"
        raise Unread(name, what, _SAME_KIND)
    _tell_holes(name, codes, texts, said)
    missing = pd.DatetimeIndex([pd.NaT]).tz_localize(when.tz)
    return pd.DatetimeIndex(when.append(missing))[codes]


def _coded(values: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Values as text: the number of each row's, -1 where it is missing, and the texts."""
    missing = values.isna().to_numpy(dtype=bool)
    text = np.array(values.astype(object).where(~missing, "").astype(str), dtype=object)
    text[missing] = None
    codes, texts = pd.factorize(text)
    return codes.astype(np.int64), [str(one) for one in texts]


def _numbers(name: str, values: pd.Series[Any]) -> NDArray[np.float64]:
    if pd.api.types.is_complex_dtype(values.dtype):
        raise Unread(name, "holds complex numbers", "give real and imaginary parts apart")
    try:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        wrong = next((v for v in values if not isinstance(v, int | float | np.number)), None)
        what = f"must hold numbers or text but holds {wrong!r} ({type(wrong).__name__})"
        kind = TypeError if isinstance(error, TypeError) else InputError
        raise Unread(name, what, "argument must be a string or a number", kind) from error
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise Unread(
            name,
            f"has {infinite:,} infinite values (inf)",
            "replace them by large numbers or drop these rows",
        )
    return numbers


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
