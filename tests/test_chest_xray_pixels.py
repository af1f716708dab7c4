"""Chest X-rays: what becomes of a film's pixels, and that they are read once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_films import (
    ILL,
    MIXED,
    SIDE,
    WELL,
    all_names,
    kept,
    listed,
    message,
    nih,
    number_of,
    one_sentence,
    parts,
    pixels,
    read,
    reading,
    same,
    saved,
)

from unmasked.errors import DataWarning, InputError, OutputError


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that tests do not change, but for its cache."""
    return nih(tmp_path_factory.mktemp("mixed"), MIXED)


# ---------------------------------------------------------------------- pixels


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P"])
def test_films_in_colour_or_with_transparency_are_the_same_grey(mode: str) -> None:
    """NIH saved some films with four channels."""
    grey = Image.fromarray(pixels(5))
    if mode == "P":
        image = grey.copy()
        image.putpalette([value for i in range(256) for value in (i, i, i)])
        assert image.mode == "P"
        image.info["transparency"] = bytes(range(256))
    else:
        image = grey.convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.fromarray(pixels(6)))
    film = reading._film(saved(image), SIDE)
    assert film.dtype == np.uint8
    np.testing.assert_array_equal(film, pixels(5))


def test_black_and_white_films_are_black_and_white() -> None:
    values = pixels(3) > 127
    np.testing.assert_array_equal(
        reading._film(saved(Image.fromarray(values)), SIDE), np.where(values, 255, 0)
    )


def test_shrinking_averages_instead_of_picking() -> None:
    """A fine chessboard becomes an even grey; picking pixels would make it black or white."""
    board = (np.indices((1024, 1024)).sum(0) % 2 * 255).astype(np.uint8)
    film = reading._film(saved(Image.fromarray(board)), 128).astype(int)
    assert film.shape == (128, 128)
    assert np.abs(film - 127.5).max() <= 1


def test_shrinking_keeps_what_is_where_and_how_bright() -> None:
    values = np.zeros((1024, 1024), np.uint8)
    values[:512, 512:] = 200  # above, right
    film = reading._film(saved(Image.fromarray(values)), 64).astype(int)
    assert (film[:28, 36:] == 200).all()
    assert film[36:].max() == film[:, :28].max() == 0
    assert film.mean() == pytest.approx(values.mean(), abs=1)
    assert (reading._film(saved(Image.new("L", (1024, 1024), 77)), 100) == 77).all()


def test_a_size_that_is_not_the_films_own(mixed: Path) -> None:
    data = read(mixed, size=8, balance=False)
    for films in parts(data):
        assert films.x.shape[1:] == (1, 8, 8)
        for x, name in zip(films.x, films.names, strict=True):
            whole = np.asarray(
                Image.fromarray(pixels(number_of(name))).resize((8, 8), Image.Resampling.LANCZOS)
            )
            np.testing.assert_allclose(x[0], whole / 255, atol=1e-6)


WHOLE = saved(Image.fromarray(pixels(1)))


@settings(max_examples=300, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=60),
        st.builds(lambda n: WHOLE[:n], st.integers(0, len(WHOLE))),
        st.builds(  # some bytes of a film changed
            lambda place, new: WHOLE[:place] + new + WHOLE[place + len(new) :],
            st.integers(0, len(WHOLE)),
            st.binary(min_size=1, max_size=8),
        ),
    )
)
def test_any_bytes_are_a_film_or_a_reason(content: bytes) -> None:
    film = reading._film(content, SIDE)
    if isinstance(film, str):
        one_sentence(f"It {film}.")
        assert "0x" not in film  # no address of an object
    else:
        assert film.shape == (SIDE, SIDE)
        assert film.dtype == np.uint8


def damaged(folder: Path, name: str, content: bytes) -> Path:
    path = folder / "images_001/images" / name
    path.write_bytes(content)
    return path


BROKEN = [
    (WHOLE[:-40], "cannot be read ("),
    (b"<html>not found</html>", "is no picture"),
    (b"", "is no picture"),
    (saved(Image.new("L", (20, 16))), "is 20 × 16 pixels, not square"),
    (saved(Image.new("I;16", (16, 16))), "has pixels of the kind 'I;16', not of 8 bits"),
]


@pytest.mark.parametrize(("content", "why"), BROKEN, ids=lambda value: str(value)[:12])
def test_a_film_that_cannot_be_used_is_skipped_and_named(
    tmp_path: Path, content: bytes, why: str
) -> None:
    """Named by its place in the folder: results pass the sentence on, but no machine's paths."""
    path = damaged(nih(tmp_path, MIXED), "00000004_000.png", content)
    own = "images_001/images/00000004_000.png"
    for _ in range(2):  # also when the others come from the cache
        with pytest.warns(DataWarning) as caught:
            data = read(tmp_path, balance=False)
        text = str(caught[0].message)
        one_sentence(text)
        assert len(caught) == 1
        assert f"1 of 12 were skipped, such as {own}, which {why}" in text
        (sentence,) = data.skipped
        one_sentence(sentence)
        assert sentence.startswith(f"{own} was skipped: it {why}")
        assert all_names(data) == sorted({*ILL, *WELL} - {path.name})
        for films in parts(data):
            for x, name in zip(films.x, films.names, strict=True):
                np.testing.assert_allclose(x[0], pixels(number_of(name)) / 255, atol=1e-6)


def test_all_skipped_films_are_listed(tmp_path: Path) -> None:
    folder = nih(tmp_path, listed(8, 8))
    names = ["00000002_000.png", "00000005_000.png", "00000012_000.png"]
    for name in names:
        damaged(folder, name, b"")
    with pytest.warns(DataWarning, match="3 of 16 were skipped"):
        data = read(folder)
    assert [Path(sentence.split(" was ")[0]).name for sentence in data.skipped] == names
    (remark,) = data.remarks  # the first eight are ill, of whom two are lost
    one_sentence(remark, "6 films with cardiomegaly and 7 without are left, not equally many")
    damaged(folder, "00000013_000.png", b"")  # now two of each
    with pytest.warns(DataWarning, match="4 of 16 were skipped"):
        assert read(folder).remarks == []


def test_films_that_can_none_be_read_are_an_error(tmp_path: Path) -> None:
    nih(tmp_path, MIXED)
    for name, _, _ in MIXED:
        damaged(tmp_path, name, b"broken")
    with pytest.raises(InputError) as caught:
        read(tmp_path, balance=False)
    message(caught, tmp_path, "of 12 none can", "00000001_000.png is no picture")


def test_a_class_whose_films_can_none_be_read_is_an_error(tmp_path: Path) -> None:
    nih(tmp_path, MIXED)
    for name in ILL:
        damaged(tmp_path, name, b"broken")
    with (
        pytest.warns(DataWarning),
        pytest.raises(InputError, match="none with cardiomegaly") as caught,
    ):
        read(tmp_path, balance=False)
    message(caught, tmp_path)


@pytest.mark.parametrize("show", [True, False, "auto"])
def test_progress_is_shown_where_somebody_watches(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], show: Any
) -> None:
    read(mixed, balance=False, cache=tmp_path, progress=show)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("12/12 films" in shown.err) == (show is True)
    read(mixed, balance=False, cache=tmp_path, progress=show)
    assert capsys.readouterr().err == ""  # nothing was read


# ---------------------------------------------------------------------- the cache


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all films that are read from their files from now on."""
    names: list[str] = []
    real = reading._film

    def film(source: Path, size: int) -> Any:
        names.append(source.name)
        return real(source, size)

    monkeypatch.setattr(reading, "_film", film)
    return names


def test_films_are_read_once(mixed: Path, tmp_path: Path, reads: list[str]) -> None:
    first = read(mixed, cache=tmp_path / "new" / "cache")
    assert len(reads) == 10
    (name,) = kept(tmp_path / "new" / "cache")
    assert name.endswith(".npz")
    again = read(mixed, cache=tmp_path / "new" / "cache")
    assert len(reads) == 10
    same(first, again)
    assert again.skipped == again.remarks == []


def test_the_cache_is_in_the_folder_by_default(tmp_path: Path, reads: list[str]) -> None:
    nih(tmp_path, MIXED)
    read(tmp_path)
    assert len([name for name in kept(tmp_path) if name.endswith(".npz")]) == 1
    reads.clear()
    read(tmp_path)
    assert reads == []


def test_how_films_are_split_is_not_cached(mixed: Path, tmp_path: Path, reads: list[str]) -> None:
    read(mixed, balance=False, cache=tmp_path)
    reads.clear()
    data = read(mixed, balance=False, validation=3, test=4, seed=1, cache=tmp_path)
    assert reads == []
    assert [len(films.y) for films in parts(data)][1:] == [3, 4]


@pytest.mark.parametrize("options", [{"size": 8}, {"balance": False}, {"seed": 3}])
def test_a_cache_of_other_films_or_sizes_is_not_used(
    mixed: Path, tmp_path: Path, reads: list[str], options: dict[str, Any]
) -> None:
    read(mixed, cache=tmp_path)
    reads.clear()
    data = read(mixed, cache=tmp_path, **options)
    assert len(reads) == (12 if "balance" in options else 10)
    same(data, read(mixed, cache=tmp_path / "empty", **options))
    reads.clear()
    read(mixed, cache=tmp_path)  # nor has it replaced the other one
    assert reads == []


@pytest.mark.parametrize("change", ["content", "time", "length"])
def test_films_that_changed_are_read_again(tmp_path: Path, reads: list[str], change: str) -> None:
    nih(tmp_path, MIXED)
    read(tmp_path, balance=False)
    reads.clear()
    path = tmp_path / "images_001/images/00000004_000.png"
    if change == "time":
        os.utime(path, ns=(1, 1))
    else:
        before = path.stat()
        Image.fromarray(pixels(200)).save(path)
        if change == "length":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            path.write_bytes(path.read_bytes() + b"more")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    data = read(tmp_path, balance=False)
    assert len(reads) == 12
    (x,) = (f.x[f.names == path.name][0] for f in parts(data) if path.name in f.names)
    assert round(float(x[0, 0, 0]) * 255) == (4 if change == "time" else 200)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_films_that_changed_replace_what_was_kept_of_them(tmp_path: Path, elsewhere: bool) -> None:
    """But nothing of other films, sizes, seeds or of anybody else."""
    films, other = nih(tmp_path / "films", MIXED), nih(tmp_path / "other", MIXED[1:])
    cache = tmp_path / "cache" if elsewhere else films
    where = {"cache": cache} if elsewhere else {}

    def caches() -> set[str]:
        return {path.name for path in cache.glob("*.npz")}

    read(films, **where)
    old = caches()
    read(films, seed=1, **where)
    read(films, size=8, **where)
    read(films, balance=False, **where)
    read(other, cache=cache)
    (name,) = old
    for foreign in (f"my-{name}", name.replace(".npz", "-mine.npz")):
        (cache / foreign).write_bytes((cache / name).read_bytes())
    np.savez(cache / "chest-xray-16-0123456789abcdef.npz", pixels=np.zeros(3))  # says no kind
    before = caches()
    assert len(before) == 8
    (films / "images_001/images" / MIXED[0][0]).touch()
    read(films, **where)
    assert before - caches() == old
    assert len(caches()) == len(before)


def test_a_half_written_cache_is_not_used(mixed: Path, tmp_path: Path, reads: list[str]) -> None:
    first = read(mixed, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    for content in (
        whole[:middle],
        whole[:10],
        b"",
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        whole[:-30],
    ):
        file.write_bytes(content)
        reads.clear()
        same(read(mixed, cache=tmp_path), first)
        assert len(reads) == 10
        assert file.read_bytes() == whole  # and is replaced by a whole one


@pytest.mark.parametrize(
    "change",
    [
        {"key": np.array("0" * 64)},
        {"pixels": np.zeros((9, SIDE, SIDE), np.uint8)},
        {"pixels": np.zeros((10, SIDE, SIDE), np.float32)},
        {"read": np.ones(9, bool)},
        {"read": np.ones(10)},
        {"pixels": None},
    ],
    ids=str,
)
def test_a_cache_with_something_else_in_it_is_not_used(
    mixed: Path, tmp_path: Path, reads: list[str], change: dict[str, Any]
) -> None:
    first = read(mixed, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    arrays = {**np.load(file), **change}
    with open(file, "wb") as handle:
        np.savez(handle, **{name: values for name, values in arrays.items() if values is not None})
    reads.clear()
    same(read(mixed, cache=tmp_path), first)
    assert len(reads) == 10


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_writing_that_is_broken_off_leaves_nothing(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The films are there all the same where the disk is full."""

    def half(handle: Any, **arrays: Any) -> None:
        handle.write(b"PK half of it")
        raise error

    monkeypatch.setattr(np, "savez", half)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            read(mixed, cache=tmp_path)
    else:
        (remark,) = read(mixed, cache=tmp_path).remarks
        one_sentence(remark)
        assert f"could not be kept in {tmp_path.name} (No space left on device)" in remark
        assert str(tmp_path) not in remark  # results pass it on
        assert "make room for them there or, in Python, name another folder" in remark
    assert kept(tmp_path) == []


def test_the_cache_appears_under_its_name_only_when_whole(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = np.savez, []

    def watched(handle: Any, **arrays: Any) -> None:
        real(handle, **arrays)
        seen.extend(kept(tmp_path))

    monkeypatch.setattr(np, "savez", watched)
    read(mixed, cache=tmp_path)
    assert len(seen) == 1
    assert not seen[0].endswith(".npz")
    assert kept(tmp_path) == [seen[0].split(".npz")[0] + ".npz"]


def test_what_could_not_be_read_is_tried_again(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was out of reach for a while; nothing else is read a second time."""
    real, names = reading._film, []

    def film(source: Path, size: int) -> Any:
        names.append(source.name)
        lost = source.name == "00000004_000.png" and len(names) <= 12
        return "cannot be read (Permission denied)" if lost else real(source, size)

    monkeypatch.setattr(reading, "_film", film)
    with pytest.warns(DataWarning, match="Permission denied"):
        read(mixed, balance=False, cache=tmp_path)
    data = read(mixed, balance=False, cache=tmp_path)
    assert names[12:] == ["00000004_000.png"]
    assert data.skipped == []
    read(mixed, balance=False, cache=tmp_path)
    assert len(names) == 13  # now it is kept too
    same(data, read(mixed, balance=False, cache=tmp_path / "empty"))


def test_a_cache_that_cannot_be_a_folder_is_refused_before_reading(
    mixed: Path, tmp_path: Path, reads: list[str]
) -> None:
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError) as caught:
            read(mixed, cache=cache)
        message(caught, cache, "in Python, name another with `chest_xray(…, cache=)`")
    assert reads == []
