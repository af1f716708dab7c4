"""How many (row, mask) pairs judge a predictor: many, but not most of the work."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from unmasked.training.program import Program


@pytest.mark.parametrize(
    ("train", "valid", "width", "pairs"),
    [
        (100, 30, 20, 4000),  # a small table: cheap anyway
        (10_000, 2_000, 11, 4000),
        (55_000, 5_000, 784, 5000),  # each row once at least
        (3_744, 300, 2 * 128 * 128, 4000),  # NIH's films
        (180, 60, 2 * 128 * 128, 720),  # a folder of 300 pictures
        (48, 16, 2 * 32 * 32, 1024),
        (20, 700, 2 * 512 * 512, 700),
    ],
)
def test_judging_costs_no_more_than_a_few_epochs(
    train: int, valid: int, width: int, pairs: int
) -> None:
    program = SimpleNamespace(
        train=SimpleNamespace(rows=train), valid=SimpleNamespace(rows=valid), width=width
    )
    assert Program._validation_pairs(program) == pairs  # type: ignore[arg-type]
