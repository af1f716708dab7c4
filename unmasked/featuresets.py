"""Which sets of features are shown, how often, and whether it is one for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_NAMES = 8  # of a set, where it is written out
_LONG = 8  # bytes of the longest whole number


def count_sets(masks: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each different mask and in how many rows it comes, the commonest first.

    masks : (rows, features). Of sets that come equally often, that of the earlier row is first.

    >>> count_sets(np.array([[1, 0], [0, 1], [0, 1]], dtype=bool))
    (array([1, 0]), array([2, 1]))
    """
    rows, features = masks.shape
    if not rows or not features:
        return np.zeros(min(rows, 1), np.int64), np.full(min(rows, 1), rows, np.int64)
    _, first, counts = np.unique(_keys(masks), return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))
    return first[order].astype(np.int64), counts[order].astype(np.int64)


def _keys(masks: NDArray[np.bool_]) -> NDArray[Any]:
    """One value for each mask, (rows,); numbers, which sort fast, where they are long enough."""
    packed = np.packbits(masks, axis=1)  # (rows, ⌈features / 8⌉)
    width = packed.shape[1]
    if width <= _LONG:
        packed, width = np.pad(packed, ((0, 0), (0, _LONG - width))), _LONG
    kind = np.dtype(np.uint64) if width == _LONG else np.dtype((np.void, width))
    return np.ascontiguousarray(packed).view(kind)[:, 0]


def same_for_all(masks: NDArray[np.bool_]) -> bool:
    """Whether all rows, of which there are at least two, show the same features."""
    return len(masks) > 1 and bool((masks == masks[0]).all())


def names_text(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Names in a sentence, not more than fit there.

    >>> names_text(["age", "dose", "sex"], most=2), names_text([])
    ('age, dose and 1 more', 'nothing')
    """
    text = ", ".join(names[:most])
    return text + (f" and {len(names) - most:,} more" if len(names) > most else "") or "nothing"


def one_set_text(mask: NDArray[np.bool_], names: Sequence[str], rows: str) -> str:
    """What to say where every row shows this same mask, (features,).

    >>> one_set_text(np.array([True, False, True]), ["age", "dose", "sex"], "row")
    'the same 2 of 3 features for every row (age, sex): a choice for all rows, not for each'
    """
    shown = [name for name, is_shown in zip(names, mask, strict=True) if is_shown]
    if not shown:
        return f"nothing in any {rows}"
    if len(shown) == len(names):
        return f"every feature for every {rows}: nothing was chosen"
    return (
        f"the same {len(shown):,} of {len(names):,} features for every {rows} "
        f"({names_text(shown)}): a choice for all rows, not for each"
    )
