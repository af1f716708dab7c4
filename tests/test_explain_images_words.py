"""What ``explain-images`` says of pictures and figures that deserve a second look."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from image_commands import SHORT, refused, results, run
from numpy.typing import NDArray
from PIL import Image
from small_pictures import write_films, write_labels

from unmasked import RealX
from unmasked.cli.workflows.image_text import (
    dark_sentences,
    shape_sentences,
    summary_of,
    summary_of_new,
)
from unmasked.evaluation import Scores
from unmasked.explanation.explanation import Explanation
from unmasked.io.image_folder import PictureFolder, find_pictures, read_pictures
from unmasked.metrics import Interval

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------------- 12 bits in 16


def mixed(folder: Path, *, plain: int, deep: int, dark: int) -> PictureFolder:
    """8-bit pictures, 16-bit ones, and 16-bit ones that hold 12 bits."""
    random = np.random.default_rng(0)
    folder.mkdir()
    kinds = [(255, np.uint8)] * plain + [(65535, np.uint16)] * deep + [(4095, np.uint16)] * dark
    for i, (most, kind) in enumerate(kinds):
        pixels = random.integers(most + 1, size=(16, 16)).astype(kind)
        Image.fromarray(pixels).save(folder / f"{i:03d}.png")
    found = find_pictures(folder, size=16, training=False, progress=False)
    return read_pictures(found, folder.with_name("cache"), training=False, progress=False)


@pytest.mark.parametrize(
    ("plain", "deep", "dark", "words"),
    [
        (20, 0, 3, "In 3 of 3 pictures of 16 bits that were looked at no value is above 4,09"),
        (20, 6, 3, "In 3 of 9 pictures of 16 bits that were looked at no value is above 4,09"),
        (20, 6, 0, None),
        (20, 0, 0, None),
        (0, 20, 1, None),
    ],
)
def test_twelve_bits_in_sixteen_are_told_beside_pictures_of_eight(
    tmp_path: Path, plain: int, deep: int, dark: int, words: str | None
) -> None:
    said = dark_sentences(mixed(tmp_path / "own", plain=plain, deep=deep, dark=dark))
    assert len(said) == (words is not None)
    assert all(str(words) in one for one in said)


# ---------------------------------------------------------------------- shapes


def shapes(*runs: tuple[int, int, int]) -> NDArray[np.int64]:
    """(count, height, width) each."""
    return np.concatenate([np.tile([height, width], (n, 1)) for n, height, width in runs])


HALVES = np.array(["a"] * 30 + ["b"] * 30)


@pytest.mark.parametrize(
    ("labels", "sizes", "named"),
    [
        (HALVES, shapes((30, 24, 32), (30, 32, 32)), "60 of 60 pictures, where the larg"),
        (HALVES, shapes((25, 24, 32), (35, 32, 32)), "55 of 60"),
        (np.array(["a"] * 90 + ["b"] * 10), shapes((90, 8, 8), (10, 8, 9)), "100 of 100"),
        (HALVES, shapes((60, 32, 32)), None),
        (HALVES, np.stack([np.arange(60) + 100, np.arange(60) % 7 + 50], 1), None),
        (HALVES, np.random.default_rng(0).integers(30, 34, size=(60, 2)), None),
    ],
)  # fmt: skip
def test_shapes_that_give_the_class_away_are_told(
    labels: NDArray[np.str_], sizes: NDArray[np.int64], named: str | None
) -> None:
    said = shape_sentences(labels, sizes)
    assert len(said) == (named is not None)
    assert all(f"alone name the class of {named}" in one for one in said)


def test_proportions_count_where_sizes_differ() -> None:
    side = np.arange(60) + 200
    sizes = np.stack([np.where(HALVES == "a", side * 3 // 4, side), side], 1)
    (said,) = shape_sentences(HALVES, sizes)
    assert "60 of 60" in said


def test_chance_is_seldom_taken_for_a_sign() -> None:
    random = np.random.default_rng(1)
    false = 0
    for _ in range(200):
        sizes = random.integers(20, 20 + random.integers(2, 20), size=(50, 2))
        false += bool(shape_sentences(random.choice(["a", "b"], 50), sizes))
    assert false <= 4  # three standard errors are passed by chance in 0.3%, twice tried


# ---------------------------------------------------------------------- nothing was learned


def scored(area: Interval, *, micro: bool = False, told: float = -0.6) -> Scores:
    def row(eauroc: Interval, loglik: float) -> dict[str, Interval]:
        return {"eauroc": eauroc, "eacc": Interval(0.5, 0.4, 0.6), "eloglik": even(loglik)}

    rows = {name: row(area, told) for name in ("explanation", "random", "everything")}
    rows["nothing"] = row(even(0.5), -0.69)
    return Scores(rows, {"eloglik": even(0.0)}, 0.0, 40, micro)


def even(value: float) -> Interval:
    return Interval(value, value, value)


def fitted(full: float | None, classes: int = 2) -> RealX:
    explainer = RealX([0.1, 0.3])
    explainer.classes_ = np.arange(classes)
    explainer.full_accuracy_ = full
    explainer.path_ = pd.DataFrame({"sparsity": [0.1], "fraction": [0.0]})
    explainer.interrupted_ = False
    return explainer


@pytest.mark.parametrize(
    ("scores", "full", "reason"),
    [
        (scored(Interval(0.55, 0.4, 0.7)), 0.7, "AUROC from everything is 0.550 [0.400, 0.700]"),
        (scored(Interval(0.8, 0.7, 0.9)), 0.5, "on validation pictures is 0.500, chance being 0.5"),
        (scored(even(0.9), micro=True, told=-0.7), None, "log-likelihood from everything is -0.7"),
        (scored(Interval(0.8, 0.7, 0.9)), 0.7, None),
        (scored(Interval(0.8, 0.7, 0.9)), None, None),
    ],
)  # fmt: skip
def test_where_whole_pictures_tell_nothing_that_comes_first(
    scores: Scores, full: float | None, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealX, "sparsity_", 0.1)
    shown = Explanation(np.zeros((40, 16), bool))
    said = summary_of(shown, scores, fitted(full), "Verdict.")
    new = summary_of_new(shown, scores, fitted(full), 0.1, "Verdict.", labelled=True)
    words = "The classes could not be told even from whole pictures"
    if reason is None:
        assert words not in " ".join(said + new)
        assert "Nothing is shown in any picture: the price λ is too high for these." in said
    else:
        assert said[0].startswith(words)
        assert reason in said[0]
        assert "train longer (--epochs), or check the labels" in said[0]
        assert ("there is nothing yet" in said[0]) == (full == 0.5)  # FULL is at chance
        assert "Nothing is shown in any picture." in said
        assert (words in " ".join(new)) == ("validation" not in reason)


# ---------------------------------------------------------------------- labels


def test_a_class_without_pictures_names_a_file_of_its_own(tmp_path: Path) -> None:
    lines = write_films(tmp_path / "films", 20)
    gone = [("gone.png", "normal"), ("rare.png", "rare"), ("rare2.png", "rare")]
    table = write_labels(tmp_path / "l.csv", [*gone, *lines])
    words = refused(tmp_path / "films", "--labels", table, "--out", tmp_path / "out", *SHORT)
    assert "'rare' has none" in words
    assert "(2 of its were skipped, such as rare.png, which is listed in l.csv but is not" in words


def test_one_label_that_the_model_does_not_know_is_skipped(tmp_path: Path) -> None:
    lines = write_films(tmp_path / "films", 60)
    table = write_labels(tmp_path / "l.csv", lines)
    out = tmp_path / "out"
    run(tmp_path / "films", "--labels", table, "--out", out, *SHORT)
    page = (out / "gallery.html").read_text(encoding="utf-8")
    assert not re.search(r"\d+ of \d+</span>", page)  # 12 test pictures: all are there
    lines = write_films(tmp_path / "new", 60, seed=3)
    lines[7] = (lines[7][0], "odd")
    table, again = write_labels(tmp_path / "n.csv", lines), tmp_path / "again"
    asked = (tmp_path / "new", "--model", out, "--labels", table, "--out", again)
    done = run(*asked, "--device", "cpu")
    assert "film0007.png was skipped: it has the label 'odd', which the model does" in done.stdout
    assert "59 pictures explained" in done.stdout
    assert [one["file"] for one in results(again)["skipped"]] == ["film0007.png"]
    page = (again / "gallery.html").read_text(encoding="utf-8")
    many = sum(label == "normal" for _, label in lines)
    assert f'Label: normal <span class="count">12 of {many}</span>' in page
    assert "Below are 24 of 59, the first of each class: overlays has all." in page
    write_labels(table, [(name, "odd") for name, _ in lines])
    assert "labels must be the classes that the model knows" in refused(*asked)
