"""What an image table of the paper is about: its name, its words and the published figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EXCHANGE = "REAL-X-EXCHANGE"
"""REAL-X whose predictor learns from other images' selections too; ours, not the paper's."""
BUDGET = "REAL-X-K"
"""The same with L2X's way of drawing: exactly k in every image; ours too."""
WITH_K = ("L2X", BUDGET)
"""Methods whose settings are numbers k; the others' are prices λ."""
METHODS = ("FULL", "REAL-X", EXCHANGE, BUDGET, "L2X", "INVASE", "BASE-X")
OPTIMUM = "optimum"
"""The truth in place of a method, where it is known: true probabilities, true features shown."""
REFERENCES = ("FULL", OPTIMUM)
"""What methods are compared with: the same in every run of the same images and seeds."""


@dataclass(frozen=True)
class Subject:
    """An image table.

    dataset : as in the rows. table : its heading. title : the page's.
    unit : what is shown or hidden. classes : their names. thing : what an image is of, as in
    "a handwritten {}" with a class's name. samples : pictures of each class.
    published : the paper's figures by method, as fractions; it has none of methods of ours.
    """

    dataset: str
    table: str
    title: str
    unit: str
    thing: str
    classes: tuple[str, ...]
    samples: int
    published: Mapping[str, Mapping[str, float]]


MNIST = Subject(
    dataset="MNIST",
    table="Table 2: MNIST",
    title="MNIST: ours beside the paper's",
    unit="pixels",
    thing="a handwritten {}",
    classes=tuple(str(digit) for digit in range(10)),
    samples=2,
    published={
        "FULL": {"acc": 0.978, "auroc": 0.999},
        "REAL-X": {"acc": 0.938, "auroc": 0.997, "eacc": 0.867, "eauroc": 0.989, "sparsity": 5.0},
        "L2X": {"acc": 0.960, "auroc": 0.998, "eacc": 0.114, "eauroc": 0.561, "k": 1},
        "INVASE": {"acc": 0.931, "auroc": 0.996, "eacc": 0.503, "eauroc": 0.883, "sparsity": 10.0},
        "BASE-X": {"acc": 0.928, "auroc": 0.996, "eacc": 0.569, "eauroc": 0.899, "sparsity": 10.0},
    },
)
CXR = Subject(
    dataset="CXR",
    table="Table 3: chest X-rays",
    title="Chest X-rays: ours beside the paper's",
    unit="superpixels",
    thing="a chest X-ray, {}",
    classes=("normal", "cardiomegaly"),
    samples=5,
    published={
        "FULL": {"acc": 0.780, "auroc": 0.887},
        "REAL-X": {"acc": 0.750, "auroc": 0.838, "eacc": 0.703, "eauroc": 0.777, "sparsity": 2.5},
        "L2X": {"acc": 0.750, "auroc": 0.848, "eacc": 0.540, "eauroc": 0.581, "k": 10},
        "INVASE": {"acc": 0.743, "auroc": 0.819, "eacc": 0.523, "eauroc": 0.548, "sparsity": 2.5},
        "BASE-X": {"acc": 0.743, "auroc": 0.818, "eacc": 0.517, "eauroc": 0.595, "sparsity": 2.5},
    },
)
