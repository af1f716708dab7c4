"""Fit one setting or many in one program; devices, checkpoints, progress."""

from unmasked.engine.fit import fit
from unmasked.engine.method import Data, Method, Settings, restart_seeds
from unmasked.engine.options import Training
from unmasked.engine.trained import Trained

__all__ = ["Data", "Method", "Settings", "Trained", "Training", "fit", "restart_seeds"]
