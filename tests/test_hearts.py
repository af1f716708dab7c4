"""Hearts found on phantoms, whose anatomy is known, and on real films where they are at hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unmasked import Superpixels
from unmasked.datasets import HeartMasks, heart_masks, phantom, truth_of_superpixels
from unmasked.datasets.phantom import _drawn, _Films
from unmasked.errors import InputError, SavedError
from unmasked.reproduce import heart_segmenter as segmenters
from unmasked.reproduce.heart_augment import dressed, moved, shown_of, to_size
from unmasked.reproduce.heart_measures import cardiothoracic_ratios
from unmasked.reproduce.heart_segmenter import (
    Anatomy,
    Schooling,
    Segmenter,
    _loss,
    _split,
    fit_segmenter,
    scores_on,
)
from unmasked.reproduce.hearts import SEGMENTER, check_hearts, place_rows, places_of

module = importlib.import_module("unmasked.reproduce.hearts")

MASKS = Path(__file__).parents[2] / "shared" / "data" / "cxr" / "heart_masks_128.npz"
needs_masks = pytest.mark.skipif(not MASKS.exists(), reason=f"the real masks are not at {MASKS}")
QUICK = Schooling(epochs=6, batch=16, size=32, widths=(8, 16, 32))
SIDE = 64


def phantoms(rows: int, seed: int) -> HeartMasks:
    """Phantom films with the hearts and lungs that were drawn; two "sources" by turns."""
    films = phantom(rows, size=SIDE, seed=seed)
    anatomy = _Films(_drawn(rows, seed), SIDE)
    heart = anatomy.to_heart <= 0
    lungs = (anatomy.to_thorax <= 0) & (anatomy.to_lungs <= 0) & ~heart
    ratio = cardiothoracic_ratios(heart, lungs)
    source = np.array(["a", "b"])[np.arange(rows) % 2]
    return HeartMasks(films.x, heart, lungs, ratio, np.full(rows, np.nan), source)


def places_of_phantoms(folder: Path, seed: int = 0) -> dict[str, Any]:
    """80 phantoms' true superpixels, as many at random, and none."""
    explained = phantom(80, size=SIDE, seed=11)
    truth = truth_of_superpixels(explained.truth, 16)
    order = np.random.default_rng(0).random(truth.shape).argsort(1)
    chance = order < truth.sum(1, keepdims=True)
    return places_of(
        phantoms(160, 0),
        explained.x,
        {"truth": truth, "chance": chance, "nothing": np.zeros_like(truth)},
        Superpixels(16).bound((1, SIDE, SIDE)).map,
        explained.y,
        seed=seed,
        device="cpu",
        cache_folder=folder,
        schooling=QUICK,
        draws=200,
        show=False,
    )


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What `places_of` found, and the folder in which it keeps its segmenter."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, places_of_phantoms(folder)


@pytest.fixture(scope="module")
def learned(once: tuple[Path, dict[str, Any]]) -> Segmenter:
    return Segmenter.load(once[0] / SEGMENTER)


def noise(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one_sentence(caught: Any, words: str) -> None:
    text = str(caught.value)
    assert words in text
    assert text.endswith(".")
    assert "\n" not in text


# ---------------------------------------------------------------------- looks


@pytest.mark.parametrize("change", [lambda x: x**2.2, lambda x: 0.1 + 0.3 * x, torch.expm1])
def test_what_is_shown_does_not_depend_on_gamma_and_contrast(change: Any) -> None:
    films = torch.rand(3, 1, 16, 20, generator=noise(), dtype=torch.float64)
    torch.testing.assert_close(shown_of(change(films)), shown_of(films))


def test_a_film_of_one_value_shows_nothing() -> None:
    assert shown_of(torch.full((1, 1, 16, 16), 0.3)).abs().max() < 1e-5


def test_local_contrast_is_that_near_here() -> None:
    """A dark and a bright half: far from the edge between them nothing stands out."""
    film = torch.zeros(1, 1, 64, 64)
    film[..., 32:] = 1
    local = shown_of(film)[0, 1, 32]
    assert local[0].abs() < 0.1
    assert local[63].abs() < 0.1
    assert local[31] < -0.8
    assert local[32] > 0.8


def test_films_in_other_clothes() -> None:
    films = torch.from_numpy(phantom(8, size=32).x)
    first, again, other = (dressed(films, noise(seed)) for seed in (1, 1, 2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first - other).abs().mean() > 0.02
    assert first.shape == films.shape
    assert 0 <= first.min() <= first.max() <= 1
    assert torch.isfinite(dressed(torch.full((4, 1, 32, 32), 0.5), noise())).all()


def test_masks_move_with_their_films() -> None:
    place = torch.linspace(-1, 1, 32)
    blob = torch.exp(-8 * (place[:, None] ** 2 + (place - 0.1) ** 2)).expand(20, 1, 32, 32)
    blob = (blob - 0.05).clamp_min(0)  # 0 at the edge, where film and mask go on differently
    film, mask = moved(blob, torch.cat([blob, 2 * blob], 1), noise())
    torch.testing.assert_close(mask[:, :1], film)
    torch.testing.assert_close(mask[:, 1:], 2 * film)
    assert ((film - blob).abs().amax((1, 2, 3)) > 0.01).all()
    size = (film > 0.3).sum((1, 2, 3)) / (blob > 0.3).sum((1, 2, 3))
    assert size.min() < 0.85  # from 1 / 1.25² to 1.25²
    assert size.max() > 1.2
    assert size.min() > 0.5
    assert size.max() < 1.75


def test_shrinking_keeps_the_mean() -> None:
    films = torch.rand(2, 1, 32, 32, generator=noise())
    small = to_size(films, 16)
    torch.testing.assert_close(small[0, 0, 3, 5], films[0, 0, 6:8, 10:12].mean())
    assert to_size(films[..., :30, :], 16).shape == (2, 1, 16, 16)
    torch.testing.assert_close(to_size(torch.full((1, 1, 9, 7), 0.4), 16).mean(), torch.tensor(0.4))


# ---------------------------------------------------------------------- the segmenter


def test_loss_by_hand() -> None:
    masks = torch.zeros(1, 2, 4, 4)
    masks[0, 0, :2] = 1
    dice = [(2 * 0.5 * 8 + 1) / (8 + 8 + 1), (0 + 1) / (8 + 0 + 1)]
    expected = np.log(2) + 1 - np.mean(dice)
    assert float(_loss(torch.zeros(1, 2, 4, 4), masks)) == pytest.approx(expected, rel=1e-5)
    assert float(_loss(100 * (2 * masks - 1), masks)) == pytest.approx(0, abs=1e-6)


def test_phantoms_hearts_are_found(learned: Segmenter) -> None:
    assert set(learned.scores) == {"a", "b"}
    assert all(one["films"] == 16 and one["dice"] > 0.8 for one in learned.scores.values())
    fresh = phantoms(60, 7)
    score = scores_on(learned, fresh, np.arange(60), device="cpu")
    assert score["dice"] > 0.85
    assert score["lungs_dice"] > 0.9
    assert score["distance"] < 1 / 32  # nearer than the margin is wide
    found = learned.anatomy(fresh.x, device="cpu")
    ratio = cardiothoracic_ratios(found.heart, found.lungs)
    # a pixel of the network's is 0.045 of a thorax, and ratios differ by 0.035: more than chance
    assert np.corrcoef(ratio, fresh.ratio)[0, 1] > 4 / np.sqrt(60)


def test_exposure_does_not_move_a_heart(learned: Segmenter) -> None:
    films = phantom(6, size=SIDE, seed=5).x
    plain, boosted = (learned.hearts(x, device="cpu") for x in (films, 0.2 + 0.7 * films**1.5))
    assert plain.shape == (6, SIDE, SIDE)
    assert ((plain > 0.5) != (boosted > 0.5)).mean() < 0.005  # shrinking comes before ranking


def test_films_of_any_size(learned: Segmenter) -> None:
    large = phantom(2, size=96, seed=5).x
    small = phantom(2, size=48, seed=5).x  # the same thoraces
    hearts = [learned.hearts(x, device="cpu").mean((1, 2)) for x in (large, small)]
    assert learned.hearts(large[:, :, :90], device="cpu").shape == (2, 90, 96)
    np.testing.assert_allclose(*hearts, rtol=0.15)


def test_the_same_seed_gives_the_same_segmenter() -> None:
    films, tiny = phantoms(12, 1), Schooling(epochs=2, batch=4, size=16, widths=(8, 8))
    one, same, other = (
        fit_segmenter(films, seed=seed, schooling=tiny, device="cpu", show=False).hearts(
            films.x, device="cpu"
        )
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3


def test_a_training_that_was_stopped_goes_on_to_the_same_segmenter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    films, tiny = phantoms(12, 1), Schooling(epochs=4, batch=4, size=16, widths=(8, 8))
    options: dict[str, Any] = {"schooling": tiny, "device": "cpu", "show": "lines"}
    unbroken = fit_segmenter(films, **options)
    assert "heart segmenter: 4 epochs\n" in capsys.readouterr().err

    class Stops(segmenters._Kept):
        def write(self, epoch: int, *others: Any) -> None:
            super().write(epoch, *others)
            if epoch == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(segmenters, "_Kept", Stops)
        with pytest.raises(KeyboardInterrupt):
            fit_segmenter(films, folder=tmp_path, **options)
    resumed = fit_segmenter(films, folder=tmp_path, **options)
    assert "heart segmenter: 4 epochs, 2 of them before\n" in capsys.readouterr().err
    for name, weights in resumed.network.state_dict().items():
        assert torch.equal(weights, unbroken.network.state_dict()[name]), name
    assert resumed.scores == unbroken.scores
    other = fit_segmenter(films, folder=tmp_path, seed=1, **options)  # begins anew
    assert "heart segmenter: 4 epochs\n" in capsys.readouterr().err
    assert other.scores != unbroken.scores


def test_a_segmenter_comes_back_as_it_was_saved(learned: Segmenter, tmp_path: Path) -> None:
    films = phantom(3, size=SIDE, seed=9).x
    learned.save(tmp_path / "one")
    back = Segmenter.load(tmp_path / "one")
    assert {path.name for path in (tmp_path / "one").iterdir()} == {
        "config.json",
        "weights.safetensors",
    }
    assert back.scores == learned.scores
    assert back.schooling == learned.schooling
    np.testing.assert_array_equal(
        back.hearts(films, device="cpu"), learned.hearts(films, device="cpu")
    )
    weights = tmp_path / "one" / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(SavedError) as caught:
        Segmenter.load(tmp_path / "one")
    one_sentence(caught, "damaged")


def test_held_out_films_are_a_share_of_each_source() -> None:
    source = np.array(["a"] * 10 + ["b"] * 5)
    learn, test = _split(source, 0.2, 0)
    assert sorted([*learn, *test]) == list(range(15))
    assert [(source[test] == name).sum() for name in "ab"] == [2, 1]
    assert len(_split(source, 0.0, 0)[1]) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"held_out": 1.0}, "held_out must be"),
        ({"epochs": 0}, "at least 1 epoch"),
        ({"films": phantoms(2, 0)}, "at least 2 films must be left"),
        ({"device": "abacus"}, "device must be"),
    ],
)
def test_a_segmenter_refuses_in_one_sentence(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"films": phantoms(8, 0), "schooling": QUICK, "show": False}
    with pytest.raises(InputError) as caught:
        fit_segmenter(**{**given, **change})
    one_sentence(caught, words)


@pytest.mark.parametrize(
    ("films", "words"),
    [
        (np.zeros((2, 3, 8, 8)), "(films, 1, height, width)"),
        (np.zeros((8, 8)), "(films, 1, height, width)"),
        (np.full((1, 1, 8, 8), 255.0), "from 255 to 255"),
        (np.full((1, 1, 8, 8), np.nan), "from nan to nan"),
    ],
)
def test_films_must_be_grey_and_from_0_to_1(
    learned: Segmenter, films: np.ndarray, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        learned.hearts(films)
    one_sentence(caught, words)


# ---------------------------------------------------------------------- everything at once


def test_places_of_phantoms(once: tuple[Path, dict[str, Any]]) -> None:
    found = once[1]
    assert found["hearts"]["ratio_auroc"]["low"] > 0.6  # at best 0.958, with the mean widths
    means = found["hearts"]["ratio"]
    assert means["with cardiomegaly"] > means["without cardiomegaly"]
    groups = found["methods"]["truth"]["groups"]
    assert list(groups) == ["all", "without cardiomegaly", "with cardiomegaly"]
    assert [group["films"] for group in groups.values()][1:] == [
        80 - groups["with cardiomegaly"]["films"],
        int(phantom(80, size=SIDE, seed=11).y.sum()),
    ]
    margin, by_chance = (
        found["methods"][name]["groups"]["all"]["places"]["margin"] for name in ("truth", "chance")
    )
    assert margin["enrichment"]["low"] > 2
    assert margin["beyond_others"]["low"] > 0
    low, high = (by_chance["difference"][end] for end in ("low", "high"))
    # 0 within twice a 95% interval: about four standard errors
    assert abs(by_chance["difference"]["value"]) < high - low
    assert found["methods"]["nothing"]["groups"]["all"]["nothing"] == 80
    assert found["methods"]["nothing"]["groups"]["all"]["places"] == {}
    assert found["sentences"][-1].startswith("nothing, with cardiomegaly: none of ")


def test_rows_are_the_same_figures_flat(once: tuple[Path, dict[str, Any]]) -> None:
    rows = place_rows(once[1])
    assert len(rows) == 2 * 3 * 5  # two methods that show something, three groups, five places
    groups = once[1]["methods"]["chance"]["groups"]
    (row,) = (
        row
        for row in rows
        if (row["method"], row["films"], row["place"]) == ("chance", "with cardiomegaly", "lungs")
    )
    assert row["counted"] == groups["with cardiomegaly"]["counted"]
    assert row["shown"] == groups["with cardiomegaly"]["places"]["lungs"]["shown"]


def test_the_segmenter_is_trained_once(
    once: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def trains(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("it is trained")

    monkeypatch.setattr(module, "fit_segmenter", trains)
    folder, first = once
    assert str(places_of_phantoms(folder)) == str(first)
    with pytest.raises(AssertionError, match="it is trained"):
        places_of_phantoms(folder, seed=1)  # another one is asked for


def test_labels_must_be_0_and_1() -> None:
    films = phantom(2, size=32)
    with pytest.raises(InputError) as caught:
        places_of(phantoms(8, 0), films.x, {}, np.zeros((32, 32), int), [0, 2])
    one_sentence(caught, "1 = cardiomegaly")


def test_hearts_that_cannot_be_checked_are_said() -> None:
    heart, lungs = np.zeros((3, 4, 8), bool), np.zeros((3, 4, 8), bool)
    heart[:2, 1:3, 3:5] = lungs[0, 1:3, 0:8] = True
    values, words = check_hearts(Anatomy(heart, lungs), np.array([0, 1, 1]))
    assert (values["without"], values["without_ratio"]) == (1, 2)
    assert "ratio_auroc" not in values  # only one class is left
    assert words == [
        "Hearts were found on 2 of 3 films; they take 12.5% of a film (standard deviation 0.0%)."
    ]


@needs_masks
def test_real_hearts_are_found_after_a_short_training() -> None:
    films = heart_masks(MASKS)
    short = Schooling(epochs=4, batch=16, size=32, widths=(8, 16, 32))
    segmenter = fit_segmenter(films, schooling=short, device="cpu", show=False)
    assert set(segmenter.scores) == {"jsrt", "wingspan"}
    for one in segmenter.scores.values():
        assert one["dice"] > 0.8
        assert one["missed"] == 0


@needs_masks
@pytest.mark.slow
@pytest.mark.parametrize("source", ["jsrt", "wingspan"])
def test_a_segmenter_of_one_source_serves_the_other(source: str) -> None:
    films = heart_masks(MASKS)
    own = HeartMasks(*(values[films.source == source] for values in films))
    segmenter = fit_segmenter(own, epochs=45, device="cpu", show=False)
    other = np.flatnonzero(films.source != source)
    score = scores_on(segmenter, films, other, device="cpu")
    assert score["dice"] > 0.85
    found = segmenter.anatomy(films.x[other], device="cpu")
    ratio = cardiothoracic_ratios(found.heart, found.lungs)
    assert np.corrcoef(ratio, films.ratio[other])[0, 1] > 0.75
