"""Saved explainers: the same numbers bit for bit, and one sentence about any other folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small_tables import (
    EXPLAINERS,
    PATHS,
    frame,
    mixed,
    quick,
    quick_evaluator,
    quick_full,
    quick_l2x,
    rows,
)
from torch import Tensor, nn

from unmasked import (
    L2X,
    MLP,
    BaseX,
    Bernoulli,
    EvalX,
    Full,
    InputError,
    Invase,
    Masker,
    OutputError,
    RealX,
    SavedError,
    UniformSize,
    Zero,
)

pytestmark = pytest.mark.usefixtures("one_thread")
Maker = Callable[..., Any]
each_explainer = pytest.mark.parametrize("make", EXPLAINERS.values(), ids=EXPLAINERS.keys())


class Own(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 6), nn.Linear(6, outputs)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(torch.tanh(self.first(x)))
        return result


class Shifted(Masker):
    """A user's masker: hidden values look like minus one."""

    def features(self, columns: int) -> int:
        return columns

    def width(self, columns: int) -> int:
        return columns

    def __call__(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * mask - (1 - mask)


def assert_equal(one: Any, other: Any, x: Any) -> None:
    """Bit for bit, in every setting."""
    assert type(one) is type(other)
    chosen = {} if isinstance(one, Full) else {one._sampler.level_name: None}
    settings = [chosen]
    for name in chosen:
        settings += [{name: level} for level in one.path_[name]]
        pd.testing.assert_frame_equal(one.path_, other.path_, check_exact=True)
        assert getattr(one, f"{name}_") == getattr(other, f"{name}_")
        assert one.reason_ == other.reason_
        assert one.full_accuracy_ == other.full_accuracy_
    for level in settings:
        before, after = (each.explain(x, **level) for each in (one, other))
        np.testing.assert_array_equal(before.masks, after.masks)
        np.testing.assert_array_equal(before.probabilities, after.probabilities)
        assert before.feature_names == after.feature_names
        assert before.about == after.about
        np.testing.assert_array_equal(
            one.predict_proba(x, **level), other.predict_proba(x, **level)
        )
    np.testing.assert_array_equal(one.predict(x), other.predict(x))
    assert one.classes_.dtype == other.classes_.dtype
    for name in ("soft_", "interrupted_", "columns_", "masker_"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("name", EXPLAINERS)
def test_every_explainer_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    """A path with a rule, groups, another masker, text labels; then saved and loaded again."""
    table, y = mixed()
    parts: dict[str, Any] = {"groups": {"person": ["age", "smoker"]}, "masker": Zero()}
    if name in PATHS:
        parts |= {**PATHS[name], "choose": "tolerance", "tolerance": 0.2, "selector": MLP((5, 3))}
    explainer = EXPLAINERS[name](**parts, predictor=MLP((5,), "tanh", "batch"))
    explainer.fit(table, np.array(["krank", "gesund – ✓"])[y]).save(tmp_path / "model")
    loaded = type(explainer).load(tmp_path / "model", device="cpu")
    assert_equal(explainer, loaded, table)
    if name in PATHS:
        shared = len({id(s.predictor) for s in loaded.settings_}) == 1
        assert shared == (name == "RealX, predictor first")
    loaded.save(tmp_path / "again")
    assert_equal(explainer, type(explainer).load(tmp_path / "again", device="cpu"), table)
    first, second = (
        json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("model", "again")
    )
    assert first == second


@each_explainer
def test_every_explainer_of_arrays_stays_one(make: Maker, tmp_path: Path) -> None:
    x, y = rows()
    explainer = make().fit(x, y)
    explainer.save(tmp_path / "model")
    loaded = type(explainer).load(tmp_path / "model", device="cpu")
    assert_equal(explainer, loaded, x)  # and no warning about missing names
    assert not hasattr(loaded, "feature_names_in_")
    assert loaded.n_features_in_ == 4


@each_explainer
def test_a_loaded_explainer_can_be_fitted_again(make: Maker, tmp_path: Path) -> None:
    """With the networks, the levels and the batch size that it was saved with."""
    x, y = rows()
    explainer = make(batch_size=33).fit(x, y)
    explainer.save(tmp_path / "model")
    loaded = type(explainer).load(tmp_path / "model", device="cpu")
    known = {"selector", "predictor", "sparsity", "k", "temperature", "predictor_first", "exchange"}
    for name, value in explainer.get_params().items():
        if name in known | {"batch_size", "choose", "tolerance"}:
            expected = [value] if name in ("sparsity", "k") else value
            assert getattr(loaded, name) == expected, name
    loaded.set_params(training=explainer.training, random_state=0, progress=False)
    np.testing.assert_array_equal(loaded.fit(x, y).predict_proba(x), explainer.predict_proba(x))


def test_the_temperature_of_l2x_comes_back(tmp_path: Path) -> None:
    x, y = rows()
    quick_l2x(temperature=0.7, k=[3, 1]).fit(x, y).save(tmp_path / "model")
    loaded = L2X.load(tmp_path / "model")
    assert loaded.temperature == 0.7
    assert loaded.k == [3, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sparsity": [0.01, 0.5, 2.0]},  # a predictor for each setting
        {"sparsity": [0.01, 0.5], "predictor_first": True},  # one for all
        {"sparsity": [0.01, 0.5], "exchange": True},
        {"sparsity": [0.01, 0.5], "choose": "tolerance", "tolerance": 0.2},
        {"groups": {"person": ["age", "smoker"]}, "masker": Zero(), "mask_law": Bernoulli(0.3)},
    ],
)
@pytest.mark.parametrize("labels", [(0, 1), ("krank", "gesund – ✓")])
def test_loading_gives_the_same_numbers(
    changes: dict[str, Any], labels: tuple[Any, Any], tmp_path: Path
) -> None:
    table, y = mixed()
    explainer = quick(**changes).fit(table, np.array(labels)[y])
    explainer.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", device="cpu")
    assert_equal(explainer, loaded, table)
    shared = len({id(s.predictor) for s in loaded.settings_}) == 1
    assert shared == (len({id(s.predictor) for s in explainer.settings_}) == 1)
    loaded.save(tmp_path / "again")
    assert_equal(explainer, RealX.load(tmp_path / "again", device="cpu"), table)


def test_names_are_still_checked_after_loading(tmp_path: Path) -> None:
    table, y = frame()
    quick().fit(table, y).save(tmp_path / "model")
    with pytest.raises(ValueError, match="feature names should match"):
        RealX.load(tmp_path / "model").explain(table[table.columns[::-1]])


def test_what_a_refit_needs_is_loaded_too(tmp_path: Path) -> None:
    x, y = rows()
    quick(mask_law=Bernoulli(0.3), predictor_first=True).fit(x, y).save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model")
    assert loaded.mask_law == Bernoulli(0.3)
    assert loaded.predictor_first
    assert not loaded.exchange
    assert loaded.selector == quick().selector
    quick(exchange=True).fit(x, y).save(tmp_path / "other")
    assert RealX.load(tmp_path / "other").exchange


@pytest.mark.parametrize("module", [False, True])
def test_networks_of_ones_own_are_passed_again(module: bool, tmp_path: Path) -> None:
    x, y = rows()
    parts: dict[str, Any] = {"selector": Own, "predictor": Own}
    if module:
        parts = {"selector": Own(4, 4), "predictor": Own(8, 2)}
    explainer = quick(**parts, sparsity=[0.1, 1.0]).fit(x, y)
    explainer.save(tmp_path / "model")
    again: dict[str, Any] = {"selector": Own(4, 4), "predictor": Own(8, 2)} if module else parts
    assert_equal(explainer, RealX.load(tmp_path / "model", **again, device="cpu"), x)
    with pytest.raises(SavedError, match=r"its own selector .*load\(selector=…\)"):
        RealX.load(tmp_path / "model")
    with pytest.raises(SavedError, match=r"its own predictor .*load\(predictor=…\)"):
        RealX.load(tmp_path / "model", selector=Own)
    with pytest.raises(InputError, match="does not fit this network") as caught:
        RealX.load(tmp_path / "model", selector=Own(4, 3), predictor=Own)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [rows, mixed])  # mixed: the masker sits inside groups
def test_a_masker_of_ones_own_is_passed_again(make: Callable[[], Any], tmp_path: Path) -> None:
    x, y = make()
    explainer = quick(masker=Shifted()).fit(x, y)
    explainer.save(tmp_path / "model")
    own = Shifted()
    loaded = RealX.load(tmp_path / "model", masker=own, device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(x), explainer.predict_proba(x))
    with pytest.raises(SavedError, match=r"its own masker Shifted; .*load\(masker=…\)"):
        RealX.load(tmp_path / "model")


@pytest.mark.parametrize("law", [UniformSize(), Bernoulli(0.25)])
def test_an_evaluator_gives_the_same_numbers(law: Any, tmp_path: Path) -> None:
    table, y = mixed()
    evaluator = quick_evaluator(mask_law=law).fit(table, np.array(["no", "yes"])[y])
    evaluator.save(tmp_path / "model")
    loaded = EvalX.load(tmp_path / "model", device="cpu")
    masks = np.random.default_rng(0).random((80, 4)) < 0.5
    np.testing.assert_array_equal(
        loaded.predict_proba(table, masks), evaluator.predict_proba(table, masks)
    )
    assert loaded.sizes_ == evaluator.sizes_
    assert loaded.mask_law == law
    labels = np.array(["no", "yes"])[y]
    one, other = (
        each.evaluate(masks, table, labels, bootstrap_draws=20) for each in (evaluator, loaded)
    )
    assert one.to_json() == other.to_json()


# ---------------------------------------------------------------------- replacing and refusing


def test_saving_again_replaces_the_older_save(tmp_path: Path) -> None:
    x, y = rows()
    folder = tmp_path / "model"
    quick(random_state=1).fit(x, y).save(folder)
    newer = quick(random_state=2, sparsity=[0.1, 1.0]).fit(x, y)
    newer.save(folder)
    assert_equal(newer, RealX.load(folder, device="cpu"), x)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]  # nothing left beside it
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "weights.safetensors"]


def test_one_kind_does_not_replace_another(tmp_path: Path) -> None:
    x, y = rows()
    quick_full().fit(x, y).save(tmp_path / "model")
    with pytest.raises(OutputError, match="model exists and is not a saved L2X"):
        quick_l2x().fit(x, y).save(tmp_path / "model")
    Full.load(tmp_path / "model")


def test_a_failed_save_keeps_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = rows()
    folder = tmp_path / "model"
    older = quick(random_state=1).fit(x, y)
    older.save(folder)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unmasked.explainers.saving.save_file", full)
    with pytest.raises(OutputError, match="No space left"):
        quick(random_state=2).fit(x, y).save(folder)
    assert_equal(older, RealX.load(folder, device="cpu"), x)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize("kind", ["folder", "file", "other config"])
def test_a_foreign_place_is_not_overwritten(kind: str, tmp_path: Path) -> None:
    x, y = rows()
    explainer = quick().fit(x, y)
    place = tmp_path / "thesis"
    if kind == "file":
        place.write_text("years of work")
    else:
        place.mkdir()
        name = "config.json" if kind == "other config" else "chapter.txt"
        (place / name).write_text('{"years": "of work"}')
    with pytest.raises(OutputError, match="thesis exists and is not a saved RealX"):
        explainer.save(place)
    kept = place if kind == "file" else next(place.iterdir())
    assert "of work" in kept.read_text()
    explainer.save(tmp_path / "new" / "folders" / "too")
    (tmp_path / "empty").mkdir()
    explainer.save(tmp_path / "empty")


def edit_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def flip_byte(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(bytes(content))


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "last weight": (lambda f: flip_byte(f / "weights.safetensors", -1), "is damaged"),
    "weights' header": (lambda f: flip_byte(f / "weights.safetensors", 20), "is damaged"),
    "truncated weights": (
        lambda f: (f / "weights.safetensors").write_bytes(
            (f / "weights.safetensors").read_bytes()[:100]
        ),
        "is damaged",
    ),
    "no weights": (lambda f: (f / "weights.safetensors").unlink(), "is damaged"),
    "truncated config": (
        lambda f: (f / "config.json").write_text((f / "config.json").read_text()[:200]),
        "is damaged",
    ),
    "config with another mean": (
        lambda f: (f / "config.json").write_text(
            (f / "config.json").read_text().replace('"mean": 0.', '"mean": 0.1', 1)
        ),
        "config.json is damaged",
    ),
    "config with a part missing": (lambda f: edit_config(f, columns=None), "is damaged"),
    "config of bytes": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), "is damaged"),
    "foreign JSON": (
        lambda f: (f / "config.json").write_text('{"name": "package"}'),
        "not written by this program",
    ),
    "JSON list": (lambda f: (f / "config.json").write_text("[]"), "not written by this program"),
    "other version": (lambda f: edit_config(f, version=1), "version 1 .* reads version 2"),
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
}


@pytest.fixture(scope="module")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "model"
    quick().fit(*rows()).save(folder)
    return folder


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused_in_one_sentence(
    damage: str, good_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "my model"
    shutil.copytree(good_folder, folder)
    RealX.load(folder)
    harm, words = DAMAGE[damage]
    harm(folder)
    with pytest.raises(SavedError, match=words) as caught:
        RealX.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SavedError, match="nowhere must be a folder written by save"):
        RealX.load(tmp_path / "nowhere")


KINDS: dict[type[Any], Maker] = {
    RealX: quick,
    BaseX: EXPLAINERS["BaseX"],
    Invase: EXPLAINERS["Invase"],
    L2X: quick_l2x,
    Full: quick_full,
    EvalX: quick_evaluator,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_kinds_are_not_mixed_up(kind: type[Any], tmp_path: Path) -> None:
    x, y = rows()
    KINDS[kind]().fit(x, y).save(tmp_path / "model")
    kind.load(tmp_path / "model")
    for other in KINDS:
        if other is not kind:
            words = f"model holds a saved {kind.__name__}, but {other.__name__} was asked for"
            with pytest.raises(SavedError, match=words):
                other.load(tmp_path / "model")
