"""What ``explain-images`` trains: networks for pictures of a size, and how long."""

from __future__ import annotations

from typing import Any, NamedTuple

from unmasked.engine import Training
from unmasked.imagenetworks import CNN, DenseNet121, MonaiUNet, UNet
from unmasked.pixels import Shift

_STEPS, _EPOCHS = 1200, (8, 60)  # about so many steps, within so many passes
_VALIDATIONS = 4  # in a run: each takes as long as thousands of pictures


class Networks(NamedTuple):
    """A predictor, a selector, and the rates that they learn at."""

    predictor: Any
    selector: Any
    learning_rate: float
    selector_learning_rate: float


NETWORKS = ("small", "unet-densenet")


def networks(name: str, size: int, superpixels: int) -> Networks:
    """The networks for pictures of a size.

    The small ones see about 32 × 32 places whatever the size, but at least 2 × 2 in a superpixel:
    a place is several pixels, as channels (`CNN.fold`), so nothing is lost.
    """
    if name == "unet-densenet":
        return Networks(DenseNet121(), MonaiUNet(), 1e-3, 1e-3)
    fold = max(1, size // max(32, 2 * superpixels))
    return Networks(CNN((16, 32, 64), fold), UNet((8, 16, 32), fold), 3e-3, 3e-3)


def default_training(rows: int, epochs: int | None, parts: Networks, size: int) -> Training:
    """About 1,200 steps for each of predictor and selector, pictures moved a little each time."""
    batch = min(32, max(8, rows // 16))
    passes = epochs or min(max(round(_STEPS / max(1, rows // batch)), _EPOCHS[0]), _EPOCHS[1])
    return Training(
        epochs=passes,
        batch_size=batch,
        learning_rate=parts.learning_rate,
        selector_learning_rate=parts.selector_learning_rate,
        validate_every=-(-passes // _VALIDATIONS),
        augment=Shift(max(1, size // 32)),
    )
