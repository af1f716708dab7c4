"""Numbers that tables hold as text: 1,234.50, € 1 200, 12%, and ? where one is missing."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

import numpy as np

_HOLES = frozenset(("", "?", "??", "-", "--", "–", "—", ".", "..", "*", "na", "n/a", "n.a.")) | {
    *("#n/a", "<na>", "nan", "nil", "none", "null", "missing", "unknown", "not available")
}
_SIGNS = r"[$€£¥₹₽₩₺฿]|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|ZAR"
_BLANKS = " \u00a0\u202f\u2009"
_DECIMALS = (".", ",")


@dataclass(frozen=True)
class Written:
    """Notation of the numbers in a column: the decimal mark, and % or a currency."""

    decimal: str = "."
    unit: str = ""


def is_hole(text: str) -> bool:
    """Return True for a text that stands for a missing value, whatever its case.

    >>> is_hole("?"), is_hole(" N/A "), is_hole("0")
    (True, True, False)
    """
    return text.strip().lower() in _HOLES


def styles(texts: Collection[str]) -> list[Written]:
    """List the notations in which all of the texts, but for holes, are numbers.

    Empty where they are not, or where all are mere digits, which may be codes; two where they could
    be read in two ways: those are not guessed. A comma before three digits is a thousands sign
    unless another number contradicts it.

    >>> styles(["1,234.50", "7", "?"]), styles(["1.234,5 €", "9 €"])
    ([Written(decimal='.', unit='')], [Written(decimal=',', unit='€')])
    >>> styles(["1,234", "1.234"])
    [Written(decimal='.', unit=''), Written(decimal=',', unit='')]
    >>> styles(["north", "7"]), styles(["12", "34"]), styles(["0123", "?"])
    ([], [], [])
    """
    numbers = [text for text in texts if not is_hole(text)]
    if not numbers or (len(numbers) == len(texts) and all(text.isdecimal() for text in texts)):
        return []
    possible = [decimal for decimal in _DECIMALS if _all_read(numbers, decimal)]
    if len(possible) > 1 and (_plain(numbers) or _agree(numbers) or _in_thousands(numbers)):
        possible = ["."]
    return [Written(decimal, unit_of(numbers[0], decimal) or "") for decimal in possible]


def read(text: str, decimal: str) -> float | None:
    """The number, NaN for a hole, None for what is neither.

    >>> read("-1,234.5", "."), read("1'200", "."), read("1,5", ","), read("CHF 3", ".")
    (-1234.5, 1200.0, 1.5, 3.0)
    >>> read("1,23", "."), read("007", "."), read("n/a", ".")
    (None, None, nan)
    """
    if is_hole(text):
        return np.nan
    found = _pattern(decimal).fullmatch(text.strip())
    if found is None or (found["before"] and found["after"]) or (found["lead"] and found["sign"]):
        return None
    whole = re.sub("[^0-9]", "", found["whole"] or "0")
    tail = (found["tail"] or found["bare"] or "").replace(decimal, ".")
    sign = "" if (found["lead"] or found["sign"]) in ("", "+") else "-"
    return float(f"{sign}{whole}{tail}{found['power'] or ''}")


def read_as(text: str, style: Written) -> float | None:
    """The number in a column that is written so; None too where its unit is another.

    >>> [read_as(text, Written(unit="%")) for text in ("12%", "12", "?")]
    [12.0, None, nan]
    >>> [read_as(text, Written(unit="$")) for text in ("$5", "5", "€5")]
    [5.0, 5.0, None]
    """
    number = read(text, style.decimal)
    if number is None or is_hole(text):
        return number
    unit = unit_of(text, style.decimal)
    return number if unit == style.unit or (not unit and style.unit != "%") else None


def unit_of(text: str, decimal: str) -> str | None:
    """The percent or currency sign of a number, "" without one; None where it is no number."""
    found = _pattern(decimal).fullmatch(text.strip())
    return None if found is None else (found["before"] or found["after"] or "").upper()


def _all_read(numbers: Collection[str], decimal: str) -> bool:
    """Return True if all texts are numbers with this decimal mark, and share one unit."""
    units = set()
    for text in numbers:
        if read(text, decimal) is None:
            return False
        units.add(unit_of(text, decimal))
        if len(units) > 1:
            return False
    return True


def _plain(numbers: Collection[str]) -> bool:
    """Return True if all are numbers to any program: digits, dot, sign and e, as 1.234."""
    return not any(re.search(r"[^0-9.eE+-]", text.strip()) for text in numbers)


def _agree(numbers: Collection[str]) -> bool:
    return all(read(text, ".") == read(text, ",") for text in numbers)


def _in_thousands(numbers: Collection[str]) -> bool:
    """Return True if commas mark thousands: no dot anywhere, no four digits without a comma."""
    return not any("." in text or re.search(r"\d{4}", text) for text in numbers)


@cache
def _pattern(decimal: str) -> re.Pattern[str]:
    group = "," if decimal == "." else "."
    mark = re.escape(decimal)
    whole = (
        rf"[1-9]\d{{0,2}}(?P<group>[{group}'’_{_BLANKS}])\d{{3}}(?:(?P=group)\d{{3}})*|0|[1-9]\d*"
    )
    number = rf"(?:(?P<whole>{whole})(?P<tail>{mark}\d*)?|(?P<bare>{mark}\d+))(?P<power>e[+-]?\d+)?"
    return re.compile(
        rf"(?P<lead>[+−-]?)[{_BLANKS}]?(?P<before>{_SIGNS})?[{_BLANKS}]?(?P<sign>[+−-]?)"
        rf"{number}[{_BLANKS}]?(?P<after>%|{_SIGNS})?",
        re.IGNORECASE | re.ASCII,
    )
