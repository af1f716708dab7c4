"""Bad input of every kind: one sentence that names the value, raised where it enters."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from small_tables import (
    EXPLAINERS,
    NAMES,
    SELECTING,
    assert_one_sentence,
    frame,
    mixed,
    quick,
    quick_evaluator,
    quick_l2x,
    rows,
)
from torch import nn

from unmasked import (
    MLP,
    Bernoulli,
    EvalX,
    Explanation,
    InputError,
    RealX,
    Training,
    UnmaskedError,
    Zero,
)
from unmasked.training.step import Optimiser

pytestmark = pytest.mark.usefixtures("one_thread")

X, Y = rows(60)
TABLE, _ = frame(60)
HALF = np.full((60, 2), 0.5)
ZONED = pd.Timestamp("1990-01-01", tz="Europe/Berlin")
Ask = Callable[[], Any]


def put(value: Any, row: int = 3, column: int = 1) -> np.ndarray[Any, Any]:
    """The rows with one value replaced."""
    x = X.astype(object if isinstance(value, str) else float)
    x[row, column] = value
    return x


def wrong_length(x: Any) -> Any:
    return HALF[:3]


class FirstLabels:
    """A model that can only name classes."""

    def predict(self, x: Any) -> Any:
        return Y


# What is asked, and words that the sentence must contain, in order.
FIT: dict[str, tuple[Ask, str]] = {
    "infinite": (lambda: quick().fit(put(np.inf), Y), "'x2' has 1 infinite"),
    "no value at all": (
        lambda: quick().fit(TABLE.assign(dose=np.nan), Y),
        "'dose' has no value in any training row; drop",
    ),
    "too large": (
        lambda: quick().fit(X * [1e300, 1, 1, 1], Y),
        r"'x1' holds values as large as \d.*e\+300",
    ),
    "one class": (lambda: quick().fit(X, np.zeros(60)), r"one class only \(0.0\)"),
    "one text class": (lambda: quick().fit(X, ["ill"] * 60), r"one class only \('ill'\)"),
    "no rows": (lambda: quick().fit(TABLE[:0], Y[:0]), "has 0 rows and 4 columns"),
    "no columns": (lambda: quick().fit(TABLE[[]], Y), "has 60 rows and 0 columns"),
    "one row": (lambda: quick().fit(X[:1], HALF[:1]), "at least 2 rows .* n_samples = 1"),
    "y of another length": (lambda: quick().fit(X, Y[:10]), "each of the 60 rows but has 10"),
    "y a single value": (lambda: quick().fit(X, 1), "60 rows but has a single value"),
    "y None": (lambda: quick().fit(X), "y is None; give labels"),
    "y with missing labels": (
        lambda: quick().fit(X, [None, None, *["ill", "well"] * 29]),
        "y has 2 missing labels",
    ),
    "y NaN": (lambda: quick().fit(X, np.r_[np.nan, Y[1:]]), "y has 1 missing labels"),
    "y infinite": (lambda: quick().fit(X, np.r_[np.inf, Y[1:]]), "y has infinite values"),
    "y of two kinds": (
        lambda: quick().fit(X, pd.Series([1, "ill"] * 30, dtype=object)),
        "one kind of label.* text and 1;",
    ),
    "probabilities above 1": (
        lambda: quick().fit(X, HALF * 1.2),
        "sum to 1 in each row, but row 0 sums to 1.2",
    ),
    "negative probabilities": (
        lambda: quick().fit(X, np.tile([-0.5, 1.5], (60, 1))),
        "between 0 and 1 but holds -0.5; apply a softmax",
    ),
    "NaN probabilities": (lambda: quick().fit(X, HALF * np.nan), "holds NaN"),
    "text probabilities": (
        lambda: quick().fit(X, np.full((60, 2), "half")),
        "y must hold probabilities, but holds text",
    ),
    "model without predict_proba": (
        lambda: quick(model=FirstLabels()).fit(X),
        "predict_proba .* FirstLabels",
    ),
    "model of another length": (
        lambda: quick(model=wrong_length).fit(X),
        r"shape \(60, classes\) but returned \(3, 2\)",
    ),
    "model of three dimensions": (
        lambda: quick(model=lambda x: np.ones((60, 2, 2))).fit(X),
        r"returned \(60, 2, 2\)",
    ),
    "model of scores": (lambda: quick(model=lambda x: x[:, :2]).fit(X), "apply a softmax"),
    "model of labels": (
        lambda: quick(model=lambda x: ["ill"] * 60).fit(X),
        "the model's output must hold probabilities, but holds text",
    ),
    "sparsity negative": (lambda: quick(sparsity=-1).fit(X, Y), "λ.* at least 0 but is -1"),
    "sparsity NaN": (lambda: quick(sparsity=np.nan).fit(X, Y), "at least 0 but is nan"),
    "sparsity infinite": (lambda: quick(sparsity=[1, np.inf]).fit(X, Y), "but is inf"),
    "sparsity text": (lambda: quick(sparsity="lots").fit(X, Y), "'auto' but is 'lots'"),
    "sparsity None": (lambda: quick(sparsity=None).fit(X, Y), "'auto' but is None"),
    "sparsity twice": (lambda: quick(sparsity=[0.1, 0.1]).fit(X, Y), r"is \[0.1, 0.1\]"),
    "sparsity empty": (lambda: quick(sparsity=[]).fit(X, Y), r"different numbers but is \[\]"),
    "k zero": (lambda: quick_l2x(k=0).fit(X, Y), "k must be a whole number above 0 but is 0"),
    "k negative": (lambda: quick_l2x(k=[1, -2]).fit(X, Y), "above 0 but is -2"),
    "k a fraction": (lambda: quick_l2x(k=2.5).fit(X, Y), "whole number above 0 but is 2.5"),
    "k a truth value": (lambda: quick_l2x(k=True).fit(X, Y), "whole number above 0 but is True"),
    "k text": (lambda: quick_l2x(k="auto").fit(X, Y), "whole number above 0 but is 'auto'"),
    "k None": (lambda: quick_l2x(k=None).fit(X, Y), "whole number above 0 but is None"),
    "k twice": (lambda: quick_l2x(k=[2, 2]).fit(X, Y), r"different whole .* but is \[2, 2\]"),
    "k empty": (lambda: quick_l2x(k=[]).fit(X, Y), r"different whole numbers but is \[\]"),
    "k more than all": (
        lambda: quick_l2x(k=[1, 5]).fit(X, Y),
        "k must be at most the number of features, 4, but is 5",
    ),
    "k more than all groups": (
        lambda: quick_l2x(k=4, groups=[[0, 1]]).fit(X, Y),
        "at most the number of features, 3, but is 4",
    ),
    "temperature zero": (
        lambda: quick_l2x(temperature=0.0).fit(X, Y),
        "temperature must be above 0 but is 0.0",
    ),
    "temperature NaN": (lambda: quick_l2x(temperature=np.nan).fit(X, Y), "above 0 but is nan"),
    "group of an unknown column": (
        lambda: quick(groups={"g": ["agee"]}).fit(TABLE, Y),
        "'agee', which is not in the table; did you mean 'age'",
    ),
    "group of a far column": (lambda: quick(groups=[[7]]).fit(X, Y), "column 7 but there are 4"),
    "group of nothing": (lambda: quick(groups={"g": []}).fit(X, Y), "'g' has no columns"),
    "column in two groups": (
        lambda: quick(groups={"g": ["age"], "h": [0]}).fit(TABLE, Y),
        "'age' is in the groups 'g' and 'h'",
    ),
    "group called like a column": (
        lambda: quick(groups={"dose": ["age", "weight"]}).fit(TABLE, Y),
        "a group is called 'dose'",
    ),
    "column twice": (
        lambda: quick().fit(TABLE.set_axis(["age", "b", "age", "c"], axis=1), Y),
        "'age' comes twice",
    ),
    "dates with and without time zones": (
        lambda: quick().fit(TABLE.assign(born=[ZONED, ZONED.tz_localize(None)] * 30), Y),
        "'born' holds dates that cannot be read together .*; give all of them with a time zone",
    ),
    "identifiers": (
        lambda: quick().fit(pd.DataFrame({"id": [f"p{i}" for i in range(180)]}), np.tile(Y, 3)),
        r"'id' holds 180 different texts in 180 rows, most .*; drop it \(--drop\), or .*\(--id\)",
    ),
    "several columns at once": (
        lambda: quick().fit(TABLE.assign(dose=np.nan, age=[np.inf, *X[1:, 0]], height=np.nan), Y),
        r"3 columns cannot be read: 'age' has 1 infinite .*; 'dose' .*, 'height' .* \(drop the",
    ),
    "a measurement as y": (
        lambda: quick().fit(X, np.arange(60)),
        "y has 60 different numbers and looks like a measurement; .* cut it into ranges",
    ),
    "2,000 classes": (
        lambda: quick().fit(np.zeros((6000, 1)), [f"c{i % 2000}" for i in range(6000)]),
        "y has 2,000 classes, but at most 1,000 can be told apart; merge",
    ),
    "names as y": (
        lambda: quick().fit(X, [f"p{i}" for i in range(60)]),
        "y has 60 different values in 60 rows and looks like an identifier; name",
    ),
    "unknown device": (lambda: quick(device="gpu9").fit(X, Y), "device .* but is 'gpu9'"),
    "unknown rule": (lambda: quick(choose="best").fit(X, Y), "accuracy, .* but is 'best'"),
    "validation 0": (lambda: quick(validation=0).fit(X, Y), "between 0 and 1, but is 0;"),
    "validation 1": (lambda: quick(validation=1).fit(X, Y), "between 0 and 1, but is 1;"),
    "validation 2": (lambda: quick(validation=2).fit(X, Y), "between 0 and 1, but is 2;"),
    "validation in fit a share": (
        lambda: quick().fit(X, Y, validation=0.3),
        r"a pair \(X_valid, y_valid\) but is a float; .* RealX\(validation=0.2\)",
    ),
    "validation with another class": (
        lambda: quick().fit(X, Y, validation=(X, Y + 1)),
        r"classes seen in fit, \[0, 1\], but holds 2",
    ),
    "batch of nothing": (lambda: quick(batch_size=0).fit(X, Y), "batch_size .* but is 0"),
    "masker by name": (lambda: quick(masker="zero").fit(X, Y), "masker must be a Masker .*'zero'"),
    "masker's class": (lambda: quick(masker=Zero).fit(X, Y), "Masker but is <class .*Zero"),
    "law by name": (lambda: quick(mask_law="half").fit(X, Y), "MaskLaw but is 'half'"),
    "training by hand": (lambda: quick(training={"epochs": 1}).fit(X, Y), "must be a Training"),
    "network by name": (lambda: quick(selector="mlp").fit(X, Y), "selector must .* but is 'mlp'"),
    "selector of another input": (
        lambda: quick(selector=nn.Linear(5, 4)).fit(X, Y),
        r"selector must take .*\(batch, 4\) .* 5x4",
    ),
    "selector of another output": (
        lambda: quick(selector=nn.Linear(4, 3)).fit(X, Y),
        r"selector must return shape \(2, 4\) .* returned \(2, 3\)",
    ),
    "selector per column and not per group": (
        lambda: quick(selector=nn.Linear(4, 4), groups=[[0, 1]]).fit(X, Y),
        r"selector must return shape \(2, 3\) .* returned \(2, 4\)",
    ),
    "predictor of another input": (
        lambda: quick(predictor=nn.Linear(4, 2)).fit(X, Y),
        r"predictor must take .*\(batch, 8\) .* 4x2",
    ),
    "predictor of another output": (
        lambda: quick_evaluator(predictor=nn.Linear(8, 1)).fit(X, Y),
        r"predictor must return shape \(2, 2\) .* returned \(2, 1\)",
    ),
    "law": (lambda: quick(mask_law=Bernoulli(2.0)), "between 0 and 1 but got p=2"),
    "epochs": (lambda: Training(epochs=0), "epochs must be .* but is 0"),
    "hidden": (lambda: MLP((0,)), r"hidden .* but is \(0,\)"),
}


class Trained(Exception):
    """The test's own sign that training began."""


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise Trained

    monkeypatch.setattr(Optimiser, "step", refuse)


@pytest.mark.usefixtures("no_training")
@pytest.mark.filterwarnings("ignore:.*constant:unmasked.DataWarning")  # of a single row
@pytest.mark.parametrize("case", FIT)
def test_fit_refuses_before_it_trains(case: str) -> None:
    ask, words = FIT[case]
    with pytest.raises(UnmaskedError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("make", [*EXPLAINERS.values(), quick_evaluator])
def test_good_input_would_train(make: Callable[[], Any]) -> None:
    with pytest.raises(Trained):
        make().fit(X, Y)


# What is the same for every explainer: what is asked, and words that the sentence must contain.
EVERY: dict[str, tuple[Callable[[Callable[..., Any]], Any], str]] = {
    "infinite": (lambda make: make().fit(put(np.inf), Y), "'x2' has 1 infinite"),
    "one class": (lambda make: make().fit(X, np.zeros(60)), r"one class only \(0.0\)"),
    "no rows": (lambda make: make().fit(TABLE[:0], Y[:0]), "has 0 rows and 4 columns"),
    "y None": (lambda make: make().fit(X), "y is None; give labels"),
    "y and model": (lambda make: make(model=wrong_length).fit(X, Y), "either y or model=…"),
    "y of another length": (lambda make: make().fit(X, Y[:10]), "each of the 60 rows but has 10"),
    "group of an unknown column": (
        lambda make: make(groups={"g": ["agee"]}).fit(TABLE, Y),
        "'agee', which is not in the table; did you mean 'age'",
    ),
    "unknown device": (lambda make: make(device="gpu9").fit(X, Y), "device .* but is 'gpu9'"),
    "validation 2": (lambda make: make(validation=2).fit(X, Y), "between 0 and 1, but is 2;"),
    "validation in fit a share": (
        lambda make: make().fit(X, Y, validation=0.3),
        r"a pair \(X_valid, y_valid\) but is a float; .* (RealX|BaseX|Invase|L2X|Full)\(valid",
    ),
    "batch of nothing": (lambda make: make(batch_size=0).fit(X, Y), "batch_size .* but is 0"),
    "masker's class": (lambda make: make(masker=Zero).fit(X, Y), "Masker but is <class .*Zero"),
    "training by hand": (lambda make: make(training={"epochs": 1}).fit(X, Y), "be a Training"),
    "predictor of another input": (
        lambda make: make(predictor=nn.Linear(4, 2)).fit(X, Y),
        r"predictor must take .*\(batch, 8\) .* 4x2",
    ),
}


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("make", EXPLAINERS.values(), ids=EXPLAINERS.keys())
@pytest.mark.parametrize("case", EVERY)
def test_every_explainer_refuses_before_it_trains(case: str, make: Callable[..., Any]) -> None:
    ask, words = EVERY[case]
    with pytest.raises(UnmaskedError, match=words) as caught:
        ask(make)
    assert_one_sentence(caught.value)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("make", SELECTING.values(), ids=SELECTING.keys())
def test_every_selector_is_checked_before_it_trains(make: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"selector must return shape \(2, 4\) .* \(2, 3\)"):
        make(selector=nn.Linear(4, 3)).fit(X, Y)
    with pytest.raises(InputError, match=r"choose must be one of .* but is 'best'"):
        make(choose="best").fit(X, Y)


@pytest.mark.parametrize("make", EXPLAINERS.values(), ids=EXPLAINERS.keys())
def test_every_fitted_explainer_refuses_rows_that_it_cannot_read(make: Callable[..., Any]) -> None:
    explainer = make().fit(TABLE, Y)
    for method in (explainer.explain, explainer.predict_proba, explainer.transform):
        for table, words in (
            (TABLE.assign(age=np.inf), "'age' has 60 infinite"),
            (TABLE.assign(age="old"), "'age' held numbers in training but holds text now"),
            (TABLE[:0], "has 0 rows"),
        ):
            with pytest.raises(InputError, match=words):
                method(table)


def test_k_that_was_not_trained_is_refused_by_value() -> None:
    explainer = quick_l2x(k=[1, 3]).fit(X, Y)
    for ask in (explainer.explain, explainer.predict_proba):
        for k in (2, 0, 1.5, "1"):
            with pytest.raises(InputError, match=r"one of the trained \[1, 3\]") as caught:
                ask(X, k=k)
            assert str(caught.value).endswith(f"but is {k!r}.")
            assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- what scikit-learn demands


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("ask", "kind", "words"),
    [
        (lambda: quick().fit(X[:0], Y[:0]), ValueError, "0 sample"),
        (lambda: quick().fit(X[:, 0], Y), ValueError, "Expected 2D array"),
        (lambda: quick().fit(X, X[:, 0]), ValueError, "Unknown label type: continuous"),
        (lambda: quick().fit(sparse.csr_matrix(X), Y), TypeError, "dense data is required"),
        (lambda: quick().fit(put("old"), Y), ValueError, "'old'"),
        (lambda: quick().fit(X, Y, validation=(X[:, :2], Y)), ValueError, "expecting 4 features"),
        (
            lambda: quick().fit(TABLE.assign(born=datetime.time(12, 30)), Y),
            TypeError,
            "'born' must hold numbers or text but holds datetime.time",
        ),
    ],
)
def test_scikit_learns_own_errors(ask: Ask, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        ask()


# ---------------------------------------------------------------------- asking the fitted


@pytest.fixture(scope="module")
def fitted() -> tuple[RealX, EvalX]:
    return quick().fit(TABLE, Y), quick_evaluator().fit(TABLE, Y)


Both = Callable[[RealX, EvalX], Any]
ALL = np.ones((60, 4), dtype=bool)
ASK: dict[str, tuple[Both, str]] = {
    "text where numbers were": (
        lambda r, e: r.explain(TABLE.assign(age="old")),
        "'age' held numbers in training but holds text now",
    ),
    "infinite": (lambda r, e: e.predict(TABLE.assign(age=np.inf)), "'age' has 60 infinite"),
    "no rows": (lambda r, e: r.explain(TABLE[:0]), "has 0 rows"),
    "untrained sparsity": (
        lambda r, e: r.explain(TABLE, sparsity=0.7),
        r"one of the trained \[0.1\] but is 0.7",
    ),
    "masks of other rows": (
        lambda r, e: e.evaluate(ALL[:10], TABLE, Y),
        r"shape \(60, 4\).* but have \(10, 4\)",
    ),
    "masks of other features": (
        lambda r, e: e.evaluate(ALL[:, :3], TABLE, Y),
        r"shape \(60, 4\).* but have \(60, 3\)",
    ),
    "masks that are attributions": (
        lambda r, e: e.evaluate(ALL * 0.3, TABLE, Y),
        r"0 \(hidden\) and 1 \(shown\) only but hold 0.3; cut attributions",
    ),
    "masks of NaN": (lambda r, e: e.predict(TABLE, ALL * np.nan), "only but hold nan"),
    "masks in one dimension": (lambda r, e: e.evaluate(Y, TABLE, Y), r"shape \(60,\)"),
    "explanation of other features": (
        lambda r, e: e.evaluate(Explanation(ALL, feature_names=[*NAMES[:3], "size"]), TABLE, Y),
        "feature 4 is 'size' but the evaluator's is 'height'",
    ),
    "evaluating without y": (lambda r, e: e.evaluate(ALL, TABLE), "y is None"),
    "evaluating other classes": (
        lambda r, e: e.evaluate(ALL, TABLE, ["ill"] * 60),
        r"classes seen in fit, \[0, 1\], but holds 'ill'",
    ),
    "evaluating three probabilities": (
        lambda r, e: e.evaluate(ALL, TABLE, np.full((60, 3), 1 / 3)),
        "2 columns of probabilities, .* but has 3",
    ),
    "evaluating fewer labels": (lambda r, e: e.evaluate(ALL, TABLE, Y[:9]), "60 rows but has 9"),
    "more than all": (lambda r, e: r.explain(TABLE).top(5), "0 to the 4 features but is 5"),
    "batch": (
        lambda r, e: quick(batch_size=1).fit(X, Y).set_params(batch_size=-2).explain(X),
        "batch_size .* but is -2",
    ),
}


@pytest.mark.parametrize("case", ASK)
def test_the_fitted_refuse(case: str, fitted: tuple[RealX, EvalX]) -> None:
    ask, words = ASK[case]
    with pytest.raises(InputError, match=words) as caught:
        ask(*fitted)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.rename(columns={"age": "AGE"}), "unseen at fit time:\n- AGE"),
        (lambda t: t[t.columns[::-1]], "same order"),
        (lambda t: t.drop(columns="dose"), "now missing:\n- dose"),
        (lambda t: t.to_numpy()[:, :2], "2 features, but RealX is expecting 4"),
    ],
)
@pytest.mark.parametrize("method", ["explain", "predict_proba", "transform"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_other_columns_at_explain_time(
    change: Callable[[Any], Any], words: str, method: str, fitted: tuple[RealX, EvalX]
) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(fitted[0], method)(change(TABLE))


def test_a_failed_fit_leaves_an_unfitted_explainer_unfitted() -> None:
    explainer = quick(selector=nn.Linear(5, 4))
    with pytest.raises(InputError):
        explainer.fit(X, Y)
    with pytest.raises(ValueError, match="not fitted"):
        explainer.explain(X)


def test_numbers_where_text_was_warn() -> None:
    table, y = mixed(60)
    explainer = quick().fit(table, y)
    with pytest.warns(UserWarning, match="'town' holds '1.5', not seen in training"):
        explainer.explain(table.assign(town=1.5))
