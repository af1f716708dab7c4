"""Tell how far to trust one row: do explainers that differ in nothing but chance agree on it?"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from unmasked.checks import is_whole
from unmasked.errors import DataWarning, InputError
from unmasked.explainers.base import Explainer
from unmasked.explainers.estimator import Table
from unmasked.explanation.explanation import Explanation

MAJORITY = 0.5
"""A selection holds when the majority of the others agrees with it, feature by feature."""


@dataclass(frozen=True, eq=False)
class Stability:
    """Selections of one explainer and of others that differ from it in their seed alone.

    Attributes
    ----------
    explanation : the explainer's own, of the rows in question.
    masks : (seeds, rows, features) bool, what the others select.
    """

    explanation: Explanation
    masks: NDArray[np.bool_]

    @property
    def frequency(self) -> NDArray[np.float64]:
        """(rows, features): the share of the others that show a feature in a row."""
        return self.masks.mean(0)

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """(rows, features): where the majority of the others disagrees with the explanation."""
        shown, rate = self.explanation.masks, self.frequency
        wrong: NDArray[np.bool_] = np.where(shown, 1 - rate, rate) > 1 - MAJORITY
        return wrong

    @property
    def holds(self) -> NDArray[np.bool_]:
        """(rows,): whether the majority agrees on every feature of a row."""
        return np.logical_not(self.doubtful.any(1))

    @property
    def agreement(self) -> NDArray[np.float64]:
        """(rows,): mean over the others of |shown by both| / |shown by either|; 1 if by neither."""
        own = self.explanation.masks[None]
        both, either = (own & self.masks).sum(2), (own | self.masks).sum(2)
        return np.where(either == 0, 1.0, both / np.maximum(either, 1)).mean(0)

    def to_frame(self) -> pd.DataFrame:
        """Tabulate how often others show each feature of a row, and whether its selection holds."""
        names = list(self.explanation.feature_names)
        frame = pd.DataFrame(self.frequency, columns=names, index=self.explanation.index)
        return frame.assign(agreement=self.agreement, holds=self.holds)

    def summary(self) -> str:
        """Say how many rows' selections hold across seeds, and how much explainers agree."""
        seeds, rows, _ = self.masks.shape
        held = int(self.holds.sum())
        return (
            f"The selection holds across {seeds} seeds in {held:,} of {rows:,} rows "
            f"({held / rows:.0%}): there most of {seeds} explainers trained alike agree on every "
            f"feature. On average a row shares {self.agreement.mean():.0%} of what is shown."
        )

    def __repr__(self) -> str:
        return f"<Stability: {self.summary()}>"


def stability(
    explainer: Explainer,
    X: Table,
    y: Any = None,
    *,
    rows: Table | None = None,
    validation: tuple[Table, Any] | None = None,
    seeds: int | Sequence[int] = 10,
) -> Stability:
    """Train the same explainer again with other seeds, all in one program, and compare.

    Parameters
    ----------
    explainer : a fitted one; its chosen setting is trained again.
    X, y, validation : the rows that it was fitted on (no y with ``model=``).
    rows : those whose explanations are in question; X where none are given.
    seeds : how many, 10 by default, or which. A seed decides where the networks start, the order of
        the rows and all random masks. The rows held out for validation stay the same, unless the
        explainer's ``random_state`` is None.
    """
    check_is_fitted(explainer)
    numbers = _seeds(seeds)
    twin = clone(explainer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # was said when the explainer was fitted
        train, valid, _, own = twin._prepare(X, y, validation, twin.model)
    if twin.columns_ != explainer.columns_:
        raise InputError(
            "stability needs the rows that the explainer was fitted on, but these have other "
            "columns or statistics; give the same X."
        )
    level = explainer._setting(None).level
    selectors = twin._again(train, valid, level, [own + 1 + n for n in numbers], explainer)
    asked = X if rows is None else rows
    matrix = explainer._matrix(asked)
    setting = explainer._setting(None)
    masks = [explainer._select(explainer._run(selector, matrix), setting) for selector in selectors]
    return Stability(explainer.explain(asked), np.stack(masks))


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    whole = is_whole(seeds)
    numbers = list(range(int(seeds))) if whole else list(seeds)  # type: ignore[arg-type]
    if len(numbers) < 2 or len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise InputError(
            f"seeds must be at least 2, or a list of different numbers from 0, but is {seeds!r}."
        )
    return [int(number) for number in numbers]
