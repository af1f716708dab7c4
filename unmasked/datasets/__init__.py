"""Data sets and tables."""

from unmasked.datasets.chest_xray import ChestXrays, Films, HeartMasks, chest_xray, heart_masks
from unmasked.datasets.mnist import Images, Mnist, mnist
from unmasked.datasets.phantom import Phantom, phantom, truth_of_superpixels
from unmasked.datasets.synthetic import Synthetic, synthetic
from unmasked.inputs.stored import StoredImages

__all__ = [
    "ChestXrays",
    "Films",
    "HeartMasks",
    "Images",
    "Mnist",
    "Phantom",
    "StoredImages",
    "Synthetic",
    "chest_xray",
    "heart_masks",
    "mnist",
    "phantom",
    "synthetic",
    "truth_of_superpixels",
]
