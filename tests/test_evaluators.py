"""What all evaluators promise: the hidden stays hidden, the same scores, one sentence if not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from small_tables import (
    TINY,
    Recorder,
    assert_one_sentence,
    boosted,
    frame,
    mixed,
    posthoc,
    quick,
    rows,
)
from torch import nn

from unmasked import (
    Bernoulli,
    ExactPosterior,
    InputError,
    PostHoc,
    Scores,
    Token,
    UnmaskedError,
    Zero,
    synthetic,
)

pytestmark = pytest.mark.usefixtures("one_thread")
PIPE = make_pipeline(SimpleImputer(add_indicator=True), LogisticRegression())


# ---------------------------------------------------------------------- what is hidden is hidden


def forest(table: Any, y: Any) -> Any:
    """A model of the user's own, from tables of any kind."""
    return make_pipeline(
        FunctionTransformer(lambda t: pd.get_dummies(t).reindex(columns=DUMMIES, fill_value=0)),
        RandomForestClassifier(5, random_state=0),
    ).fit(table, y)


DUMMIES = ["age", "smoker", "town_Graz", "town_Ulm", "town_Łódź", "grade_high", "grade_low"]
EVALUATORS: dict[str, Callable[[Any, Any], Any]] = {
    "trees": lambda table, y: boosted().fit(table, y),
    "pipeline": lambda table, y: boosted(estimator=PIPE).fit(table, y),
    "post-hoc network": lambda table, y: posthoc().fit(table, y),
    "post-hoc network with tokens": lambda table, y: posthoc(masker=Token()).fit(table, y),
    "post-hoc model": lambda table, y: PostHoc(forest(table, y)).fit(table),
}


@pytest.mark.parametrize("kind", EVALUATORS)
def test_a_hidden_feature_cannot_change_the_output(kind: str) -> None:
    table, y = mixed()
    evaluator = EVALUATORS[kind](table, y)
    masks = np.random.default_rng(0).random((80, 4)) < 0.5
    before = evaluator.predict_proba(table, masks)
    np.testing.assert_allclose(before.sum(1), 1, atol=1e-6)
    changes = 0
    for feature, name in enumerate(table.columns):
        other = table.assign(**{name: table[name].to_numpy()[::-1]})
        other[name] = other[name].astype(table[name].dtype)
        changed = evaluator.predict_proba(other, masks)
        hidden = ~masks[:, feature]
        np.testing.assert_array_equal(changed[hidden], before[hidden])
        changes += not np.array_equal(changed[~hidden], before[~hidden])
    assert changes
    nothing = evaluator.predict_proba(table, np.zeros_like(masks))
    assert (nothing == nothing[0]).all()
    everything = evaluator.predict_proba(table, np.ones_like(masks))
    np.testing.assert_array_equal(evaluator.predict_proba(table), everything)


@pytest.mark.parametrize("kind", EVALUATORS)
def test_every_evaluator_gives_all_rows_of_scores(kind: str) -> None:
    table, y = mixed()
    labels = np.array(["no", "yes"])[y]
    evaluator = EVALUATORS[kind](table, labels)
    masks = np.random.default_rng(0).random((80, 4)) < 0.5
    scores = evaluator.evaluate(masks, table, labels, bootstrap_draws=20)
    assert isinstance(scores, Scores)
    assert list(scores.rows) == ["explanation", "everything", "random", "nothing"]
    predicted = evaluator.predict_proba(table, masks)
    right = predicted[np.arange(80), y]
    assert scores["eloglik"].value == pytest.approx(np.log(np.clip(right, 1e-12, 1)).mean())
    assert scores["eacc"].value == pytest.approx((evaluator.predict(table, masks) == labels).mean())
    assert evaluator.classes_.tolist() == ["no", "yes"]


def test_rows_of_a_group_are_resampled_together() -> None:
    """Three copies of each row, as one patient's, have the intervals of the rows themselves."""
    data = synthetic("S1", 40, seed=0)
    once = ExactPosterior("S1").evaluate(data.truth, data.x, data.y, bootstrap_draws=50)
    copied = [np.repeat(part, 3, axis=0) for part in (data.truth, data.x, data.y)]
    whose = np.repeat(np.arange(40), 3)
    thrice = ExactPosterior("S1").evaluate(*copied, bootstrap_draws=50, groups=whose)
    for metric in ("eauroc", "eacc", "eloglik"):
        assert thrice[metric].to_json() == pytest.approx(once[metric].to_json(), abs=1e-12)
    with pytest.raises(InputError, match="groups must be 40, one for each row"):
        ExactPosterior("S1").evaluate(data.truth, data.x, data.y, groups=whose)


# ---------------------------------------------------------------------- bad input

X, Y = rows(60)
ALL = np.ones((60, 4), dtype=bool)
RAW = synthetic("S1", 10, seed=0)
SCALED = make_pipeline(StandardScaler(), LogisticRegression())
SEARCH = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "estimator and predictor": (
        lambda: boosted(predictor=TINY).fit(X, Y),
        "either estimator or predictor can be given but both came",
    ),
    "estimator and masker": (
        lambda: boosted(masker=Zero()).fit(X, Y),
        "either estimator or masker can be given",
    ),
    "estimator's class": (
        lambda: boosted(estimator=GaussianNB).fit(X, Y),
        "but is the class GaussianNB",
    ),
    "estimator by name": (
        lambda: boosted(estimator="trees").fit(X, Y),
        "scikit-learn classifier but is .trees",
    ),
    "estimator without probabilities": (
        lambda: boosted(estimator=SVC()).fit(X, Y),
        "classifier with predict_proba, .* but is SVC",
    ),
    "a network as estimator": (lambda: boosted(estimator=nn.Linear(4, 2)).fit(X, Y), "is Linear"),
    "estimator that refuses NaN": (
        lambda: boosted(estimator=LogisticRegression()).fit(X, Y),
        "take NaN for hidden values but LogisticRegression does not; use Hist",
    ),
    "estimator that refuses NaN where none is hidden": (
        lambda: boosted(estimator=GaussianNB(), mask_law=Bernoulli(1.0)).fit(X, Y),
        "but GaussianNB does not",
    ),
    "pipeline that refuses NaN": (
        lambda: boosted(estimator=SCALED).fit(X, Y),
        "but Pipeline does not",
    ),
    "search that refuses NaN": (
        lambda: boosted(estimator=SEARCH).fit(X, Y),
        "but GridSearchCV does not",
    ),
    "probabilities without weights": (
        lambda: boosted(estimator=PIPE).fit(X, np.full((60, 2), 0.5)),
        "fit must take sample_weight but Pipeline's does not",
    ),
    "no copies": (lambda: boosted(mask_copies=0).fit(X, Y), "mask_copies .* but is 0"),
    "half a copy": (lambda: boosted(mask_copies=0.5).fit(X, Y), "mask_copies .* but is 0.5"),
    "a law that hides all": (
        lambda: boosted(mask_law=Bernoulli(0.0)).fit(X, Y),
        "needs shown features .* but the mask law hides everything",
    ),
    "estimator asked with other masks": (
        lambda: boosted().fit(X, Y).predict_proba(X, ALL[:, :3]),
        r"shape \(60, 4\).* but have \(60, 3\)",
    ),
    "estimator asked in no batches": (
        lambda: boosted().fit(X, Y).set_params(batch_size=0).predict(X),
        "batch_size .* but is 0",
    ),
    "post-hoc without anything": (lambda: posthoc().fit(X), "y is None; give labels"),
    "post-hoc model and predictor": (
        lambda: PostHoc(Recorder(), predictor=TINY).fit(X),
        "either model or predictor can be given but both came",
    ),
    "post-hoc model and masker": (
        lambda: PostHoc(Recorder(), masker=Zero()).fit(X),
        "either model or masker",
    ),
    "post-hoc model that cannot predict": (
        lambda: PostHoc("model").fit(X),
        "model must have predict_proba or be callable, but is str",
    ),
    "post-hoc labels of other classes": (
        lambda: PostHoc(GaussianNB().fit(X, Y)).fit(X, Y + 5),
        r"classes seen in fit, \[0, 1\], but holds",
    ),
    "post-hoc masks": (
        lambda: PostHoc(Recorder()).fit(X).evaluate(ALL[:5], X, Y),
        r"shape \(60, 4\).* but have \(5, 4\)",
    ),
    "exact of another set": (
        lambda: ExactPosterior("S9").predict(RAW.x),
        "S1, S2, S3, .*Syn6 but 'S9'",
    ),
    "exact of few columns": (lambda: ExactPosterior("S1").predict(X), r"11 .* is \(60, 4\)"),
    "exact of missing values": (
        lambda: ExactPosterior("S1").predict(np.where(RAW.x > 1, np.nan, RAW.x)),
        r"finite features of S1 but row \d has nan in column \d",
    ),
    "exact without y": (
        lambda: ExactPosterior("S1").evaluate(RAW.truth, RAW.x),
        "requires y but it is None",
    ),
    "exact with other classes": (
        lambda: ExactPosterior("S1").evaluate(RAW.truth, RAW.x, ["ill"] * 10),
        r"classes seen in fit, \[0, 1\], but holds 'ill'",
    ),
    "exact with other masks": (
        lambda: ExactPosterior("S1").evaluate(RAW.truth[:, :10], RAW.x, RAW.y),
        r"shape \(10, 11\).* but have \(10, 10\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    ask, words = BAD[case]
    with pytest.raises(UnmaskedError, match=words) as caught:
        ask()
    assert_one_sentence(caught.value)


def test_an_explanation_of_other_features_is_refused() -> None:
    table, y = frame()
    explanation = quick().fit(table, y).explain(table)
    evaluator = boosted().fit(table.rename(columns={"height": "size"}), y)
    with pytest.raises(InputError, match="feature 4 is 'height' but the evaluator's is 'size'"):
        evaluator.evaluate(explanation, table.rename(columns={"height": "size"}), y)
