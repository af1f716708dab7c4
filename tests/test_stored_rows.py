"""Rows that stay on disk give what rows in memory give, and memory holds a batch of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from unmasked import EvalX, RealX, Superpixels, Training
from unmasked.errors import InputError
from unmasked.inputs.images import Pixels
from unmasked.inputs.stored import StoredImages, StoredRows
from unmasked.masks.distributions import UniformSize
from unmasked.networks.images import CNN, UNet
from unmasked.training import Data, Settings, fit
from unmasked.training.methods import real_x
from unmasked.training.rows import OnDevice, Rows, _check_room, as_tensor

CPU = torch.device("cpu")
SHAPE = (2, 6, 5)
BRIEF = Training(epochs=3, batch_size=8, learning_rate=0.01, selector_learning_rate=0.01)


def stored(folder: Path, rows: int = 40, dtype: Any = np.uint8, seed: int = 0) -> StoredImages:
    """Random pictures in a mapped file; every other one is left out, the rest is in no order."""
    random = np.random.default_rng(seed)
    most = np.iinfo(dtype).max
    pixels = random.integers(0, most, (2 * rows, *SHAPE), endpoint=True).astype(dtype)
    pixels[:, 1] //= 3  # channels differ
    np.save(folder / f"{seed}.npy", pixels)
    mapped = np.load(folder / f"{seed}.npy", mmap_mode="r")
    return StoredImages(mapped, 2 * random.permutation(rows))


def pixels_of(images: StoredImages | NDArray[np.float32]) -> Pixels:
    masker = Superpixels(2).bound(SHAPE)
    return Pixels.learn(images, masker.names, masker.index)


def both(images: StoredImages) -> tuple[Any, NDArray[np.float32]]:
    """Stored rows, and the same rows in memory."""
    return pixels_of(images).matrix(images), pixels_of(images[:]).matrix(images[:])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_images_and_rows_are_those_of_an_array(tmp_path, dtype):
    images = stored(tmp_path, dtype=dtype)
    whole = images[:]
    assert whole.dtype == np.float32
    assert whole.shape == images.shape == (40, *SHAPE)
    assert 0 <= whole.min() < whole.max() <= 1
    assert (np.asarray(images) == whole).all()
    some = np.array([7, 3, 3, 39])
    assert (images[some] == whole[some]).all()
    assert (images.take(some)[1:] == whole[some][1:]).all()
    assert (images.take(whole[:, 0, 0, 0] > 0.5)[:] == whole[whole[:, 0, 0, 0] > 0.5]).all()
    rows, matrix = both(images)
    assert isinstance(rows, StoredRows)
    assert rows.shape == matrix.shape
    assert (rows[some] == matrix[some]).all()
    assert (rows.take(some)[2:] == matrix[some][2:]).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_statistics_do_not_depend_on_blocks(tmp_path, dtype, monkeypatch):
    images = stored(tmp_path, dtype=dtype)
    mean, scale = images.statistics
    whole = images[:].astype(np.float64)
    np.testing.assert_allclose(mean, whole.mean((0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(scale, whole.std((0, 2, 3)), rtol=1e-13)
    monkeypatch.setattr("unmasked.inputs.stored._AT_ONCE", 200)
    again = StoredImages(images.pixels, images.rows)
    assert len(list(again.blocks())) > 10
    assert (again.statistics[0] == mean).all()
    assert (again.statistics[1] == scale).all()
    assert again.digest == images.digest


def test_a_digest_tells_rows_apart(tmp_path):
    images = stored(tmp_path)
    assert images.digest == StoredImages(np.array(images.pixels), images.rows).digest
    assert images.digest != images.take(slice(1, None)).digest
    assert images.digest != images.take(np.arange(40)[::-1]).digest
    changed = np.array(images.pixels)
    changed[images.rows[5], 1, 2, 3] ^= 1
    assert images.digest != StoredImages(changed, images.rows).digest


def test_only_whole_numbers_are_stored():
    with pytest.raises(InputError, match=r"uint8 or uint16 but are .* of float64"):
        StoredImages(np.zeros((2, 1, 3, 3)))
    with pytest.raises(InputError, match="at least one"):
        StoredImages(np.zeros((2, 1, 3, 3), np.uint8), np.array([], int))


# ---------------------------------------------------------------------- what a program takes


def data(x: Any, rows: int, seed: int = 0, masks: bool = False) -> Data:
    source = torch.Generator().manual_seed(seed)
    target = torch.rand(rows, 2, generator=source)
    drawn = torch.rand(3, rows, 4, generator=source) < 0.5 if masks else None
    return Data(x, target, drawn)


@pytest.mark.parametrize("masks", [False, True], ids=["plain", "given masks"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_are_those_in_memory(tmp_path, masks, dtype):
    """One world or several, their own rows or shared ones, the same order or each its own."""
    pairs = [both(stored(tmp_path, seed=seed)) for seed in range(3)]
    on_disk = [data(as_tensor(rows), 40, i, masks) for i, (rows, _) in enumerate(pairs)]
    in_memory = [data(torch.from_numpy(m), 40, i, masks) for i, (_, m) in enumerate(pairs)]
    orders = torch.stack([torch.randperm(40)[:9] for _ in range(3)])
    for count in (1, 3):
        here = Rows(in_memory[:count], CPU, dtype)
        there = Rows(on_disk[:count], CPU, dtype)
        assert here.rows == there.rows
        assert here.explanations == there.explanations
        for worlds in ([0], [2], [0, 2], [0, 1, 2]):
            for rows in (orders[0], orders[: len(worlds)]):
                if count == 1 and worlds == [2]:
                    continue
                for one, other in zip(
                    here.take(worlds, [0, 2], rows), there.take(worlds, [0, 2], rows), strict=True
                ):
                    assert (one is None) == (other is None)
                    if one is not None:
                        assert one.dtype == other.dtype
                        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_whole_numbers_on_a_device_become_the_same_rows(tmp_path, dtype):
    """What CUDA does, here on the CPU: float32 rounds three times, each by 6e-8 of the value."""
    rows, matrix = both(stored(tmp_path, dtype=dtype))
    take = OnDevice(rows, CPU, torch.float32)
    assert take.numbers.element_size() == np.dtype(dtype).itemsize
    order = torch.randperm(40)[:11]
    np.testing.assert_allclose(take(order).numpy(), matrix[order.numpy()], rtol=0, atol=1e-6)


def test_stored_and_unstored_rows_do_not_mix(tmp_path):
    rows, matrix = both(stored(tmp_path))
    with pytest.raises(InputError, match="1 of 2 are stored"):
        Rows([data(as_tensor(rows), 40), data(torch.from_numpy(matrix), 40)], CPU, torch.float32)


def test_a_fingerprint_knows_the_rows(tmp_path):
    images = stored(tmp_path)
    rows, _ = both(images)
    one = Rows([data(as_tensor(rows), 40)], CPU, torch.float32).tensors()
    same = Rows([data(as_tensor(both(images)[0]), 40)], CPU, torch.float32).tensors()
    other = Rows([data(as_tensor(rows.take(np.arange(40)[::-1])), 40)], CPU, torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[0], other.tensors()[0])


# ---------------------------------------------------------------------- fits


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("first", [False, True], ids=["joint", "predictor first"])
def test_a_streamed_fit_is_the_fit_in_memory(tmp_path, first):
    """The same bits: the engine, on the CPU."""
    rows, matrix = both(stored(tmp_path))
    masker = Superpixels(2).bound(SHAPE)
    from unmasked.networks.tables import MLP

    method = real_x(masker, UniformSize(), MLP((6,)), MLP((6,)), predictor_first=first)
    target = torch.nn.functional.one_hot(torch.arange(40) % 2, 2).float()
    found = []
    for x in (torch.from_numpy(matrix), as_tensor(rows)):
        found.append(
            fit(method, Settings((0.1, 1.0), (0, 1)), Data(x, target), Data(x, target), BRIEF,
                device="cpu", show=False)
        )  # fmt: skip
    here, there = found
    assert here.scores == there.scores
    assert here.history == there.history
    for kind in ("predictors", "selectors"):
        for a, b in zip(getattr(here, kind), getattr(there, kind), strict=True):
            assert equal(a.state_dict(), b.state_dict())


def test_estimators_learn_the_same_from_disk(tmp_path):
    """REAL-X and EVAL-X through the public door, with a split of their own, saved and loaded."""
    images = stored(tmp_path, rows=40)
    labels = np.arange(40) % 2
    options: dict[str, Any] = {
        "predictor": CNN((8,)),
        "masker": Superpixels(2),
        "training": BRIEF,
        "device": "cpu",
        "progress": False,
        "random_state": 3,
    }
    found = []
    for x in (images, images[:]):
        explainer = RealX([0.1, 1.0], selector=UNet((8,)), **options).fit(x, labels)
        evaluator = EvalX(**options).fit(x, labels)
        explanation = explainer.explain(x)
        scores = evaluator.evaluate(explanation, x, labels, bootstrap_draws=20)
        found.append((explainer, explanation, scores, evaluator.predict_proba(x)))
    (one, shown, scores, chances), (other, shown_too, scores_too, chances_too) = found
    assert equal(one.selector_.state_dict(), other.selector_.state_dict())
    assert (shown.probabilities == shown_too.probabilities).all()
    assert (chances == chances_too).all()
    assert scores.to_json() == scores_too.to_json()
    one.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", device="cpu")
    assert (loaded.explain(images).masks == shown.masks).all()
    assert (one.predict_proba(images) == other.predict_proba(images[:])).all()


def test_no_more_is_read_than_a_batch(tmp_path, monkeypatch):
    """While it trains, whatever the number of rows."""
    rows, _ = both(stored(tmp_path, rows=40))
    valid, _ = both(stored(tmp_path, rows=10, seed=1))
    _ = rows.digest, valid.digest
    reads: list[int] = []
    inner = StoredImages.whole_numbers

    def counted(self: StoredImages, which: Any) -> Any:
        found = inner(self, which)
        reads.append(len(found))
        return found

    monkeypatch.setattr(StoredImages, "whole_numbers", counted)
    from unmasked.networks.tables import MLP

    method = real_x(Superpixels(2).bound(SHAPE), UniformSize(), MLP((4,)), MLP((4,)))
    labels = torch.eye(2)
    training = Training(epochs=2, batch_size=8)
    monkeypatch.setattr("unmasked.training.program._CHUNK", 8)
    fit(method, Settings(), Data(as_tensor(rows), labels[torch.arange(40) % 2]),
        Data(as_tensor(valid), labels[torch.arange(10) % 2]), training,
        device="cpu", show=False)  # fmt: skip
    assert max(reads) <= 10  # batches of 8; of ten validation rows at most all
    assert reads.count(8) >= 2 * 5


LIMITED = """
import resource, sys
import numpy as np, torch
torch.set_num_threads(1)
from unmasked import RealX, Training, Superpixels
from unmasked.inputs.stored import StoredImages
from unmasked.networks import MLP

rows, allowed = 20_000, 250 * 2**20  # as float32 the pictures alone take 328 MB
images = StoredImages(np.load(sys.argv[1], mmap_mode="r"))
labels = np.arange(rows) % 2
training = Training(epochs=1, batch_size=200)
options = dict(masker=Superpixels(4), predictor=MLP((4,)), selector=MLP((4,)), device="cpu",
               training=training, progress=False, random_state=0, batch_size=200)

def fit(x, y):
    def some(*which):
        return x[slice(*which)] if isinstance(x, np.ndarray) else x.take(slice(*which))
    valid = some(-100, None), y[-100:]
    return RealX(0.1, **options).fit(some(0, -100), y[:-100], validation=valid)

fit(images.take(slice(0, 400)), labels[:400])  # everything is loaded now
used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status")
            if line.startswith("VmData"))
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
resource.setrlimit(resource.RLIMIT_DATA, (used + allowed, hard))
try:
    if sys.argv[2] == "stored":
        fitted = fit(images, labels)
        fitted.explain(images.take(slice(0, 5000)))
    else:
        fit(images[:], labels)
except (MemoryError, RuntimeError) as error:
    print("no memory", type(error).__name__)
else:
    print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on a process's memory is Linux's")
def test_a_fit_from_disk_does_with_less_memory_than_the_pictures_take(tmp_path):
    """With a limit on private memory below what the pictures alone are as float32, 328 MB."""
    path = tmp_path / "many.npy"
    np.lib.format.open_memmap(path, "w+", np.uint8, (20_000, 1, 64, 64))  # zeros: a hole on disk
    for how, expected in (("stored", "done"), ("array", "no memory")):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(path), how],
            capture_output=True, text=True, timeout=300,
            env={"OMP_NUM_THREADS": "1", "PATH": "", "PYTHONPATH": str(Path.cwd())},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(expected), (done.stdout, done.stderr)


def test_images_too_many_for_the_device_are_refused_with_advice_for_python_and_commands(
    tmp_path, monkeypatch
):
    rows, _ = both(stored(tmp_path))  # 40 images of 60 bytes
    for free, fits in ((4800, True), (4799, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        if fits:
            _check_room(rows, torch.device("cuda"))
            continue
        with pytest.raises(
            InputError, match=r"smaller \(--size\), or use device='cpu' \(--device cpu\), which"
        ):
            _check_room(rows, torch.device("cuda"))
