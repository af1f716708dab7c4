"""The audit: who is called out and who is not, exact identities, the evaluator's health."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from small_audits import FEATURES, QUICK, attributions, code, honest, table
from small_tables import assert_one_sentence

from unmasked import AuditSettings, Explanation, InputError, audit
from unmasked.auditing import run as work_module
from unmasked.auditing import verdicts as health_module
from unmasked.auditing.evaluators import folds_of
from unmasked.auditing.queries import greedy_orders, predictions, rows_within
from unmasked.auditing.svg import Mark, Series, forest, lines
from unmasked.auditing.verdicts import BAD, calibration, calibration_band
from unmasked.metrics import log_likelihoods

X, Y = table()
MODEL = LogisticRegression().fit(*table(300, seed=9))
EVERYTHING, NOTHING = np.ones((400, 5), dtype=int), np.zeros((400, 5), dtype=int)
EXPLANATIONS = {
    "honest": honest(),
    "code": code(Y),
    "linear": attributions(X),
    "again": honest(),
    "all": EVERYTHING,
    "none": NOTHING,
}


@pytest.fixture(scope="module")
def found():
    return audit(EXPLANATIONS, X, Y, top=2, model=MODEL, settings=QUICK, progress=False)


def plain(result) -> str:
    values = result.to_json()
    del values["seconds"], values["assumptions"]
    for one in values["explanations"]:
        del one["matched"]
    return json.dumps(values, sort_keys=True)


# ---------------------------------------------------------------------- who is called out


def test_the_code_is_called_out_and_the_honest_are_not(found):
    assert found["code"].verdict == "encodes"
    assert found["code"].encoding_nats.low > 0.3  # one bit is 0.69 nats
    assert found["honest"].verdict != "encodes"
    assert found["honest"].encoding_nats.value < 0.02
    assert "gives the answer away" in found["code"].answer
    assert "gives the answer away" in found.summary[1]


def test_what_informs_does_so_beyond_random_masks(found):
    for name in ("honest", "linear"):
        assert found[name].fidelity == "informs"
        assert found[name].metrics["over_random_eloglik"].low > 0
    assert found["honest"].metrics["eacc"].value > 0.7
    assert "may flatter it" in found["code"].fidelity_reason


def test_roar_cannot_see_the_code_and_that_is_said(found):
    assert found["code"].metrics["roar_acc"].value > 0.95
    assert found["code"].metrics["eacc"].value < 0.75
    assert any("cannot see encoding" in note for note in found.notes)


def test_everything_and_nothing_shown_are_the_references_exactly(found):
    for name, key in (("all", "everything"), ("none", "nothing")):
        for metric in ("eauroc", "eacc", "eloglik"):
            assert found[name].metrics[metric] == found.references[f"{key}_{metric}"]
        assert found[name].metrics["over_random_eloglik"].value == pytest.approx(0, abs=1e-12)
        assert found[name].verdict == "no sign of encoding"
        assert found[name].remarks
    assert found["all"].fidelity == "shows everything"
    assert found["none"].fidelity == "shows nothing"
    assert found["all"].metrics["fraction"].value == 1


def test_the_same_masks_get_the_same_figures_and_differ_by_nothing(found):
    one, other = found["honest"].metrics, found["again"].metrics
    for metric in ("fraction", "eauroc", "eacc", "eloglik", "best_eloglik", "roar_loglik"):
        assert one[metric] == other[metric]
    difference = found.compared["honest", "again"]
    assert (difference.low, difference.value, difference.high) == (0, 0, 0)
    assert any("honest and again cannot be told apart" in line for line in found.ranking)


def test_every_figure_lies_in_its_interval(found):
    for one in found.explanations:
        for name, value in one.metrics.items():
            assert value.low <= value.high, name
            assert np.isfinite([value.value, value.low, value.high]).all(), name


def test_curves_end_where_everything_and_nothing_are_shown(found):
    assert set(found.curves) == {"linear"}  # masks have no order
    curve = found.curves["linear"]
    nothing = found.references["nothing_eloglik"].value
    everything = found.references["everything_eloglik"].value
    assert (curve.sizes[0], curve.sizes[-1]) == (0, 5)
    assert curve.insertion[0].value == pytest.approx(nothing, abs=1e-6)
    assert curve.insertion[-1].value == pytest.approx(everything, abs=1e-6)
    assert curve.deletion[0].value == pytest.approx(everything, abs=1e-6)
    assert curve.deletion[-1].value == pytest.approx(nothing, abs=1e-6)
    assert curve.insertion[2].value > curve.deletion[2].value
    assert curve.area("insertion") > curve.area("deletion")


def test_posthoc_figures_are_the_model_on_filled_rows(found):
    filled = X.where(honest().astype(bool), X.mean(), axis=1)
    right = (MODEL.predict(filled) == Y).mean()
    assert found["honest"].metrics["posthoc_acc"].value == pytest.approx(right)


def test_the_result_speaks_in_every_form(found, tmp_path):
    frame = found.to_frame()
    assert list(frame.index) == list(EXPLANATIONS)
    assert frame.loc["code", "verdict"] == "encodes"
    assert "encodes" in repr(found)
    assert "<table" in found._repr_html_()
    with pytest.raises(InputError, match="there is no explanation 'x'"):
        found["x"]
    found.save(tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    first = results["explanations"][0]
    assert {"name", "verdict", "reason", "encoding_nats", "metrics"} <= set(first)
    assert set(first["encoding_nats"]) == {"value", "low", "high"}
    assert results["version"]
    assert "## code: encodes" in (tmp_path / "out" / "summary.md").read_text()
    assert found.report().startswith("<!doctype html>")


# ---------------------------------------------------------------------- matching, rows, groups


def test_shuffled_rows_and_columns_with_labels_change_nothing():
    masks = pd.DataFrame(honest(), columns=FEATURES, index=X.index)
    ordered = audit({"it": masks}, X, Y, settings=QUICK)
    shuffled = masks.sample(frac=1, random_state=5)[FEATURES[::-1]]
    again = audit({"it": shuffled}, X, Y, settings=QUICK)
    assert plain(ordered) == plain(again)
    assert "it, rows by label, columns by name" in again.assumptions[0]


def test_rows_without_masks_train_the_evaluators_or_are_left_out():
    some = pd.DataFrame(honest(), columns=FEATURES, index=X.index).iloc[:250]
    with pytest.raises(InputError, match="250 rows but the table has 400"):
        audit(some, X, Y, settings=QUICK)
    trained = audit(some, X, Y, rest="train", settings=QUICK)
    assert len(trained.table) == 250
    assert any("learned from 150 rows of their own" in line for line in trained.assumptions)
    given = audit(some, X.iloc[:250], Y[:250], train=(X.iloc[250:], Y[250:]), settings=QUICK)
    left = given.explanations[0].metrics
    assert left["eloglik"].value == trained.explanations[0].metrics["eloglik"].value


@pytest.mark.parametrize("grouped", [True, False])
def test_folds_keep_groups_whole_and_judge_each_row_once(grouped):
    random = np.random.default_rng(0)
    label = random.integers(2, size=300)
    groups = random.integers(40, size=300) if grouped else None
    folds = folds_of(label, groups, 3, 150, 0)
    assert sorted(np.concatenate([fold.judge for fold in folds])) == list(range(300))
    for fold in folds:
        parts = [fold.learn, fold.stop, fold.judge]
        owners = [set(part if groups is None else groups[part]) for part in parts]
        assert not any(a & b for a, b in combinations(owners, 2))
        assert len(fold.learn) + len(fold.stop) <= 150


def test_groups_are_resampled_together():
    """Each row five times, as a group: the interval is that of a fifth of the rows, √5 as wide."""
    random = np.random.default_rng(1)
    values, owner = np.repeat(random.normal(size=80), 5), np.repeat(np.arange(80), 5)
    from unmasked.auditing.figures import Resampler
    from unmasked.metrics import mean_statistic

    rows = np.arange(400)
    alone = Resampler(None, 2000, 0)({"m": mean_statistic(values)}, rows)["m"]
    together = Resampler(owner, 2000, 0)({"m": mean_statistic(values)}, rows)["m"]
    assert together.value == pytest.approx(alone.value)
    ratio = (together.high - together.low) / (alone.high - alone.low)
    assert ratio == pytest.approx(np.sqrt(5), rel=0.15)  # widths of 2,000 draws vary by 3%


def test_a_model_alone_says_what_is_to_be_predicted():
    result = audit(attributions(X), X, top=2, model=MODEL, settings=QUICK)
    assert (result.table.classes[result.table.label] == MODEL.predict(X)).all()
    assert any("model's likeliest classes" in line for line in result.assumptions)


# ---------------------------------------------------------------------- greedy search


def naive_bayes(evidence):
    """log-odds that add up over shown features: rows of evidence (rows, features)."""

    def predict(masks, rows):
        one = 1 / (1 + np.exp(-(evidence[rows] * masks).sum(1)))
        return np.stack([1 - one, one], axis=1)

    return predict


def test_greedy_masks_are_the_best_of_their_size_by_enumeration():
    """Where evidence adds up and points one way, adding the best feature is optimal."""
    random = np.random.default_rng(0)
    evidence = random.exponential(size=(30, 6)) * random.choice([-1, 1], size=(30, 1))
    predict, rows = naive_bayes(evidence), np.arange(30)
    order = greedy_orders(predict, rows, 6, 6)
    whole = predict(np.ones((30, 6)), rows)
    for size in range(1, 7):
        subsets = [np.isin(np.arange(6), s) for s in combinations(range(6), size)]
        values = [log_likelihoods(predict(np.tile(s, (30, 1)), rows), whole) for s in subsets]
        best = np.array(subsets)[np.argmax(values, axis=0)]
        mine = np.zeros((30, 6), dtype=bool)
        np.put_along_axis(mine, order[:, :size], True, axis=1)
        assert (mine == best).all()


def test_the_first_greedy_feature_is_best_for_any_evaluator():
    evidence = np.random.default_rng(1).normal(size=(50, 5))
    predict, rows = naive_bayes(evidence), np.arange(50)
    order = greedy_orders(predict, rows, 5, 1)
    whole = predict(np.ones((50, 5)), rows)
    values = [log_likelihoods(predict(np.tile(one, (50, 1)), rows), whole) for one in np.eye(5)]
    assert (order[:, 0] == np.argmax(values, axis=0)).all()


def test_the_search_asks_as_often_as_it_says():
    asked = []
    inner = naive_bayes(np.ones((7, 4)))

    def predict(masks, rows):
        asked.append(len(masks))
        return inner(masks, rows)

    greedy_orders(predict, np.arange(7), 4, 3)
    assert sum(asked) == 7 + predictions(7, 4, 3)  # and once for the whole rows
    assert rows_within(1000, 300, 30, 10) == 20
    assert rows_within(10**9, 300, 30, 10) == 300


# ---------------------------------------------------------------------- health


def test_calibration_of_the_calibrated_and_of_the_overconfident():
    random = np.random.default_rng(0)
    inside = 0
    for seed in range(20):
        sure = random.uniform(0.5, 1, size=2000)
        right = (random.random(2000) < sure).astype(float)
        low, high = calibration_band(sure, seed)
        inside += low <= calibration(sure, right)[0] <= high
    assert inside >= 16  # 19 expected; fewer than 16 has probability 0.003
    wrong = (random.random(2000) < 0.5 + (sure - 0.5) / 2).astype(float)
    error, bins = calibration(sure, wrong)
    assert error == pytest.approx((sure - 0.5).mean() / 2, abs=0.04)  # bins of 133: ± 0.043 each
    assert sum(rows for _, _, rows in bins) == 2000


def test_an_evaluator_that_knows_nothing_does_not_judge():
    random = np.random.default_rng(3)
    noise = random.choice(["ill", "well"], size=400)
    result = audit({"code": code(noise), "any": honest()}, X, noise, settings=QUICK)
    assert result.health.verdict == BAD
    for one in result.explanations:
        assert one.fidelity == "not judged"
        assert "not good enough" in one.fidelity_reason
    assert result["code"].verdict == "encodes"  # the encoding test needs no evaluator


def test_disagreeing_seeds_and_unseen_sizes_are_not_judged(found):
    health = found.health
    assert health_module.may_judge(health, 0, 0.1) is None
    apart = replace(health, spread=[0.2] * 6)
    assert "disagree by 0.200" in health_module.may_judge(apart, 0, 0.1)
    assert health_module.may_judge(apart, 0, 0.3) is None
    outside = replace(health, outside=[0.9] * 6)
    assert "90% of its masks" in health_module.may_judge(outside, 0, 0.3)


def test_bernoulli_masks_do_not_cover_sparse_explanations():
    random = np.random.default_rng(0)
    wide = pd.DataFrame(random.normal(size=(200, 40)))
    y = (wide[0] > 0).astype(int)
    masks = np.zeros((200, 40))
    masks[:, 0] = 1
    settings = replace(QUICK, evaluator="bernoulli", sample=5)
    result = audit({"first": masks}, wide, y, settings=settings)
    assert result.health.outside == [1.0]
    assert result["first"].fidelity == "not judged"
    assert "sizes outside" in result["first"].fidelity_reason


# ---------------------------------------------------------------------- resuming


def test_finished_pieces_are_read_back(tmp_path, monkeypatch):
    whole = audit({"it": honest()}, X, Y, settings=QUICK)
    calls = []
    inner = work_module.train_judge

    def counted(*arguments, **more):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt  # as if killed after the first fold
        return inner(*arguments, **more)

    monkeypatch.setattr(work_module, "train_judge", counted)
    with pytest.raises(KeyboardInterrupt):
        audit({"it": honest()}, X, Y, settings=QUICK, checkpoint=tmp_path)
    resumed = audit({"it": honest()}, X, Y, settings=QUICK, checkpoint=tmp_path)
    assert len(calls) == 3  # the first fold was not trained again
    assert plain(resumed) == plain(whole)
    again = audit({"it": honest()}, X, Y, settings=QUICK, checkpoint=tmp_path)
    assert len(calls) == 3
    assert plain(again) == plain(whole)
    other = honest()
    other[0, 4] = 1
    audit({"it": other}, X, Y, settings=QUICK, checkpoint=tmp_path)
    assert len(calls) == 5  # other masks are another audit


def test_more_than_two_classes_and_missing_values():
    X, y = table(seed=4)
    label = np.where(X["weight"] > 0.8, "lost", y)
    X = X.assign(town=pd.Series(["Ulm", None] * 200, index=X.index, dtype=object))
    X.iloc[::7, 3] = np.nan
    shown = np.column_stack([honest(), np.ones(400)])
    shown[:, 2] = 1  # the weight says who is lost
    result = audit({"it": shown}, X, label, settings=QUICK)
    assert len(result.table.classes) == 3
    assert result["it"].metrics["over_random_eloglik"].low > 0
    page = result.report()
    assert "micro AUROC" in page
    assert "town = missing" in page


@pytest.mark.parametrize("learner", ["network", "auto"])
def test_networks_judge_too(learner):
    from unmasked import Training

    settings = replace(QUICK, learner=learner, training=Training(epochs=2), sample=5)
    result = audit(Explanation(honest(), feature_names=FEATURES, index=X.index), X, Y,
                   settings=settings)  # fmt: skip
    assert len(result.health.spread) == 1
    assert np.isfinite(result.explanations[0].metrics["eloglik"].value)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": None}, "give labels or model"),
        ({"y": np.arange(400).astype(str)}, "looks like an identifier"),
        ({"y": np.full((400, 2), 0.5)}, "one label for each row"),
        ({"y": np.repeat(["a", "b"], [398, 2])}, "class 'b' has 2"),
        ({"X": X.iloc[:10], "y": Y[:10]}, "10 rows but an audit needs"),
        ({"X": X.set_axis(["age", *FEATURES[:4]], axis=1)}, "'age' comes twice"),
        ({"X": X.assign(age=np.inf)}, "infinite"),
        ({"groups": np.zeros(399)}, "groups must have one value"),
        ({"groups": np.zeros(400)}, "at least 3 groups"),
        ({"ids": np.zeros(400)}, "comes twice"),
        ({"settings": {"folds": 3}}, "settings must be AuditSettings"),
        ({"rest": "keep"}, "rest must be"),
        ({"train": X}, "train must be a pair"),
        ({"train": (X[["age"]], Y)}, "must have the audited table's 5 columns"),
        ({"random_state": -1}, "random_state must be"),
        ({"model": 3}, "model must have predict_proba"),
        ({"model": LogisticRegression().fit(X, Y == "ill")}, "the model knows the classes"),
    ],
)
def test_bad_input_gets_one_sentence(change, words):
    given = {"X": X, "y": Y, "settings": QUICK, **change}
    with pytest.raises(InputError, match=words) as caught:
        audit({"it": honest()}, given.pop("X"), given.pop("y"), **given)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("change", [{"learner": "trees"}, {"seeds": 1}, {"threshold": 0}])
def test_impossible_settings_are_refused(change):
    with pytest.raises(InputError) as caught:
        AuditSettings(**change)
    assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- charts


def test_charts_put_values_where_they_belong():
    chart = lines([Series("a", [(0, 0, 0, 0), (1, 1, 1, 1)])], "x", "y", "a <b>")
    first, last = chart.split('class="line c0 " points="')[1].split('"')[0].split()
    assert float(first.split(",")[0]) < float(last.split(",")[0])
    assert float(first.split(",")[1]) > float(last.split(",")[1])  # up is less in SVG
    assert "a &lt;b&gt;" in chart
    assert lines([Series("a", [(0, float("nan"), 0, 0)])], "x", "y", "") == ""
    drawn = forest([Mark("<low>", -1, -2, 0), Mark("high", 1, 0, 2)], "nats", "")
    places = [float(part.split('"')[0]) for part in drawn.split('cx="')[1:]]
    assert places[0] < places[1]
    assert "&lt;low&gt;" in drawn


# ---------------------------------------------------------------------- the guide


def test_the_guide_runs(capsys):
    """Its first block, then those on time and on the model, which need no other library."""
    guide = Path(__file__).parents[1] / "docs" / "auditing.md"
    text = guide.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:1]
    blocks += re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(guide), "exec"), names)
    printed = capsys.readouterr().out
    assert "code: encodes" in printed
    assert "gives the model's prediction away" in printed
