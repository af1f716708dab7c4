"""Real and shuffled pairs: nobody keeps a mask, nothing held out takes part, weights are even."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin

from unmasked import encoding_test
from unmasked.evaluation.encoding.rows import shuffled
from unmasked.evaluation.encoding.tables import odds, share

ROWS, BITS = 100, 7


class Recorder(ClassifierMixin, BaseEstimator):
    """A classifier that says ½ and keeps what it was given."""

    fitted: ClassVar[list[tuple[Any, Any, Any]]] = []
    asked: ClassVar[list[Any]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Recorder:
        self.classes_ = np.unique(y)
        self.fitted.append((X, y, sample_weight))
        return self

    def predict_proba(self, X: Any) -> Any:
        self.asked.append(X)
        return np.full((len(X), 2), 0.5)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class Weightless(Recorder):
    def fit(self, X: Any, y: Any) -> Weightless:  # type: ignore[override]
        super().fit(X, y)
        return self


def numbered() -> tuple[Any, Any, Any]:
    """Row i has the value i everywhere and the mask i + 1 in binary, so that pairs can be read."""
    number = np.arange(ROWS)
    masks = (number[:, None] + 1) >> np.arange(BITS) & 1
    return np.repeat(number[:, None].astype(float), BITS, axis=1), number % 2, masks.astype(bool)


def read(matrix: Any) -> tuple[Any, Any, Any, Any]:
    """Row, the row whose mask it has, |v| and c of each pair."""
    shown = ~np.isnan(matrix[:, :BITS])
    giver = (shown << np.arange(BITS)).sum(1) - 1
    return np.nanmax(matrix[:, :BITS], axis=1).astype(int), giver, matrix[:, -2], matrix[:, -1]


@pytest.mark.parametrize("estimator", [Recorder(), Weightless()])
def test_pairs_are_what_they_should_be(estimator: Any) -> None:
    x, y, masks = numbered()
    Recorder.fitted.clear()
    Recorder.asked.clear()
    found = encoding_test(x, y, masks, estimator=estimator, folds=4, shuffles=3)
    assert found.nats == 0
    assert len(Recorder.fitted) == 4
    held_in_all = []
    for fold, (matrix, label, weight) in enumerate(Recorder.fitted):
        row, giver, size, c = read(matrix)
        real = c == 1
        np.testing.assert_array_equal(row[real], giver[real])
        assert (row[~real] != giver[~real]).all()
        np.testing.assert_array_equal(size, masks.sum(1)[giver])
        np.testing.assert_array_equal(label, y[row])
        assert set(giver) == set(row)  # every mask is of a row that is fitted on
        assert (np.bincount(giver[~real], minlength=ROWS)[np.unique(row)] == 3).all()
        total = np.ones(len(c)) if weight is None else weight
        assert total[real].sum() == pytest.approx(total[~real].sum())
        for c_asked, asked in zip((1, 0), Recorder.asked[2 * fold : 2 * fold + 2], strict=True):
            held, own, _, told = read(asked)
            np.testing.assert_array_equal(held, own)  # judged with its own mask
            assert (told == c_asked).all()
            assert not set(held) & set(row)
        held_in_all += held.tolist()
    assert sorted(held_in_all) == list(range(ROWS))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=60), st.integers(0, 10**6))
def test_a_shuffle_leaves_no_mask_in_its_group(groups: list[int], seed: int) -> None:
    values = np.array(groups)
    giver = shuffled(values, np.random.default_rng(seed))
    assert sorted(giver) == list(range(len(values)))
    assert (giver != np.arange(len(values))).all()
    if 2 * np.bincount(values).max() <= len(values):
        assert (values[giver] != values).all()


def test_shuffles_reach_every_other_row() -> None:
    random = np.random.default_rng(0)
    reached = {int(shuffled(np.arange(6), random)[0]) for _ in range(200)}
    assert reached == {1, 2, 3, 4, 5}


def test_weights_are_cut_and_their_share_is_the_effective_one() -> None:
    weights = odds(np.array([0.5, 0.5, 1.0]))
    np.testing.assert_allclose(weights, np.array([1, 1, 20]) / (22 / 3))
    assert share(np.ones(7)) == 1
    assert share(np.array([1.0, 0, 0, 0])) == 0.25
