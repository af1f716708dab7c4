"""A checkpoint that is damaged, foreign or cannot be written is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from small_runs import FAST, TINY, data, method, train

from unmasked.errors import OutputError, SavedError
from unmasked.masks.distributions import Bernoulli, UniformSize
from unmasked.masks.maskers import Groups, Token
from unmasked.masks.samplers import RebarBernoulli
from unmasked.networks.tables import MLP
from unmasked.training import Settings, checkpoint, fit, methods

ONE = Settings((0.1,), (0,))
BRIEF = replace(FAST, epochs=1)
KEY = "unmasked-checkpoint"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good checkpoint."""
    train(method(), ONE, BRIEF, path=tmp_path / "run.checkpoint")
    return tmp_path / "run.checkpoint"


def assert_one_sentence(message: str, path: Path) -> None:
    assert str(path) in message
    assert "\n" not in message
    assert message.endswith(".")


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """The same file with other values in its description."""
    with safe_open(path, framework="pt") as file:
        values = json.loads(file.metadata()[KEY])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={KEY: json.dumps(change(values))})


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"not a checkpoint at all" * 50),
    "text": lambda path: path.write_text("λ\n" * 100, encoding="utf-8"),
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "cut in the numbers": lambda path: path.write_bytes(path.read_bytes()[:-8]),
    "foreign": lambda path: save_file({"x": torch.zeros(2)}, path),
    "not a description": lambda path: rewrite(path, lambda values: [1, 2]),
    "without a version": lambda path: rewrite(path, lambda values: {"run": values["run"]}),
    "a newer version": lambda path: rewrite(path, lambda values: {**values, "version": 3}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_refused_by_name(
    path: Path, damage: Callable[[Path], object]
) -> None:
    damage(path)
    with pytest.raises(SavedError) as caught:
        train(method(), ONE, BRIEF, path=path)
    assert_one_sentence(str(caught.value), path)
    assert "delete it" in str(caught.value)


def test_a_newer_version_is_named(path: Path) -> None:
    rewrite(path, lambda values: {**values, "version": 3})
    with pytest.raises(SavedError, match="version 3 but this program reads 2"):
        train(method(), ONE, BRIEF, path=path)


RELU = MLP(TINY.hidden, "relu")
OTHERS: dict[str, dict[str, Any]] = {
    "sparsity": {"settings": Settings((0.2,), (0,))},
    "seed": {"settings": Settings((0.1,), (1,))},
    "training": {"training": replace(BRIEF, learning_rate=0.01)},
    "rows": {"train": data(99)},
    "labels": {"train": replace(data(), target=data().target.flip(1))},
    "validation rows": {"valid": data(400, seed=2)},
    "masker": {"method": replace(method(), masker=Groups((0, 1, 2, 3)))},
    "law": {"method": methods.real_x(Token(), UniformSize(), TINY, TINY)},
    "sampler": {"method": methods.real_x(Token(), Bernoulli(), TINY, TINY, RebarBernoulli(0.5))},
    "source": {"method": methods.base_x(Token(), TINY, TINY)},
    "order": {"method": method(predictor_first=True)},
    "initial weights": {"method": method(MLP((5,), "tanh"))},
    "activation": {"method": method(RELU)},  # starts from the very same weights
    "selector's activation": {"method": methods.real_x(Token(), Bernoulli(), TINY, RELU)},
    "precision": {"dtype": torch.float32},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_the_checkpoint_of_another_run_is_refused(path: Path, other: dict[str, Any]) -> None:
    """Whatever a result depends on; else one run would go on with another's networks."""
    arguments: dict[str, Any] = {
        "method": method(),
        "settings": ONE,
        "train": data(),
        "valid": data(400, seed=1),
        "training": BRIEF,
        "device": "cpu",
        "dtype": torch.float64,
        "path": path,
        "show": False,
    }
    fit(**arguments)  # the same run is welcome
    with pytest.raises(SavedError, match="other data or options") as caught:
        fit(**{**arguments, **other})
    assert_one_sentence(str(caught.value), path)


def test_a_place_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file" / "checkpoint"
    with pytest.raises(OutputError) as caught:
        train(method(), ONE, BRIEF, path=path)
    assert_one_sentence(str(caught.value), path)
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_full_disk_keeps_the_last_checkpoint_and_no_half_of_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def half(tensors: Any, file: Path, **_: Any) -> None:
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", half)
    with pytest.raises(OutputError, match="No space left") as caught:
        checkpoint.write(path, "run", {}, {"x": torch.ones(1)})
    assert_one_sentence(str(caught.value), path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_what_is_read_lies_where_tensors_lie(tmp_path: Path) -> None:
    """On some processors a sum depends on its numbers' address: it must not on a restart."""
    sizes = (1, 3, 5, 7, 11)
    tensors = {str(n): torch.arange(n, dtype=torch.float64) for n in sizes}
    assert all(torch.empty(n).data_ptr() % 64 == 0 for n in sizes)  # torch's own are so round
    path = tmp_path / "checkpoint"
    checkpoint.write(path, "run", {}, tensors)
    found = checkpoint.read(path, "run")
    assert found is not None
    for name, tensor in found[1].items():
        assert torch.equal(tensor, tensors[name])
        assert tensor.data_ptr() % 64 == 0
