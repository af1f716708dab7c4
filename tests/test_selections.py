"""What methods select on a table's rows is kept: a GPU may round otherwise the next time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_cxr import FILMS, OPTIONS, PARTS, tiny

from unmasked.errors import SavedError
from unmasked.masks.maskers import Token
from unmasked.networks.tables import MLP
from unmasked.reproduce import image_training
from unmasked.reproduce import images as job
from unmasked.reproduce.image_sets import _cxr_parts, run_cxr
from unmasked.reproduce.image_training import Parts, Workshop
from unmasked.reproduce.replicates import Place
from unmasked.reproduce.selections import Selections, kept
from unmasked.training import Data, Settings, Trained, Training, fit, methods

pytestmark = pytest.mark.usefixtures("one_thread")


def _found() -> Selections:
    """Two seeds, three settings, eleven features: not a whole number of bytes."""
    rng = np.random.default_rng(0)
    masks = {
        p: rng.random((2, 3, n, 11)) < 0.4 for p, n in (("train", 7), ("valid", 4), ("test", 5))
    }
    own = {part: rng.random((2, 3, masks[part].shape[2], 2)) for part in ("valid", "test")}
    settings: list[dict[str, int | float]] = [{"k": 1}, {"k": 2}, {"k": 3}]
    return Selections("L2X", settings, masks, own, rng.integers(0, 9, (2, 3)), 1.5)


def _same(one: Selections, other: Selections) -> None:
    assert (one.method, one.settings, one.seconds) == (other.method, other.settings, other.seconds)
    np.testing.assert_array_equal(one.epochs, other.epochs)
    for mine, theirs in ((one.masks, other.masks), (one.own, other.own)):
        assert list(mine) == list(theirs)
        for part, values in mine.items():
            assert values.dtype == theirs[part].dtype
            np.testing.assert_array_equal(values, theirs[part])


@pytest.fixture(scope="module")
def trained() -> Trained:
    x, y = torch.rand(20, 3, generator=torch.Generator().manual_seed(0)), torch.eye(2)[[0, 1] * 10]
    data, training = Data(x, y), Training(epochs=1, batch_size=10)
    return fit(methods.full(Token(), MLP((4,))), Settings(), data, data, training, show=False)


ROWS = [torch.arange(6.0).reshape(2, 3)]


def test_what_is_read_back_is_what_was_found_to_the_last_bit(
    tmp_path: Path, trained: Trained
) -> None:
    path = tmp_path / "selections of l2x.safetensors"
    first = kept(path, "L2X", trained, ROWS, _found)
    _same(first, _found())
    again = kept(path, "L2X", trained, ROWS, lambda: pytest.fail("computed again"))
    _same(again, first)
    assert again.levels == (1.0, 2.0, 3.0)


def test_what_was_kept_of_others_is_refused(tmp_path: Path, trained: Trained) -> None:
    path = tmp_path / "selections of l2x.safetensors"
    kept(path, "L2X", trained, ROWS, _found)
    data = Data(torch.ones(20, 3), torch.eye(2)[[0, 1] * 10])
    training = Training(epochs=1, batch_size=10)
    other = fit(methods.full(Token(), MLP((4,))), Settings(), data, data, training, show=False)
    for name, networks, rows in (
        ("L2X 2", trained, ROWS),
        ("L2X", other, ROWS),
        ("L2X", trained, [ROWS[0] + 1]),
    ):
        with pytest.raises(SavedError, match="belongs to a run with other data or options"):
            kept(path, name, networks, rows, _found)


def _unsteady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Selectors that answer otherwise whenever they are asked, as near a half on a GPU."""
    steady, calls = image_training.selected, iter(range(1000))

    def rounded_otherwise(*given: object) -> NDArray[np.bool_]:
        masks = steady(*given)  # type: ignore[arg-type]
        masks.reshape(-1)[next(calls)] ^= True
        return masks

    monkeypatch.setattr(image_training, "selected", rounded_otherwise)


def test_a_run_that_was_broken_off_after_its_readers_goes_on_where_selectors_are_unsteady(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers have learned from masks that do not come again."""
    _unsteady(monkeypatch)
    options = {**OPTIONS, "drawn": PARTS}

    def broken_off(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(job, "write_tables", broken_off)
        with pytest.raises(KeyboardInterrupt):
            run_cxr(tmp_path / "out", tiny(), FILMS, **options)
    run_cxr(tmp_path / "out", tiny(), FILMS, **options)
    assert (tmp_path / "out" / "results.json").is_file()


def _workshop(folder: Path, parts: Parts) -> Workshop:
    return Workshop(replace(tiny(), prices=(0.5,)), parts, (0,), Place("cpu", folder, False))


def test_other_test_images_are_not_taken_for_those_that_were_kept(tmp_path: Path) -> None:
    parts = _cxr_parts(FILMS, None)
    _workshop(tmp_path, parts).explainer("REAL-X")
    others = replace(parts, test=replace(parts.test, x=parts.test.x[::-1].copy()))
    with pytest.raises(SavedError, match="selections of real-x"):
        _workshop(tmp_path, others).explainer("REAL-X")
