"""Images that are no good are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from small_images import CELLS, REGIONS, RGB, Pairs, X, Y, some_masks, subsets
from small_tables import assert_one_sentence, quick, quick_evaluator, quick_full, quick_l2x
from small_tables import rows as table_rows
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from unmasked import InputError, PostHoc, RealX, Superpixels
from unmasked.masks.maskers import Groups

pytestmark = pytest.mark.usefixtures("one_thread")


# ---------------------------------------------------------------------- one sentence


class Unlabelled(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(X[i])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(X, Y, strict=True))


def put(value: float, image: int = 3) -> NDArray[Any]:
    x = X.copy()
    x[image, 0, 2, 5] = value
    return x


def fitted_table() -> RealX:
    return quick().fit(*table_rows(40))


def pil(size: tuple[int, int, int]) -> Any:
    return Image.fromarray(np.zeros(size, dtype=np.uint8))


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "missing": (
        lambda: quick(masker=CELLS).fit(put(np.nan), Y),
        "finite numbers .*but image 3 does not, nor do 0 others",
    ),
    "infinite": (lambda: quick(masker=CELLS).fit(put(-np.inf), Y), "finite .*but image 3 does not"),
    "too large": (
        lambda: quick(masker=CELLS).fit(X.astype(np.float64) * 1e300, Y),
        "of at most 3e38 but image 0 does not, nor do 59 others",
    ),
    "missing when asked": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(put(np.nan, 7)),
        "finite .*but image 7 does not",
    ),
    "text": (
        lambda: quick(masker=CELLS).fit(X.astype(str), Y),
        "images must hold numbers but hold <U",
    ),
    "objects": (
        lambda: quick(masker=CELLS).fit(X.astype(object), Y),
        "images must hold numbers but hold object",
    ),
    "complex numbers": (lambda: quick(masker=CELLS).fit(X * 1j, Y), "numbers but hold complex64"),
    "sizes that differ": (
        lambda: quick(masker=CELLS).fit([X[0], X[1, :, :4]], Y[:2]),
        r"one size but have \(1, 4, 8\) and \(1, 8, 8\); resize or crop",
    ),
    "sizes that differ in a Dataset": (
        lambda: quick(masker=CELLS).fit(Pairs([X[0], RGB[0]], [0, 1])),
        r"one size but have \(1, 8, 8\) and \(3, 8, 8\); resize or crop",
    ),
    "no images": (
        lambda: quick(masker=CELLS).fit(X[:0], Y[:0]),
        r"at least one of each, but came with shape \(0, 1, 8, 8\)",
    ),
    "no channels": (
        lambda: quick(masker=CELLS).fit(X[:, :0], Y),
        r"at least one of each, but came with shape \(60, 0, 8, 8\)",
    ),
    "groups": (
        lambda: quick(groups={"left": [0, 1]}).fit(X, Y),
        r"groups are for the columns of a table, but images came; use masker=Superpixels\(…\)",
    ),
    "a masker of groups": (
        lambda: quick(masker=Groups([0] * 32 + [1] * 32)).fit(X, Y),
        "must hide single pixels but is Groups",
    ),
    "another size": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(X[:, :, :6]),
        r"1 × 8 × 8 \(channels, height, width\) as in training but are 1 × 6 × 8 .*; resize",
    ),
    "colour where grey is expected": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(RGB),
        "1 × 8 × 8 .* as in training but are 3 × 8 × 8 .*; convert them to grey",
    ),
    "grey where colour is expected": (
        lambda: quick(masker=CELLS).fit(RGB, Y).predict_proba(X),
        "3 × 8 × 8 .* as in training but are 1 × 8 × 8 .*; give them the same channels",
    ),
    "another size to validate with": (
        lambda: quick(masker=CELLS).fit(X, Y, validation=(X[:, :, :, :6], Y)),
        "1 × 8 × 8 .* as in training but are 1 × 8 × 6",
    ),
    "another size to transform": (
        lambda: quick(masker=CELLS).fit(X, Y).transform(X[:, :, :6]),
        "as in training but are 1 × 6 × 8",
    ),
    "another size to evaluate": (
        lambda: quick_evaluator(masker=CELLS).fit(X, Y).predict_proba(X[:, :, :6]),
        "as in training but are 1 × 6 × 8",
    ),
    "a table where images are expected": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(X.reshape(60, -1)),
        r"\(rows, channels, height, width\).* but came with shape \(60, 64\)",
    ),
    "a frame where images are expected": (
        lambda: quick_full(masker=CELLS).fit(X, Y).explain(pd.DataFrame(X.reshape(60, -1))),
        r"\(rows, channels, height, width\).* but came with shape \(60, 64\)",
    ),
    "one image": (
        lambda: quick(masker=CELLS).fit(X, Y).explain(X[0]),
        r"\(rows, channels, height, width\).* but came with shape \(1, 8, 8\)",
    ),
    "a table to validate with": (
        lambda: quick(masker=CELLS).fit(X, Y, validation=(X.reshape(60, -1), Y)),
        r"\(rows, channels, height, width\).* but came with shape \(60, 64\)",
    ),
    "images where a table is expected": (
        lambda: fitted_table().explain(X),
        r"a table \(rows, 4\) is expected, as in training, but images of shape \(60, 1, 8, 8\)",
    ),
    "images to validate a table with": (
        lambda: quick().fit(*table_rows(40), validation=(X, Y)),
        r"a table \(rows, 4\) is expected, as in training, but images of shape \(60, 1, 8, 8\)",
    ),
    "an empty Dataset": (
        lambda: quick(masker=CELLS).fit(TensorDataset(torch.zeros(0, 1, 8, 8), torch.zeros(0))),
        "a Dataset must have at least one item but has none",
    ),
    "a Dataset without labels": (
        lambda: quick(masker=CELLS).fit(Unlabelled()),
        r"pairs \(image, label\) but item 0 is a Tensor; wrap it",
    ),
    "a Dataset of single things": (
        lambda: quick(masker=CELLS).fit(TensorDataset(torch.from_numpy(X))),
        r"pairs \(image, label\) but item 0 is a tuple",
    ),
    "a Dataset without a length": (
        lambda: quick(masker=CELLS).fit(Stream()),
        "must have a length and numbered items but Stream has none",
    ),
    "a Dataset of pictures with channels last": (
        lambda: quick(masker=CELLS).fit(Pairs([pil((8, 8, 3))] * 4, [0, 1, 0, 1])),
        r"arrays or tensors \(channels, height, width\) but that of item 0 is a Image; convert",
    ),
    "a Dataset whose labels differ in shape": (
        lambda: quick(masker=CELLS).fit(Pairs(X[:2], [np.array(1), np.array([0.5, 0.5])])),
        r"labels of a Dataset must have one shape but have \(\) and \(2,\)",
    ),
    "labels of other images": (
        lambda: quick(masker=CELLS).fit(X, Y[:9]),
        "one value for each of the 60 rows but has 9 values",
    ),
    "no labels": (lambda: quick(masker=CELLS).fit(X), "requires y to be passed"),
    "a map of another size": (
        lambda: quick(masker=Superpixels(labels=REGIONS[:4])).fit(X, Y),
        "the images' size 8 × 8 but is 4 × 8",
    ),
    "a grid that is too fine": (
        lambda: quick(masker=Superpixels(9)).fit(X, Y),
        "a grid of 9 × 9 cells .*but the images are 8 × 8",
    ),
    "more superpixels than there are": (
        lambda: quick_l2x(k=5, masker=CELLS).fit(X, Y),
        "at most the number of features, 4, but is 5",
    ),
    "too many subsets": (
        lambda: subsets(masker=Superpixels((3, 6))).fit(X, Y),
        "at most 16 features but there are 18",
    ),
    "post-hoc with a model": (
        lambda: PostHoc(model=lambda x: np.full(len(x), 0.5)).fit(X),
        r"fills in the columns of a table, but images came; leave out model",
    ),
    "masks of other superpixels": (
        lambda: quick_evaluator(masker=CELLS).fit(X, Y).predict_proba(X, some_masks(60, 8)),
        r"shape \(60, 4\).* but have \(60, 8\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_images_are_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(InputError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)
