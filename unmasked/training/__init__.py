"""Fit one setting or many in one program; devices, checkpoints, progress."""

from unmasked.training.fit import fit
from unmasked.training.method import Data, Method, Settings, restart_seeds
from unmasked.training.options import Training
from unmasked.training.trained import Trained

__all__ = ["Data", "Method", "Settings", "Trained", "Training", "fit", "restart_seeds"]
