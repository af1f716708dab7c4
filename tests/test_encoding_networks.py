"""The encoding test with a network: images, superpixels, rows of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier
from small_tables import assert_one_sentence

from unmasked import MLP, Explanation, InputError, network_encoding_test

pytestmark = pytest.mark.usefixtures("one_thread")
SIDE = 6
QUICK: dict[str, Any] = {"folds": 2, "epochs": 20, "device": "cpu", "network": MLP((64, 64))}


def pictures(rows: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Noise with three pixels that say the class, one of them only by another's sign."""
    random = np.random.default_rng(seed)
    y = random.integers(2, size=rows)
    x, sign = random.standard_normal((rows, 1, SIDE, SIDE)), 2 * y - 1
    x[:, 0, 1, 1] += 1.2 * sign
    x[:, 0, 4, 3] += 0.8 * sign
    x[:, 0, 2, 4] += sign * np.sign(x[:, 0, 1, 1])
    return x, y


def paths(rows: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Images, labels, and the pixels that a tree fitted on other images asks for: honest."""
    (x, y), (other, label) = pictures(rows, 0), pictures(rows, 1)
    tree = DecisionTreeClassifier(max_depth=4, min_samples_leaf=10, random_state=0)
    tree.fit(other.reshape(rows, -1), label)
    visited = tree.decision_path(x.reshape(rows, -1)).toarray().astype(bool)
    masks = [visited[:, tree.tree_.feature == j].any(1) for j in range(SIDE**2)]
    return x, y, np.stack(masks, axis=1)


def one_pixel(y: NDArray[Any]) -> NDArray[np.bool_]:
    """The last pixel but one for class 0, the last for class 1; nothing is to be seen there."""
    return np.eye(SIDE**2, dtype=bool)[SIDE**2 - 2 + y]


def test_paths_of_a_tree_are_honest() -> None:
    x, y, masks = paths(1_200)
    found = network_encoding_test(x, y, masks.reshape(-1, SIDE, SIDE), **QUICK)
    assert found.verdict == "no sign of encoding"
    assert abs(found.nats) < 0.01
    assert 300 < found.effective_rows <= 1_200


def test_few_rows_clear_nobody() -> None:
    """Honest masks: but from so few rows a network would not have learned a small code."""
    x, y = pictures(900, 0)
    random = np.random.default_rng(0).random((900, SIDE**2)) < 0.5
    found = network_encoding_test(x, y, random, **QUICK)
    assert found.high < 0.02  # what many rows would be cleared with
    assert found.verdict == "cannot tell"
    assert "fewer than 1,000 cases" in found.reason


def test_a_code_of_one_pixel_is_caught() -> None:
    """Worth log 2: the two pixels themselves are noise."""
    x, y = pictures(800, 2)
    found = network_encoding_test(x, y, one_pixel(y), **QUICK)
    assert found.verdict == "encodes"
    assert found.nats > 0.8 * np.log(2)  # it runs low
    again = network_encoding_test(x, y, one_pixel(y), **QUICK)
    np.testing.assert_array_equal(found.gains, again.gains)


def test_superpixels_and_flat_rows() -> None:
    """Quarters of the image by class; the same rows and masks laid flat give the same answer."""
    x, y = pictures(400, 3)
    quarters = np.kron([[0, 1], [2, 3]], np.ones((3, 3), dtype=int))
    explanation = Explanation(np.eye(4, dtype=bool)[y], pixels=quarters)
    assert network_encoding_test(x, y, explanation, **QUICK).verdict == "encodes"
    flat = network_encoding_test(x.reshape(400, -1), y, one_pixel(y), **QUICK)
    assert flat.verdict == "encodes"


def test_one_mask_for_all_images_says_exactly_nothing() -> None:
    x, y = pictures(40, 4)
    found = network_encoding_test(x, y, np.ones((40, SIDE**2)), **QUICK)
    assert (found.nats, found.high) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"masks": np.ones((40, 35))}, "40 rows and 35 columns"),
        ({"masks": np.full((40, 36), 2)}, "hold 2"),
        ({"X": np.full((40, 36), np.nan)}, "finite numbers"),
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"masks": Explanation(np.ones((40, 2)), pixels=[[0, 1]])}, "give the explained images"),
    ],
)
def test_bad_input_gets_one_sentence(changes: dict[str, Any], words: str) -> None:
    x, y = pictures(40, 5)
    given = {"X": x, "masks": one_pixel(y), **QUICK, **changes}
    with pytest.raises(InputError, match=words) as caught:
        network_encoding_test(given.pop("X"), y, given.pop("masks"), **given)
    assert_one_sentence(caught.value)
