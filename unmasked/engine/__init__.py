"""Fit one setting or many in one program; devices, checkpoints, progress."""

from unmasked.engine.loop import Trained, fit
from unmasked.engine.method import Data, Method, Settings
from unmasked.engine.options import Training

__all__ = ["Data", "Method", "Settings", "Trained", "Training", "fit"]
