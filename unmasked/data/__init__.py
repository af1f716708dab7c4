"""Data sets and tables."""

from unmasked.data.synthetic import Synthetic, synthetic

__all__ = ["Synthetic", "synthetic"]
