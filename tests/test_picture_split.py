"""Pictures in three parts: every class is in each, however rare."""

from __future__ import annotations

import re

import numpy as np
import pytest

from unmasked.errors import InputError
from unmasked.io.image_folder import split_pictures


def labels(rare: int) -> np.ndarray:
    return np.array(["a"] * (30 - rare) + ["b"] * 30 + ["odd"] * rare)


@pytest.mark.parametrize("rare", [3, 4, 5])
def test_three_pictures_of_a_class_are_enough_for_every_seed(rare: int) -> None:
    y = labels(rare)
    for seed in range(40):
        parts = split_pictures(y, None, seed=seed)
        assert sorted(np.concatenate([*parts.values()])) == list(range(60))
        assert all(set(y[rows]) == {"a", "b", "odd"} for rows in parts.values())
        shares = [len(rows) / 60 for rows in parts.values()]
        assert np.abs(np.array(shares) - [0.6, 0.2, 0.2]).max() < 0.05


def test_three_groups_of_a_class_are_enough_where_groups_are_of_one_class() -> None:
    y = labels(6)
    groups = np.array([f"p{i // 2}" for i in range(60)])
    for seed in range(20):
        parts = split_pictures(y, groups, seed=seed)
        assert all(set(y[rows]) == {"a", "b", "odd"} for rows in parts.values())
        owners = [set(groups[rows]) for rows in parts.values()]
        assert not owners[0] & owners[1] | owners[0] & owners[2] | owners[1] & owners[2]


def test_what_groups_must_be_is_said() -> None:
    groups = np.array([f"p{i // 3}" for i in range(60)])
    words = "a class needs at least 3 groups, and 'odd' has 2; give more groups or another --seed."
    for seed in range(5):
        with pytest.raises(InputError, match=re.escape(words)):
            split_pictures(labels(6), groups, seed=seed)
