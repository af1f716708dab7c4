"""Do explainers that differ in nothing but their seed select the same?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from unmasked import Explanation, RealX, Stability, Training, stability
from unmasked.errors import InputError

pytestmark = pytest.mark.usefixtures("one_thread")
RANDOM = np.random.default_rng(0)
ROWS = 400
COLUMN = RANDOM.normal(size=ROWS)
Y = (COLUMN > 0).astype(int)
NOISE = RANDOM.normal(size=(ROWS, 2))
FAST = Training(epochs=25, batch_size=50, learning_rate=1e-2, selector_learning_rate=1e-2)


def explainer(price: float = 0.3, **options: Any) -> RealX:
    settings = {"training": FAST, "device": "cpu", "random_state": 0, **options}
    return RealX(price, **settings)


def by_hand(own: list[list[int]], others: list[list[list[int]]]) -> Stability:
    masks = np.array(own, dtype=bool)
    names = [f"x{i}" for i in range(masks.shape[1])]
    return Stability(Explanation(masks, masks.astype(float), names), np.array(others, dtype=bool))


def test_figures_by_hand() -> None:
    found = by_hand(
        [[1, 0, 0], [1, 1, 0], [0, 0, 0]],
        [
            [[1, 0, 0], [1, 0, 0], [0, 0, 0]],
            [[1, 0, 0], [1, 0, 1], [0, 0, 0]],
            [[1, 1, 0], [0, 0, 1], [0, 0, 0]],
        ],
    )
    np.testing.assert_allclose(found.frequency, [[1, 1 / 3, 0], [2 / 3, 0, 2 / 3], [0, 0, 0]])
    # the second row's second feature is shown by none, its third by two of three
    np.testing.assert_array_equal(found.doubtful, [[0, 0, 0], [0, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(found.holds, [True, False, True])
    # |both| / |either|: 1, 1, 1/2;  1/2, 1/3, 0;  nothing shown by anybody
    np.testing.assert_allclose(found.agreement, [5 / 6, 5 / 18, 1])
    frame = found.to_frame()
    assert list(frame.columns) == ["x0", "x1", "x2", "agreement", "holds"]
    assert "holds across 3 seeds in 2 of 3 rows (67%)" in found.summary()


def test_a_feature_that_decides_alone_is_found_by_every_seed() -> None:
    table = pd.DataFrame({"age": COLUMN, "a": NOISE[:, 0], "b": NOISE[:, 1]}, index=range(7, 407))
    model = explainer().fit(table, Y)
    found = stability(model, table, Y, rows=table[:50], seeds=4)
    assert found.masks.shape == (4, 50, 3)
    assert found.holds.mean() > 0.9
    assert found.frequency[:, 0].mean() > 0.95
    assert list(found.to_frame().index) == list(range(7, 57))


def test_of_two_columns_that_say_the_same_seeds_take_either() -> None:
    """Nothing but chance decides which one is shown: the rows must not be called sure."""
    table = np.column_stack([COLUMN, COLUMN, NOISE])
    model = explainer(1.5).fit(table, Y)  # too dear to show both
    found = stability(model, table, Y, seeds=8)
    either = found.masks[..., :2].any(2).mean()
    assert either > 0.95  # all find what decides
    sure = stability(explainer(1.5).fit(table[:, 1:], Y), table[:, 1:], Y, seeds=8)
    assert found.agreement.mean() < sure.agreement.mean() - 0.1


@pytest.mark.parametrize("seeds", [1, [3, 3], [], [-1, 2]])
def test_seeds_that_cannot_be(seeds: Any) -> None:
    model = explainer(training=Training(epochs=1)).fit(NOISE, Y)
    with pytest.raises(InputError, match="seeds must be at least 2"):
        stability(model, NOISE, Y, seeds=seeds)


def test_other_rows_than_those_fitted_on_are_refused() -> None:
    model = explainer(training=Training(epochs=1)).fit(NOISE, Y)
    with pytest.raises(InputError, match="rows that the explainer was fitted on"):
        stability(model, NOISE + 1, Y, seeds=2)


def test_other_seeds_keep_their_training_elsewhere(tmp_path: Path) -> None:
    """A run with two seeds that was stopped, then one with three: the first is not in the way."""
    model = explainer(search=False, training=Training(epochs=1), checkpoint=tmp_path)
    model.fit(NOISE, Y)
    for seeds in (2, 3, [5, 6]):
        found = stability(model, NOISE, Y, seeds=seeds)
        assert len(found.masks) == (seeds if isinstance(seeds, int) else len(seeds))
    assert len(list(tmp_path.glob("realx-stability-*.safetensors"))) == 3
