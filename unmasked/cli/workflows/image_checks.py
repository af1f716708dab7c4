"""Refuse what ``explain-images`` cannot do, and decide what it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmasked.errors import InputError, OutputError
from unmasked.explainers.path import check_sparsity
from unmasked.inputs.augment import Shift
from unmasked.io.image_files import Fit
from unmasked.io.image_folder import check_plan
from unmasked.io.output_folder import CHECKPOINTS, MODELS, PART
from unmasked.masks.superpixels import Superpixels
from unmasked.networks.images import CNN, DenseNet121, MonaiUNet, UNet
from unmasked.networks.tables import Factory
from unmasked.training import Training

WRITES = ("overlays", "masks", "study", "explained.csv", "gallery.html", "results.json")
"""What lies in the output folder beside the models."""
CACHE = "cache"
OURS = (*WRITES, *MODELS, PART, CHECKPOINTS)
"""What commands put into an output folder and replace; the cache of pictures stays."""


def checked_networks(
    size: int,
    fit: Fit,
    superpixels: int,
    sparsity: float | Sequence[float] | str,
    network: str,
    *,
    gpu: bool,
) -> Networks:
    """Refuse options that cannot be, before a folder is looked at."""
    check_sparsity(sparsity)
    check_plan(size, fit)
    if network not in NETWORKS:
        raise InputError(f"--network must be one of {', '.join(NETWORKS)} but is {network!r}.")
    masker = Superpixels(superpixels).bound((1, size, size))
    parts = networks(network, size, superpixels, gpu=gpu)
    factory: Factory = parts.predictor
    factory(masker.shown_shape, 2)  # type: ignore[arg-type]  # a missing package is told now
    factory = parts.selector
    factory((1, size, size), superpixels**2)  # type: ignore[arg-type]
    return parts


def check_no_columns(**named: str | None) -> None:
    """Refuse columns of a table that did not come, by the names of their options."""
    for option, name in named.items():
        if name is not None:
            raise InputError(
                f"--{option.replace('_', '-')} names the column {name!r} of a table of labels but "
                "none came; give it with --labels, or leave this out."
            )


def check_apart(folder: Path, out: Path, labels: Path | None, cache: Path | None) -> None:
    """Refuse results that become pictures of the folder, or that replace them or their labels."""
    if labels is not None and _within_results(labels, out, WRITES):
        raise OutputError(
            f"the labels {labels} lie where results are written to; copy them elsewhere, or choose "
            "another folder with --out."
        )
    if folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise OutputError(
            f"the output folder {out} must lie outside of the pictures' folder {folder}, or its "
            "pictures would be explained the next time; choose another with --out."
        )
    if _within_results(folder, out, (*OURS, CACHE)):
        raise OutputError(
            f"the pictures' folder {folder} lies where results are written to, which replace what "
            "is there; copy the pictures elsewhere, or choose another folder with --out."
        )
    if cache is not None:
        _check_cache(cache, folder, out)


def _check_cache(cache: Path, folder: Path, out: Path) -> None:
    """Shrunken pictures must have a folder of their own."""
    own = cache.resolve()
    if own.is_relative_to(folder.resolve()):
        raise OutputError(
            f"the folder {cache} of the shrunken pictures must lie outside of the pictures' folder "
            f"{folder}; choose another with --cache."
        )
    if _within_results(cache, out, OURS):
        raise OutputError(
            f"the folder {cache} of the shrunken pictures lies where results are written to, which "
            "replace what is there; choose another with --cache."
        )
    there = next((path for path in (own, *own.parents) if path.exists()), own)
    if there.exists() and not there.is_dir():
        raise OutputError(
            f"--cache must name a folder for the shrunken pictures but {there} is a file; choose "
            "another."
        )


def _within_results(path: Path, out: Path, names: Sequence[str]) -> bool:
    results = {(out / name).resolve() for name in names}
    own = path.resolve()
    return not results.isdisjoint((own, *own.parents))


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
    """Return the explainer's training options; pictures are moved a little each time.

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
