"""Making a reader study: cases, order, pictures, hashes, and the key that lies apart."""

from __future__ import annotations

import csv
import itertools
import json
import os
import stat
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_studies import METHODS, SECRET, small_study, write_sources

from unmasked.errors import DataWarning, InputError, OutputError, SavedError
from unmasked.study.create import create_study
from unmasked.study.folder import find_manifest, read_manifest, read_study
from unmasked.study.images import (
    balanced_orders,
    hide_png,
    is_graded,
    over_png,
    read_image,
    read_mask,
    regions,
    williams,
)
from unmasked.study.key import key_path, read_key


@pytest.mark.parametrize("methods", range(2, 9))
def test_williams_designs_balance_places_and_neighbours(methods):
    design = williams(methods)
    for place in range(methods):
        assert set(np.bincount(design[:, place])) == {len(design) // methods}
    follows = Counter((a, b) for row in design.tolist() for a, b in itertools.pairwise(row))
    assert len(follows) == methods * (methods - 1)
    assert len(set(follows.values())) == 1


@pytest.mark.parametrize(("cases", "methods"), [(50, 4), (49, 5), (7, 3), (3, 4), (1, 2)])
def test_orders_are_balanced_to_within_one_case(cases, methods):
    for seed in range(20):
        orders = balanced_orders(cases, methods, np.random.default_rng(seed))
        assert orders.shape == (cases, methods)
        assert (np.sort(orders, 1) == np.arange(methods)).all()
        counts = np.stack([np.bincount(orders[:, p], minlength=methods) for p in range(methods)])
        assert counts.max() - counts.min() <= 1


def test_orders_are_random():
    """Over seeds, the first case starts with each method equally often: 4 ± 5 standard errors."""
    firsts = [balanced_orders(8, 4, np.random.default_rng(seed))[0, 0] for seed in range(2000)]
    error = 5 * np.sqrt(2000 * 0.25 * 0.75)
    assert np.abs(np.bincount(firsts) - 500).max() < error


def test_a_study_holds_what_its_key_says(tmp_path):
    made = small_study(tmp_path, cases=4)
    study = read_study(made.folder)
    key = read_key(made.key, study)
    assert made.methods == METHODS
    assert [reader.name for reader in study.readers] == ["Ann", "Bo"]
    for r, reader in enumerate(study.readers):
        assert len(reader.cases) == 4
        for case in reader.cases:
            told = key["readers"][r]["cases"][case.id]
            assert sorted(told["methods"]) == sorted(METHODS)
            image = tmp_path / "sources" / f"patient-{told['case']}.png"
            served = study.pictures[case.image]
            size = (case.height, case.width)
            with Image.open(made.folder / "pictures" / served) as picture:
                assert (np.asarray(picture) == read_image(image)).all()
            for option, method in zip(case.options, told["methods"], strict=True):
                mask = read_mask(tmp_path / "sources" / f"{method}-{told['case']}.png", size)
                with Image.open(made.folder / "pictures" / study.pictures[option.over]) as picture:
                    assert ((np.asarray(picture.convert("RGBA"))[..., 3] > 0) == mask).all()
                with Image.open(made.folder / "pictures" / study.pictures[option.hide]) as picture:
                    assert ((np.asarray(picture.convert("RGBA"))[..., 3] == 0) == mask).all()


def test_the_key_is_private_and_outside(tmp_path):
    made = small_study(tmp_path)
    assert made.key == key_path(made.folder)
    assert not made.key.is_relative_to(made.folder)
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
    assert stat.S_IMODE((made.folder / "answers.sqlite").stat().st_mode) == 0o600
    with pytest.raises(InputError, match="outside the study"):
        small_study(tmp_path / "b", key=tmp_path / "b" / "study" / "key.json")


def test_cases_follow_from_the_seed_and_the_order_from_a_secret(tmp_path):
    manifest = write_sources(tmp_path / "sources", 8)
    cases = read_manifest(manifest)

    def drawn(name: str, seed: int, secret: bytes | None) -> tuple[list[str], object]:
        made = create_study(tmp_path / name, cases, ["Ann"], number=4, seed=seed, secret=secret)
        key = json.loads(made.key.read_text())
        return [case["name"] for case in key["cases"]], key["readers"]

    assert drawn("a", 1, SECRET) == drawn("b", 1, SECRET)
    assert drawn("c", 2, SECRET)[0] != drawn("d", 1, SECRET)[0]
    one, two = drawn("e", 1, None), drawn("f", 1, None)
    assert one[0] == two[0]  # the same cases
    assert one[1] != two[1]  # whose order nobody can work out from the seed


def test_layers_are_of_one_length_whatever_they_show():
    rng = np.random.default_rng(0)
    for size in ((64, 64), (61, 83)):
        masks = [np.zeros(size, bool), np.ones(size, bool), rng.random(size) < 0.5]
        lengths = {len(make(regions(mask))) for mask in masks for make in (over_png, hide_png)}
        assert len(lengths) == 1


def test_masks_of_a_grid_cover_the_cells_of_superpixels(tmp_path):
    import torch

    from unmasked import Superpixels
    from unmasked.masks.maskers import Zero

    grid = np.random.default_rng(0).random((5, 3)) < 0.5
    Image.fromarray(np.uint8(255) * grid).save(tmp_path / "mask.png")
    masker = Superpixels((5, 3), masker=Zero()).bound((1, 64, 50))
    expected = masker(torch.ones(1, 64 * 50), torch.tensor(grid.reshape(1, -1)).float())
    assert (read_mask(tmp_path / "mask.png", (64, 50)) == expected.reshape(64, 50).numpy()).all()


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "P", "I;16", "LA"])
def test_masks_of_every_kind_of_picture(tmp_path, mode):
    shown = np.random.default_rng(0).random((16, 16)) < 0.5
    grey = Image.fromarray(np.uint8(255) * shown)
    picture = (
        Image.fromarray(shown.astype(np.uint16) * 900) if mode == "I;16" else grey.convert(mode)
    )
    picture.save(tmp_path / "mask.png")
    assert (read_mask(tmp_path / "mask.png", (16, 16)) == shown).all()


def test_deep_and_small_images(tmp_path):
    deep = np.linspace(1000, 3000, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    values = read_image(tmp_path / "deep.png")
    assert values.dtype == np.uint8
    assert (values.min(), values.max()) == (0, 255)
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "small.png")
    assert read_image(tmp_path / "small.png").shape == (224, 224)


@pytest.mark.parametrize("what", ["study.json", "picture", "missing picture", "key", "hash"])
def test_an_edited_study_is_refused_by_name(tmp_path, what):
    made = small_study(tmp_path)
    picture = sorted((made.folder / "pictures").iterdir())[3]
    if what == "picture":
        picture.write_bytes(picture.read_bytes() + b"\0")
        name = picture.name
    elif what == "missing picture":
        picture.unlink()
        name = picture.name
    elif what == "hash":
        (made.folder / "study.sha256").write_text("")
        name = "study"
    elif what == "key":
        study = read_study(made.folder)
        made.key.write_text(made.key.read_text().replace('"L2X"', '"INVASE"', 1))
        with pytest.raises(SavedError, match=r"study\.key\.json"):
            read_key(made.key, study)
        return
    else:
        path = made.folder / "study.json"
        path.write_text(path.read_text().replace("Rank the options", "Rank A first"))
        name = "study.json"
    with pytest.raises(SavedError, match=name):
        read_study(made.folder)


def test_nothing_is_overwritten_or_left_behind(tmp_path):
    made = small_study(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    cases = read_manifest(tmp_path / "sources" / "manifest.csv")
    with pytest.raises(OutputError, match="exists already"):
        create_study(made.folder, cases, ["Ann"])
    with pytest.raises(OutputError, match="exists already"):
        create_study(tmp_path / "new", cases, ["Ann"], key=made.key)
    cases[2].masks["L2X"].write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"L2X-2\.png"):
        create_study(tmp_path / "new", cases, ["Ann"])
    (tmp_path / "file").write_text("x")
    (tmp_path / "sources" / "L2X-2.png").write_bytes(before[tmp_path / "sources" / "L2X-2.png"])
    with pytest.raises(OutputError, match="nothing was left"):
        create_study(tmp_path / "new", cases, ["Ann"], key=tmp_path / "file" / "key.json")
    (tmp_path / "file").unlink()
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_no_study_appears_without_its_key(tmp_path, monkeypatch):
    """Killed between the two, a key is left; a study whose key is lost would waste its answers."""
    moved = os.replace

    def watched(part, folder) -> None:
        assert key_path(tmp_path / "study").is_file()
        moved(part, folder)

    monkeypatch.setattr("unmasked.study.create.os.replace", watched)
    small_study(tmp_path)

    def fails(part, folder) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unmasked.study.create.os.replace", fails)
    with pytest.raises(OutputError, match="nothing was left behind"):
        small_study(tmp_path / "b")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["sources"]


def test_masks_of_many_values_are_pointed_out(tmp_path):
    """A heat map, or a JPEG of a mask, is shown wherever it is not zero."""
    manifest = write_sources(tmp_path / "sources", 2)
    heat = np.arange(64 * 64, dtype=np.uint8).reshape(64, 64)
    Image.fromarray(heat).save(tmp_path / "sources" / "L2X-1.png")
    with pytest.warns(DataWarning, match=r"1 masks, such as .*L2X-1\.png, have more than two"):
        create_study(tmp_path / "study", read_manifest(manifest), ["Ann"])
    coloured = np.zeros((16, 16, 4), np.uint8)
    coloured[:8] = (230, 159, 0, 255)
    Image.fromarray(coloured).save(tmp_path / "orange.png")
    assert not is_graded(tmp_path / "orange.png")


def manifest_with(folder: Path, change) -> Path:
    path = write_sources(folder, 2)
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    change(rows)
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def _set(row: int, column: int, value: str):
    return lambda rows: rows[row].__setitem__(column, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set(1, 0, "../secret.png"), "leads outside"),
        (_set(1, 2, "/etc/passwd"), "leads outside"),
        (_set(1, 2, "link.png"), "leads outside"),
        (_set(1, 2, "absent.png"), "does not exist"),
        (_set(1, 2, "x" * 300 + ".png"), "must name a file"),
        (_set(1, 0, "x" * 300 + ".png"), "must name a file"),
        (_set(0, 1, "model"), "lacks 'method'"),
        (_set(2, 1, "REAL-X"), "second for 'REAL-X'"),
        (_set(1, 0, ""), "line 2"),
        (lambda rows: rows.pop(3), "none of 'INVASE'"),
        (lambda rows: rows.__delitem__(slice(1, None)), "no rows"),
        (_set(2, 0, "patient-1.png"), "one image"),
    ],
)
def test_bad_manifests_get_one_sentence(tmp_path, change, words):
    (tmp_path / "secret.png").write_bytes(b"")
    path = manifest_with(tmp_path / "m", change)
    (tmp_path / "m" / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(InputError, match=words) as caught:
        read_manifest(path)
    assert "\n" not in str(caught.value)


def test_methods_can_be_chosen(tmp_path):
    path = write_sources(tmp_path, 2)
    assert list(read_manifest(path, ["L2X", "REAL-X"])[0].masks) == ["L2X", "REAL-X"]
    for wrong in (["L2X"], ["L2X", "LIME"], ["L2X", "L2X"]):
        with pytest.raises(InputError):
            read_manifest(path, wrong)


def test_the_output_of_other_commands_is_found(tmp_path):
    path = write_sources(tmp_path / "study", 2)
    assert find_manifest(tmp_path) == path
    with pytest.raises(InputError, match="--manifest"):
        find_manifest(tmp_path / "study")


@pytest.mark.parametrize("readers", [[], ["Ann", "Ann"], ["owner"], [" "]])
def test_readers_need_different_names(tmp_path, readers):
    with pytest.raises(InputError, match="different names"):
        small_study(tmp_path, readers=readers)
