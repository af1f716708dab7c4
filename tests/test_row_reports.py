"""What a report says of single rows, of one choice for all, and of what to try next."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tables import frame, mixed, quick, quick_evaluator
from typer.testing import CliRunner

from unmasked import DataWarning, Explanation, MissingExtra
from unmasked.cli import app
from unmasked.cli.workflows.advice import (
    advice,
    advice_for_new_rows,
    edge_sentences,
    interchangeable_sentences,
    sets_sentences,
)
from unmasked.cli.workflows.explain_table import _evaluator
from unmasked.cli.workflows.rows import (
    Predictions,
    choose_examples,
    predict,
    row_cards,
    write_explanations,
    write_predictions,
)
from unmasked.cli.workflows.saved import tell_of_replacing
from unmasked.evaluation import Scores
from unmasked.explainers.search.rounds import PerRow
from unmasked.io.page import Section, render
from unmasked.metrics import Interval

pytestmark = pytest.mark.usefixtures("one_thread")

EVIL = "<script>alert('x')</script>"


# ---------------------------------------------------------------------- predictions


def test_explaining_a_frame_keeps_its_values_and_an_array_none() -> None:
    table, y = mixed()
    explainer = quick(groups={"person": ["age", "smoker"]}).fit(table, y)
    explanation = explainer.explain(table).top(3)
    assert set(explanation.shown(1)) == {
        f"person = age {table['age'].iloc[1]:.6g}, smoker {table['smoker'].iloc[1]}",
        "town = Graz",
        f"grade = {table['grade'].iloc[1]}",
    }
    x, y = frame()[0].to_numpy(), frame()[1]
    assert quick().fit(x, y).explain(x).values is None


@pytest.mark.parametrize("judged", [True, False])
def test_predictions_say_who_predicts(judged: bool) -> None:
    table, y = frame()
    explainer = quick().fit(table, y)
    evaluator = quick_evaluator().fit(table, y) if judged else None
    explanation = explainer.explain(table)
    found = predict(explainer, evaluator, explanation, table, pd.Series(y.astype(float)))
    assert found.predictor == ("EVAL-X" if judged else "REAL-X's own predictor")
    own = explainer.predict_proba(table)
    np.testing.assert_allclose(found.shown, own, atol=1e-6) if not judged else None
    assert found.labels is not None
    assert found.labels.tolist() == [str(label) for label in y]  # 1.0 is the class 1
    everything = Explanation(np.ones_like(explanation.masks), feature_names=list(table))
    all_shown = predict(explainer, evaluator, everything, table)
    np.testing.assert_allclose(all_shown.everything, found.everything)
    if judged:
        np.testing.assert_allclose(all_shown.shown, found.everything, atol=1e-6)
    else:
        assert np.abs(found.everything - found.shown).max() > 1e-4


def predictions(count: int = 30, labels: bool = True) -> Predictions:
    random = np.random.default_rng(0)
    shown = random.dirichlet([0.7] * 3, count).astype(np.float32)
    everything = random.dirichlet([0.7] * 3, count).astype(np.float32)
    known = np.array(["a", "b", EVIL], dtype=object)[random.integers(0, 3, count)]
    return Predictions(["a", "b", EVIL], shown, everything, "EVAL-X", known if labels else None)


def explanation(count: int = 30) -> Explanation:
    random = np.random.default_rng(1)
    chances = random.random((count, 4))
    chances[0] = 0.1
    table = pd.DataFrame(
        {"age": random.integers(0, 9, count), EVIL: [EVIL] * count, "x": 0.5, "y": None},
        index=[f"p{i}" for i in range(count)],
    )
    return Explanation(chances > 0.5, chances, list(table), table.index).with_values(table)


def test_files_are_the_same_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_explanations(tmp_path, explanation(), predictions())
    whole = (tmp_path / "explanations.csv").read_text("utf-8")
    monkeypatch.setattr("unmasked.cli.workflows.rows._ROWS_AT_ONCE", 7)
    write_explanations(tmp_path, explanation(), predictions())
    assert (tmp_path / "explanations.csv").read_text("utf-8") == whole
    found = pd.read_csv(tmp_path / "explanations.csv", index_col="row")
    assert found.loc["p0", "shown"] == "nothing"
    assert found["shown"].tolist()[1:] == [
        "; ".join(explanation().shown(row)) or "nothing" for row in range(1, 30)
    ]
    write_predictions(tmp_path, explanation(), predictions())
    columns = pd.read_csv(tmp_path / "predictions.csv", index_col="row")
    np.testing.assert_allclose(columns.filter(like="shown_"), predictions().shown, rtol=1e-4)
    likeliest = found[["probability"]].to_numpy()[:, 0]
    np.testing.assert_allclose(likeliest, predictions().shown.max(1), rtol=1e-4)


def test_an_evaluator_that_needs_an_extra_is_not_needed_to_predict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any, **__: Any) -> Any:
        raise MissingExtra("skops", "sklearn-saving", "this evaluator")

    monkeypatch.setattr("unmasked.cli.workflows.explain_table.EvalX.load", load)
    with pytest.warns(DataWarning, match="skops.* own predictor predicts"):
        assert _evaluator(tmp_path, "cpu", needed=False) is None
    with pytest.raises(MissingExtra):
        _evaluator(tmp_path, "cpu", needed=True)


# ---------------------------------------------------------------------- examples


@pytest.mark.parametrize("labels", [True, False])
def test_examples_follow_the_stated_rule(labels: bool) -> None:
    found = predictions(labels=labels)
    chosen = choose_examples(found, seed=0)
    assert chosen == choose_examples(found, seed=0) != choose_examples(found, seed=1)
    assert len({row for row, _ in chosen}) == len(chosen) == 10
    kinds: dict[str, list[int]] = {}
    for row, reason in chosen:
        kinds.setdefault(reason, []).append(row)
    sure = found.shown.max(1)
    if labels:
        right = found.predicted == found.labels
        assert kinds["sure and right"][0] == np.flatnonzero(right)[sure[right].argmax()]
        assert kinds["sure and wrong"][0] == np.flatnonzero(~right)[sure[~right].argmax()]
        assert all(len(rows) == 2 for rows in kinds.values())
    else:
        assert kinds["among the surest"][0] == sure.argmax()
        assert len(kinds["by chance"]) == 4
    one, other = kinds["among the surest" if not labels else "sure and right"]
    assert found.predicted[one] != found.predicted[other]
    assert len(choose_examples(predictions(3), 0)) == 3


def test_cards_hold_values_and_are_escaped() -> None:
    found, rows = predictions(), explanation()
    cards = row_cards(rows, found, [*choose_examples(found, 0), (0, "by chance")], "outcome")
    page = render("rows", [], [Section("Rows", cards=cards)], "")
    assert "<script" not in page
    assert page.count('<article class="card">') == 11
    assert "Nothing is shown: all 4 features are hidden." in page
    for card, (row, _) in zip(cards, choose_examples(found, 0), strict=False):
        assert card.title == f"Row p{row}"
        assert [f"{n} = {v}" for n, v in card.shown] == rows.shown(row)
        assert len(card.shown) + card.hidden == 4
        assert card.right == (found.predicted[row] == found.labels[row])  # type: ignore[index]
        assert [c.shown for c in card.chances] == sorted(found.shown[row].tolist())[::-1]
        assert sum(chance.true for chance in card.chances) == 1


# ---------------------------------------------------------------------- what the summary says


def test_one_choice_for_all_rows_is_said() -> None:
    def said(masks: Any) -> str:
        return " ".join(sets_sentences(Explanation(masks, feature_names=["a", "b", "c"]), "row"))

    assert said(np.tile([1, 0, 1], (9, 1))) == (
        "REAL-X shows the same 2 of 3 features for every row (a, c): a choice for all rows, not "
        "for each."
    )
    assert "every feature for every row: nothing was chosen" in said(np.ones((9, 3)))
    assert said(np.zeros((9, 3))) == said([[1, 0, 0]]) == ""
    many = np.tile([1, 0, 0], (100, 1))
    many[:3, 1] = 1
    assert said(many).endswith(
        "commonest (a) in all but 3 of them: nearly one choice for all rows."
    )
    many[:60, 1] = 1
    assert said(many) == (
        "The 100 rows are shown 2 different sets of features; the commonest (a, b) in 60% of them."
    )


def explainer(chosen: float, *tried: float, restarts: int = 1) -> Any:
    settings = [SimpleNamespace(level=level) for level in tried]
    return SimpleNamespace(
        settings_=settings,
        sparsity_=chosen,
        restarts=restarts,
        choice_=None,
        per_row_=None,
        interchangeable_={},
    )


def test_a_price_at_the_edge_is_named() -> None:
    some = Explanation(np.eye(4, dtype=bool))
    (smallest,) = edge_sentences(explainer(0.1, 0.1, 0.2, 0.4), some)
    assert "λ = 0.1 is the smallest of the 3 tried" in smallest
    assert smallest.endswith("try --sparsity 0.025,0.05,0.1.")
    (largest,) = edge_sentences(explainer(0.4, 0.1, 0.2, 0.4), some)
    assert "largest of the 3 tried" in largest
    assert largest.endswith("try --sparsity 0.4,0.8,1.6.")
    assert not edge_sentences(explainer(0.2, 0.1, 0.2, 0.4), some)
    assert not edge_sentences(explainer(0.1, 0.1), some)
    assert not edge_sentences(explainer(0.1, 0.1, 0.2), Explanation(np.ones((4, 4))))
    assert not edge_sentences(explainer(0.2, 0.1, 0.2), Explanation(np.zeros((4, 4))))


def test_features_that_say_the_same_are_named() -> None:
    found = explainer(0.1, 0.1)
    assert interchangeable_sentences(found) == []
    found.interchangeable_ = {"age": ["born", "years", "old", "more"], "sex": ["title"]}
    (said,) = interchangeable_sentences(found)
    assert (
        "where age is replaced by born or years or old, or where sex is replaced by title. " in said
    )
    found.interchangeable_ = {f"x{i}": [f"y{i}"] for i in range(8)}
    (said,) = interchangeable_sentences(found)
    assert "x4 is replaced by y4 (and 3 more)." in said


def test_other_prices_are_no_advice_where_rows_need_no_other_sets() -> None:
    same = Explanation(np.tile(HALF[1], (5, 1)))
    found = explainer(0.4, 0.4)
    found.choice_, found.per_row_ = "context", PerRow(worth=0.001, captured=0.0, error=0.0005)
    assert advice(same, scores(GAIN, -0.4), found, "y") == []
    found.per_row_ = PerRow(worth=0.05, captured=0.0, error=0.0005)
    assert "tell rows apart" in " ".join(advice(same, scores(GAIN, -0.4), found, "y"))


def scores(gain: tuple[float, float, float], everything: float, auroc: float = 0.8) -> Scores:
    def rows(loglik: float) -> dict[str, Interval]:
        return {"eauroc": Interval(auroc, auroc, auroc), "eloglik": Interval(loglik, 0, 0)}

    figures = {"explanation": rows(-0.5), "everything": rows(everything), "nothing": rows(-0.7)}
    return Scores(figures, {"eloglik": Interval(*gain)}, 0.5, 100, False)


NO_GAIN, WORSE, GAIN = (0.0, -0.1, 0.1), (-0.2, -0.3, -0.1), (0.2, 0.1, 0.3)
HALF = np.eye(4, dtype=bool)[[0, 1, 2, 3, 0]] | np.eye(4, dtype=bool)[0]


@pytest.mark.parametrize(
    ("masks", "gain", "everything", "there", "absent"),
    [
        (np.zeros((5, 4)), NO_GAIN, -0.4, ["smaller λ, as 100% of", "0.05,0.1,0.2"], ["columns"]),
        (np.ones((5, 4)), NO_GAIN, -0.4, ["a larger λ", "0.8,1.6,3.2"], ["smaller λ"]),
        (
            HALF,
            WORSE,
            -0.4,
            ["other prices (--sparsity 0.1,0.2,0.8)", "--restarts 3"],
            ["100 test"],
        ),
        (HALF, NO_GAIN, -0.69, ["more rows, or columns that say more about y", "0.100 nats"], []),
        (HALF, GAIN, -0.4, [], ["What to try"]),
        (np.tile(HALF[1], (5, 1)), GAIN, -0.4, ["tell rows apart", "--restarts 3"], ["give"]),
    ],
)
def test_what_to_try_depends_on_what_was_seen(
    masks: Any, gain: Any, everything: float, there: list[str], absent: list[str]
) -> None:
    found = advice(Explanation(masks), scores(gain, everything), explainer(0.4, 0.4), "y")
    assert len(found) <= 1
    text = " ".join(found)
    assert [words for words in there if words not in text] == []
    assert [words for words in absent if words in text] == []
    again = advice(
        Explanation(masks), scores(gain, everything), explainer(0.4, 0.4, restarts=3), "y"
    )
    assert "--restarts" not in " ".join(again)


def test_one_telling_column_is_a_reason_to_look() -> None:
    alone = Explanation(np.tile([False, True], (5, 1)), feature_names=["age", "test result"])
    said = " ".join(advice(alone, scores(GAIN, -0.1, auroc=0.99), explainer(0.4, 0.4), "ill"))
    assert "test result alone tells ill nearly" in said
    assert "--drop 'test result'" in said
    assert "--drop" not in " ".join(
        advice(alone, scores(GAIN, -0.1, auroc=0.8), explainer(0.4, 0.4), "ill")
    )


def test_a_trained_model_is_told_its_other_prices() -> None:
    (said,) = advice_for_new_rows(scores(NO_GAIN, -0.4), explainer(0.4, 0.1, 0.2, 0.4), 0.2)
    assert "--sparsity 0.1 or 0.4" in said
    assert not advice_for_new_rows(scores(GAIN, -0.4), explainer(0.4, 0.1, 0.4), 0.4)


# ---------------------------------------------------------------------- a second run


def test_results_of_another_command_are_not_replaced_silently(tmp_path: Path) -> None:
    results = {
        "command": "unmasked explain a.csv", "version": "1", "hardware": "-", "table": "a.csv",
        "target": "y", "rows": [{"setting": {"sparsity": 0.5}}, {"setting": {}}],
    }  # fmt: skip
    tell_of_replacing(tmp_path, "any")
    (tmp_path / "results.json").write_text(json.dumps(results))
    tell_of_replacing(tmp_path, "unmasked explain a.csv")
    with pytest.warns(DataWarning, match=r"table a\.csv, target y, λ = 0\.5, by `unmasked explain"):
        tell_of_replacing(tmp_path, "unmasked explain a.csv --seed 1")


def test_chances_of_an_earlier_version_do_not_stay(tmp_path: Path) -> None:
    """And a table of somebody's own with that name does; a note is said once; so is a remark."""
    table, y = mixed(60)
    table = table.assign(y=y, alike=1.0)
    table.to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "out"
    asked = ["explain", tmp_path / "t.csv", "--target", "y", "--epochs", 1, "--device", "cpu"]
    asked = [*map(str, asked), "--sparsity", "0.1", "--out", str(out)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    earlier = out / "probabilities.csv"
    (out / "chances.csv").rename(earlier)
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0
    assert not earlier.exists()
    assert done.stderr.count("'alike' is constant") == 1
    for sentence in json.loads((out / "results.json").read_text("utf-8"))["summary"]:
        assert done.stdout.count(sentence) == 1
    earlier.write_text("mine")
    new = ["explain", str(tmp_path / "t.csv"), "--model", str(out), "--out", str(tmp_path / "new")]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "probabilities.csv").write_text("mine")
    table.assign(town="Rome").to_csv(tmp_path / "t.csv", index=False)
    done = CliRunner().invoke(app, new)
    assert done.exit_code == 0
    assert done.stderr.count("'Rome', not seen in training") == 1
    assert (tmp_path / "new" / "probabilities.csv").read_text() == "mine"
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert earlier.read_text() == "mine"
