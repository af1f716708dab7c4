"""Small stand-ins for chest films: a folder of NIH's form, and how its films are told apart.

The stand-in films are 16 × 16 pixels; the first two pixels of a film spell its number, so a test
can tell where each film went. Read at their own size, they are read exactly.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unmasked.datasets import ChestXrays, Films, chest_xray

reading = importlib.import_module("unmasked.datasets.films")
module = importlib.import_module("unmasked.datasets.chest_xray")  # the package has such a function

SIDE = 16
HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)
BOX_HEADER = "Image Index,Finding Label,Bbox [x,y,w,h],,,"
REAL = Path(__file__).parents[2] / "shared" / "data" / "cxr"
PACKED, MASKS = REAL / "nih_cardiomegaly_128.npz", REAL / "heart_masks_128.npz"
needs_packed = pytest.mark.skipif(not PACKED.exists(), reason=f"the real films are not in {REAL}")
needs_masks = pytest.mark.skipif(not MASKS.exists(), reason=f"the real masks are not in {REAL}")

Row = tuple[str, str, str]  # film, findings, patient


def message(caught: Any, *parts: str | Path) -> str:
    """The message, which is one sentence and names all ``parts``."""
    text = str(caught.value)
    one_sentence(text, *parts)
    return text


def one_sentence(text: str, *parts: str | Path) -> None:
    assert "\n" not in text
    assert text.endswith(".")
    assert ". " not in text
    for part in parts:
        assert str(part) in text


def pixels(number: int, side: int = SIDE) -> np.ndarray:
    """(side, side) bytes: the number in the first two, then a pattern."""
    values = np.random.default_rng(number).integers(256, size=(side, side), dtype=np.uint8)
    values[0, :2] = number % 256, number // 256
    return values


def number_of(name: str) -> int:
    """The number of a film such as 00000007_002.png: 7 and 2 -> 107."""
    patient, follow_up = name.removesuffix(".png").split("_")
    return int(patient) + 50 * int(follow_up)


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"{name},{findings},0,{who},57,M,PA,2682,2749,0.143,0.143," for name, findings, who in rows
    ]
    return "\n".join([HEADER, *lines]) + "\n"


def nih(
    folder: Path,
    rows: Sequence[Row],
    *,
    images: str = "images_001/images",
    csv: str = "Data_Entry_2017.csv",
) -> Path:
    """A folder as NIH distributes it."""
    (folder / images).mkdir(parents=True, exist_ok=True)
    for name, _, _ in rows:
        Image.fromarray(pixels(number_of(name))).save(folder / images / name)
    (folder / csv).write_text(table(rows))
    return folder


def listed(ill: int, well: int, other: int = 0, films: int = 1) -> list[Row]:
    """Patients with so many films each: some ill, some well, some with something else."""
    findings = ["Cardiomegaly"] * ill + ["No Finding"] * well + ["Effusion"] * other
    return [
        (f"{i + 1:08d}_{j:03d}.png", finding, str(i + 1))
        for i, finding in enumerate(findings)
        for j in range(films)
    ]


MIXED: list[Row] = [
    ("00000001_000.png", "Cardiomegaly", "1"),
    ("00000001_001.png", "Cardiomegaly|Emphysema", "1"),
    ("00000001_002.png", "No Finding", "1"),
    ("00000002_000.png", "No Finding", "2"),
    ("00000003_000.png", "Effusion|Cardiomegaly|Mass", "3"),
    ("00000003_001.png", "Hernia", "3"),
    ("00000004_000.png", "No Finding", "4"),
    ("00000005_000.png", "Effusion", "5"),
    ("00000006_000.png", "Cardiomegaly", "6"),
    ("00000006_001.png", "No Finding", "6"),
    ("00000007_000.png", "No Finding", "7"),
    ("00000008_000.png", "No Finding", "8"),
    ("00000009_000.png", "Cardiomegaly", "9"),
    ("00000010_000.png", "No Finding", "10"),
]
ILL = [name for name, findings, _ in MIXED if "Cardiomegaly" in findings]
WELL = [name for name, findings, _ in MIXED if findings == "No Finding"]
PATIENT = {name: who for name, _, who in MIXED}


def read(folder: Path, **options: Any) -> ChestXrays:
    """Small parts, at the films' own size."""
    return chest_xray(folder, **({"size": SIDE, "validation": 2, "test": 2} | options))


def parts(data: ChestXrays) -> tuple[Films, Films, Films]:
    return data.train, data.valid, data.test


def all_names(data: ChestXrays) -> list[str]:
    return sorted(name for films in parts(data) for name in films.names.tolist())


def same(one: ChestXrays, other: ChestXrays) -> None:
    for a, b in zip(parts(one), parts(other), strict=True):
        assert a.names.tolist() == b.names.tolist()
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)


def saved(image: Image.Image, kind: str = "png") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
