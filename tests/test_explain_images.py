"""``unmasked explain-images`` as a user runs it: real processes, real folders of small pictures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import Result
from PIL import Image
from safetensors import safe_open
from small_pictures import write_dicom, write_films, write_labels
from typer.testing import CliRunner

from unmasked import EvalX, Explanation, RealX
from unmasked.cli import app
from unmasked.cli.workflows import image_files
from unmasked.cli.workflows.image_checks import default_superpixels, default_training, networks
from unmasked.cli.workflows.image_files import plain_names
from unmasked.errors import InputError
from unmasked.io.image_folder import find_pictures, read_pictures
from unmasked.networks.images import CNN, UNet, _folded

ENVIRONMENT = {**os.environ, "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
pytestmark = pytest.mark.usefixtures("one_thread")
FAST = ["--size", 16, "--superpixels", 4, "--device", "cpu"]
SHORT = [*FAST, "--epochs", 1, "--sparsity", 0.5]
PROGRESS = ("reading ", "writing ", "REAL-X", "FULL: ", "EVAL-X: ")  # lines of a log


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "unmasked", "explain-images", *map(str, arguments)]


def run(*arguments: object, code: int = 0) -> Result:
    """The command in this process; one test runs it in others, and kills it."""
    done = CliRunner().invoke(app, ["explain-images", *map(str, arguments)])
    assert done.exit_code == code, f"exit {done.exit_code}\n{done.output}\n{done.exception!r}"
    return done


def refused(*arguments: object) -> str:
    """The one sentence of a refusal."""
    done = run(*arguments, code=2)
    assert done.stdout == ""
    (line,) = [one for one in done.stderr.splitlines() if not one.startswith(PROGRESS)]
    assert line.startswith("error: ")
    assert line.endswith((".", "?"))
    return line


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """45 films of which some are no good: a text, half a picture, one without a label."""
    place = tmp_path_factory.mktemp("pictures")
    lines = write_films(place / "films", 45)
    (place / "films" / "film0005.png").write_text("no picture")
    whole = (place / "films" / "film0006.png").read_bytes()
    (place / "films" / "film0006.png").write_bytes(whole[: len(whole) // 2])
    shutil.copy(place / "films" / "film0000.png", place / "films" / "extra.png")
    patients = [f"p{i // 2}" for i in range(45)]
    rows = [(*line, patient) for line, patient in zip(lines, patients, strict=True)]
    rows.append(("gone.png", "normal", "p99"))
    write_labels(place / "labels.csv", rows, ("image", "label", "patient"))
    return place


@pytest.fixture(scope="module")
def explained(place) -> Path:
    """The output of the whole command on it."""
    out = place / "out"
    done = run(
        place / "films", "--labels", place / "labels.csv", "--group", "patient", "--out", out,
        *FAST, "--epochs", 1, "--sparsity", "0.02,0.5",
    )  # fmt: skip
    assert "REAL-X shows" in done.stdout
    assert "film0005.png was skipped: it is no PNG, JPEG or DICOM picture." in done.stdout
    labels = pd.read_csv(place / "labels.csv").drop(index=[5, 6, 45])["label"]
    counts = ", ".join(f"{n} of {name!r}" for name, n in labels.value_counts().items())
    assert f"43 pictures: {counts}." in done.stdout
    assert "random masks of the same sizes" in done.stdout
    return out


class Page(HTMLParser):
    """Collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href") and value]


def test_everything_is_written(explained, place):
    results = json.loads((explained / "results.json").read_text())
    methods = {row["method"]: row["metrics"] for row in results["rows"]}
    assert set(methods) == {"REAL-X", "random masks", "everything shown", "nothing shown"}
    for row in methods.values():
        for metric in ("eauroc", "eacc", "eloglik"):
            assert row[metric]["low"] <= row[metric]["value"] <= row[metric]["high"]
    assert methods["REAL-X"]["fraction"] == methods["random masks"]["fraction"]
    assert results["classes"] == ["enlarged", "normal"]
    assert sum(results["split"].values()) == results["pictures"]["used"] == 43
    skipped = {one["file"]: one["reason"] for one in results["skipped"]}
    assert skipped.keys() == {"film0005.png", "film0006.png", "extra.png", "gone.png"}
    assert skipped["extra.png"] == "has no line in labels.csv"
    assert skipped["film0006.png"].startswith("cannot be read (")
    assert results["pictures"]["group"] == "patient"
    assert len(results["path"]) == 2
    full = RealX.load(explained / "model", device="cpu").full_accuracy_
    enough = [one for one in results["path"] if one["balanced_accuracy"] >= full - 0.05]
    enough = [one for one in enough if one["fraction"] > 0]
    (own,) = [one for one in results["path"] if one["chosen"]]
    if enough:
        assert own == min(enough, key=lambda one: one["fraction"])
        assert results["choice"].startswith("the sparsest setting with validation balanced")
    else:
        assert own["balanced_accuracy"] == max(p["balanced_accuracy"] for p in results["path"])
        assert "none is within" in results["choice"]
    assert results["choice"].endswith(f"of the full model's {full:.3f}")
    (said,) = [words for words in results["summary"] if results["choice"] in words]
    assert said.startswith(f"λ = {own['sparsity']:g} was chosen: ")
    for one in results["path"]:
        price, shown = f"λ = {one['sparsity']:g}", f"{one['fraction']:.1%} of a picture"
        assert f"{price} shows {shown} with {one['balanced_accuracy']:.3f}" in said
    assert results["network"] == "small"
    assert results["passes"] == {"selector": 1, "predictor": 3}
    assert not (explained / ".checkpoint").exists()
    assert not (explained / ".unmasked.part").exists()

    table = pd.read_csv(explained / "explained.csv")
    assert len(table) == results["split"]["test"]
    explanation = Explanation.load(explained / "masks" / "masks.npz")
    assert explanation.index.tolist() == table["image"].tolist()
    assert explanation.sizes.tolist() == table["shown"].tolist()
    labels = pd.read_csv(place / "labels.csv").set_index("image")["label"]
    assert table["label"].tolist() == labels[table["image"]].tolist()
    for i, file in enumerate(table["file"]):
        mask = np.array(Image.open(explained / "masks" / file))
        assert mask.shape[:2] == (16, 16)
        assert ((mask[..., 0] > 0) == explanation.pixel_masks()[i]).all()
        drawn = np.array(Image.open(explained / "overlays" / file))
        assert drawn.shape == (256, 256, 3)
        coloured = (drawn.max(2).astype(int) - drawn.min(2)) > 0
        assert coloured.any() == bool(explanation.masks[i].any())
    assert len(list((explained / "overlays").iterdir())) == len(table)


def test_only_the_pictures_of_this_run_are_kept(explained):
    kept = sorted(path.suffix for path in (explained / "cache").iterdir())
    assert kept == [".json", ".npy"]


def test_what_is_saved_explains_the_same(explained, place):
    explanation = Explanation.load(explained / "masks" / "masks.npz")
    listed = find_pictures(place / "films", place / "labels.csv", size=16, progress=False)
    pictures = read_pictures(listed, place / "cache-of-a-test", progress=False)
    where = {name: i for i, name in enumerate(pictures.names.tolist())}
    images = pictures.images.take(np.array([where[name] for name in explanation.index]))
    loaded = RealX.load(explained / "model", device="cpu")
    assert (loaded.explain(images).masks == explanation.masks).all()
    table = pd.read_csv(explained / "explained.csv")
    evaluator = EvalX.load(explained / "evaluator", device="cpu")
    assert evaluator.predict(images).tolist() == table["from_everything"].tolist()
    assert evaluator.predict(images, explanation.masks).tolist() == table["from_shown"].tolist()


def test_no_patient_is_in_two_parts(explained, place):
    """The test pictures' patients have no picture outside; splits are seen in explained.csv."""
    table = pd.read_csv(place / "labels.csv").set_index("image")["patient"]
    tested = set(pd.read_csv(explained / "explained.csv")["image"])
    unusable = {"film0005.png", "film0006.png", "gone.png"}
    for name in tested:
        others = set(table.index[table == table[name]]) - unusable
        assert others <= tested


def test_the_study_manifest_belongs_to_its_files(explained):
    folder = explained / "study"
    rows = pd.read_csv(folder / "manifest.csv")
    assert list(rows.columns) == ["image", "method", "mask", "case", "label"]
    results = json.loads((explained / "results.json").read_text())
    assert rows["case"].nunique() == results["study_cases"] == results["split"]["test"]
    assert set(rows["method"]) == {"REAL-X", "random masks"}
    assert len(rows) == 2 * rows["case"].nunique()
    sizes = {}
    for row in rows.itertuples():
        image, mask = (np.array(Image.open(folder / name)) for name in (row.image, row.mask))
        assert image.shape == mask.shape == (16, 16, 3)
        sizes[row.case, row.method] = int((mask[..., 0] > 0).sum())
    for case in rows["case"]:
        assert sizes[case, "REAL-X"] == sizes[case, "random masks"]
    written = {path.name for path in folder.iterdir()} - {"manifest.csv"}
    assert written == set(rows["image"]) | set(rows["mask"])


def test_the_study_command_reads_the_manifest(explained):
    manifest = pytest.importorskip("unmasked.study.folder", reason="there is no study command")
    cases = manifest.read_manifest(manifest.find_manifest(explained))
    assert len(cases) == json.loads((explained / "results.json").read_text())["study_cases"]
    assert {tuple(case.masks) for case in cases} == {("REAL-X", "random masks")}
    assert {case.label for case in cases} <= {"enlarged", "normal"}


def test_the_gallery_is_self_contained(explained):
    text = (explained / "gallery.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.sources
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in page.sources)
    assert not page.tags & {"script", "link", "iframe"}
    assert "Label: enlarged" in text
    assert "Label: normal" in text
    assert "film0005.png was skipped" in text


def test_new_pictures_with_a_saved_model(explained, place, tmp_path):
    """DICOM, colour, another size and 16 bits beside what the model was trained on."""
    new = tmp_path / "new"
    lines = write_films(new, 6, size=40, seed=5)
    grey = np.array(Image.open(new / lines[0][0]))
    write_dicom(new / "d.dcm", grey.astype(np.uint16) * 16, BitsStored=12, HighBit=11)
    Image.fromarray(np.stack([grey] * 3, -1)).save(new / "c.jpg")
    (new / "bad.dcm").write_bytes(b"\0" * 300)
    done = run(new, "--model", explained / "model", "--device", "cpu")
    assert "8 pictures explained" in done.stdout
    assert "bad.dcm was skipped: it cannot be read as DICOM" in done.stdout
    out = tmp_path / "new-explained"
    table = pd.read_csv(out / "explained.csv").set_index("image")
    assert len(table) == 8
    assert "label" not in table.columns
    assert {path.name for path in (out / "overlays").iterdir()} == set(table["file"])
    shown = Explanation.load(out / "masks" / "masks.npz")
    rows = {name: shown.probabilities[i] for i, name in enumerate(shown.index)}
    for other in ("d.dcm", "c.jpg"):  # the same film in another format, to rounding
        assert np.abs(rows[other] - rows[lines[0][0]]).max() < 0.05
    assert not (out / "model").exists()

    table = write_labels(tmp_path / "new.csv", lines)
    done = run(
        new, "--model", explained, "--labels", table, "--out", tmp_path / "scored",
        "--device", "cpu", "--json",
    )  # fmt: skip
    results = json.loads(done.stdout)
    assert 0 <= results["rows"][0]["metrics"]["eacc"]["value"] <= 1
    assert {one["file"] for one in results["skipped"]} == {"d.dcm", "c.jpg", "bad.dcm"}

    message = refused(new, "--model", explained, "--out", explained)
    assert "holds the model itself" in message
    write_labels(tmp_path / "odd.csv", [(lines[0][0], "odd")])
    assert "but" in refused(new, "--model", explained, "--labels", tmp_path / "odd.csv")


def test_a_disk_that_fills_while_pictures_are_drawn_is_told(explained, tmp_path, monkeypatch):
    """They are drawn by several threads; what one meets is told, and nothing is left."""
    write_films(tmp_path / "new", 9)
    drawn = image_files.png

    def full(rgb):
        if threading.current_thread() is not threading.main_thread():
            raise OSError(28, "No space left on device")
        return drawn(rgb)  # the gallery's and the study's

    monkeypatch.setattr(image_files, "png", full)
    out = tmp_path / "out"
    message = refused(tmp_path / "new", "--model", explained, "--out", out, "--device", "cpu")
    assert "cannot be written" in message
    assert "No space left on device" in message
    assert [path.name for path in out.iterdir()] == ["cache"]


def test_another_price_of_the_path_explains_without_training(explained, tmp_path):
    write_films(tmp_path / "new", 6, seed=5)
    loaded = RealX.load(explained / "model", device="cpu")
    listed = find_pictures(tmp_path / "new", None, size=16, progress=False, training=False)
    images = read_pictures(listed, tmp_path / "cache", progress=False, training=False).images
    for price in (0.02, 0.5):
        out = tmp_path / f"at{price}"
        run(tmp_path / "new", "--model", explained, "--sparsity", price, "--out", out)
        (row,) = json.loads((out / "results.json").read_text())["rows"]
        assert row["setting"] == {"sparsity": price}
        assert row["chosen"] == (price == loaded.sparsity_)
        shown = Explanation.load(out / "masks" / "masks.npz")
        assert (shown.masks == loaded.explain(images, sparsity=price).masks).all()
        page = (out / "gallery.html").read_text(encoding="utf-8")
        assert f"6 pictures explained at λ = {price:g}" in page
        assert ("not the chosen" in page) == (price != loaded.sparsity_)
    for given, words in (("0.3", "[0.02, 0.5] but is 0.3"), ("0.02,0.5", "is 0.02, 0.5; give one")):
        out = tmp_path / "refused"
        assert words in refused(
            tmp_path / "new", "--model", explained, "--sparsity", given, "--out", out
        )
        assert not out.exists()


def test_models_of_pictures_and_tables_are_told_apart(explained, place, tmp_path):
    table = place / "labels.csv"
    done = CliRunner().invoke(app, ["explain", str(table), "--model", str(explained)])
    assert done.exit_code == 2
    assert "was trained on pictures, not on a table" in done.stderr
    listed = find_pictures(place / "films", None, size=16, progress=False, training=False)
    with pytest.raises(InputError, match="needs labels, but none came"):
        read_pictures(listed, tmp_path / "cache", progress=False)


def test_refusals_write_nothing(place, tmp_path):
    folder, table = place / "films", place / "labels.csv"
    out = tmp_path / "out"
    cases = [
        (["--labels", table, "--label-column", "Label"], "no column 'Label'"),
        (["--labels", table, "--group", "person"], "no column 'person'"),
        (["--labels", tmp_path / "gone.csv"], "does not exist"),
        ([], "either --labels"),
        (["--labels", table, "--fit", "stretch"], "--fit must be one of"),
        (["--labels", table, "--size", 4], "--size must be a number of pixels from 8 to 2048"),
        (["--labels", table, "--network", "large"], "--network must be one of"),
        (["--labels", table, "--sparsity", "much"], "--sparsity must be"),
        (["--labels", table, "--size", 8, "--superpixels", 16], "needs at least as many lines"),
        (["--labels", table, "--fit", "none", "--size", 64], "film0000.png is 32 × 32 pixels"),
        (["--labels", table, "--network", "unet-densenet", "--size", 36], "multiples of 8"),
        (["--model", place], "no config.json"),
    ]
    for arguments, message in cases:
        assert message in refused(folder, *arguments, "--out", out), arguments
        assert not out.exists(), arguments
    assert "does not exist" in refused(tmp_path / "gone", "--labels", table)
    assert "outside of the pictures' folder" in refused(
        folder, "--labels", table, "--out", folder / "out"
    )
    assert not (folder / "out").exists()


def test_a_class_whose_pictures_cannot_be_read_is_refused_and_nothing_is_left(tmp_path):
    """Only reading shows it, since the heads of the files are whole."""
    lines = write_films(tmp_path / "films", 20)
    for i in range(4):
        path = tmp_path / "films" / f"bad{i}.png"
        Image.effect_noise((64, 64), 50).save(path)
        path.write_bytes(path.read_bytes()[:-2000])
        lines.append((path.name, "rare"))
    table = write_labels(tmp_path / "l.csv", lines)
    message = refused(tmp_path / "films", "--labels", table, "--out", tmp_path / "out", *SHORT)
    assert "'rare' has none" in message
    assert "bad0.png, which cannot be read" in message
    assert not (tmp_path / "out").exists()


def test_results_that_are_there_survive_a_refusal(explained, place):
    before = {p: p.stat().st_mtime_ns for p in explained.rglob("*") if p.is_file()}
    refused(
        place / "films", "--labels", place / "labels.csv", "--label-column", "x", "--out", explained
    )
    assert before == {p: p.stat().st_mtime_ns for p in explained.rglob("*") if p.is_file()}


def selecting(out: Path) -> bool:
    """Whether a checkpoint holds some epochs of the selectors."""
    for checkpoint in out.glob(".checkpoint/*/realx.safetensors"):
        with safe_open(checkpoint, framework="pt") as file:
            said = json.loads(file.metadata()["unmasked-checkpoint"])
            return bool(said["phase"])
    return False


def full_begun(out: Path) -> bool:
    """Whether there is a checkpoint of the model that sees everything."""
    return any(out.glob(".checkpoint/*/full.safetensors"))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """What to run but for its folder, and the folder of a run that nobody broke off."""
    place = tmp_path_factory.mktemp("unbroken")
    table = write_labels(place / "l.csv", write_films(place / "films", 30))
    arguments = [
        place / "films", "--labels", table, *FAST, "--epochs", 8, "--sparsity", "0.1,0.5",
        "--quiet", "--out",
    ]  # fmt: skip
    run(*arguments, place / "whole")
    return arguments, place / "whole"


@pytest.mark.parametrize("reached", [selecting, full_begun])
def test_a_killed_run_resumes_to_the_same_result(reached, unbroken, tmp_path):
    arguments, whole = unbroken
    process = subprocess.Popen(command(*arguments, tmp_path / "broken"), env=ENVIRONMENT)
    deadline = time.monotonic() + 200
    while (
        not reached(tmp_path / "broken") and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    assert process.poll() is None, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "broken" / "results.json").exists()
    done = run(*arguments, tmp_path / "broken")
    assert done.stdout == done.stderr == ""
    folders = (whole, tmp_path / "broken")
    one, two = (Explanation.load(folder / "masks" / "masks.npz") for folder in folders)
    assert (one.probabilities == two.probabilities).all()
    tables = [(folder / "explained.csv").read_text() for folder in folders]
    assert tables[0] == tables[1]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_the_gallery_whole(explained):
    """Every picture is drawn, and nothing is asked of the network."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((explained / "gallery.html").as_uri())
        widths = page.eval_on_selector_all("img", "all => all.map(one => one.naturalWidth)")
        browser.close()
    assert len(widths) % 3 == 0
    assert set(widths) == {256}
    assert all(url.startswith(("file:", "data:")) for url in asked)


# ---------------------------------------------------------------------- small parts


@pytest.mark.parametrize("size", [(16, 16), (15, 18)])
@pytest.mark.parametrize("fold", [1, 2, 4])
def test_folding_loses_nothing_and_keeps_places(size, fold):
    """Every pixel moves the predictor; a place holds its own pixels, which share a logit."""
    torch.manual_seed(0)  # networks draw their weights from it
    x = torch.randn(1, 2, *size, requires_grad=True)
    predictor = CNN((8, 16), fold)((2, *size), 3)
    (gradient,) = torch.autograd.grad(predictor(x)[0, 0], x)
    assert bool((gradient != 0).all())
    selector = UNet((8,), fold)((2, *size), size[0] * size[1])
    found = selector(x).detach()
    assert found.shape == (1, 1, *size)
    places = _folded(x.detach(), fold)
    for line in range(size[0] // fold):
        for column in range(size[1] // fold):
            here = slice(line * fold, (line + 1) * fold), slice(column * fold, (column + 1) * fold)
            block = x.detach()[0, :, here[0], here[1]].flatten()
            assert torch.equal(block.sort().values, places[0, :, line, column].sort().values)
            assert len(found[0, 0, here[0], here[1]].unique()) == 1
    assert len(found.unique()) == places.shape[2] * places.shape[3]
    with pytest.raises(InputError, match="fold must be a whole number"):
        CNN(fold=0)


def test_names_of_files_never_meet():
    names = ["a.png", "a.jpg", "A.png", "b/a.png", "b__a.png", "c", "c.dcm", "1.2.840"]
    found = plain_names(names)
    assert len({name.lower() for name in found}) == len(names)
    assert all(name.endswith(".png") and "/" not in name for name in found)
    assert plain_names(["x/y.dcm", "z.jpeg"]) == ["x__y.png", "z.png"]


@pytest.mark.parametrize(
    ("size", "superpixels", "fold"), [(32, 16, 1), (64, 16, 2), (128, 16, 4), (128, 32, 2)]
)
def test_networks_see_each_superpixel(size, superpixels, fold):
    small, medium = (networks(name, size, superpixels) for name in ("small", "medium"))
    assert small.predictor == CNN((16, 32, 64, 128), fold)
    assert small.selector == UNet((16, 32, 64, 64), fold)
    assert medium.predictor == CNN((16, 32, 64, 128, 128), max(1, fold // 2))
    assert medium.selector == UNet((32, 64, 128, 128), fold)
    assert size // fold >= 2 * superpixels


@pytest.mark.parametrize(
    ("name", "cells"), [("auto", 8), ("small", 8), ("medium", 8), ("unet-densenet", 16)]
)
def test_the_papers_networks_have_the_papers_grid(name, cells):
    assert default_superpixels(name) == cells


def test_the_grid_is_that_of_the_networks_unless_it_is_named(tmp_path):
    lines = write_films(tmp_path / "films", 12)
    table = write_labels(tmp_path / "l.csv", lines)
    out = tmp_path / "out"
    run(
        tmp_path / "films", "--labels", table, "--out", out,
        "--size", 16, "--device", "cpu", "--epochs", 1, "--sparsity", 0.5,
    )  # fmt: skip
    assert Explanation.load(out / "masks" / "masks.npz").masks.shape[1] == 64


def test_the_network_follows_the_machine_unless_it_is_named():
    found = [networks(name, 64, 16, gpu=gpu).name for name in ("auto", "small") for gpu in (0, 1)]
    assert found == ["small", "medium", "small", "small"]


@pytest.mark.parametrize("rows", [6, 100, 600, 5_000, 200_000])
def test_default_training_is_a_sensible_number_of_steps(rows):
    training = default_training(rows, None, networks("small", 64, 16), 64).resolve(rows)
    assert training.batch_size is not None
    assert training.epochs is not None
    steps = training.epochs * (rows // training.batch_size)
    assert 8 <= training.epochs <= 60
    assert steps <= max(1300, 8 * rows / 32)
    assert training.epochs // training.validate_every <= 4
    named = default_training(rows, 7, networks("small", 64, 16), 64)
    assert (named.epochs, named.predictor_epochs) == (7, 21)
