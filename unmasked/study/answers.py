"""Hold a reader's answer to a case; check one that comes from outside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from unmasked.errors import InputError

LONGEST_REMARK = 2000
LETTERS = "ABCDEFGH"
"""Names of options, in the order in which a reader sees them."""


@dataclass(frozen=True)
class Answer:
    """Places, sufficiency and a remark, in the order in which the reader sees the options.

    places : 1 is best; equal numbers are ties; None is not placed yet. Only their order counts:
        1, 1, 2 says the same as 1, 1, 3.
    sufficient : true or false for each option; None where the reader has not said.
    """

    places: tuple[int | None, ...]
    sufficient: tuple[bool, ...] | None = None
    remark: str = ""

    @property
    def ranked(self) -> bool:
        """Return true if all options have a place."""
        return None not in self.places

    @property
    def complete(self) -> bool:
        """Return true if all options are placed and judged for sufficiency, remark or none."""
        return self.ranked and self.sufficient is not None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(
            {"places": self.places, "sufficient": self.sufficient, "remark": self.remark},
            ensure_ascii=False,
        )

    @staticmethod
    def empty(options: int) -> Answer:
        """Nothing answered yet."""
        return Answer((None,) * options)

    @staticmethod
    def parse(data: Any, options: int) -> Answer:
        """An answer as it came from outside, checked."""
        if not isinstance(data, dict):
            raise InputError("an answer must be an object with places, sufficient and remark.")
        places, sufficient = data.get("places"), data.get("sufficient")
        remark = data.get("remark", "")
        if not isinstance(places, list) or len(places) != options:
            raise InputError(f"places must be a list with one entry for each of {options} options.")
        for place in places:
            if place is not None and (type(place) is not int or not 1 <= place <= options):
                raise InputError(
                    f"a place must be a whole number from 1 to {options} but is {place!r:.40}."
                )
        if sufficient is not None and (
            not isinstance(sufficient, list)
            or len(sufficient) != options
            or not all(type(value) is bool for value in sufficient)
        ):
            raise InputError(f"sufficient must be true or false for each of {options} options.")
        if not isinstance(remark, str) or len(remark) > LONGEST_REMARK:
            raise InputError(f"a remark may have {LONGEST_REMARK} characters; shorten it.")
        if any(0xD800 <= ord(letter) <= 0xDFFF or letter == "\0" for letter in remark):
            raise InputError("a remark must be text but holds characters that are none.")
        return Answer(tuple(places), None if sufficient is None else tuple(sufficient), remark)


def in_words(places: tuple[int | None, ...]) -> str:
    """Put places into words as they are counted: ties share the better place.

    >>> in_words((1, 2, 1, None))
    '1st: A and C (tied); 3rd: B; not placed: D'
    """
    given = sorted({place for place in places if place is not None})
    parts = []
    for place in given:
        here = [LETTERS[i] for i, p in enumerate(places) if p == place]
        better = sum(1 for p in places if p is not None and p < place)
        tied = " (tied)" if len(here) > 1 else ""
        parts.append(f"{ordinal(better + 1)}: {' and '.join(here)}{tied}")
    if missing := [LETTERS[i] for i, p in enumerate(places) if p is None]:
        parts.append(f"not placed: {' and '.join(missing)}")
    return "; ".join(parts)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, …"""
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(number, 'th')}"
