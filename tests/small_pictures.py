"""Small pictures and folders of them that tests share."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unmasked.datasets import phantom
from unmasked.io.image_folder import find_pictures


def saved(path: Path, pixels: Any, **options: Any) -> Path:
    Image.fromarray(np.asarray(pixels)).save(path, **options)
    return path


def found(folder: Path, table: Path, **options: Any) -> Any:
    """The pictures that a table has labels for, at 32 × 32 pixels."""
    return find_pictures(folder, table, size=32, progress=False, **options)


def write_dicom(path: Path, pixels: NDArray[Any], **tags: Any) -> Path:
    """A DICOM file of the smallest kind; ``tags`` are added to it or replace what is there."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset.SOPClassUID = SecondaryCaptureImageStorage
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.SamplesPerPixel = 3 if pixels.ndim == 3 else 1
    dataset.PhotometricInterpretation = "RGB" if pixels.ndim == 3 else "MONOCHROME2"
    if pixels.ndim == 3:
        dataset.PlanarConfiguration = 0
    bits = 8 * pixels.dtype.itemsize
    dataset.BitsAllocated = dataset.BitsStored = bits
    dataset.HighBit = bits - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.PixelData = pixels.tobytes()
    for name, value in tags.items():
        setattr(dataset, name, value)
    dataset.save_as(path, enforce_file_format=True)
    return path


def write_films(
    folder: Path, count: int, size: int = 32, *, seed: int = 0, first: int = 0
) -> list[tuple[str, str]]:
    """Phantom films as PNG files; (file name, label) of each."""
    films = phantom(count, size, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for i in range(count):
        name = f"film{first + i:04d}.png"
        Image.fromarray(np.rint(255 * films.x[i, 0]).astype(np.uint8)).save(folder / name)
        lines.append((name, "enlarged" if films.y[i] else "normal"))
    return lines


def write_labels(
    path: Path, lines: list[tuple[str, ...]], header: tuple[str, ...] = ("image", "label")
) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *lines])
    return path
