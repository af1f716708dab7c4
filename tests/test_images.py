"""Images through the whole interface: small ones, whose label one quadrant alone decides."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from small_runs import FAST, train
from small_runs import TINY as TINY_RUN
from small_runs import numbers as state_dicts
from small_tables import (
    EXPLAINERS,
    PATHS,
    SELECTING,
    SHORT,
    assert_one_sentence,
    boosted,
    posthoc,
    quick,
    quick_evaluator,
    quick_full,
    quick_l2x,
    small,
)
from small_tables import rows as table_rows
from test_engine import assert_stacked_equals_separate
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from unmasked import (
    MLP,
    Bernoulli,
    Blur,
    EvalX,
    Explanation,
    ImageMean,
    InputError,
    PostHoc,
    RealX,
    Roar,
    SavedError,
    SetMLP,
    SubsetCollection,
    Superpixels,
    Token,
    Training,
    Zero,
    methods,
)
from unmasked.engine import Settings
from unmasked.masking import Groups, Masker
from unmasked.pixels import ForImages, Pixels

pytestmark = pytest.mark.usefixtures("one_thread")

RIGHT = 2  # lines 4 to 7, columns 0 to 3: the third cell of a 2 × 2 grid
GAP = 0.75


def pictures(
    count: int = 60, channels: int = 1, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """8 × 8 pixels of noise; the mean of quadrant `RIGHT` is ±0.75 with the label.

    With one channel the best accuracy is Φ(0.75 · √16) = 0.9987.
    """
    random = np.random.default_rng(seed)
    y = np.arange(count) % 2
    x = random.standard_normal((count, channels, 8, 8)).astype(np.float32)
    x[:, :, 4:, :4] += np.where(y == 1, GAP, -GAP).astype(np.float32)[:, None, None, None]
    return x, y


X, Y = pictures()
RGB, _ = pictures(channels=3)
BYTES = np.clip(np.round(60 * RGB + 120), 0, 255).astype(np.uint8)
CELLS = Superpixels(2)
REGIONS = np.array([[0] * 8] * 3 + [[2] * 4 + [1] * 4] * 5)
LONGER = Training(epochs=30, batch_size=40, learning_rate=0.01, selector_learning_rate=0.01)
WIDE = MLP((16,))


def numbers(fitted: Any, x: Any) -> tuple[NDArray[Any], ...]:
    """All that a fitted explainer says of images."""
    explanation = fitted.explain(x)
    return explanation.masks, explanation.probabilities, fitted.predict_proba(x)


def assert_same(one: Any, other: Any, x: Any = X) -> None:
    for this, that in zip(numbers(one, x), numbers(other, x), strict=True):
        np.testing.assert_array_equal(this, that)


def subsets(**changes: Any) -> SubsetCollection:
    return small(SubsetCollection, ("predictor",), **changes)


def roar(**changes: Any) -> Roar:
    return small(Roar, ("predictor",), **changes)


def only(cell: int, rows: int) -> NDArray[np.bool_]:
    """Masks that show one of four superpixels."""
    return np.arange(4) == np.full((rows, 1), cell)


def some_masks(rows: int, features: int = 4, seed: int = 0) -> NDArray[np.bool_]:
    return np.random.default_rng(seed).random((rows, features)) < 0.5


# ---------------------------------------------------------------------- networks of pictures


def conv_predictor(shape: tuple[int, int, int], outputs: int) -> nn.Module:
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 3, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(3 * height * width, outputs),
    )


def conv_selector(shape: tuple[int, int, int], outputs: int) -> nn.Module:
    """Returns a map (batch, 1, side, side), one logit for each cell."""
    side = math.isqrt(outputs)
    return nn.Sequential(
        nn.Conv2d(shape[0], 3, 3, padding=1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(side),
        nn.Conv2d(3, 1, 1),
    )


def made(factory: Callable[..., nn.Module], channels: int, outputs: int) -> nn.Module:
    """A ready module of a factory."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return factory((channels, 8, 8), outputs)


CONV: dict[str, Any] = {"predictor": conv_predictor, "selector": conv_selector}


# ---------------------------------------------------------------------- the same in every form


class Pairs(Dataset[Any]):
    """Images and labels as a user's own Dataset gives them."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        return self.images[i], self.labels[i]


FORMS: dict[str, Callable[[Any], Any]] = {
    "float64": lambda x: x.astype(np.float64),
    "not contiguous": lambda x: np.asfortranarray(x),
    "tensor": torch.from_numpy,
    "tensor that takes gradients": lambda x: torch.from_numpy(x.copy()).requires_grad_(),
    "list of arrays": list,
    "tuple of tensors": lambda x: tuple(torch.from_numpy(x)),
    "list of tensors that take gradients": lambda x: list(torch.tensor(x, requires_grad=True)),
    "nested lists": lambda x: x.tolist(),
}
DATASETS: dict[str, Callable[[Any, Any], Dataset[Any]]] = {
    "tensors": lambda x, y: TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
    "arrays and numbers": lambda x, y: Pairs(x, y.tolist()),
    "lists of tensors that take gradients": lambda x, y: Pairs(
        torch.tensor(x, requires_grad=True), torch.from_numpy(y)
    ),
}


@pytest.mark.parametrize("name", EXPLAINERS)
def test_every_form_gives_the_same_result(name: str) -> None:
    make = EXPLAINERS[name]
    x, y = pictures(40, channels=3)
    expected = make(masker=CELLS).fit(x, y)
    assert len(np.unique(expected.predict_proba(x), axis=0)) == 40, "a network that says one thing"
    forms = FORMS if name == "RealX" else {"tensor": FORMS["tensor"]}
    for form in forms.values():
        fitted = make(masker=CELLS).fit(form(x), y)
        assert_same(fitted, expected, x)
        for this, that in zip(numbers(expected, form(x)), numbers(expected, x), strict=True):
            np.testing.assert_array_equal(this, that)
    datasets = DATASETS if name == "RealX" else {"tensors": DATASETS["tensors"]}
    for dataset in datasets.values():
        fitted = make(masker=CELLS).fit(dataset(x, y))
        assert_same(fitted, expected, x)
        for this, that in zip(numbers(fitted, dataset(x, y)), numbers(fitted, x), strict=True):
            np.testing.assert_array_equal(this, that)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float16, bool])
def test_whole_numbers_give_the_same_as_their_float_copy(kind: Any) -> None:
    images = (BYTES > 120) if kind is bool else BYTES.astype(kind)
    fitted = quick(masker=CELLS).fit(images, Y)
    copy = images.astype(np.float32)
    assert_same(fitted, quick(masker=CELLS).fit(copy, Y), copy)
    for this, that in zip(numbers(fitted, images), numbers(fitted, copy), strict=True):
        np.testing.assert_array_equal(this, that)


def test_labels_of_a_dataset_are_learned_as_they_are() -> None:
    names = np.array(["cat", "dog"])[Y].tolist()
    fitted = quick(masker=CELLS).fit(Pairs(X, names))
    assert fitted.classes_.tolist() == ["cat", "dog"]
    assert_same(fitted, quick(masker=CELLS).fit(X, names))
    chances = np.stack([0.8 - 0.6 * Y, 0.2 + 0.6 * Y], 1).astype(np.float32)
    soft = quick(masker=CELLS).fit(TensorDataset(torch.from_numpy(X), torch.from_numpy(chances)))
    assert soft.soft_
    assert_same(soft, quick(masker=CELLS).fit(X, chances))


def test_labels_beside_a_dataset_are_those_that_count() -> None:
    dataset = DATASETS["tensors"](X, Y)
    assert_same(quick(masker=CELLS).fit(dataset, 1 - Y), quick(masker=CELLS).fit(X, 1 - Y))


def test_validation_images_come_in_every_form() -> None:
    other, z = pictures(30, seed=1)
    expected = quick(masker=CELLS).fit(X, Y, validation=(other, z))
    for validation in (
        (torch.from_numpy(other), z),
        (DATASETS["tensors"](other, z), None),
        (list(other), z.tolist()),
    ):
        fitted = quick(masker=CELLS).fit(X, Y, validation=validation)
        assert_same(fitted, expected)
        assert fitted.history_ == expected.history_
    assert expected.history_ != quick(masker=CELLS).fit(X, Y).history_


def test_superpixels_of_an_image_are_groups_of_columns_of_its_row() -> None:
    """Trained to the same numbers, bit for bit, where the mask is not shown beside the values."""
    results = []
    for masker in (
        Superpixels((2, 1), masker=Zero()).bound((1, 2, 2)),
        Groups((0, 0, 1, 1), Zero()),
    ):
        what = methods.real_x(masker, Bernoulli(), TINY_RUN, TINY_RUN)
        results.append(train(what, Settings((0.1,), (3,)), replace(FAST, epochs=3)))
    one, other = results
    assert one.history == other.history
    for this, that in zip(
        state_dicts(one.predictors + one.selectors),
        state_dicts(other.predictors + other.selectors),
        strict=True,
    ):
        assert all(torch.equal(this[name], that[name]) for name in this)


# ---------------------------------------------------------------------- size and statistics


def test_images_are_standardised_channel_by_channel() -> None:
    images = np.stack([RGB[:, 0], 50 + 7 * RGB[:, 1], -2 * RGB[:, 2]], 1)
    fitted = quick_full(masker=CELLS).fit(images, Y)
    known = fitted.columns_
    assert isinstance(known, Pixels)
    for c in range(3):
        values = [float(v) for v in images[:, c].ravel()]
        mean = math.fsum(values) / len(values)
        scale = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
        # sums of 4,000 numbers below 100 in double precision
        assert known.mean[c] == pytest.approx(mean, abs=1e-11)
        assert known.scale[c] == pytest.approx(scale, abs=1e-11)
        own = known.matrix(images)[:, 64 * c : 64 * (c + 1)]
        expected = (images[:, c].reshape(len(images), -1) - mean) / scale
        # values below 80 with 24 bits, divided by a scale of at least 1
        np.testing.assert_allclose(own, expected, rtol=0, atol=80 * 2**-22)
    assert known.shape == (3, 8, 8)
    assert fitted.n_features_in_ == 4


@pytest.mark.parametrize("value", [0.0, 0.1, 255.0, -1e6])
def test_a_constant_channel_does_no_harm(value: float) -> None:
    images = RGB.copy()
    images[:, 1] = value
    fitted = quick(masker=Superpixels(2, masker=Blur(1))).fit(images, Y)
    assert fitted.columns_.scale[1] == 1.0
    assert np.isfinite(fitted.columns_.matrix(images)).all()
    assert np.isfinite(fitted.predict_proba(images)).all()
    assert np.abs(fitted.columns_.matrix(images)[:, 64:128]).max() <= 2**-22 * abs(value)


def test_refitting_on_the_other_kind_forgets_the_first() -> None:
    table, z = table_rows(60)
    frame = pd.DataFrame(table, columns=["a", "b", "c", "d"])
    both = quick()
    both.fit(frame, z)
    both.set_params(masker=CELLS).fit(X, Y)
    assert not hasattr(both, "feature_names_in_")
    assert both.explain(X).feature_names == ["r0c0", "r0c1", "r1c0", "r1c1"]
    assert_same(both, quick(masker=CELLS).fit(X, Y))
    both.set_params(masker=None).fit(frame, z)
    assert both.n_features_in_ == 4
    assert both.explain(frame).feature_names == ["a", "b", "c", "d"]
    assert both.explain(frame).pixels is None


def test_a_clone_is_asked_for_the_same() -> None:
    explainer = quick(masker=Superpixels(labels=REGIONS, masker=Blur(2)))
    assert_same(clone(explainer).fit(X, Y), explainer.fit(X, Y))


# ---------------------------------------------------------------------- the right superpixel


@pytest.fixture(scope="module")
def trained() -> RealX:
    explainer = quick(
        selector=WIDE, predictor=WIDE, training=LONGER, masker=CELLS, sparsity=[0.2, 3.0]
    )
    return explainer.fit(*pictures(400))


def test_real_x_finds_the_superpixel_that_decides(trained: RealX) -> None:
    """Without it no accuracy above ½ is possible; with it alone 0.9987 is."""
    x, y = pictures(1000, seed=1)
    explanation = trained.explain(x, sparsity=0.2)
    rates = explanation.masks.mean(0)
    assert rates[RIGHT] > 0.95
    assert np.delete(rates, RIGHT).max() < 0.05
    assert (trained.predict_proba(x, sparsity=0.2).argmax(1) == y).mean() > 0.97
    shown = explanation.pixel_masks().mean(0)
    assert (shown[4:, :4] > 0.95).all()
    shown[4:, :4] = 0.0
    assert (shown < 0.05).all()


def test_networks_of_pictures_find_it_too_in_colour() -> None:
    x, y = pictures(200, channels=3)
    networks: dict[str, Any] = {"predictor": conv_predictor, "selector": conv_predictor}
    explainer = quick(**networks, training=LONGER, masker=CELLS, sparsity=0.2).fit(x, y)
    rates = explainer.explain(pictures(300, channels=3, seed=1)[0]).masks.mean(0)
    assert rates[RIGHT] > 0.95
    assert np.delete(rates, RIGHT).max() < 0.05


@pytest.mark.parametrize("name", PATHS)
def test_a_path_of_settings(name: str) -> None:
    """One program, as many settings; each can be asked."""
    path = PATHS[name]
    fitted = SELECTING[name](masker=CELLS, **path).fit(X, Y)
    ((parameter, levels),) = path.items()
    assert fitted.path_[parameter].tolist() == levels
    assert fitted.path_["chosen"].sum() == 1
    for level in levels:
        explanation = fitted.explain(X, **{parameter: level})
        assert explanation.about[parameter] == level
        assert explanation.pixels is not None
        if name == "L2X":
            assert set(explanation.sizes.tolist()) == {level}
    assert len(fitted.settings_) == 3


def test_a_higher_price_shows_less(trained: RealX) -> None:
    x, _ = pictures(200, seed=1)
    low, high = (trained.explain(x, sparsity=level).fraction for level in (0.2, 3.0))
    assert high < low  # for 3 nats, no cell pays: the label is worth log 2


@pytest.mark.parametrize(("norm", "rounding", "first"), [(False, 1e-10, False), (True, 1e-8, True)])
def test_networks_of_pictures_trained_together_are_those_trained_apart(
    norm: bool, rounding: float, first: bool
) -> None:
    """Images of 2 × 2 pixels in two superpixels; see test_engine for what BatchNorm rounds."""

    def network(shape: tuple[int, int, int], outputs: int) -> nn.Module:
        middle = [nn.BatchNorm2d(3)] if norm else []
        return nn.Sequential(
            nn.Conv2d(shape[0], 3, 3, padding=1),
            *middle,
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(12, outputs),
        )

    what = methods.real_x(
        Superpixels((2, 1)).bound((1, 2, 2)),
        Bernoulli(),
        ForImages(network, (2, 2, 2)),
        ForImages(network, (1, 2, 2)),
        predictor_first=first,
    )
    assert_stacked_equals_separate(what, replace(FAST, epochs=2), rounding)


# ---------------------------------------------------------------------- explaining, predicting


@pytest.mark.parametrize("name", EXPLAINERS)
def test_shapes(name: str) -> None:
    fitted = EXPLAINERS[name](masker=Superpixels((2, 4))).fit(RGB, Y)
    explanation = fitted.explain(RGB)
    assert explanation.masks.shape == explanation.probabilities.shape == (60, 8)
    assert explanation.feature_names[:5] == ["r0c0", "r0c1", "r0c2", "r0c3", "r1c0"]
    assert explanation.pixel_masks().shape == (60, 8, 8)
    assert fitted.predict_proba(RGB).shape == (60, 2)
    np.testing.assert_allclose(fitted.predict_proba(RGB).sum(1), 1, rtol=0, atol=1e-12)
    assert fitted.predict(RGB).shape == (60,)
    assert fitted.transform(RGB).shape == RGB.shape
    if name == "Full":
        assert explanation.masks.all()


def test_without_a_masker_every_pixel_is_a_feature() -> None:
    fitted = quick().fit(RGB, Y)
    assert fitted.masker_ == Superpixels(masker=Token()).bound((3, 8, 8))
    assert fitted.explain(RGB).masks.shape == (60, 64)
    zero = quick(masker=Zero()).fit(RGB, Y)
    assert zero.masker_ == Superpixels(masker=Zero()).bound((3, 8, 8))


def test_predictions_are_the_predictors_own_on_what_is_shown() -> None:
    """By hand: standardise, ask the selector, hide, ask the predictor."""
    fitted = quick(masker=Superpixels((2, 4))).fit(BYTES, Y)
    mean, scale = BYTES.mean((0, 2, 3)), BYTES.std((0, 2, 3))
    standard = ((BYTES - mean[:, None, None]) / scale[:, None, None]).astype(np.float32)
    x = torch.from_numpy(standard)
    with torch.no_grad():
        logits = fitted.selector_(x.flatten(1))
        mask = (logits > 0).float()
        spread = mask.reshape(60, 2, 4).repeat_interleave(4, 1).repeat_interleave(2, 2)
        shown = torch.cat([x * spread[:, None], spread[:, None]], 1)
        expected = torch.softmax(fitted.predictor_(shown.flatten(1)).double(), 1)
    explanation = fitted.explain(BYTES)
    np.testing.assert_array_equal(explanation.masks, mask.bool())
    # inputs below 5 differ in the last of 24 bits, and the networks are small
    np.testing.assert_allclose(explanation.probabilities, torch.sigmoid(logits), rtol=0, atol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(BYTES), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("masker", [Superpixels((2, 4)), Superpixels(labels=REGIONS), None])
def test_transform_hides_pixels_in_all_channels_and_keeps_the_others_as_they_came(
    masker: Masker | None,
) -> None:
    images = (50 + 7 * RGB).astype(np.float32)
    fitted = quick(masker=masker).fit(images, Y)
    masks = fitted.explain(images).masks
    result = fitted.transform(images)
    cells = fitted.masker_.map
    assert 0 < masks.mean() < 1
    for b in range(len(images)):
        for i in range(8):
            for j in range(8):
                if masks[b, cells[i, j]]:
                    assert result[b, :, i, j].tolist() == images[b, :, i, j].tolist()
                else:
                    assert np.isnan(result[b, :, i, j]).all()


def test_transform_of_everything_is_the_image() -> None:
    np.testing.assert_array_equal(quick_full(masker=CELLS).fit(BYTES, Y).transform(BYTES), BYTES)


def test_a_models_probabilities_are_explained_and_it_sees_the_images_as_they_came() -> None:
    asked = []

    def model(x: Any) -> Any:
        asked.append(x)
        return 1 / (1 + np.exp(-np.asarray(x)[:, 0, 4:, :4].mean((1, 2)) / 10))

    fitted = quick(model=model, masker=CELLS).fit(BYTES)
    assert fitted.soft_
    assert len(asked) == 1
    np.testing.assert_array_equal(asked[0], BYTES)
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 2), nn.Softmax(1))
    assert quick(model=module, masker=CELLS).fit(RGB).explain(RGB).masks.shape == (60, 4)


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


@dataclass(frozen=True)
class Paint(Masker):
    """A user's own masker."""

    value: float = 3.0

    def features(self, columns: int) -> int:
        return columns

    def width(self, columns: int) -> int:
        return columns

    def __call__(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * mask + self.value * (1 - mask)


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


# ---------------------------------------------------------------------- one sentence


class Unlabelled(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(X[i])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(X, Y, strict=True))


def put(value: float, image: int = 3) -> NDArray[Any]:
    x = X.copy()
    x[image, 0, 2, 5] = value
    return x


def fitted_table() -> RealX:
    return quick().fit(*table_rows(40))


def pil(size: tuple[int, int, int]) -> Any:
    return Image.fromarray(np.zeros(size, dtype=np.uint8))


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "missing": (
        lambda: quick(masker=CELLS).fit(put(np.nan), Y),
        "finite numbers .*but image 3 does not, nor do 0 others",
    ),
    "infinite": (lambda: quick(masker=CELLS).fit(put(-np.inf), Y), "finite .*but image 3 does not"),
    "too large": (
        lambda: quick(masker=CELLS).fit(X.astype(np.float64) * 1e300, Y),
        "of at most 3e38 but image 0 does not, nor do 59 others",
    ),
    "missing when asked": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(put(np.nan, 7)),
        "finite .*but image 7 does not",
    ),
    "text": (
        lambda: quick(masker=CELLS).fit(X.astype(str), Y),
        "images must hold numbers but hold <U",
    ),
    "objects": (
        lambda: quick(masker=CELLS).fit(X.astype(object), Y),
        "images must hold numbers but hold object",
    ),
    "complex numbers": (lambda: quick(masker=CELLS).fit(X * 1j, Y), "numbers but hold complex64"),
    "sizes that differ": (
        lambda: quick(masker=CELLS).fit([X[0], X[1, :, :4]], Y[:2]),
        r"one size but have \(1, 4, 8\) and \(1, 8, 8\); resize or crop",
    ),
    "sizes that differ in a Dataset": (
        lambda: quick(masker=CELLS).fit(Pairs([X[0], RGB[0]], [0, 1])),
        r"one size but have \(1, 8, 8\) and \(3, 8, 8\); resize or crop",
    ),
    "no images": (
        lambda: quick(masker=CELLS).fit(X[:0], Y[:0]),
        r"at least one of each, but came with shape \(0, 1, 8, 8\)",
    ),
    "no channels": (
        lambda: quick(masker=CELLS).fit(X[:, :0], Y),
        r"at least one of each, but came with shape \(60, 0, 8, 8\)",
    ),
    "groups": (
        lambda: quick(groups={"left": [0, 1]}).fit(X, Y),
        r"groups are for the columns of a table, but images came; use masker=Superpixels\(…\)",
    ),
    "a masker of groups": (
        lambda: quick(masker=Groups([0] * 32 + [1] * 32)).fit(X, Y),
        "must hide single pixels but is Groups",
    ),
    "another size": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(X[:, :, :6]),
        r"1 × 8 × 8 \(channels, height, width\) as in training but are 1 × 6 × 8 .*; resize",
    ),
    "colour where grey is expected": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(RGB),
        "1 × 8 × 8 .* as in training but are 3 × 8 × 8 .*; convert them to grey",
    ),
    "grey where colour is expected": (
        lambda: quick(masker=CELLS).fit(RGB, Y).predict_proba(X),
        "3 × 8 × 8 .* as in training but are 1 × 8 × 8 .*; give them the same channels",
    ),
    "another size to validate with": (
        lambda: quick(masker=CELLS).fit(X, Y, validation=(X[:, :, :, :6], Y)),
        "1 × 8 × 8 .* as in training but are 1 × 8 × 6",
    ),
    "another size to transform": (
        lambda: quick(masker=CELLS).fit(X, Y).transform(X[:, :, :6]),
        "as in training but are 1 × 6 × 8",
    ),
    "another size to evaluate": (
        lambda: quick_evaluator(masker=CELLS).fit(X, Y).predict_proba(X[:, :, :6]),
        "as in training but are 1 × 6 × 8",
    ),
    "a table where images are expected": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(X.reshape(60, -1)),
        r"\(rows, channels, height, width\).* but came with shape \(60, 64\)",
    ),
    "a frame where images are expected": (
        lambda: quick_full(masker=CELLS).fit(X, Y).explain(pd.DataFrame(X.reshape(60, -1))),
        r"\(rows, channels, height, width\).* but came with shape \(60, 64\)",
    ),
    "one image": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(X[0]),
        r"\(rows, channels, height, width\).* but came with shape \(1, 8, 8\)",
    ),
    "a table to validate with": (
        lambda: quick(masker=CELLS).fit(X, Y, validation=(X.reshape(60, -1), Y)),
        r"\(rows, channels, height, width\).* but came with shape \(60, 64\)",
    ),
    "images where a table is expected": (
        lambda: fitted_table().explain(X),
        r"a table \(rows, 4\) is expected, as in training, but images of shape \(60, 1, 8, 8\)",
    ),
    "images to validate a table with": (
        lambda: quick().fit(*table_rows(40), validation=(X, Y)),
        r"a table \(rows, 4\) is expected, as in training, but images of shape \(60, 1, 8, 8\)",
    ),
    "an empty Dataset": (
        lambda: quick(masker=CELLS).fit(TensorDataset(torch.zeros(0, 1, 8, 8), torch.zeros(0))),
        "a Dataset must have at least one item but has none",
    ),
    "a Dataset without labels": (
        lambda: quick(masker=CELLS).fit(Unlabelled()),
        r"pairs \(image, label\) but item 0 is a Tensor; wrap it",
    ),
    "a Dataset of single things": (
        lambda: quick(masker=CELLS).fit(TensorDataset(torch.from_numpy(X))),
        r"pairs \(image, label\) but item 0 is a tuple",
    ),
    "a Dataset without a length": (
        lambda: quick(masker=CELLS).fit(Stream()),
        "must have a length and numbered items but Stream has none",
    ),
    "a Dataset of pictures with channels last": (
        lambda: quick(masker=CELLS).fit(Pairs([pil((8, 8, 3))] * 4, [0, 1, 0, 1])),
        r"arrays or tensors \(channels, height, width\) but that of item 0 is a Image; convert",
    ),
    "a Dataset whose labels differ in shape": (
        lambda: quick(masker=CELLS).fit(Pairs(X[:2], [np.array(1), np.array([0.5, 0.5])])),
        r"labels of a Dataset must have one shape but have \(\) and \(2,\)",
    ),
    "labels of other images": (
        lambda: quick(masker=CELLS).fit(X, Y[:9]),
        "one value for each of the 60 rows but has 9 values",
    ),
    "no labels": (lambda: quick(masker=CELLS).fit(X), "requires y to be passed"),
    "a map of another size": (
        lambda: quick(masker=Superpixels(labels=REGIONS[:4])).fit(X, Y),
        "the images' size 8 × 8 but is 4 × 8",
    ),
    "a grid that is too fine": (
        lambda: quick(masker=Superpixels(9)).fit(X, Y),
        "a grid of 9 × 9 cells .*but the images are 8 × 8",
    ),
    "more superpixels than there are": (
        lambda: quick_l2x(k=5, masker=CELLS).fit(X, Y),
        "at most the number of features, 4, but is 5",
    ),
    "too many subsets": (
        lambda: subsets(masker=Superpixels((3, 6))).fit(X, Y),
        "at most 16 features but there are 18",
    ),
    "post-hoc with a model": (
        lambda: PostHoc(model=lambda x: np.full(len(x), 0.5)).fit(X),
        r"fills in the columns of a table, but images came; leave out model",
    ),
    "masks of other superpixels": (
        lambda: quick_evaluator(masker=CELLS).fit(X, Y).predict_proba(X, some_masks(60, 8)),
        r"shape \(60, 4\).* but have \(60, 8\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_images_are_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- explanations of images

MASKS = np.array([[1, 0, 0, 1], [0, 1, 1, 1], [1, 0, 0, 0]], dtype=bool)
CHANCES = np.array([[0.9, 0.1, 0.2, 0.6], [0.3, 0.7, 0.8, 0.9], [0.6, 0.4, 0.3, 0.2]])
MAP = np.array([[0, 0, 1, 1, 1], [0, 2, 2, 3, 3]])


def explanation(**changes: Any) -> Explanation:
    values: dict[str, Any] = {
        "masks": MASKS,
        "probabilities": CHANCES,
        "index": ["a", "b", "c"],
        "pixels": MAP,
    }
    return Explanation(**{**values, **changes})


def assert_pixels(one: Explanation) -> None:
    assert one.pixels is not None
    assert one.pixels.dtype == np.int64
    np.testing.assert_array_equal(one.pixels, MAP)


def test_pixels_survive_cutting_topping_and_saving(tmp_path: Path) -> None:
    one = explanation()
    for part in (one[1:], one[[2, 0]], one[np.array([True, False, True])], one[[]], one.top(2)):
        assert_pixels(part)
    assert one[[2, 0]].pixel_masks().shape == (2, 2, 5)
    one.save(tmp_path / "explanation.npz")
    loaded = Explanation.load(tmp_path / "explanation.npz")
    assert_pixels(loaded)
    np.testing.assert_array_equal(loaded.pixel_masks(), one.pixel_masks())
    table = explanation(pixels=None)
    table.save(tmp_path / "table.npz")
    assert Explanation.load(tmp_path / "table.npz").pixels is None


def test_pixel_masks_are_the_superpixels_spread_out() -> None:
    found = explanation().pixel_masks()
    assert found.dtype == bool
    for b in range(3):
        for i in range(2):
            for j in range(5):
                assert found[b, i, j] == MASKS[b, MAP[i, j]]
    topped = explanation().top(1)
    assert topped.pixel_masks()[0].astype(int).tolist() == [[1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]


def test_the_callers_map_is_copied() -> None:
    cells = MAP.copy()
    one = explanation(pixels=cells)
    cells[:] = 0
    assert_pixels(one)


def test_how_often_each_pixel_is_shown_is_drawn() -> None:
    ax = explanation().plot()
    (image,) = ax.get_images()
    np.testing.assert_allclose(image.get_array(), MASKS.mean(0)[MAP])
    assert image.get_clim() == (0, 1)
    assert ax.get_title() == "how often shown"
    assert len(ax.figure.axes) == 2, "the picture and its scale"
    empty = explanation()[[]].plot()
    assert not np.asarray(empty.get_images()[0].get_array()).any()


def test_a_rows_probabilities_are_drawn_on_the_axes_given() -> None:
    ax = Figure().subplots()
    assert explanation().plot(1, ax) is ax
    (image,) = ax.get_images()
    np.testing.assert_allclose(image.get_array(), CHANCES[1][MAP], rtol=1e-6)  # float32
    assert ax.get_title() == "image b"
    assert explanation().plot(-1).get_title() == "image c"


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_a_selection_is_drawn_over_its_image(channels: int | None) -> None:
    """Hidden pixels keep their grey, shown ones are tinted: red above blue."""
    grey = np.linspace(0, 1, 64).reshape(8, 8)
    image = grey if channels is None else np.stack([grey] * channels)
    one = Explanation(only(RIGHT, 2), pixels=CELLS.bound((1, 8, 8)).map)
    ax = Figure().subplots()
    assert one.plot(1, ax, image=image) is ax
    (drawn,) = ax.get_images()
    picture = np.asarray(drawn.get_array()).astype(int)
    factor = picture.shape[0] // 8
    assert picture.shape == (8 * factor, 8 * factor, 3)
    centre = picture[factor // 2 :: factor, factor // 2 :: factor]  # (8, 8, 3)
    shown = one.pixel_masks()[1]
    expected = np.rint(255 * grey).astype(int)
    for i in range(8):
        for j in range(8):
            if shown[i, j]:
                assert centre[i, j, 0] > centre[i, j, 2]
            else:
                assert centre[i, j].tolist() == [expected[i, j]] * 3
    assert ax.get_title() == "image 1"
    assert len(ax.figure.axes) == 1


def test_another_row_is_drawn_with_its_own_selection() -> None:
    image = np.zeros((1, 8, 8))
    one = Explanation(np.eye(4)[:2], pixels=CELLS.bound((1, 8, 8)).map)
    pictures = [np.asarray(one.plot(i, image=image).get_images()[0].get_array()) for i in (0, 1)]
    assert not np.array_equal(*pictures)
    np.testing.assert_array_equal(pictures[0], pictures[1][:, ::-1])


WRONGLY: dict[str, tuple[Callable[[], Any], str]] = {
    "an image of another size": (
        lambda: explanation().plot(0, image=np.zeros((1, 3, 5))),
        r"must be 2 × 5 pixels, .* but came with shape \(1, 3, 5\)",
    ),
    "an image of two channels": (
        lambda: explanation().plot(0, image=np.zeros((2, 2, 5))),
        "1 or 3 channels but has 2",
    ),
    "a row that is not there": (lambda: explanation().plot(3), "between 0 and 2 but is 3"),
    "an image of a table": (
        lambda: explanation(pixels=None).plot(0, image=np.zeros((1, 2, 5))),
        "for explanations of images, but this one is of a table",
    ),
    "pixels of a table": (
        lambda: explanation(pixels=None).pixel_masks(),
        "of a table, not of images",
    ),
    "a map of too many features": (
        lambda: explanation(pixels=MAP + 1),
        "from 0 to 3 but go from 1 to 4",
    ),
    "a map below zero": (lambda: explanation(pixels=MAP - 1), "from 0 to 3 but go from -1 to 2"),
    "a map of fractions": (
        lambda: explanation(pixels=MAP / 2),
        r"of feature numbers but has shape \(2, 5\) and type float64",
    ),
    "a map with channels": (
        lambda: explanation(pixels=MAP[None]),
        r"\(height, width\) of feature numbers but has shape \(1, 2, 5\)",
    ),
}


@pytest.mark.parametrize("case", WRONGLY)
def test_what_does_not_fit_an_explanation_is_refused_in_one_sentence(case: str) -> None:
    ask, words = WRONGLY[case]
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- datasets, what is missing


def test_a_dataset_is_judged_by_its_own_labels() -> None:
    evaluator, masks = quick_evaluator(masker=CELLS).fit(X, Y), some_masks(60)
    found = evaluator.evaluate(masks, DATASETS["tensors"](X, Y), bootstrap_draws=5)
    assert found.rows == evaluator.evaluate(masks, X, Y, bootstrap_draws=5).rows


def test_a_dataset_is_judged_by_what_the_model_says_of_its_images() -> None:
    def model(x: Any) -> Any:
        return 1 / (1 + np.exp(-np.asarray(x)[:, 0, 5, 1].astype(float)))

    evaluator, masks = quick_evaluator(masker=CELLS, model=model).fit(X), some_masks(60)
    found = evaluator.evaluate(masks, DATASETS["tensors"](X, Y), bootstrap_draws=5)
    assert found.rows == evaluator.evaluate(masks, X, bootstrap_draws=5).rows


def test_images_without_channels_are_refused_with_advice() -> None:
    with pytest.raises(InputError, match=r"channel.*but came with shape \(60, 8, 8\)") as caught:
        quick(masker=CELLS).fit(X[:, 0], Y)
    assert_one_sentence(caught.value)


def test_an_image_needs_a_row() -> None:
    with pytest.raises(InputError, match="row") as caught:
        explanation().plot(image=np.zeros((1, 2, 5)))
    assert_one_sentence(caught.value)
