"""Dates as tables hold them, and the numbers that networks see of them.

A date is an instant, in days since 1970, and a clock and calendar: year, month, weekday and hour in
the time zone of the training rows. What goes round (month, weekday, hour) becomes a point on a
circle, so that December lies beside January, and a month that training never saw between others.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ORDERS = ("day first", "month first")
_PERIODS = {"month": 12, "weekday": 7, "hour": 24}
_KINDS = ("date", "datetime", "datetime64", "period")  # as pandas names what objects are
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?\.?"
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,? +)?"
_TIME = (
    r"(?:(?:T|,? +)(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?: *([ap])\.?m\.?)?"
    r" *(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?)?"
)
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){_TIME}", re.IGNORECASE)
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}){_TIME}", re.IGNORECASE)
_DAY_NAMED = re.compile(rf"{_WEEKDAY}{_DAY}[ -]*{_NAMES}[ ,-]*(\d{{4}}){_TIME}", re.IGNORECASE)
_MONTH_NAMED = re.compile(rf"{_WEEKDAY}{_NAMES} *{_DAY},? +(\d{{4}}){_TIME}", re.IGNORECASE)
_COARSE = re.compile(r"(\d{4})(?:-(\d{2})|Q([1-4]))?")  # as periods of pandas are written


@dataclass(frozen=True)
class Dates:
    """Recipe that turns a column of dates into matrix columns, learned from training rows.

    parts : what of a date varies in training and is seen, first "elapsed".
    year_mean, year_scale : of the years in training.
    zone : the time zone of clock and calendar, None where dates have none.
    order : how dates such as 3/4/2024 are read, one of `ORDERS`; None if training had none.
    """

    parts: tuple[str, ...]
    year_mean: float = 0.0
    year_scale: float = 1.0
    zone: str | None = None
    order: str | None = None

    @property
    def said(self) -> str:
        """The parts in words."""
        return ", ".join("elapsed time" if part == "elapsed" else part for part in self.parts)

    @property
    def width(self) -> int:
        """Count the matrix columns that the parts become: two for what goes round, else one."""
        return sum(2 if part in _PERIODS else 1 for part in self.parts)

    def matrix(self, when: pd.DatetimeIndex, mean: float, scale: float) -> NDArray[np.float64]:
        """Dates as numbers, (rows, width); all 0 where a date is missing."""
        there = np.logical_not(when.isna())
        result = np.zeros((len(when), self.width))
        known = when[there]
        columns: list[NDArray[np.float64]] = []
        for part in self.parts:
            values = part_of(known, part)
            if part == "elapsed":
                columns.append((values - mean) / scale)
            elif part == "year":
                columns.append((values - self.year_mean) / self.year_scale)
            else:
                angle = 2 * np.pi * values / _PERIODS[part]
                columns += [np.sqrt(2) * np.sin(angle), np.sqrt(2) * np.cos(angle)]
        result[there] = np.stack(columns, axis=1)
        return result


def learn(when: pd.DatetimeIndex, order: str | None) -> Dates:
    """Learn the parts that vary, and the zone, of training dates; when : without missing ones."""
    zone = _zone(when)
    local = when if zone is None else when.tz_convert(zone)
    varies = [part for part in ("year", *_PERIODS) if np.ptp(part_of(local, part)) > 0]
    year = part_of(local, "year")
    mean, scale = (float(year.mean()), float(year.std())) if "year" in varies else (0.0, 1.0)
    return Dates(("elapsed", *varies), mean, scale, zone, order)


def _zone(when: pd.DatetimeIndex) -> str | None:
    """A name of the time zone by which it can be found again; UTC where it has none."""
    if when.tz is None:
        return None
    try:
        when[:0].tz_convert(str(when.tz))
    except (ValueError, KeyError, OSError):  # not one of the usual zones
        return "UTC"
    return str(when.tz)


def part_of(when: pd.DatetimeIndex, part: str) -> NDArray[np.float64]:
    """One part of each date, (rows,): days since 1970, or what clock and calendar say.

    >>> when = pd.DatetimeIndex(["1970-01-03 06:00", "2024-12-31 12:30"])
    >>> [part_of(when, part).tolist() for part in ("elapsed", "weekday", "hour")]
    [[2.25, 20088.520833333332], [5.0, 1.0], [6.0, 12.5]]
    """
    if part == "elapsed":
        return days(when)
    if part == "hour":
        values = when.hour + when.minute / 60 + when.second / 3600
    else:
        name = "day_of_week" if part == "weekday" else part
        values = getattr(when, name) - (1 if part == "month" else 0)
    return np.asarray(values, dtype=np.float64)


def days(when: pd.DatetimeIndex) -> NDArray[np.float64]:
    """Days since 1970 (in UTC where there is a time zone), (rows,); NaN where one is missing."""
    plain = when if when.tz is None else when.tz_convert("UTC").tz_localize(None)
    micro = plain.to_numpy().astype("datetime64[us]")
    found: NDArray[np.float64] = (micro - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    return found


def are_dates(values: pd.Series[Any]) -> bool:
    """Return True if a column holds dates as such: of pandas, numpy or Python, not as text."""
    kind = values.dtype
    if pd.api.types.is_datetime64_any_dtype(kind) or isinstance(kind, pd.PeriodDtype):
        return True
    if not pd.api.types.is_object_dtype(kind):
        return False
    return pd.api.types.infer_dtype(values, skipna=True) in _KINDS


def from_dates(values: pd.Series[Any]) -> pd.DatetimeIndex:
    """Dates as such, (rows,), NaT where one is missing; a period is its beginning."""
    if isinstance(values.dtype, pd.PeriodDtype) or (
        pd.api.types.is_object_dtype(values.dtype)
        and pd.api.types.infer_dtype(values, skipna=True) == "period"
    ):
        return pd.PeriodIndex(values).to_timestamp()
    if pd.api.types.is_object_dtype(values.dtype):
        zones = {_offset(value) for value in values.dropna()}
        if len(zones) > 1 and None in zones:
            raise ValueError("some dates have a time zone and some have none")
        return pd.DatetimeIndex(pd.to_datetime(values, utc=len(zones) > 1))
    return pd.DatetimeIndex(values)


def _offset(value: Any) -> Any:
    zone = getattr(value, "utcoffset", None)
    return zone() if callable(zone) else None


def orders(texts: Iterable[str]) -> list[str | None]:
    """Under which orders of day and month all texts are dates.

    ``[None]`` where the order does not matter, none where some text is no date, two where both
    are possible: such dates are not guessed.

    >>> orders(["2024-12-31", "5 Mar 2024 17:30"])
    [None]
    >>> orders(["31/12/2024", "1/2/2024"]), orders(["03.04.2024"]), orders(["soon"])
    (['day first'], ['day first', 'month first'], [])
    """
    left: list[str] = list(ORDERS)
    matters = False
    zoned: set[bool] = set()
    for text in texts:
        read = {order: read_date(text, order) for order in left}
        left = [order for order in left if read[order] is not None]
        if not left:
            return []
        found = [read[order] for order in left]
        matters = matters or len(left) < 2 or found[0] != found[1]
        zoned.update(date is not None and date.tzinfo is not None for date in found)
        if len(zoned) > 1:  # with and without time zones
            return []
    return list(left) if matters else ([None] if zoned else [])


def from_texts(texts: Sequence[str], order: str | None) -> tuple[pd.DatetimeIndex, list[str]]:
    """Dates that are written, (texts,), NaT where a text is empty, and the texts that are none.

    With one time zone for all they keep it; with several they are in UTC.
    """
    found = [read_date(text, order, coarse=True) for text in texts]
    unread = [text for text, date in zip(texts, found, strict=True) if text and date is None]
    zones = {date.utcoffset() for date in found if date is not None}
    if len(zones) > 1 and None in zones:
        unread += [t for t, d in zip(texts, found, strict=True) if d is not None and not d.tzinfo]
        return pd.DatetimeIndex([]), unread
    zone = zones.pop() if len(zones) == 1 else datetime.timedelta(0) if zones else None
    plain = [None if d is None else _plain(d) for d in found]
    when = pd.DatetimeIndex(np.array(plain, dtype="datetime64[us]"))
    if zone is None:
        return when, unread
    return when.tz_localize("UTC").tz_convert(_zone_name(zone)), unread


def _plain(date: datetime.datetime) -> datetime.datetime:
    """In UTC where there is a time zone, and without it."""
    if date.tzinfo is None:
        return date
    return date.astimezone(datetime.UTC).replace(tzinfo=None)


def _zone_name(offset: datetime.timedelta) -> str:
    return str(datetime.timezone(offset))


def read_date(text: str, order: str | None, *, coarse: bool = False) -> datetime.datetime | None:
    """One written date; None for what is none.

    order : how 3/4/2024 is read; None for not at all. coarse : also 2024, 2024-03 and 2024Q1.

    >>> [str(read_date("3/4/2024", order)) for order in ORDERS]
    ['2024-04-03 00:00:00', '2024-03-04 00:00:00']
    >>> str(read_date("March 5th, 2024 5:30 pm", None)), read_date("2024-02-30", None)
    ('2024-03-05 17:30:00', None)
    """
    text = text.strip()
    if len(text) >= 10 and text[4] == text[7] == "-":  # fast, and nearly all
        try:
            return datetime.datetime.fromisoformat(text)
        except ValueError:
            pass
    if found := _YEAR_FIRST.fullmatch(text):
        year, _, month, day, *time = found.groups()
    elif found := _DAY_NAMED.fullmatch(text):
        day, month, year, *time = found.groups()
    elif found := _MONTH_NAMED.fullmatch(text):
        month, day, year, *time = found.groups()
    elif order is not None and (found := _YEAR_LAST.fullmatch(text)):
        one, _, two, year, *time = found.groups()
        day, month = (one, two) if order == ORDERS[0] else (two, one)
    else:
        return _coarse(text) if coarse else None
    number = int(month) if month.isdigit() else 1 + _MONTHS.index(month[:3].lower())
    try:
        return _with_time(datetime.datetime(int(year), number, int(day)), time)
    except (ValueError, OverflowError):
        return None


def _coarse(text: str) -> datetime.datetime | None:
    """2024, 2024-03, 2024Q1, or the first day of 2024-01-01/2024-01-07."""
    if found := _COARSE.fullmatch(text):
        year, month, quarter = found.groups()
        first = int(month) if month else 3 * int(quarter) - 2 if quarter else 1
        return datetime.datetime(int(year), first, 1) if 0 < first <= 12 and int(year) else None
    first_day, slash, _ = text.partition("/")
    return read_date(first_day, None) if slash and len(first_day) == 10 else None


def _with_time(date: datetime.datetime, time: Sequence[str | None]) -> datetime.datetime:
    hour, minute, second, fraction, half, zone = time
    if hour is None or minute is None:
        return date
    number = int(hour)
    if half is not None:
        if not 1 <= number <= 12:
            raise ValueError(f"{number} is no hour of half a day")
        number = number % 12 + (12 if half.lower() == "p" else 0)
    return date.replace(
        hour=number,
        minute=int(minute),
        second=int(second or 0),
        microsecond=int((fraction or "0")[:6].ljust(6, "0")),
        tzinfo=None if zone is None else _read_zone(zone),
    )


def _read_zone(text: str) -> datetime.timezone:
    if text[0] not in "+-":
        return datetime.UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return datetime.timezone(-offset if text[0] == "-" else offset)
