"""``unmasked reproduce mnist``: the paper's Table 2 and its figures from one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unmasked.data.mnist import Images, Mnist
from unmasked.reproduce.imagerecipes import ImageRecipe
from unmasked.reproduce.images import Pictures, run_images
from unmasked.reproduce.imagetraining import Parts, Rows
from unmasked.reproduce.rows import Reproduction
from unmasked.reproduce.subjects import MNIST


def run_mnist(
    folder: Path,
    recipe: ImageRecipe,
    data: Mnist,
    *,
    command: str = "unmasked reproduce mnist",
    **options: Any,
) -> Reproduction:
    """Table 2 from MNIST's images, as they are (0 black, 1 white); options as for `run_images`."""
    pictures = Pictures(_parts(data, recipe.rows), data.test.x)
    return run_images(folder, recipe, pictures, MNIST, command=command, **options)


def _parts(data: Mnist, most: int | None) -> Parts:
    """Images as rows; at most so many to learn from."""

    def rows(images: Images, most: int | None = None) -> Rows:
        x = images.x[:most]
        return Rows(x.reshape(len(x), -1), images.y[:most], 10)

    channels, height, width = data.train.x.shape[1:]
    return Parts(
        rows(data.train, most), rows(data.valid), rows(data.test), (channels, height, width)
    )
