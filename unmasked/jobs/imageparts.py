"""What ``explain-images`` trains: networks for pictures of a size, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unmasked.augmentations import Shift
from unmasked.engine import Training
from unmasked.imagenetworks import CNN, DenseNet121, MonaiUNet, UNet

_STEPS, _EPOCHS = 1200, (8, 60)  # of a selector: about so many steps, within so many passes
_VALIDATIONS = 4  # of a selector's run: each takes as long as thousands of pictures


@dataclass(frozen=True)
class Networks:
    """A predictor and a selector, and how they are trained; see `Training`.

    steps : about so many for the selector.
    practice : times as many passes for the predictor and for EVAL-X: they have every mask to
        learn, a selector only good ones.
    """

    name: str
    predictor: Any
    selector: Any
    learning_rate: float = 1e-3
    selector_learning_rate: float = 1e-3
    price_rise: float = 0.0
    steps: int = _STEPS
    practice: int = 1


NETWORKS = ("auto", "small", "medium", "unet-densenet")


def default_superpixels(name: str) -> int:
    """Cells along a side where the user says nothing: 8, with the paper's networks its 16.

    Fewer cells are fewer masks to learn, and of what networks learn from random ones more holds
    for the selector's. On chest films mean log-likelihood less λ · fraction on validation
    pictures was higher with 8 at each of three λ, with small networks and with medium ones.

    >>> default_superpixels("auto"), default_superpixels("unet-densenet")
    (8, 16)
    """
    return 16 if name == "unet-densenet" else 8


def networks(name: str, size: int, superpixels: int, *, gpu: bool = False) -> Networks:
    """The networks for pictures of a size; "auto" is "medium" on a GPU, else "small".

    The small and the medium selector see about 32 × 32 places whatever the size, but at least
    2 × 2 in a superpixel: a place is several pixels, as channels (`CNN.fold`), so nothing is lost.
    Their deepest level sees the whole picture.
    """
    if name == "auto":
        name = "medium" if gpu else "small"
    if name == "unet-densenet":
        return Networks(name, DenseNet121(), MonaiUNet())
    places = max(32, 2 * superpixels)
    fold = max(1, size // places)
    if name == "medium":
        predictor = CNN((16, 32, 64, 128, 128), max(1, size // (2 * places)))
        selector = UNet((32, 64, 128, 128), fold)
        return Networks(name, predictor, selector, price_rise=0.5, steps=2 * _STEPS, practice=2)
    predictor, selector = CNN((16, 32, 64, 128), fold), UNet((16, 32, 64, 64), fold)
    return Networks(name, predictor, selector, price_rise=0.8, practice=3)


def default_training(rows: int, epochs: int | None, parts: Networks, size: int) -> Training:
    """How the explainer is trained: pictures are moved a little each time.

    ``epochs`` are the selector's passes where the user says how many.

    >>> small, medium = (networks(name, 64, 16) for name in ("small", "medium"))
    >>> [default_training(600, None, own, 64).epochs for own in (small, medium)]
    [60, 120]
    """
    batch = min(32, max(8, rows // 16))
    fewest, most = _EPOCHS[0], _EPOCHS[1] * parts.steps // _STEPS
    passes = epochs or min(max(round(parts.steps / max(1, rows // batch)), fewest), most)
    return Training(
        epochs=passes,
        predictor_epochs=parts.practice * passes,
        batch_size=batch,
        learning_rate=parts.learning_rate,
        selector_learning_rate=parts.selector_learning_rate,
        price_rise=parts.price_rise,
        validate_every=-(-passes // _VALIDATIONS),
        augment=Shift(max(1, size // 32)),
    )
