"""Missing is a value: shown, it says so; hidden, it says nothing; the two are never confused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from typer.testing import CliRunner

from unmasked import MLP, EvalX, RealX, Token, Training, Zero
from unmasked.cli import app
from unmasked.errors import DataWarning, InputError
from unmasked.inputs.table import Columns
from unmasked.masks.maskers import Masker

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = 600
RANDOM = np.random.default_rng(0)
GONE = RANDOM.random(ROWS) < 0.5
Y = GONE.astype(np.int64)  # whether a value is missing is all that matters
TABLE = pd.DataFrame(
    {
        "noise": RANDOM.normal(size=ROWS),
        "dose": np.where(GONE, np.nan, RANDOM.normal(5, 2, ROWS)),
        "more": RANDOM.normal(size=ROWS),
    }
)
FAST = Training(epochs=30, batch_size=50, learning_rate=1e-2, selector_learning_rate=1e-2)
ONLY_DOSE = np.tile([False, True, False], (ROWS, 1))


def evaluator(**options: Any) -> EvalX:
    return EvalX(random_state=0, training=FAST, device="cpu", **options)


EVALUATORS = {
    "token": lambda: evaluator(predictor=MLP((200, 200))),
    "as it comes": lambda: evaluator(),
    "zero": lambda: evaluator(masker=Zero()),
    "boosting": lambda: EvalX(
        estimator=HistGradientBoostingClassifier(max_iter=50), random_state=0
    ),
}
each_evaluator = pytest.mark.parametrize("make", EVALUATORS.values(), ids=EVALUATORS.keys())


@each_evaluator
def test_a_missing_value_that_is_shown_is_seen_and_one_that_is_hidden_is_not(make: Any) -> None:
    judge = make().fit(TABLE, Y)
    shown = judge.predict_proba(TABLE, masks=ONLY_DOSE)[:, 1]
    # under zeros a shown value near the mean looks hidden: a few rows near it stay in doubt
    assert ((shown > 0.5) == GONE).mean() > 0.97
    assert shown[GONE].min() > 0.9
    hidden = judge.predict_proba(TABLE, masks=~ONLY_DOSE)
    filled = judge.predict_proba(TABLE.fillna({"dose": 5.0}), masks=~ONLY_DOSE)
    np.testing.assert_array_equal(hidden, filled)


def test_an_explainer_shows_the_column_whose_holes_decide(tmp_path: Path) -> None:
    explainer = RealX(sparsity=0.3, training=FAST, random_state=0, device="cpu").fit(TABLE, Y)
    explanation = explainer.explain(TABLE)
    assert explanation.feature_names == ["noise", "dose", "more"]  # one feature, holes and all
    np.testing.assert_array_equal(explanation.masks, ONLY_DOSE)
    assert (explainer.predict(TABLE) == Y).mean() > 0.99
    explainer.save(tmp_path / "model")
    again = RealX.load(tmp_path / "model").explain(TABLE)
    np.testing.assert_array_equal(explanation.probabilities, again.probabilities)


def test_a_column_with_holes_is_its_values_and_where_they_are_missing() -> None:
    table = pd.DataFrame(
        {
            "age": [1.0, np.nan, 3.0],
            "town": ["Ulm", None, "Bonn"],
            "kind": pd.Categorical(["a", "b", None]),
            "flag": pd.array([True, None, False], dtype="boolean"),
            "plain": [0.0, 1.0, 2.0],
        }
    )
    columns = Columns.learn(table)
    assert columns.features == ("age", "town", "kind", "flag", "plain")
    assert columns.index == (0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4)
    assert columns.lacking == (1, 4, 7, 10)
    matrix = columns.matrix(table)
    # value, missing | Bonn, Ulm, missing | a, b, missing | False, True, missing | value
    np.testing.assert_allclose(matrix[0, :11], [-1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(matrix[1, :11], [0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 1])
    np.testing.assert_allclose(matrix[2, :11], [1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0])
    assert Columns.from_config(columns.to_config()) == columns


def test_without_holes_nothing_is_added() -> None:
    assert Columns.learn(TABLE.drop(columns="dose")).plain


class Fills(Masker):
    """Hides by showing a missing value in every column."""

    def features(self, columns: int) -> int:
        return columns

    def width(self, columns: int) -> int:
        return columns

    def __call__(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        missing = torch.tensor([0.0, 0.0, 1.0, 0.0])  # noise; dose and where it is missing; more
        return x * mask + missing * (1 - mask)


def test_a_masker_that_confuses_missing_and_hidden_is_refused() -> None:
    with pytest.raises(InputError, match=r"'dose' has missing .* looks like a hidden one; use"):
        evaluator(masker=Fills()).fit(TABLE, Y)
    for masker in (Token(), Zero()):
        evaluator(masker=masker)._learn(TABLE)


def test_holes_that_training_never_saw_are_told() -> None:
    judge = evaluator().fit(TABLE[["noise", "more"]], Y)
    holes = TABLE[["noise", "more"]].assign(more=np.nan)
    with pytest.warns(DataWarning, match="'more' has 600 missing values but had none in training"):
        predicted = judge.predict_proba(holes)
    mean = TABLE[["noise"]].assign(more=judge.columns_.columns[1].mean)  # type: ignore[union-attr]
    np.testing.assert_array_equal(predicted, judge.predict_proba(mean))


def test_the_command_explains_a_table_with_holes(tmp_path: Path) -> None:
    TABLE.assign(outcome=np.where(GONE, "gone", "there")).to_csv(tmp_path / "t.csv", index=False)
    call = [
        "explain", tmp_path / "t.csv", "--target", "outcome", "--out", tmp_path / "out",
        "--sparsity", "0.3", "--epochs", "30", "--quiet",
    ]  # fmt: skip
    result = CliRunner().invoke(app, [str(part) for part in call])
    assert result.exit_code == 0, result.output
