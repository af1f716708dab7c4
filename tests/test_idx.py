"""idx files are read back as they were written, and what is none is refused in a sentence."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from small_mnist import (
    message,
    packed,
)

from unmasked.datasets.mnist import read_idx
from unmasked.errors import InputError


@settings(deadline=None)
@given(
    array=arrays(np.uint8, array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=7)),
    zipped=st.booleans(),
    name=st.sampled_from(["file", "file.gz", "file.idx3-ubyte"]),
)
def test_what_was_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, zipped: bool, name: str
) -> None:
    """Whatever the name says about packing."""
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(gzip.compress(packed(array)) if zipped else packed(array))
    for given_as in (path, str(path)):
        again = read_idx(given_as)
        assert again.dtype == np.uint8
        assert again.shape == array.shape
        np.testing.assert_array_equal(again, array)


def test_sizes_are_big_endian_and_rows_come_first(tmp_path: Path) -> None:
    path = tmp_path / "by-hand"
    path.write_bytes(bytes.fromhex("00000802 00000002 00000003 010203 0405ff"))
    assert read_idx(path).tolist() == [[1, 2, 3], [4, 5, 255]]


@settings(max_examples=300, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=40),
        st.builds(bytes.__add__, st.just(b"\0\0\x08"), st.binary(max_size=60)),
        st.builds(bytes.__add__, st.just(b"\x1f\x8b\x08"), st.binary(max_size=60)),
        st.builds(  # nothing in one dimension, and sizes whose product no computer holds
            lambda sizes: (
                packed(np.zeros(0, np.uint8))[:3]
                + bytes([len(sizes)])
                + b"".join(size.to_bytes(4, "big") for size in sizes)
            ),
            st.lists(st.sampled_from([0, 1, 2**31, 2**32 - 1]), min_size=1, max_size=40),
        ),
    )
)
def test_any_bytes_are_an_array_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        assert read_idx(path).dtype == np.uint8
        return
    with pytest.raises(InputError) as caught:
        read_idx(path)
    message(caught, path)


SMALL = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\0", "begins with 00;"),
        (b"\0\0\x08", "begins with 00 00 08;"),
        (b"<html>not found</html>", "begins with 3c 68 74 6d;"),
        (b"\0\1\x08\1\0\0\0\0", "begins with 00 01 08 01;"),
        (b"\0\0\x08\0\5", "begins with 00 00 08 00;"),  # no dimension
        (b"\0\0\x08\x21" + b"\0\0\0\1" * 33 + b"\5", "begins with 00 00 08 21;"),  # 33 of them
        (b"\0\0\x0a\1\0\0\0\0", "begins with 00 00 0a 01;"),  # a type that does not exist
        (packed(SMALL, 9), "holds int8 (type 9)"),
        (packed(SMALL.astype(">i2"), 11), "holds int16 (type 11)"),
        (packed(SMALL.astype(">i4"), 12), "holds int32 (type 12)"),
        (packed(SMALL.astype(">f4"), 13), "holds float32 (type 13)"),
        (packed(SMALL.astype(">f8"), 14), "holds float64 (type 14)"),
        (packed(SMALL)[:15], "header of 16 bytes for its 3 dimensions but ends after 15 bytes"),
        (packed(SMALL)[:16], "24 bytes after its header, which says (2, 3, 4), but holds 0"),
        (packed(SMALL)[:-1], "but holds 23: it is cut short"),
        (packed(SMALL) + b"\0", "but holds 25: it is longer than it says"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_idx_file_of_bytes_is_refused(
    tmp_path: Path, content: bytes, says: str, zipped: bool
) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(InputError) as caught:
        read_idx(path)
    message(caught, path, says, ";")


def broken_crc(content: bytes) -> bytes:
    return content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content[:5],
        lambda content: content[:2],
        broken_crc,
        lambda content: content[:12] + b"\xff\xff\xff" + content[15:],  # an impossible block
        lambda content: content + b"more",
    ],
)
def test_a_damaged_gzip_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    rows = np.random.default_rng(0).integers(256, size=500, dtype=np.uint8)
    path.write_bytes(damage(gzip.compress(packed(rows))))
    with pytest.raises(InputError) as caught:
        read_idx(path)
    message(caught, path, "is damaged", "fetch it again")


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_idx(tmp_path)
    message(caught, tmp_path, "is a folder")
    with pytest.raises(InputError) as caught:
        read_idx(tmp_path / "nothing.gz")
    message(caught, tmp_path / "nothing.gz", "does not exist")


def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(InputError) as caught:
        read_idx(tmp_path / "secret.gz")
    message(caught, tmp_path / "secret.gz", "Permission denied")
