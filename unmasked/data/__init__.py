"""Data sets and tables."""

from unmasked.data.mnist import Images, Mnist, mnist
from unmasked.data.synthetic import Synthetic, synthetic

__all__ = ["Images", "Mnist", "Synthetic", "mnist", "synthetic"]
