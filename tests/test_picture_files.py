"""Pictures as files: what is read from a PNG, a JPEG and a DICOM, and what is said of others."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_pictures import saved, write_dicom

from unmasked.errors import MissingExtra
from unmasked.io import dicom, image_files
from unmasked.io.image_files import Look, Plan, look, read

GREY, DEEP, COLOUR = Plan(8, 1, False), Plan(8, 1, True), Plan(8, 3, False)
RAMP = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
DEEP_RAMP = RAMP.astype(np.uint16)


def dicom_with(path: Path, pixels: Any, tags: dict[str, Any]) -> Path:
    """A DICOM file with tags that pydicom itself may warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return write_dicom(path, pixels, **tags)


# ---------------------------------------------------------------------- PNG and JPEG


def test_an_8_bit_picture_of_the_right_size_comes_back_as_it_is(tmp_path):
    path = saved(tmp_path / "a.png", RAMP)
    assert look(path) == Look(8, 8, colour=False, deep=False)
    assert (read(path, GREY)[0] == RAMP).all()
    assert (read(path, COLOUR) == RAMP).all()  # three equal channels
    assert (read(path, DEEP)[0] == RAMP.astype(int) * 257).all()  # white stays white


def test_a_16_bit_picture_keeps_its_16_bits(tmp_path):
    wide = RAMP.astype(np.uint16) * 257 + 3
    path = saved(tmp_path / "a.png", wide)
    assert look(path) == Look(8, 8, colour=False, deep=True)
    assert (read(path, DEEP)[0] == wide).all()
    assert (read(path, GREY)[0] == RAMP).all()


def test_colour_is_kept_or_made_grey_by_luma(tmp_path):
    rgb = np.stack([RAMP, 255 - RAMP, np.full_like(RAMP, 100)], -1)
    path = saved(tmp_path / "a.png", rgb)
    assert look(path) == Look(8, 8, colour=True, deep=False)
    assert (np.moveaxis(read(path, COLOUR), 0, -1) == rgb).all()
    luma = rgb @ np.array([0.299, 0.587, 0.114])
    assert np.abs(read(path, GREY)[0] - luma).max() <= 0.5
    jpeg = saved(tmp_path / "b.jpg", np.full((8, 8, 3), (200, 40, 90), np.uint8), quality=100)
    assert look(jpeg).colour
    assert np.abs(read(jpeg, COLOUR)[:, 4, 4].astype(int) - (200, 40, 90)).max() <= 3


def test_palettes_and_transparency_and_single_bits(tmp_path):
    grey = Image.fromarray(RAMP).convert("P", palette=Image.Palette.ADAPTIVE, colors=256)
    grey.save(tmp_path / "grey.png")
    assert look(tmp_path / "grey.png") == Look(8, 8, colour=False, deep=False)
    assert np.abs(read(tmp_path / "grey.png", GREY)[0].astype(int) - RAMP).max() <= 4
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    Image.fromarray(red).convert("P").save(tmp_path / "red.png")
    assert look(tmp_path / "red.png").colour
    glass = saved(tmp_path / "glass.png", np.dstack([RAMP, np.full_like(RAMP, 9)]))
    assert (read(glass, GREY)[0] == RAMP).all()
    bits = saved(tmp_path / "bits.png", RAMP > 100)
    assert set(np.unique(read(bits, GREY))) == {0, 255}


def test_a_picture_that_a_camera_turned_is_turned_back(tmp_path):
    """EXIF orientation 6: what is stored must be turned a quarter to the right."""
    image = Image.fromarray(np.repeat([[0, 255]], 16, 0).astype(np.uint8).repeat(16, 1))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=exif, quality=95)
    assert look(tmp_path / "a.jpg")[:2] == (32, 16)
    turned = read(tmp_path / "a.jpg", Plan(32, 1, False))[0]
    inside = turned[:, 8:24]
    assert inside[:12].max() < 60  # the left half came on top
    assert inside[20:].min() > 200
    assert not turned[:, :8].any()


@pytest.mark.parametrize(("height", "width"), [(16, 8), (5, 40), (8, 8), (3, 7), (100, 99)])
def test_padding_keeps_proportions_and_cropping_fills(tmp_path, height, width):
    path = saved(tmp_path / "a.png", np.full((height, width), 200, np.uint8))
    left, top, wide, high = GREY.place(height, width)
    assert max(wide, high) == 8
    assert abs(wide / high - width / height) <= (0.5 / high) * (1 + wide / high)  # whole pixels
    expected = np.zeros((8, 8), np.uint8)
    expected[top : top + high, left : left + wide] = 200
    assert (read(path, GREY)[0] == expected).all()
    assert (read(path, Plan(8, 1, False, "crop")) == 200).all()
    refused = read(path, Plan(8, 1, False, "none"))
    if (height, width) == (8, 8):
        assert not isinstance(refused, str)
    else:
        assert refused == f"is {width} × {height} pixels, not 8 × 8"


def test_shrinking_takes_means_in_8_and_in_16_bits(tmp_path):
    checkers = (np.indices((64, 64)).sum(0) % 2 * 200).astype(np.uint8)
    small = read(saved(tmp_path / "a.png", checkers), GREY)[0]
    assert np.abs(small.astype(float) - 100).max() <= 2
    deep = read(saved(tmp_path / "b.png", checkers.astype(np.uint16) * 257), DEEP)[0]
    assert np.abs(deep.astype(float) - 25700).max() <= 600


def test_what_cannot_be_read_says_why(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (99, 99)).astype(np.uint8)
    whole = saved(tmp_path / "whole.png", noise).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no picture")
    empty = [tmp_path / f"empty{ending}" for ending in (".png", ".jpg", ".dcm")]
    for path in empty:
        path.write_bytes(b"")
        assert look(path) == read(path, GREY) == "is empty"
    Image.fromarray(RAMP).save(tmp_path / "other.png", format="BMP")
    saved(tmp_path / "line.png", np.zeros((2, 900), np.uint8))
    assert look(tmp_path / "half.png") == Look(99, 99, colour=False, deep=False)
    assert read(tmp_path / "half.png", GREY).startswith("cannot be read (")
    for name in ("text.png", "other.png"):
        assert look(tmp_path / name) == "is no PNG, JPEG or DICOM picture"
        assert read(tmp_path / name, GREY) == "is no PNG, JPEG or DICOM picture"
    assert "so narrow that nothing of it is left at 8 pixels" in read(tmp_path / "line.png", GREY)
    assert look(tmp_path / "gone.png").startswith("cannot be read (No such file")


# ---------------------------------------------------------------------- DICOM


def test_without_a_window_dicom_goes_from_its_smallest_to_its_largest(tmp_path):
    stored = (np.arange(64).reshape(8, 8) * 10 + 500).astype(np.uint16)
    path = write_dicom(tmp_path / "a.dcm", stored, BitsStored=12, HighBit=11)
    assert look(path) == Look(8, 8, colour=False, deep=True)
    expected = (stored - 500) / 630
    assert np.abs(dicom.unit_picture(path) - expected).max() < 1e-6
    assert np.abs(read(path, DEEP)[0] / 65535 - expected).max() < 1e-4
    assert np.abs(read(path, GREY)[0] / 255 - expected).max() < 1 / 254


def test_slope_intercept_and_window_as_the_standard_has_them(tmp_path):
    """Signed numbers, value = 2 · stored − 1000; PS3.3 C.11.2.1.2 by hand."""
    stored = np.arange(-32, 32, dtype=np.int16).reshape(8, 8) * 20
    tags = {"RescaleSlope": 2, "RescaleIntercept": -1000}
    values = 2.0 * stored - 1000
    c, w = -900.0, 400.0
    forms = {
        "LINEAR": np.clip((values - (c - 0.5)) / (w - 1) + 0.5, 0, 1),
        "LINEAR_EXACT": np.clip((values - c) / w + 0.5, 0, 1),
        "SIGMOID": 1 / (1 + np.exp(-4 * (values - c) / w)),
    }
    for function, expected in forms.items():
        path = write_dicom(
            tmp_path / "a.dcm", stored, WindowCenter=c, WindowWidth=w,
            VOILUTFunction=function, **tags,
        )  # fmt: skip
        assert np.abs(dicom.unit_picture(path) - expected).max() < 1e-6, function
    several = write_dicom(
        tmp_path / "b.dcm", stored, WindowCenter=[c, 0], WindowWidth=[w, 10], **tags
    )
    assert np.abs(dicom.unit_picture(several) - forms["LINEAR"]).max() < 1e-6
    step = write_dicom(tmp_path / "c.dcm", stored, WindowCenter=c, WindowWidth=1, **tags)
    assert (dicom.unit_picture(step) == (values > c - 0.5)).all()


def test_a_table_may_stand_for_the_window(tmp_path):
    """A VOI table of 64 entries, here the square root: its smallest is black, its largest white."""
    from pydicom.dataset import Dataset

    stored = np.arange(64, dtype=np.uint16).reshape(8, 8)
    entries = np.rint(np.sqrt(np.arange(64)) * 1000).astype(np.uint16)
    table = Dataset()
    table.add_new("LUTDescriptor", "US", [64, 0, 16])
    table.add_new("LUTData", "US", entries.tolist())
    path = write_dicom(tmp_path / "a.dcm", stored, VOILUTSequence=[table])
    assert np.abs(dicom.unit_picture(path).ravel() - entries / entries.max()).max() < 1e-6


def test_monochrome1_is_turned_and_padding_is_black(tmp_path):
    stored = np.arange(64, dtype=np.uint16).reshape(8, 8) + 100
    stored[0] = 9999
    for kind in ("MONOCHROME1", "MONOCHROME2"):
        path = write_dicom(
            tmp_path / "a.dcm", stored, PhotometricInterpretation=kind, PixelPaddingValue=9999
        )
        found = dicom.unit_picture(path)
        assert not found[0].any()
        ramp = np.linspace(0, 1, 56).reshape(7, 8)
        assert np.abs(found[1:] - (1 - ramp if kind == "MONOCHROME1" else ramp)).max() < 1e-6


def test_colour_and_8_bit_and_compressed_dicom(tmp_path):
    rgb = np.stack([RAMP, 255 - RAMP, RAMP], -1)
    path = write_dicom(tmp_path / "a.dcm", rgb)
    assert look(path) == Look(8, 8, colour=True, deep=False)
    assert (np.moveaxis(read(path, COLOUR), 0, -1) == rgb).all()
    eight = write_dicom(tmp_path / "b.dcm", RAMP)
    assert not look(eight).deep
    from pydicom import dcmread
    from pydicom.uid import RLELossless

    dataset = dcmread(eight)
    dataset.compress(RLELossless)
    dataset.save_as(tmp_path / "c.dcm")
    assert (read(tmp_path / "c.dcm", GREY) == read(eight, GREY)).all()


def test_lossless_jpeg_inside_dicom_is_read(tmp_path):
    """Process 14, as many X-ray machines write it; pydicom alone cannot read it."""
    gdcm = pytest.importorskip("gdcm", reason="python-gdcm is in the extra 'dicom'")
    stored = (np.arange(64).reshape(8, 8) * 50).astype(np.uint16)
    plain = write_dicom(tmp_path / "plain.dcm", stored, BitsStored=12, HighBit=11)
    reader = gdcm.ImageReader()
    reader.SetFileName(str(plain))
    assert reader.Read()
    change = gdcm.ImageChangeTransferSyntax()
    change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.JPEGLosslessProcess14_1))
    change.SetInput(reader.GetImage())
    assert change.Change()
    writer = gdcm.ImageWriter()
    writer.SetFileName(str(tmp_path / "packed.dcm"))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    assert writer.Write()
    from pydicom import dcmread

    assert dcmread(tmp_path / "packed.dcm").file_meta.TransferSyntaxUID.endswith("4.70")
    assert (read(tmp_path / "packed.dcm", DEEP) == read(plain, DEEP)).all()


def test_dicom_that_cannot_be_used_says_why(tmp_path):
    several = write_dicom(
        tmp_path / "film.dcm", np.zeros((4, 8, 8), np.uint8)[0],
        NumberOfFrames=4, PixelData=bytes(256),
    )  # fmt: skip
    assert "is a DICOM file of 4 frames, not of one" in look(several)
    assert read(several, GREY) == look(several)
    palette = write_dicom(tmp_path / "p.dcm", RAMP, PhotometricInterpretation="PALETTE COLOR")
    assert "PALETTE COLOR" in look(palette)
    whole = write_dicom(tmp_path / "whole.dcm", RAMP).read_bytes()
    (tmp_path / "cut.dcm").write_bytes(whole[:-30])  # the head is whole, the pixels are not
    assert look(tmp_path / "cut.dcm") == Look(8, 8, colour=False, deep=False)
    assert read(tmp_path / "cut.dcm", GREY).startswith("cannot be read as DICOM (")
    (tmp_path / "junk.dcm").write_bytes(b"\x07" * 400)
    assert look(tmp_path / "junk.dcm").startswith("cannot be read as DICOM (")
    empty = write_dicom(tmp_path / "report.dcm", RAMP)
    from pydicom import dcmread

    dataset = dcmread(empty)
    for name in ("Rows", "Columns", "PixelData"):
        delattr(dataset, name)
    dataset.save_as(empty)
    assert look(empty) == "is a DICOM file without a picture"


@pytest.mark.parametrize(
    ("pixels", "tags", "reason"),
    [
        (DEEP_RAMP, {"RescaleSlope": "nan"}, "make numbers that are not finite"),
        (DEEP_RAMP, {"RescaleIntercept": "inf"}, "make numbers that are not finite"),
        (DEEP_RAMP, {"RescaleSlope": 0}, "its slope makes all its pixels the same"),
        (
            DEEP_RAMP,
            {"RescaleSlope": 0, "WindowCenter": 9, "WindowWidth": 9},
            "its slope makes all its pixels the same",
        ),
        (np.full((8, 8), 7, np.uint16), {}, "all its pixels are the same and it has no window"),
        (
            np.full((8, 8), 7, np.int16),
            {"WindowCenter": "nan", "WindowWidth": 9},
            "all its pixels are the same and it has no window",
        ),
        (np.full((8, 8), 7, np.uint16), {"PixelPaddingValue": 7}, "all of it is padding"),
    ],
)
def test_dicom_with_nothing_to_be_seen_says_so(tmp_path, pixels, tags, reason):
    slope = {"RescaleSlope": 1, "RescaleIntercept": 0} if "Rescale" in str(tags) else {}
    path = dicom_with(tmp_path / "film.dcm", pixels, {**slope, **tags})
    assert isinstance(look(path), Look)
    said = read(path, DEEP)
    assert isinstance(said, str)
    assert said.startswith("cannot be read as DICOM (")
    assert reason in said


def test_dicom_of_one_value_with_a_window_is_a_picture(tmp_path):
    """A window says what is black: an even picture is one too."""
    tags = {"WindowCenter": 7.5, "WindowWidth": 9}
    path = write_dicom(tmp_path / "film.dcm", np.full((8, 8), 7, np.uint16), **tags)
    assert (read(path, DEEP) == 65535 // 2 + 1).all()
    wide = np.array([[-32768, 32767]] * 8, np.int16).repeat(4, 1)  # its range is beyond its type
    path = write_dicom(tmp_path / "wide.dcm", wide)
    assert set(np.unique(read(path, DEEP))) == {0, 65535}


@pytest.mark.parametrize("implicit", [True, False])
def test_dicom_of_old_archives_begins_with_its_data(tmp_path, implicit):
    """No preamble, nothing that says how it is written."""
    pydicom = pytest.importorskip("pydicom")
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    dataset = pydicom.dcmread(write_dicom(tmp_path / "new.dcm", pixels))
    del dataset.file_meta
    dataset.preamble = None
    dataset.save_as(tmp_path / "old.dcm", implicit_vr=implicit, little_endian=True)
    assert (tmp_path / "old.dcm").read_bytes()[128:132] != b"DICM"
    plan = Plan(8, 1, False)
    assert look(tmp_path / "old.dcm") == look(tmp_path / "new.dcm")
    np.testing.assert_array_equal(
        read(tmp_path / "old.dcm", plan), read(tmp_path / "new.dcm", plan)
    )


def test_a_missing_decoder_is_named(tmp_path, monkeypatch):
    """What pydicom says without one, in many lines."""
    text = (
        "Unable to decompress 'High-Throughput JPEG 2000' pixel data because all plugins are "
        "missing dependencies:\n\tpylibjpeg - requires numpy, pylibjpeg>=2.0"
    )

    def fails(path):
        raise RuntimeError(text)

    monkeypatch.setattr(image_files.dicom, "unit_picture", fails)
    path = write_dicom(tmp_path / "a.dcm", np.zeros((8, 8), np.uint8))
    said = read(path, Plan(8, 1, False))
    assert said.startswith("is compressed as High-Throughput JPEG 2000, which needs another")
    assert said.endswith("install pylibjpeg[all] or python-gdcm")


def test_files_are_known_by_what_they_are(tmp_path):
    path = write_dicom(tmp_path / "1.2.840.113", RAMP)
    assert image_files.kind_of(path) == "dicom"
    named = saved(tmp_path / "a.dcm", RAMP, format="PNG")  # a PNG that is called .dcm
    assert (read(named, GREY)[0] == RAMP).all()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "README").write_text("x")
    assert image_files.kind_of(tmp_path / "notes.txt") == "other"
    assert image_files.kind_of(tmp_path / "README") == "other"


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = write_dicom(tmp_path / "a.dcm", RAMP)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(MissingExtra, match=r'pip install "unmasked\[dicom\]"'):
        look(path)
