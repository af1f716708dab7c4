"""Training rows that are changed in every step: what is changed, by what chances, and what not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import FAST, SIX, TINY, data, method, numbers, score_by_hand, train
from small_tables import EXPLAINERS, assert_one_sentence, posthoc, quick, quick_evaluator
from small_tables import rows as table_rows
from test_engine import assert_stacked_equals_separate, slots_per_epoch
from torch import Tensor

from unmasked import (
    Bernoulli,
    InputError,
    MemoryWarning,
    Retake,
    SavedError,
    Shift,
    Superpixels,
    Training,
)
from unmasked.inputs.augment import Flattened
from unmasked.training import Method, Settings, Trained, loop, methods
from unmasked.training.program import Program

pytestmark = pytest.mark.usefixtures("one_thread")

CHANCES = 8  # uniform numbers for each row
STEPS = 5  # of an epoch: 100 rows in batches of 20
ONE = Settings((0.1,), (3,))
SHORT = replace(FAST, epochs=3)


def same(x: Tensor, u: Tensor) -> Tensor:
    return x


def noisy(x: Tensor, u: Tensor) -> Tensor:
    """Numbers of a row, each moved by up to ½ either way."""
    return x + u[:, : x.shape[1]] - 0.5


def negated(x: Tensor, u: Tensor) -> Tensor:
    return -x


@dataclass(frozen=True)
class Recorder:
    """Changes nothing and keeps what it was given; runs with it look alike to a checkpoint."""

    seen: list[tuple[Tensor, Tensor]]

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        self.seen.append((x.clone(), u.clone()))
        return x

    def __repr__(self) -> str:
        return "Recorder()"


def pictures(count: int = 60, channels: int = 1) -> tuple[Any, Any]:
    """8 × 6 pixels of noise; the mean of the first line says the label."""
    random = np.random.default_rng(0)
    y = np.arange(count) % 2
    x = random.standard_normal((count, channels, 8, 6)).astype(np.float32)
    x[:, :, 0] += np.where(y == 1, 2, -2)[:, None, None]
    return x, y


def assert_same_result(this: Trained, that: Trained) -> None:
    """Bit for bit, with the whole history."""
    assert this.history == that.history
    assert this.scores == that.scores
    for kind in ("predictors", "selectors"):
        pairs = zip(numbers(getattr(this, kind)), numbers(getattr(that, kind)), strict=True)
        for a, b in pairs:
            assert all(torch.equal(a[name], b[name]) for name in a), kind


def with_(augment: Any, training: Training = SHORT) -> Training:
    return replace(training, augment=augment)


# ---------------------------------------------------------------------- shifts


def shifted_by_hand(image: Tensor, down: int, right: int) -> Tensor:
    """(channels, height, width), each pixel taken from ``down`` and ``right`` of it, or zero."""
    channels, height, width = image.shape
    result = torch.zeros_like(image)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                if 0 <= i + down < height and 0 <= j + right < width:
                    result[c, i, j] = image[c, i + down, j + right]
    return result


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("most", [0, 1, 2, 7])
def test_a_shift_is_a_loop_over_pixels(most: int, channels: int) -> None:
    """Every shift down and right from −most to most, also beyond the image."""
    steps = range(-most, most + 1)
    pairs = [(down, right) for down in steps for right in steps]
    source = torch.Generator().manual_seed(0)
    images = torch.randn(len(pairs), channels, 5, 3, generator=source)
    u = torch.rand(len(pairs), CHANCES, generator=source)
    for row, (down, right) in enumerate(pairs):  # the middle of each shift's share of [0, 1)
        u[row, 0] = (down + most + 0.5) / len(steps)
        u[row, 1] = (right + most + 0.5) / len(steps)
    found = Shift(most)(images, u)
    expected = torch.stack(
        [shifted_by_hand(image, *pair) for image, pair in zip(images, pairs, strict=True)]
    )
    assert torch.equal(found, expected)


def shifts_of(u: Tensor, most: int) -> Tensor:
    """The shift that each row of chances leads to, (rows, 2), read off a marked pixel."""
    side = 4 * most + 1
    images = torch.zeros(len(u), 1, side, side, dtype=u.dtype)
    images[:, 0, 2 * most, 2 * most] = 1.0
    moved = Shift(most)(images, u)
    row, _, line, column = torch.nonzero(moved, as_tuple=True)
    assert row.tolist() == list(range(len(u)))
    return 2 * most - torch.stack([line, column], 1)


@pytest.mark.parametrize("most", [1, 2])
def test_every_shift_comes_equally_often(most: int) -> None:
    count, shifts = 20_000, (2 * most + 1) ** 2
    u = torch.rand(count, CHANCES, generator=torch.Generator().manual_seed(0))
    found, times = torch.unique(shifts_of(u, most), dim=0, return_counts=True)
    assert len(found) == shifts
    assert found.min() == -most
    assert found.max() == most
    p = 1 / shifts
    error = math.sqrt(count * p * (1 - p))  # of a count; beyond five of them: once in 10⁶
    assert (times - count * p).abs().max() < 5 * error


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_outermost_chances_lead_to_the_outermost_shifts(dtype: torch.dtype) -> None:
    """The largest number below 1 is not rounded up to one shift more."""
    below = 1 - torch.finfo(dtype).eps / 2
    u = torch.tensor([[0.0] * CHANCES, [below] * CHANCES], dtype=dtype)
    assert float(u[1, 0]) < 1
    for most in range(1, 40):
        assert shifts_of(u, most).tolist() == [[-most, -most], [most, most]]


def test_other_chances_are_not_used() -> None:
    u = torch.rand(50, CHANCES, generator=torch.Generator().manual_seed(0))
    other = torch.cat([u[:, :2], 1 - u[:, 2:]], 1)
    images = torch.randn(50, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    assert torch.equal(Shift(2)(images, u), Shift(2)(images, other))
    assert not torch.equal(Shift(2)(images, u), Shift(2)(images, u.flip(1)))


# ---------------------------------------------------------------------- what an augmentation sees


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_given_as_pictures(channels: int) -> None:
    """Standardised training images, each once an epoch, and eight uniform numbers for each."""
    images, y = pictures(channels=channels)
    recorder = Recorder([])
    training = Training(epochs=3, batch_size=12, augment=recorder)
    fitted = quick(masker=Superpixels(2), training=training).fit(images, y)
    train_rows, _ = fitted.split_
    steps = len(train_rows) // 12
    assert len(recorder.seen) == 3 * steps
    for x, u in recorder.seen:
        assert x.shape == (12, channels, 8, 6)
        assert u.shape == (12, CHANCES)
        assert x.dtype == u.dtype == torch.float32
    standard = fitted.columns_.matrix(images)[train_rows]
    for epoch in range(3):
        part = recorder.seen[epoch * steps : (epoch + 1) * steps]
        seen = torch.cat([x.flatten(1) for x, _ in part]).numpy()
        assert len(np.unique(seen, axis=0)) == len(seen)
        assert {row.tobytes() for row in seen} <= {row.tobytes() for row in standard}


def test_tables_are_given_as_rows() -> None:
    recorder = Recorder([])
    x, y = table_rows(60)
    quick(training=Training(epochs=1, batch_size=16, augment=recorder)).fit(x, y)
    assert {tuple(x.shape) for x, _ in recorder.seen} == {(16, 4)}
    assert {tuple(u.shape) for _, u in recorder.seen} == {(16, CHANCES)}


def test_chances_are_uniform_and_never_come_twice() -> None:
    """Neither in a batch, nor in two steps, nor in two phases, nor in two worlds."""
    recorder = Recorder([])
    what = method(predictor_first=True)
    train(what, SIX, with_(recorder, replace(FAST, epochs=20)))
    assert len(recorder.seen) == 2 * 20 * STEPS
    u = torch.cat([u for _, u in recorder.seen])  # two worlds of 20 rows in each step
    assert u.shape == (2 * 20 * STEPS * 40, CHANCES)
    assert u.min() >= 0
    assert u.max() < 1
    assert len(torch.unique(u)) == u.numel()
    counts = torch.histc(u, bins=20, min=0, max=1)
    p = 1 / 20
    assert (counts - u.numel() * p).abs().max() < 5 * math.sqrt(u.numel() * p * (1 - p))
    # uniform numbers have variance 1/12; a mean of n products of two of them n times less
    together = torch.corrcoef(u.T) - torch.eye(CHANCES)
    assert together.abs().max() < 5 / math.sqrt(len(u))


def test_chances_are_not_those_of_the_masks() -> None:
    """Else a row's shift would say which of its features are shown."""
    rows = data(20)
    program = Program(method(), SIX, [rows], [rows], torch.device("cpu"), torch.float64)
    draws = program.noise(frozenset({"predictor", "selector"}), 20, 0, 0, CHANCES)
    u = draws.pop("augment")
    assert u.shape == (2, 1, 20, CHANCES)
    assert set(draws) == {"predictor", "selector"}
    for other in draws.values():
        assert not torch.isin(u, other).any()


def test_every_member_of_an_evaluator_has_chances_of_its_own() -> None:
    recorder = Recorder([])
    images, y = pictures()
    training = Training(epochs=1, batch_size=16, augment=recorder)
    quick_evaluator(masker=Superpixels(2), training=training, members=3).fit(images, y)
    x, u = recorder.seen[0]
    assert x.shape == (48, 1, 8, 6)
    assert len(torch.unique(u, dim=0)) == 48


def test_settings_of_a_seed_see_the_same_rows() -> None:
    """One batch for all λ, and for one of them alone."""
    seen = []
    for levels in ((0.0, 0.2, 1.0), (0.2,)):
        recorder = Recorder([])
        train(method(), Settings(levels, (5,)), with_(recorder))
        seen.append(recorder.seen)
    for (x, u), (other_x, other_u) in zip(*seen, strict=True):
        assert torch.equal(x, other_x)
        assert torch.equal(u, other_u)


# ---------------------------------------------------------------------- what it does to training

RUNS: dict[str, Method] = {
    "predictor first": method(predictor_first=True),
    "evaluator": method(explains=False),
    "joint, images": methods.real_x(Superpixels((2, 1)).bound((1, 2, 2)), Bernoulli(), TINY, TINY),
}
RUNS["joint, images taken again"] = RUNS["joint, images"]
each_run = pytest.mark.parametrize("name", RUNS)
SHIFTED = Flattened(Shift(1), (1, 2, 2))
CHANGING: dict[str, Any] = {
    "joint, images": SHIFTED,
    "joint, images taken again": Flattened(Retake(), (1, 2, 2)),
}


def changing(name: str) -> Any:
    return CHANGING.get(name, noisy)


@each_run
def test_changing_nothing_changes_nothing(name: str) -> None:
    """Chances come from a stream of their own: masks and orders stay as they were."""
    assert_same_result(train(RUNS[name], SIX, with_(same)), train(RUNS[name], SIX, SHORT))


@each_run
def test_changed_rows_are_learned_from_and_validation_rows_are_not_changed(name: str) -> None:
    """Rows negated in every step are rows that came negated, judged on the same other rows."""
    rows = data(100)
    augmented = train(RUNS[name], SIX, with_(negated), learn=rows)
    came = train(RUNS[name], SIX, SHORT, learn=replace(rows, x=-rows.x))
    assert_same_result(augmented, came)
    plain = train(RUNS[name], SIX, SHORT, learn=rows)
    assert augmented.history != plain.history


@each_run
def test_it_is_repeatable_and_no_business_of_torchs(name: str) -> None:
    results = []
    for own in (0, 1):
        torch.manual_seed(own)
        state = torch.get_rng_state()
        results.append(train(RUNS[name], ONE, with_(changing(name))))
        assert torch.equal(torch.get_rng_state(), state)
    assert_same_result(*results)
    assert results[0].history != train(RUNS[name], ONE, SHORT).history
    other = train(RUNS[name], Settings(ONE.levels, (7,)), with_(changing(name)))
    assert other.history != results[0].history


def test_the_score_is_that_of_untouched_validation_rows() -> None:
    trained = train(method(), ONE, with_(noisy))
    by_hand = score_by_hand(trained.predictors[0], trained.selectors[0], 0.1, data(400, seed=1))
    assert by_hand == pytest.approx(trained.scores[0], abs=1e-10)


@pytest.mark.parametrize("rows", [100, 37])
def test_it_is_asked_once_a_step_and_never_to_validate(rows: int) -> None:
    recorder = Recorder([])
    train(method(), ONE, with_(recorder), rows=rows)
    assert len(recorder.seen) == SHORT.epochs * (rows // 20)  # type: ignore[operator]


def test_rows_that_are_changed_in_place_come_back_whole() -> None:
    """The next epoch starts from the rows as they came."""

    def doubled(x: Tensor, u: Tensor) -> Tensor:
        return x.mul_(2)

    rows = data(100)
    before = rows.x.clone()
    for settings in (ONE, SIX):
        result = train(method(), settings, with_(doubled), learn=rows)
        assert torch.equal(rows.x, before)
        twice = replace(rows, x=2 * rows.x)
        assert_same_result(result, train(method(), settings, SHORT, learn=twice))


def test_parts_of_a_batch_are_changed_by_the_chances_of_their_rows() -> None:
    """Where memory holds 10 rows at a time; sums in another order, nothing but rounding differs."""
    parts: list[int] = []

    def limited(x: Tensor, u: Tensor) -> Tensor:
        if len(x) > 10:
            raise torch.OutOfMemoryError("as CUDA would say")
        parts.append(len(x))
        return SHIFTED(x, u)

    what = RUNS["joint, images"]
    with pytest.warns(MemoryWarning, match="smaller parts"):
        found = train(what, ONE, with_(limited))
    assert set(parts) == {10}
    whole = train(what, ONE, with_(SHIFTED))
    assert found.scores == pytest.approx(whole.scores, abs=1e-10)
    for kind in ("predictors", "selectors"):
        for a, b in zip(numbers(getattr(found, kind)), numbers(getattr(whole, kind)), strict=True):
            torch.testing.assert_close(dict(a), dict(b), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["predictor first", "joint, images"])
def test_stacked_equals_separate(name: str) -> None:
    assert_stacked_equals_separate(RUNS[name], with_(changing(name)), 1e-10)


def test_stacked_equals_separate_when_some_stop_early() -> None:
    early = replace(FAST, epochs=10, patience=2, schedule="constant", selector_delay=0.0)
    together = assert_stacked_equals_separate(method(), with_(noisy, early), 1e-10)
    sizes = slots_per_epoch(together, phase=0)
    assert 0 < sizes[-1] < 6, "the stack was never made smaller: this test tests nothing"


@pytest.mark.parametrize("name", EXPLAINERS)
def test_every_explainer_is_trained_with_it(name: str) -> None:
    """Also the model that sees everything, beside a path chosen by tolerance."""
    images, y = pictures()
    results = []
    for augment in (None, Shift(0), Shift(2), Shift(2), Retake(), Retake()):
        training = Training(epochs=2, batch_size=12, learning_rate=0.05, augment=augment)
        fitted = EXPLAINERS[name](masker=Superpixels(2), training=training).fit(images, y)
        results.append(fitted.predict_proba(images))
    plain, still, *changed = results
    np.testing.assert_array_equal(still, plain)
    for one, again in (changed[:2], changed[2:]):
        np.testing.assert_array_equal(one, again)
        assert np.abs(one - plain).max() > 1e-3
    assert np.abs(changed[0] - changed[2]).max() > 1e-3


def test_the_model_that_sees_everything_is_trained_with_it_too() -> None:
    images, y = pictures()
    counts = []
    for choose in ("accuracy", "tolerance"):
        recorder = Recorder([])
        training = Training(epochs=2, batch_size=12, augment=recorder)
        path: dict[str, Any] = {"sparsity": [0.1, 0.5], "choose": choose}
        quick(masker=Superpixels(2), training=training, **path).fit(images, y)
        counts.append(len(recorder.seen))
    assert counts == [2 * 4, 2 * 2 * 4]  # 48 images in batches of 12, two epochs, two models


def test_evaluators_are_trained_with_it() -> None:
    images, y = pictures()
    for make in (quick_evaluator, posthoc):
        shifted, plain = (
            make(masker=Superpixels(2), training=Training(epochs=2, augment=augment))
            .fit(images, y)
            .predict_proba(images)
            for augment in (Shift(2), None)
        )
        assert (shifted != plain).any()


# ---------------------------------------------------------------------- broken off and resumed


class Crash(Exception):
    """What no training code catches."""


@dataclass(eq=False)
class Crashing:
    """Ends the run in one of its steps, and looks to a checkpoint like one that does not."""

    inner: Callable[[Tensor, Tensor], Tensor]
    step: int | None = None
    count: int = 0

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        if self.count == self.step:
            raise Crash
        self.count += 1
        return self.inner(x, u)

    def __repr__(self) -> str:
        return f"Crashing({self.inner!r})"


@pytest.mark.parametrize(
    ("name", "patience"), [("predictor first", None), ("evaluator", None), ("joint, images", 2)]
)
def test_crashing_in_every_epoch_changes_nothing(
    name: str, patience: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt finishes one epoch and dies in the middle of the next, in every phase."""
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    what, training = RUNS[name], replace(SHORT, epochs=5, patience=patience)
    unbroken = train(what, SIX, with_(Crashing(changing(name)), training))
    crashes = 0
    for _ in range(3 * len(unbroken.history)):
        augment = Crashing(changing(name), STEPS + 2)
        try:
            resumed = train(what, SIX, with_(augment, training), path=tmp_path / "checkpoint")
            break
        except Crash:
            crashes += 1
    assert crashes >= len(unbroken.history) - len(what.phases)
    assert_same_result(resumed, unbroken)


def test_a_run_with_another_augmentation_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    what = RUNS["joint, images"]
    first = train(what, ONE, with_(SHIFTED), path=path)
    assert_same_result(train(what, ONE, with_(SHIFTED), path=path), first)
    for other in (Flattened(Shift(2), (1, 2, 2)), noisy, None):
        with pytest.raises(SavedError, match="a run with other data or options"):
            train(what, ONE, with_(other), path=path)


def test_an_estimators_fit_is_resumed(tmp_path: Path) -> None:
    images, y = pictures()

    def explainer(augment: Any) -> Any:
        training = Training(epochs=2, batch_size=12, augment=augment)
        return quick(masker=Superpixels(2), training=training, checkpoint=tmp_path)

    first = explainer(Crashing(Shift(1))).fit(images, y)
    again = explainer(Crashing(Shift(1), step=0)).fit(images, y)  # read, not trained
    assert again.history_ == first.history_
    np.testing.assert_array_equal(again.predict_proba(images), first.predict_proba(images))


# ---------------------------------------------------------------------- one sentence

IMAGES, LABELS = pictures()
TABLE, Z = table_rows(60)


def fit_images(augment: Any) -> Any:
    training = Training(epochs=1, batch_size=12, augment=augment)
    return quick(masker=Superpixels(2), training=training).fit(IMAGES, LABELS)


def fit_table(augment: Any) -> Any:
    return quick(training=Training(epochs=1, batch_size=16, augment=augment)).fit(TABLE, Z)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no function": (lambda: Training(augment=3), r"a function \(x, u\) -> x but is 3"),  # type: ignore[arg-type]
    "a name": (lambda: Training(augment="shift"), "but is 'shift'"),  # type: ignore[arg-type]
    "images of another size": (
        lambda: fit_images(lambda x, u: x[:, :, 1:]),
        r"images of shape \(12, 1, 8, 6\) but returned \(12, 1, 7, 6\)",
    ),
    "fewer images": (
        lambda: fit_images(lambda x, u: x[1:]),
        r"images of shape \(12, 1, 8, 6\) but returned \(11, 1, 8, 6\)",
    ),
    "images turned": (
        lambda: fit_images(lambda x, u: x.mT),
        r"images of shape \(12, 1, 8, 6\) but returned \(12, 1, 6, 8\)",
    ),
    "images as rows": (
        lambda: fit_images(lambda x, u: x.flatten(1)),
        r"images of shape \(12, 1, 8, 6\) but returned \(12, 48\)",
    ),
    "nothing": (
        lambda: fit_images(lambda x, u: None),
        r"images of shape \(12, 1, 8, 6\) but returned NoneType",
    ),
    "an array": (
        lambda: fit_images(lambda x, u: x.numpy()),
        r"images of shape \(12, 1, 8, 6\) but returned ndarray",
    ),
    "a shifted table": (
        lambda: fit_table(Shift(1)),
        r"moves images \(batch, channels, height, width\), but rows of shape \(16, 4\) came",
    ),
    "a shift back": (lambda: Shift(-1), "a whole number of pixels, at least 0, but is -1"),
    "half a pixel": (lambda: Shift(0.5), "a whole number of pixels, .* but is 0.5"),  # type: ignore[arg-type]
    "a true shift": (lambda: Shift(True), "a whole number of pixels, .* but is True"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_augmentations_are_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)


ROWS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "fewer columns": lambda x, u: x[:, 1:],
    "fewer rows": lambda x, u: x[1:],
    "turned": lambda x, u: x.T,  # as many numbers: must not be taken for rows
    "nothing": lambda x, u: None,
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_of_another_shape_are_refused_in_one_sentence(case: str) -> None:
    with pytest.raises(InputError, match=r"augment must return .*\(16, 4\) but returned") as caught:
        fit_table(ROWS[case])
    assert_one_sentence(caught.value)
