"""Images through the whole interface: small ones, whose label one quadrant alone decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from small_images import (
    BYTES,
    CELLS,
    LONGER,
    REGIONS,
    RGB,
    RIGHT,
    Pairs,
    X,
    Y,
    assert_same,
    conv_predictor,
    numbers,
    pictures,
    some_masks,
    trained_real_x,
)
from small_runs import FAST, train
from small_runs import TINY as TINY_RUN
from small_runs import numbers as state_dicts
from small_tables import (
    EXPLAINERS,
    PATHS,
    SELECTING,
    assert_one_sentence,
    quick,
    quick_evaluator,
    quick_full,
)
from small_tables import rows as table_rows
from test_engine import assert_stacked_equals_separate
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from unmasked import Bernoulli, Blur, InputError, RealX, Superpixels, Token, Zero
from unmasked.inputs.images import ForImages, Pixels
from unmasked.masks.maskers import Groups, Masker
from unmasked.training import Settings, methods

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------------- the same in every form


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
    return trained_real_x()


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
