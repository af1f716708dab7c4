"""The encoding test on tables: planted codes are caught, honest masks are not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import xlogy
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from small_tables import assert_one_sentence

from unmasked import Encoding, Explanation, InputError, encoding_test, synthetic
from unmasked.datasets.posterior import posterior
from unmasked.datasets.synthetic import CONTROL_FLOW
from unmasked.evaluation.encoding import forest
from unmasked.evaluation.encoding.result import judge

pytestmark = pytest.mark.usefixtures("one_thread")
Masks = NDArray[np.bool_]


def noise(rows: int = 500, columns: int = 5, seed: int = 0) -> tuple[Any, Any, Any]:
    """Values and labels that have nothing to do with each other, and a generator."""
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, columns)), random.integers(2, size=rows), random


def one_of(columns: int, which: NDArray[Any]) -> Masks:
    return np.eye(columns, dtype=bool)[which]


def without_control_flow(data: Any) -> Masks:
    masks: Masks = data.truth & (np.arange(data.x.shape[1]) != CONTROL_FLOW)
    return masks


# ---------------------------------------------------------------------- planted codes


def test_a_code_of_the_class_is_worth_its_entropy() -> None:
    """Only noise is shown, so the code says H(y) = log 2 nats.

    A tree ensemble of 100 rounds at rate 0.1 reaches a probability of 1 − 2e-5 at best.
    """
    x, y, _ = noise()
    found = encoding_test(x, y, one_of(5, y))
    assert found.verdict == "encodes"
    p = np.bincount(y) / len(y)
    # c = 0 knows at most the classes' shares; what it fits to noise only makes the gain larger
    assert found.nats > 0.95 * -xlogy(p, p).sum()
    assert found.low > 0.6
    assert "about y beyond the values shown" in found.reason


@pytest.mark.parametrize("wrong", [0.25, 0.3])
def test_a_code_that_is_often_wrong_is_found_and_not_overstated(wrong: float) -> None:
    """A bit that agrees with y but for a share of rows says log 2 − H(share) nats."""
    x, y, random = noise(1_500, 3)
    flips = random.random(1_500) < wrong
    found = encoding_test(x, y, one_of(3, y ^ flips))
    size = np.log(2) + xlogy(wrong, wrong) + xlogy(1 - wrong, 1 - wrong)
    error = found.gains.std() / np.sqrt(len(y))
    assert found.verdict == "encodes"
    assert 0.5 * size < found.nats < size + 4 * error


def test_the_number_of_features_shown_is_read() -> None:
    """Breast cancer, the number of columns shown by class: only |v| as an input finds that."""
    x, y = load_breast_cancer(return_X_y=True)
    x = x[:, :12]
    random = np.random.default_rng(0)
    order = random.random(x.shape).argsort(1).argsort(1)
    found = encoding_test(x, y, order < (3 + 2 * y)[:, None])
    assert found.verdict == "encodes"


def test_a_binary_code_of_several_classes_is_read() -> None:
    random = np.random.default_rng(1)
    y = random.integers(3, size=400)
    x = random.standard_normal((400, 4))
    bits = (y[:, None] + 1) >> np.arange(4) & 1
    found = encoding_test(x, y.astype(str), bits.astype(bool))
    assert found.classes == 3
    assert found.nats > 0.9 * np.log(3)


@pytest.mark.parametrize("name", ["S1", "S2", "S3"])
def test_leaving_out_what_decides_is_found_and_not_overstated(name: str) -> None:
    """Against the exact gains log P(y | x) − log P(y | shown) of the same rows.

    Both are means over the same rows, so the difference has a standard error of its own; the
    statistic runs low, and a third of the truth is what 3,000 rows give at least.
    """
    data = synthetic(name, 3_000, seed=3)
    masks = without_control_flow(data)
    found = encoding_test(data.x, data.y, masks)
    p, q = data.probability, posterior(name, data.x, masks)
    exact = np.where(data.y == 1, np.log(p / q), np.log((1 - p) / (1 - q)))
    over = found.gains - exact
    assert found.verdict == "encodes"
    assert found.nats > exact.mean() / 3
    assert over.mean() < 3 * over.std() / np.sqrt(len(over))


# ---------------------------------------------------------------------- honest masks


def tree_paths(x: NDArray[Any], y: NDArray[Any], asked: NDArray[Any]) -> Masks:
    """The features that a tree asks on the way to its answer: a function of what they show."""
    tree = DecisionTreeClassifier(max_depth=5, min_samples_leaf=10, random_state=0).fit(x, y)
    visited = tree.decision_path(asked).toarray().astype(bool)
    return np.stack([visited[:, tree.tree_.feature == j].any(1) for j in range(x.shape[1])], axis=1)


@pytest.mark.parametrize("kind", ["random", "random size", "tree paths", "true features"])
def test_honest_masks_are_not_accused(kind: str) -> None:
    data, other = synthetic("S3", 1_200, seed=5), synthetic("S3", 2_000, seed=6)
    random = np.random.default_rng(5)
    masks = {
        "random": lambda: random.random(data.x.shape) < 0.4,
        "random size": lambda: random.random(data.x.shape) < random.random((1_200, 1)),
        "tree paths": lambda: tree_paths(other.x, other.y, data.x),
        "true features": lambda: data.truth,
    }[kind]()
    found = encoding_test(data.x, data.y, masks)
    assert found.verdict == "no sign of encoding"
    assert found.nats < 0.01


def test_too_few_rows_never_acquit() -> None:
    """200 rows cannot rule out 0.02 nats, however little the trees make of c."""
    x, y, random = noise(200)
    found = encoding_test(x, y, random.random(x.shape) < 0.5)
    assert found.verdict == "cannot tell"
    assert found.high > 0.02
    assert "test more rows" in found.reason
    assert found.detectable > 0.1


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([1, 1, 1, 1, 1], "every row shows all features"),
        ([0, 0, 0, 0, 0], "no row shows any feature"),
        ([1, 0, 0, 1, 0], "every row shows the same 2 of 5 features"),
    ],
)
def test_one_mask_for_all_rows_says_exactly_nothing(mask: list[int], words: str) -> None:
    x, y, _ = noise(100)
    found = encoding_test(x, y, np.tile(mask, (100, 1)))
    assert (found.nats, found.low, found.high, found.detectable) == (0, 0, 0, 0)
    assert found.verdict == "no sign of encoding"
    assert words in found.reason
    assert words in found.remarks[0]
    assert (found.gains == 0).all()


# ---------------------------------------------------------------------- tables as they are


def test_shown_and_missing_is_not_hidden() -> None:
    """x1 is missing everywhere: whether it is shown is the whole code, and NaN either way."""
    x, y, random = noise()
    x[:, 0] = np.nan
    masks = random.random(x.shape) < 0.5
    masks[:, 0] = y == 1
    assert encoding_test(x, y, masks).verdict == "encodes"


def test_categories_truth_values_and_missing_values_are_features() -> None:
    """What is missing says y, and random masks over it are still no code."""
    rows = 1_500
    random = np.random.default_rng(0)
    y = random.integers(2, size=rows)
    table = pd.DataFrame(
        {
            "town": pd.Categorical(random.choice(["Ulm", "Graz", "Łódź"], rows)),
            "code": random.integers(300, size=rows).astype(str),  # more than boosting takes
            "smoker": random.random(rows) < 0.3 + 0.3 * y,
            "dose": np.where((random.random(rows) < 0.5) & (y == 1), np.nan, random.random(rows)),
            "grade": np.where(random.random(rows) < 0.2, None, "a"),
        }
    )
    masks = random.random(table.shape) < 0.5
    honest = encoding_test(table, y, masks)
    assert honest.verdict != "encodes"
    assert abs(honest.nats) < 0.015
    masks[:, 4] = y == 1
    assert encoding_test(table, y, pd.DataFrame(masks, columns=table.columns)).nats > 0.3


def test_columns_that_are_never_shown_are_no_obstacle() -> None:
    x, y, _ = noise()
    masks = one_of(5, y + 2)
    assert encoding_test(x, y, masks).verdict == "encodes"


# ---------------------------------------------------------------------- what must not matter


def test_the_order_of_columns_and_the_names_of_classes_do_not_matter() -> None:
    data = synthetic("S3", 400, seed=1)
    masks = without_control_flow(data)
    found = encoding_test(data.x, data.y, masks)
    order = np.random.default_rng(0).permutation(data.x.shape[1])
    moved = encoding_test(data.x[:, order], data.y, masks[:, order])
    renamed = encoding_test(data.x, np.where(data.y == 1, "a", "b"), masks)
    framed = encoding_test(pd.DataFrame(data.x), pd.Series(data.y), Explanation(masks))
    for other in (renamed, framed):
        np.testing.assert_allclose(other.gains, found.gains, atol=1e-9)
    # of two splits that divide the training rows alike, trees take the earlier column's
    assert (np.abs(moved.gains - found.gains) < 1e-9).mean() > 0.98
    assert moved.nats == pytest.approx(found.nats, abs=0.001)
    assert moved.verdict == renamed.verdict == framed.verdict == found.verdict


def test_same_seed_same_answer_and_another_seed_another() -> None:
    data = synthetic("S3", 400, seed=1)
    masks = without_control_flow(data)
    first, again = (encoding_test(data.x, data.y, masks, random_state=4) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    assert encoding_test(data.x, data.y, masks, random_state=5).nats != first.nats


def test_hidden_values_cannot_change_the_answer() -> None:
    """What the masks hide of a held-out row is never looked at; shuffled masks show some of it.

    So a column that no mask shows may hold anything.
    """
    x, y, random = noise(300)
    masks = random.random(x.shape) < 0.5
    masks[:, 2] = False
    other = x.copy()
    other[:, 2] = random.standard_normal(300)
    assert encoding_test(x, y, masks).nats == encoding_test(other, y, masks).nats


def test_other_classifiers_can_judge() -> None:
    x, y, _ = noise()
    forest_ = RandomForestClassifier(50, min_samples_leaf=10)
    found = encoding_test(x, y, one_of(5, y), estimator=forest_)
    assert found.verdict == "encodes"
    assert forest_.random_state is None  # the caller's own is left alone


# ---------------------------------------------------------------------- groups, large tables


def test_groups_are_the_unit() -> None:
    """Each row four times: as rows that is fourfold certainty, as groups it is not."""
    x, y, random = noise(300)
    bit = y ^ (random.random(300) < 0.3)
    x, y, masks = (np.repeat(a, 4, axis=0) for a in (x, y, one_of(5, bit)))
    groups = np.repeat([f"patient {i}" for i in range(300)], 4)
    single = encoding_test(x, y, masks)
    grouped = encoding_test(x, y, masks, groups=groups)
    assert "repeat another row" in single.remarks[0]
    assert not grouped.remarks
    assert grouped.effective_rows <= 300
    assert grouped.high - grouped.low > 1.5 * (single.high - single.low)


def test_large_tables_are_sampled_and_it_says_so() -> None:
    x, y, _ = noise(3_000)
    found = encoding_test(x, y, one_of(5, y), max_rows=500)
    assert found.rows == len(found.gains) == 500
    assert found.remarks == ["a random 500 of 3,000 rows were tested."]
    assert found.verdict == "encodes"


def test_progress_is_told() -> None:
    x, y, _ = noise(60)
    told: list[tuple[int, int]] = []
    encoding_test(
        x, y, one_of(5, y), folds=3, progress=lambda done, all_: told.append((done, all_))
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


# ---------------------------------------------------------------------- the rule


def ruled(value: float, spread: float, rows: int, overlap: float = 1.0) -> Encoding:
    gains = value + spread * np.tile([-1.0, 1.0], rows // 2)
    return judge(gains, np.arange(rows), overlap, 2, 0.02, 0, [])


@pytest.mark.parametrize(
    ("value", "spread", "rows", "overlap", "verdict"),
    [
        (0.1, 0.3, 2_000, 1.0, "encodes"),
        (0.015, 0.15, 2_000, 1.0, "encodes"),  # starts above 0.005, reaches above 0.02
        (0.1, 3.0, 2_000, 1.0, "cannot tell"),  # too noisy
        (0.1, 0.3, 2_000, 0.01, "cannot tell"),  # 20 effective rows
        (0.0, 0.0, 2_000, 1.0, "no sign of encoding"),
        (0.0, 0.0, 300, 1.0, "cannot tell"),  # 1.96 √(0.04 / 300) = 0.023
        (-0.05, 0.0, 300, 1.0, "cannot tell"),  # below zero is luck, not evidence
        (0.008, 0.02, 10_000, 1.0, "no sign of encoding"),  # surely there, and small
    ],
)
def test_the_rule(value: float, spread: float, rows: int, overlap: float, verdict: str) -> None:
    found = ruled(value, spread, rows, overlap)
    assert found.verdict == verdict
    assert found.effective_rows == pytest.approx(rows * overlap)


def test_what_would_be_noticed_gets_smaller_with_more_rows() -> None:
    sizes = [ruled(0, 0.0, rows).detectable for rows in (100, 500, 2_000, 5_000, 20_000)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == pytest.approx(0.02)  # the threshold is the least that counts
    # a gain of exactly that mean and spread √(2δ) starts at the mark in 1 of 20 samples of rows
    delta, rows = sizes[1], 500
    means = delta + np.sqrt(2 * delta / rows) * np.random.default_rng(0).standard_normal(200_000)
    noticed = (means - 1.959964 * np.sqrt(2 * delta / rows) > 0.005).mean()
    assert noticed == pytest.approx(0.95, abs=5 * np.sqrt(0.95 * 0.05 / 200_000))


def test_the_interval_covers_the_mean() -> None:
    """Of 200 samples of 100 gains, the low end is below the truth in 97.5% ± 4 standard errors."""
    random = np.random.default_rng(0)
    below = 0
    for i in range(200):
        gains = 0.1 + 0.4 * random.standard_normal(100)
        below += judge(gains, np.arange(100), 1.0, 2, 0.02, i, []).low <= 0.1
    assert abs(below / 200 - 0.975) < 4 * np.sqrt(0.975 * 0.025 / 200)


def test_it_can_be_written_down_and_drawn() -> None:
    found = ruled(0.1, 0.3, 500)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["encoding_nats"] == {"value": found.nats, "low": found.low, "high": found.high}
    text = repr(found)
    assert text.startswith("encodes: 0.100 nats [")
    assert "trained on these rows" in text
    ax = forest({"mine": found, "yours": ruled(0, 0.0, 2_000)})
    assert [label.get_text() for label in ax.get_yticklabels()] == ["mine", "yours"]
    ax.figure.canvas.draw()
    with pytest.raises(InputError, match="at least one"):
        forest({})


# ---------------------------------------------------------------------- bad input


def bad(words: str, **changes: Any) -> None:
    x, y, random = noise(60)
    given = {"X": x, "y": y, "masks": random.random(x.shape) < 0.5, **changes}
    with pytest.raises(InputError, match=words) as caught:
        encoding_test(given.pop("X"), given.pop("y"), given.pop("masks"), **given)
    assert_one_sentence(caught.value)


def test_bad_input_gets_one_sentence() -> None:
    x, y, _ = noise(60)
    bad("60 rows of X and one column for each of its 5 features.*50 rows and 5 columns",
        masks=np.ones((50, 5)))  # fmt: skip
    bad("60 rows and 4 columns", masks=np.ones((60, 4)))
    bad("must hold 0 .* and 1 .* only but hold 0.5", masks=np.full((60, 5), 0.5))
    bad("table .rows, features. but came with shape", masks=np.ones(60))
    bad("one class only", y=np.zeros(60))
    bad("one value for each of the 60 rows but has 59 values", y=y[:59])
    bad("at least 5 rows, one for each fold, but class 2 has 1", y=np.append(y[:59] % 2, 2))
    bad("table of probabilities", y=np.full((60, 2), 0.5))
    bad("must be a table", X=x[0])
    bad("infinite", X=np.where(x > 2, np.inf, x))
    bad("one value for each of the 60 rows", groups=np.arange(59))
    bad("at least 5 groups", groups=np.arange(60) % 3)
    bad("missing values", groups=np.where(np.arange(60) < 3, np.nan, 1.0))
    bad("folds must be a whole number from 2", folds=1)
    bad("shuffles must be a whole number from 1", shuffles=0)
    bad("random_state must be a whole number", random_state=-1)
    bad("max_rows must be a whole number", max_rows=10)
    bad("threshold must be a number of nats", threshold=0)
    bad("must take NaN", estimator=LogisticRegression())
    bad("scikit-learn classifier", estimator=7)
    names = Explanation(np.ones((60, 5)), feature_names=list("abcde"))
    bad("feature 1 is 'a' but X's is 'e'", X=pd.DataFrame(x, columns=list("edcba")), masks=names)
