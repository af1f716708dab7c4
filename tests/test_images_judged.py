"""Evaluators of images, and what is saved and loaded of all that is fitted to them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from small_images import (
    BYTES,
    CELLS,
    LONGER,
    REGIONS,
    RIGHT,
    WIDE,
    Paint,
    X,
    Y,
    assert_same,
    conv_predictor,
    conv_selector,
    made,
    only,
    pictures,
    roar,
    some_masks,
    subsets,
    trained_real_x,
)
from small_tables import (
    EXPLAINERS,
    assert_one_sentence,
    boosted,
    posthoc,
    quick,
    quick_evaluator,
    quick_full,
)

from unmasked import Blur, EvalX, ImageMean, InputError, RealX, SavedError, Superpixels, Zero
from unmasked.masks.maskers import Masker

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained() -> RealX:
    return trained_real_x()


# ---------------------------------------------------------------------- evaluators


@pytest.fixture(scope="module")
def evaluators() -> dict[str, Any]:
    """All that judge what masks show, each trained on superpixels."""
    x, y = pictures(400)
    settings: dict[str, Any] = {"predictor": WIDE, "training": LONGER, "masker": CELLS}
    return {
        "EvalX": quick_evaluator(**settings, members=2).fit(x, y),
        "Roar": roar(**settings).fit(x, y, masks=some_masks(400)),
        "PostHoc": posthoc(**settings).fit(x, y),
        "SubsetCollection": subsets(
            **{**settings, "training": replace(LONGER, epochs=10, learning_rate=0.02)}
        ).fit(x, y),
    }


JUDGES = ["EvalX", "Roar", "PostHoc", "SubsetCollection"]


@pytest.mark.parametrize("name", JUDGES)
def test_evaluators_tell_the_right_superpixel_from_the_wrong_ones(
    evaluators: dict[str, Any], name: str
) -> None:
    x, y = pictures(1000, seed=1)
    chance = 5 * math.sqrt(0.25 / 1000)  # five standard errors
    for cell in range(4):
        accuracy = (evaluators[name].predict(x, only(cell, 1000)) == y).mean()
        if cell == RIGHT:
            assert accuracy > 0.97
        else:
            assert abs(accuracy - 0.5) < chance


@pytest.mark.parametrize("name", JUDGES)
def test_what_is_hidden_cannot_change_an_evaluator(evaluators: dict[str, Any], name: str) -> None:
    x, _ = pictures(40, seed=2)
    masks = some_masks(40, seed=1)
    shown = masks[:, CELLS.bound((1, 8, 8)).map][:, None]
    other = np.where(shown, x, -3 * x[::-1])
    assert (other != x).any(axis=(1, 2, 3)).sum() > 30
    found = evaluators[name].predict_proba(x, masks)
    np.testing.assert_array_equal(evaluators[name].predict_proba(other, masks), found)
    assert (evaluators[name].predict_proba(other) != evaluators[name].predict_proba(x)).any()


@pytest.mark.parametrize("name", JUDGES)
def test_an_explanation_is_judged(evaluators: dict[str, Any], trained: RealX, name: str) -> None:
    x, y = pictures(300, seed=3)
    scores = evaluators[name].evaluate(trained.explain(x), x, y, bootstrap_draws=20)
    found = scores.rows
    assert found["explanation"]["eauroc"].value > 0.97
    assert found["explanation"]["eauroc"].value > found["random"]["eauroc"].value + 0.1
    assert found["nothing"]["eauroc"].value == pytest.approx(0.5)


def test_the_collection_has_a_model_for_each_of_sixteen_subsets(
    evaluators: dict[str, Any],
) -> None:
    models = evaluators["SubsetCollection"]
    assert models.stack_.count == 16
    x, _ = pictures(20, seed=4)
    masks = some_masks(20, seed=5)
    inputs = torch.from_numpy(models.columns_.matrix(x))
    found = models.predict_proba(x, masks)
    for i, mask in enumerate(masks):
        shown = models.masker_(inputs[i : i + 1], torch.from_numpy(mask[None]).float())
        with torch.no_grad():
            expected = torch.softmax(models.subset_model(mask)(shown), -1)
        np.testing.assert_allclose(found[i], expected[0], rtol=0, atol=1e-6)  # float32


def test_post_hoc_hides_with_zeros_and_pixel_by_pixel_by_default() -> None:
    fitted = posthoc().fit(X, Y)
    assert fitted.masker_ == Superpixels(masker=Zero()).bound((1, 8, 8))


def test_trees_judge_pixels() -> None:
    """NaN says that a pixel is hidden, in all channels."""
    x, y = pictures(200, channels=3)
    trees = HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=5)
    evaluator = boosted(estimator=trees, mask_copies=10).fit(x, y)
    assert evaluator._sizes[1] == 64
    other, z = pictures(300, channels=3, seed=1)
    right = np.zeros((300, 8, 8), dtype=bool)
    right[:, 4:, :4] = True
    masks = right.reshape(300, 64)
    assert (evaluator.predict(other, masks) == z).mean() > 0.85
    chance = 5 * math.sqrt(0.25 / 300)
    assert abs((evaluator.predict(other, ~masks) == z).mean() - 0.5) < chance
    changed = np.where(right[:, None], other, 9 - other)
    np.testing.assert_array_equal(
        evaluator.predict_proba(changed, masks), evaluator.predict_proba(other, masks)
    )


def test_roar_learns_from_its_own_superpixels_only() -> None:
    masks = quick(masker=Superpixels((1, 4))).fit(X, Y).explain(X)
    with pytest.raises(InputError, match="superpixels are not the evaluator's") as caught:
        roar(masker=CELLS).fit(X, Y, masks=masks)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("masker", [CELLS, Superpixels(labels=REGIONS)], ids=["grid", "labels"])
def test_trees_of_pixels_judge_any_superpixels(masker: Superpixels) -> None:
    trees, explanation = boosted().fit(X, Y), quick(masker=masker).fit(X, Y).explain(X)
    pixels = explanation.pixel_masks().reshape(60, 64)
    scores = trees.evaluate(explanation, X, Y, bootstrap_draws=3)
    assert scores.rows == trees.evaluate(pixels, X, Y, bootstrap_draws=3).rows


# ---------------------------------------------------------------------- on disk


SAVED: dict[str, Masker | None] = {
    "nothing said": None,
    "grid": Superpixels((2, 4)),
    "labels": Superpixels(labels=REGIONS),
    "blur": Superpixels(2, masker=Blur(1.25)),
    "mean": Superpixels(2, masker=ImageMean()),
    "zero": Superpixels(2, masker=Zero()),
    "pixels blurred": Blur(2),
}


@pytest.mark.parametrize("what", SAVED)
def test_what_was_saved_is_loaded(what: str, tmp_path: Path) -> None:
    fitted = quick(masker=SAVED[what], sparsity=[0.1, 0.5]).fit(BYTES, Y)
    fitted.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", device="cpu")
    assert loaded.masker_ == fitted.masker_
    assert loaded.columns_ == fitted.columns_
    assert loaded.n_features_in_ == fitted.n_features_in_
    assert_same(loaded, fitted, BYTES)
    np.testing.assert_array_equal(loaded.transform(BYTES), fitted.transform(BYTES))
    one, other = loaded.explain(BYTES).pixels, fitted.explain(BYTES).pixels
    np.testing.assert_array_equal(one, other)
    with pytest.raises(InputError, match=r"3 × 8 × 8 .* as in training but are 1 × 8 × 8"):
        loaded.explain(X)


@pytest.mark.parametrize("name", EXPLAINERS)
def test_every_explainer_is_saved(name: str, tmp_path: Path) -> None:
    fitted = EXPLAINERS[name](masker=CELLS).fit(X, Y)
    fitted.save(tmp_path / "model")
    assert_same(type(fitted).load(tmp_path / "model", device="cpu"), fitted)


@pytest.mark.parametrize("name", JUDGES)
def test_every_evaluator_is_saved(evaluators: dict[str, Any], name: str, tmp_path: Path) -> None:
    fitted = evaluators[name]
    fitted.save(tmp_path / "model")
    loaded = type(fitted).load(tmp_path / "model", device="cpu")
    masks = some_masks(60)
    np.testing.assert_array_equal(loaded.predict_proba(X, masks), fitted.predict_proba(X, masks))


def test_trees_of_pixels_are_saved(tmp_path: Path) -> None:
    fitted = boosted().fit(X, Y)
    fitted.save(tmp_path / "model")
    masks = some_masks(60, 64)
    np.testing.assert_array_equal(
        EvalX.load(tmp_path / "model").predict_proba(X, masks), fitted.predict_proba(X, masks)
    )


def test_networks_of_pictures_are_passed_again(tmp_path: Path) -> None:
    networks: dict[str, Any] = {"predictor": made(conv_predictor, 2, 2), "selector": conv_selector}
    fitted = quick(**networks, masker=CELLS, sparsity=[0.1, 0.5]).fit(X, Y)
    fitted.save(tmp_path / "model")
    assert_same(RealX.load(tmp_path / "model", **networks, device="cpu"), fitted)
    with pytest.raises(SavedError, match=r"its own selector .*; pass one as load") as caught:
        RealX.load(tmp_path / "model", predictor=conv_predictor)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("make", [quick_full, posthoc, roar, subsets])
def test_networks_of_pictures_are_passed_again_to_what_has_one(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    fitted = make(predictor=conv_predictor, masker=CELLS).fit(X, Y)
    fitted.save(tmp_path / "model")
    loaded = type(fitted).load(tmp_path / "model", predictor=conv_predictor, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))


def test_a_masker_of_ones_own_is_passed_again(tmp_path: Path) -> None:
    fitted = quick(masker=Superpixels(2, masker=Paint())).fit(X, Y)
    fitted.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", masker=Paint(), device="cpu")
    assert loaded.masker_ == fitted.masker_
    assert_same(loaded, fitted)
    as_to_fit = RealX.load(tmp_path / "model", masker=Superpixels(2, masker=Paint()), device="cpu")
    assert_same(as_to_fit, fitted)
    with pytest.raises(SavedError, match=r"its own masker Paint; pass it as load\(masker=…\)"):
        RealX.load(tmp_path / "model", device="cpu")


def test_a_saved_map_is_plain_numbers(tmp_path: Path) -> None:
    quick(masker=Superpixels(labels=REGIONS, masker=Blur(2))).fit(X, Y).save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["masker"]["labels"] == REGIONS.tolist()
    assert config["masker"]["masker"] == {"kind": "Blur", "sigma": 2.0}
    assert config["masker"]["shape"] == config["columns"]["shape"] == [1, 8, 8]


def test_a_checkpoint_knows_its_superpixels(tmp_path: Path) -> None:
    """A finished run is read back; one with another map of as many regions is not taken for it."""

    def explainer(labels: Any) -> RealX:
        return quick(masker=Superpixels(labels=labels), checkpoint=tmp_path)

    first = explainer(REGIONS).fit(X, Y)
    again = explainer(REGIONS).fit(X, Y)
    assert_same(again, first)
    assert again.history_ == first.history_
    with pytest.raises(SavedError, match="a run with other data or options"):
        explainer(REGIONS.T).fit(X, Y)
