"""Networks of the user's own that are given pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_images import (
    CELLS,
    CONV,
    REGIONS,
    RGB,
    Paint,
    X,
    Y,
    assert_same,
    conv_predictor,
    conv_selector,
    made,
)
from small_tables import EXPLAINERS, SHORT, assert_one_sentence, quick
from torch import Tensor, nn

from unmasked import Blur, InputError, RealX, SetMLP, Superpixels, Training

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------------- networks of the user's own


class Squeezed(nn.Module):
    """A predictor of pictures that returns what it should, or something else."""

    def __init__(self, shape: tuple[int, int, int], outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(math.prod(shape), outputs)
        self.shape = shape

    def forward(self, x: Tensor) -> Any:
        assert x.shape[1:] == self.shape
        return self.layer(x.flatten(1))


class Twice(Squeezed):
    def forward(self, x: Tensor) -> Any:
        result = super().forward(x)
        return result, result


class Single(Squeezed):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x)[:, 0]


def test_modules_and_factories_are_given_pictures() -> None:
    """What is shown has one channel more, for the mask; the selector sees the image."""
    shapes = []

    class Seen(Squeezed):
        def __init__(self, shape: tuple[int, int, int], outputs: int) -> None:
            super().__init__(shape, outputs)
            shapes.append((shape, outputs))

    fitted = quick(predictor=Seen, selector=Seen, masker=Superpixels((2, 4))).fit(RGB, Y)
    assert shapes == [((4, 8, 8), 2), ((3, 8, 8), 8)]
    assert fitted.explain(RGB).masks.shape == (60, 8)
    shapes.clear()
    blurred = Superpixels((2, 4), masker=Blur(1))
    quick(predictor=Seen, selector=Seen, masker=blurred).fit(RGB, Y)
    assert shapes[0] == ((3, 8, 8), 2)


@pytest.mark.parametrize("ready", [True, False], ids=["modules", "factories"])
@pytest.mark.parametrize("name", EXPLAINERS)
def test_every_explainer_takes_networks_of_pictures(name: str, ready: bool) -> None:
    networks = {"predictor": made(conv_predictor, 4, 2), "selector": made(conv_selector, 3, 4)}
    chosen: dict[str, Any] = networks if ready else CONV
    if name == "Full":
        chosen = {"predictor": chosen["predictor"]}
    fitted = EXPLAINERS[name](**chosen, masker=CELLS).fit(RGB, Y)
    assert fitted.explain(RGB).masks.shape == (60, 4)
    before = networks["predictor"].state_dict()
    after = fitted.predictor_.state_dict()
    assert [tuple(v.shape) for v in after.values()] == [tuple(v.shape) for v in before.values()]
    if ready:  # the user's module was copied, not trained
        again = made(conv_predictor, 4, 2).state_dict()
        assert all(torch.equal(before[key], again[key]) for key in before)
        moved = zip(after.values(), before.values(), strict=True)
        assert all(not torch.equal(this, that) for this, that in moved)


def test_a_map_of_logits_is_read_line_by_line() -> None:
    """A selector that likes bright cells shows the bright ones."""
    pool = nn.Sequential(nn.AdaptiveAvgPool2d((2, 4)), nn.Conv2d(1, 1, 1))
    with torch.no_grad():
        pool[1].weight.fill_(1e4)
        pool[1].bias.fill_(0.0)
    still = replace(SHORT, epochs=1, selector_learning_rate=1e-12)
    fitted = quick(selector=pool, masker=Superpixels((2, 4)), training=still).fit(X, Y)
    standard = (X - X.mean()) / X.std()
    bright = standard.reshape(60, 2, 4, 4, 2).mean((2, 4)) > 0
    np.testing.assert_array_equal(fitted.explain(X).masks, bright.reshape(60, 8))


@pytest.mark.parametrize(
    "masker", [Superpixels((3, 2)), Superpixels(labels=REGIONS)], ids=["grid", "labels"]
)
def test_a_map_of_pixels_shows_the_superpixels_with_a_mean_above_zero(
    masker: Superpixels, tmp_path: Path
) -> None:
    """Also once it is saved: which pixels belong together is the masker's to know."""
    pixels = nn.Conv2d(1, 1, 1)
    with torch.no_grad():
        pixels.weight.fill_(1e4)
        pixels.bias.fill_(0.0)  # type: ignore[union-attr]
    still = replace(SHORT, epochs=1, selector_learning_rate=1e-12)
    fitted = quick(selector=pixels, masker=masker, training=still).fit(X, Y)
    standard = (X[:, 0] - X.mean()) / X.std()
    cells = fitted.masker_.map
    masks = fitted.explain(X).masks
    for b in range(60):
        for feature in range(cells.max() + 1):
            places = [(i, j) for i in range(8) for j in range(8) if cells[i, j] == feature]
            assert masks[b, feature] == (math.fsum(standard[b, i, j] for i, j in places) > 0)
    fitted.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", selector=pixels, device="cpu")
    assert_same(loaded, fitted)


def not_yet(x: Tensor, u: Tensor) -> Tensor:
    raise AssertionError("training has begun")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too many classes": (
        {"predictor": made(conv_predictor, 2, 5)},
        r"predictor must return shape \(2, 2\) .*\(2, 128\), but returned \(2, 5\)",
    ),
    "channels of the image only": (
        {"predictor": made(conv_predictor, 1, 2)},
        r"predictor must take .*\(batch, 128\) and return \(batch, 2\), but it failed .*"
        r"\[2, 2, 8, 8\] to have 1 channels",
    ),
    "as many logits as some pixels": (
        {"selector": nn.Conv2d(1, 1, 3)},
        r"selector must return shape \(2, 4\) .*\(2, 64\), but returned \(2, 36\)",
    ),
    "a map of other cells": (
        {"selector": made(conv_selector, 1, 9)},
        r"selector must return shape \(2, 4\) .*\(2, 64\), but returned \(2, 9\)",
    ),
    "two maps": (
        {"selector": nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Conv2d(1, 2, 1))},
        r"selector must return shape \(2, 4\) .*\(2, 64\), but returned \(2, 8\)",
    ),
    "a network of rows": (
        {"predictor": nn.Linear(128, 2)},
        r"predictor must take .*\(batch, 128\) and return \(batch, 2\), but it failed",
    ),
    "a pair of results": (
        {"predictor": Twice},
        r"predictor must return shape \(2, 2\) .*\(2, 128\), but returned tuple",
    ),
    "one number for each image": (
        {"predictor": Single},
        r"predictor must return shape \(2, 2\) .*\(2, 128\), but returned \(2,\)",
    ),
    "a factory for tables": (
        {"predictor": nn.Linear},
        r"called with \(\(channels, height, width\), outputs\), here \(\(2, 8, 8\), 2\), but it",
    ),
    "a factory of nothing": (
        {"selector": lambda shape, outputs: outputs},
        "must return a torch.nn.Module but returned int",
    ),
    "a set of three channels": (
        {"predictor": SetMLP((4,)), "masker": Superpixels(2, masker=Paint())},
        "SetMLP is a predictor that takes one channel and its mask .* but is given 1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_network_of_the_wrong_shape_is_refused_before_training(case: str) -> None:
    changes, words = WRONG[case]
    explainer = quick(**{"masker": CELLS, **changes}, training=Training(augment=not_yet))
    with pytest.raises(InputError, match=words) as caught:
        explainer.fit(X, Y)
    assert "\n" not in str(caught.value)


def test_a_network_of_the_right_shape_is_trained() -> None:
    """Else the test above would not see that training has begun."""
    with pytest.raises(AssertionError, match="training has begun"):
        quick(masker=CELLS, training=Training(augment=not_yet)).fit(X, Y)


def test_a_set_network_reads_grey_images_and_no_others() -> None:
    fitted = quick(predictor=SetMLP((4,), 4, 4), masker=CELLS).fit(X, Y)
    assert fitted.predict_proba(X).shape == (60, 2)
    with pytest.raises(InputError, match="is given 4; use it with grey images") as caught:
        quick(predictor=SetMLP((4,)), masker=CELLS).fit(RGB, Y)
    assert_one_sentence(caught.value)
    with pytest.raises(InputError, match="SetMLP is a predictor"):
        quick(selector=SetMLP((4,)), masker=CELLS).fit(X, Y)
