"""Which files of a folder are pictures, whatever they are called and however links lead there."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_commands import SHORT, refused, results, run
from PIL import Image
from small_pictures import write_dicom, write_films, write_labels

from unmasked.errors import InputError
from unmasked.io.image_folder import find_pictures
from unmasked.io.image_lists import list_pictures

pytestmark = pytest.mark.usefixtures("one_thread")
COMPOSED, APART = (unicodedata.normalize(form, "Müller 1.png") for form in ("NFC", "NFD"))
OLD = os.fsdecode(b"M\xfcller 1.png")  # as Latin-1 archives have it


def picture(path: Path, value: int = 9) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8), value, np.uint8)).save(path, "PNG")
    return path


def command(*arguments: object, where: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a terminal would get."""
    line = [sys.executable, "-m", "unmasked", *map(str, arguments)]
    return subprocess.run(line, cwd=where, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", [COMPOSED, APART, OLD], ids=["composed", "apart", "latin-1"])
@pytest.mark.parametrize("cell", [COMPOSED, APART], ids=["composed cell", "apart cell"])
def test_a_name_is_the_same_however_its_accents_are_stored(
    tmp_path: Path, name: str, cell: str
) -> None:
    own = picture(tmp_path / "films" / name)
    picture(tmp_path / "films" / "2.png")
    table = write_labels(tmp_path / "labels.csv", [(cell, "a"), ("2.png", "b")])
    found = find_pictures(tmp_path / "films", table, training=False).listing
    assert found.names == [COMPOSED, "2.png"]
    assert found.paths[0] == own
    assert found.skipped == []


def test_two_ways_to_write_one_name_are_two_pictures(tmp_path: Path) -> None:
    paths = {picture(tmp_path / name) for name in (COMPOSED, APART, OLD)}
    found = list_pictures(tmp_path).pictures
    assert set(found.values()) == paths
    assert COMPOSED in found
    for name in found:
        name.encode()  # text that can be written anywhere


def test_a_run_with_names_that_are_no_text_ends_well(tmp_path: Path) -> None:
    """In the table and not in it, and of the folder; as an output folder it is refused at once."""
    folder = tmp_path / os.fsdecode(b"K\xf6ln")
    cells = write_films(folder, 30)
    (folder / cells[0][0]).rename(folder / OLD)
    picture(folder / os.fsdecode(b"\xe9xtra.png"))
    table = write_labels(tmp_path / "labels.csv", [(COMPOSED, cells[0][1]), *cells[1:]])
    done = command("explain-images", folder, "--labels", table, *SHORT)  # beside the folder
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(
        "must be UTF-8 text but is not; choose another with --out."
    )
    out = tmp_path / "out"
    run(folder, "--labels", table, "--out", out, *SHORT)
    assert results(out)["pictures"]["used"] == 30
    assert results(out)["folder"] == "Köln"
    assert [one["file"] for one in results(out)["skipped"]] == ["éxtra.png"]
    (tmp_path / os.fsdecode(b"\xfc")).symlink_to(folder)
    new = tmp_path / os.fsdecode(b"\xfc")
    done = command("explain-images", new, "--model", out, "--out", tmp_path / "new")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert results(tmp_path / "new")["pictures"]["used"] == 31
    assert (tmp_path / "new" / "overlays" / COMPOSED).is_file()


def _without_preamble(path: Path, like: Path) -> Path:
    """As old archives have DICOM files: data from the first byte on."""
    path.write_bytes(like.read_bytes()[132:])
    return path


def test_files_are_known_by_how_they_begin(tmp_path: Path) -> None:
    pixels = np.arange(64, dtype=np.uint16).reshape(8, 8)
    dicom = write_dicom(tmp_path / "a.dcm", pixels)
    (tmp_path / "Mueller.Hans").write_bytes(dicom.read_bytes())
    _without_preamble(tmp_path / "OLD000012", dicom)
    _without_preamble(tmp_path / "1.2.840.7", dicom)
    picture(tmp_path / "noending")
    picture(tmp_path / "scan.final")
    (tmp_path / "notes").write_text("08 patients")
    (tmp_path / "two").write_bytes(b"\x08\x00")
    (tmp_path / "table.csv").write_text("image,label")
    known = ["1.2.840.7", "Mueller.Hans", "OLD000012", "a.dcm", "noending", "scan.final"]
    assert sorted(list_pictures(tmp_path).pictures) == known
    assert list_pictures(tmp_path).others == ["notes", "table.csv", "two"]
    found = find_pictures(tmp_path, training=False)
    assert found.listing.names == known
    assert found.listing.skipped == []


def test_links_are_followed_once_and_dead_ones_told(tmp_path: Path) -> None:
    picture(tmp_path / "elsewhere" / "b.png")
    folder = tmp_path / "films"
    picture(folder / "site" / "a.png")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "once more").symlink_to(tmp_path / "elsewhere")
    (folder / "site" / "around").symlink_to(folder)
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "elsewhere")
    (folder / "dead.png").symlink_to(tmp_path / "gone.png")
    (folder / "a link.png").symlink_to(tmp_path / "elsewhere" / "b.png")
    found = find_pictures(folder, training=False).listing
    assert found.names == ["a link.png", "linked/b.png", "site/a.png"]
    assert [str(one) for one in found.skipped] == [
        "dead.png was skipped: it is a link to a file that is not there."
    ]


@pytest.mark.parametrize("cell", ["site/dead.png", "dead.png", "dead"])
def test_a_dead_link_that_has_a_label_is_told_once(tmp_path: Path, cell: str) -> None:
    folder = tmp_path / "films"
    picture(folder / "a.png")
    (folder / "site").mkdir()
    (folder / "site" / "dead.png").symlink_to(tmp_path / "gone.png")
    lines = [("a.png", "x"), (cell, "y"), ("never.png", "y")]
    table = write_labels(tmp_path / "labels.csv", lines)
    found = find_pictures(folder, table, training=False).listing
    assert [str(one) for one in found.skipped] == [
        "site/dead.png was skipped: it is a link to a file that is not there.",
        "never.png was skipped: it is listed in labels.csv but is not in the folder.",
    ]


def test_a_folder_that_stays_closed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture(tmp_path / "locked" / "a.png")
    picture(tmp_path / "open" / "b.png")
    look = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    table = write_labels(tmp_path / "labels.csv", [("b.png", "a")])
    for labels in (None, table):
        found = find_pictures(tmp_path, labels, training=False).listing
        assert found.names == ["open/b.png"]
        assert str(found.skipped[0]) == (
            "locked was skipped: it is a folder that cannot be read (Permission denied)."
        )
    (tmp_path / "open" / "b.png").unlink()
    with pytest.raises(InputError, match=r"holds none \(locked is a folder that cannot be read"):
        list_pictures(tmp_path)


def test_twelve_bits_in_sixteen_are_told(tmp_path: Path) -> None:
    """The networks would see black; the same pictures over the whole range get no remark."""
    random = np.random.default_rng(0)
    cells = [(f"{i}.png", "ab"[i % 2]) for i in range(30)]
    for folder, most in (("dim", 4096), ("bright", 65536)):
        for name, _ in cells:
            (tmp_path / folder).mkdir(exist_ok=True)
            values = random.integers(0, most, (16, 16)).astype(np.uint16)
            Image.fromarray(values).save(tmp_path / folder / name)
    table, words = write_labels(tmp_path / "l.csv", cells), "of the 65,535 that 16 bits can hold"
    said = run(tmp_path / "dim", "--labels", table, "--out", tmp_path / "o", *SHORT).stdout
    assert "In 30 of 30 pictures of 16 bits that were looked at no value is above" in said
    assert any(words in remark for remark in results(tmp_path / "o")["remarks"])
    for folder, told in (("dim", True), ("bright", False)):
        new = tmp_path / f"new {folder}"
        run(tmp_path / folder, "--model", tmp_path / "o", "--out", new, "--device", "cpu")
        assert any(words in remark for remark in results(new)["remarks"]) == told


def test_the_root_of_all_folders_has_nothing_beside_it() -> None:
    assert "choose a folder with --out" in refused("/", "--labels", "labels.csv")


@pytest.mark.parametrize("empty", [["--out", ""], ["--out="], [""]])
def test_an_empty_path_is_not_the_folder_one_is_in(tmp_path: Path, empty: list[str]) -> None:
    done = command("explain-images", "films", *empty, where=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "perhaps for a variable that is not set; give one." in line
    assert list(tmp_path.iterdir()) == []
