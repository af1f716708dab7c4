"""What a job says of EVAL-X before its figures: may it judge, and can it be saved?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unmasked.cli.workflows import advice
from unmasked.cli.workflows.advice import doubts, savable
from unmasked.cli.workflows.rows import Predictions
from unmasked.errors import DataWarning

CLASSES = np.array(["no", "yes"])
LABELS = CLASSES[np.arange(200) % 2]


def predicted(shown: float, everything: float) -> Predictions:
    """Each row's own class has these probabilities, more or less, from what is shown and all."""
    own = LABELS[:, None] == CLASSES
    spread = np.random.default_rng(0).normal(0, 0.02, (200, 1))

    def of(p: float) -> Any:
        return np.where(own, p + spread, 1 - p - spread).astype(np.float32)

    return Predictions(list(CLASSES), of(shown), of(everything), "EVAL-X", LABELS.astype(object))


def told(shown: float, everything: float) -> list[str]:
    return doubts(predicted(shown, everything), CLASSES, LABELS, "outcome")


def test_an_evaluator_that_knows_something_is_not_doubted() -> None:
    assert told(0.8, 0.9) == told(0.6, 0.6) == []
    assert told(0.9, 0.85) == []  # it loses 0.06 nats of 0.59: useless features cost a little


def test_one_that_is_worse_than_nothing_is() -> None:
    (text,) = told(0.45, 0.45)
    assert text.startswith("EVAL-X, which judges here, is not good enough: with everything shown")
    assert "class shares" in text
    assert "worse from everything" not in text
    assert "Do not rely on the figures below. What helps: more rows, or columns" in text


def test_one_that_is_worse_from_everything_is() -> None:
    (text,) = told(0.9, 0.7)
    assert "class shares" not in text
    assert "predicts outcome worse from everything than from what is shown, by 0.2" in text
    (both,) = told(0.9, 0.4)
    assert "class shares" in both
    assert "worse from everything" in both


def test_without_labels_nothing_is_known() -> None:
    blind = Predictions(list(CLASSES), *[predicted(0.4, 0.4).shown] * 2, "EVAL-X", None)
    assert doubts(blind, CLASSES, LABELS, "outcome") == []


def test_trees_are_not_tried_where_they_cannot_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert savable() == "auto"
    monkeypatch.setattr(advice, "has_skops", lambda: False)
    with pytest.warns(DataWarning, match="networks alone, as .* 'skops'; run: pip install skops"):
        assert savable() == "network"
