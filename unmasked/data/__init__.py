"""Data sets and tables."""

from unmasked.data.chest_xray import ChestXrays, Films, HeartMasks, chest_xray, heart_masks
from unmasked.data.mnist import Images, Mnist, mnist
from unmasked.data.phantom import Phantom, phantom, truth_of_superpixels
from unmasked.data.stored import StoredImages
from unmasked.data.synthetic import Synthetic, synthetic

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
