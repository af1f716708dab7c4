"""Evaluators of images: whose superpixels, saving with own networks, augmentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from unmasked import (
    Blur,
    EvalX,
    Explanation,
    InputError,
    RealX,
    Roar,
    SavedError,
    Shift,
    Superpixels,
    Training,
)

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 1, 4, 8)).astype(np.float32)
Y = (X[:, 0, 0, 0] > 0).astype(int)
BRIEF = Training(epochs=2, batch_size=40)


def evaluator(masker: Any, **more: Any) -> EvalX:
    return EvalX(
        masker=masker, training=BRIEF, progress=False, device="cpu", random_state=0, **more
    ).fit(X, Y)


def explanation(masker: Superpixels) -> Explanation:
    bound = masker.bound(X.shape[1:])
    masks = RANDOM.uniform(size=(len(X), len(bound.names))) < 0.5
    return Explanation(masks, feature_names=bound.names, pixels=bound.map)


def test_other_superpixels_of_the_same_number_are_refused() -> None:
    """Their masks would be read on the wrong regions."""
    judge = evaluator(Superpixels((4, 2)))
    assert judge.evaluate(explanation(Superpixels((4, 2))), X, Y, bootstrap_draws=10)
    with pytest.raises(InputError, match="superpixels are not the evaluator's"):
        judge.evaluate(explanation(Superpixels((2, 4))), X, Y, bootstrap_draws=10)


def test_an_evaluator_of_pixels_takes_any_superpixels() -> None:
    judge, given = evaluator(None), explanation(Superpixels((2, 4)))
    found = judge.predict_proba(X, given)
    pixels = given.pixel_masks().reshape(len(X), -1)
    assert np.array_equal(found, judge.predict_proba(X, pixels))


def test_images_of_another_size_are_refused() -> None:
    other = Superpixels().bound((1, 8, 4))
    masks = np.ones((len(X), 32), dtype=bool)
    with pytest.raises(InputError, match="images of one size"):
        evaluator(None).evaluate(Explanation(masks, pixels=other.map), X, Y)


def convolution(shape: tuple[int, int, int], outputs: int) -> nn.Module:
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 2, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(2 * height * width, outputs),
    )  # fmt: skip


def test_an_evaluator_with_its_own_network_is_saved_and_loaded(tmp_path: Path) -> None:
    judge = evaluator(Superpixels(2), predictor=convolution)
    judge.save(tmp_path / "judge")
    loaded = EvalX.load(tmp_path / "judge", predictor=convolution, device="cpu")
    assert np.array_equal(loaded.predict_proba(X), judge.predict_proba(X))


class Grey(Blur):
    """A user's own kind of blur."""

    def filled(self, images: torch.Tensor) -> torch.Tensor:
        return torch.full_like(images, 0.5)


def test_a_users_own_fill_must_be_passed_again(tmp_path: Path) -> None:
    masker = Superpixels(2, masker=Grey())
    explainer = RealX(
        sparsity=0.1, masker=masker, training=BRIEF, progress=False, device="cpu", random_state=0
    ).fit(X, Y)
    explainer.save(tmp_path / "model")
    with pytest.raises(SavedError, match="own masker Grey"):
        RealX.load(tmp_path / "model")
    for given in (Grey(), masker):
        loaded = RealX.load(tmp_path / "model", masker=given, device="cpu")
        assert np.array_equal(loaded.predict_proba(X), explainer.predict_proba(X))


def test_masks_that_came_with_the_rows_do_not_move_with_them() -> None:
    roar = Roar(training=Training(epochs=1, augment=Shift(1)), progress=False, random_state=0)
    with pytest.raises(InputError, match="augment changes rows but not the masks"):
        roar.fit(X, Y, masks=np.ones((len(X), 32), dtype=bool))
