"""Rows like the training rows are familiar at the promised rate; rows far out are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_tables import frame, rows

from unmasked import MLP, RealX, Training
from unmasked.errors import InputError
from unmasked.explainers.novelty import Reach

pytestmark = pytest.mark.usefixtures("one_thread")


def drawn(count: int, seed: int, columns: int = 5) -> np.ndarray:
    """Skewed, heavy-tailed and correlated: nothing normal about it."""
    random = np.random.default_rng(seed)
    base = random.standard_t(4, size=(count, columns)) ** 2
    return (base @ np.triu(np.ones((columns, columns)))).astype(np.float32)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.5])
def test_as_many_rows_are_unfamiliar_as_promised(alpha: float) -> None:
    """P(p ≤ α) = ⌊α (n + 1)⌋ / (n + 1) over held-out rows and new ones together."""
    held_out, new, repeats = 199, 50, 200
    rates = [
        (Reach.learn(drawn(300, 3 * i), drawn(held_out, 3 * i + 1)).familiarity(
            drawn(new, 3 * i + 2)
        ) <= alpha).mean()
        for i in range(repeats)
    ]  # fmt: skip
    expected = np.floor(alpha * (held_out + 1)) / (held_out + 1)
    error = np.std(rates, ddof=1) / np.sqrt(repeats)
    assert abs(np.mean(rates) - expected) < 4 * error


def test_rows_far_out_and_against_the_grain_are_unfamiliar() -> None:
    random = np.random.default_rng(0)
    first = random.normal(size=(1000, 1))
    rows_ = np.hstack([first, first + 0.1 * random.normal(size=(1000, 1))]).astype(np.float32)
    reach = Reach.learn(rows_[:800], rows_[800:])
    far, against, middle = np.float32([[9, 9], [2, -2], [0, 0]])  # type: ignore[arg-type]
    p = reach.familiarity(np.stack([far, against, middle]))
    assert p[0] == p[1] == 1 / 201  # no held-out row is as far
    assert p[2] > 0.9


def test_the_distance_is_mahalanobis() -> None:
    x = drawn(500, 0)
    reach = Reach.learn(x, x)
    from sklearn.covariance import LedoitWolf

    fitted = LedoitWolf().fit(x.astype(np.float64))
    np.testing.assert_allclose(reach.distance(x) ** 2, fitted.mahalanobis(x), rtol=1e-6)


def test_constant_and_many_columns() -> None:
    x = np.hstack([drawn(100, 0), np.zeros((100, 1), np.float32)])
    assert np.isfinite(Reach.learn(x, x).familiarity(x)).all()
    wide = np.random.default_rng(0).normal(size=(60, 1200)).astype(np.float32)
    reach = Reach.learn(wide[:40], wide[40:])
    assert reach.familiarity(9 * wide)[0] == 1 / 21


def test_held_out_distances_are_thinned_evenly() -> None:
    x = drawn(9000, 0)
    reach = Reach.learn(x[:100], x)
    assert len(reach.distances) == 2000
    p = reach.familiarity(x)
    np.testing.assert_allclose(np.sort(p), np.arange(1, 9001) / 9000, atol=2e-3)


def test_an_explainer_knows_and_remembers(tmp_path: Path) -> None:
    table, y = frame(200)
    settings = {"selector": MLP((8,)), "predictor": MLP((8,)), "device": "cpu", "random_state": 0}
    model = RealX(0.1, training=Training(epochs=1), **settings).fit(table, y)  # type: ignore[arg-type]
    assert model.familiarity(table).mean() > 0.2
    strange = table.assign(age=100.0)
    assert (model.familiarity(strange) < 0.05).all()
    model.save(tmp_path / "model")
    again = RealX.load(tmp_path / "model")
    np.testing.assert_array_equal(again.familiarity(strange), model.familiarity(strange))
    images = np.random.default_rng(0).random((40, 1, 4, 4)).astype(np.float32)
    pictures = RealX(0.1, training=Training(epochs=1), **settings)  # type: ignore[arg-type]
    pictures.fit(images, rows(40)[1])
    with pytest.raises(InputError, match="familiarity is known for tables"):
        pictures.familiarity(images)
