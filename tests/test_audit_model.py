"""An audit with the explained model: its file, its columns, and codes of its prediction."""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from small_audits import FEATURES, QUICK, code, honest, table
from small_tables import assert_one_sentence
from typer.testing import CliRunner

from unmasked import InputError, audit
from unmasked.auditing.model import load_model
from unmasked.cli import app
from unmasked.errors import DataWarning, SavedError

pytestmark = pytest.mark.usefixtures("one_thread")
skops = pytest.importorskip("skops.io")

X, Y = table()
LEARNED = table(300, seed=9)
MODEL = make_pipeline(StandardScaler(), LogisticRegression()).fit(*LEARNED)
# learned from the weight, which has nothing to do with who is ill
ODD = LogisticRegression().fit(LEARNED[0], np.where(LEARNED[0]["weight"] > 0, "ill", "well"))
PREDICTED = code(ODD.predict(X))


# ---------------------------------------------------------------------- codes of the prediction


@pytest.fixture(scope="module")
def found():
    masks = {"honest": honest(), "code": PREDICTED}
    return audit(masks, X, Y, model=ODD, settings=QUICK, progress=False)


def test_a_code_of_the_prediction_is_found_where_the_label_is_not_given_away(found):
    one = found["code"]
    assert one.encoding.verdict != "encodes"
    assert one.prediction.verdict == one.verdict == "encodes"
    assert one.encoding_nats.value == one.prediction.nats
    assert one.prediction.low > 0.3  # one bit is 0.69 nats
    assert "about the model's prediction beyond the values shown" in one.prediction.reason
    assert one.reason == one.prediction.reason
    assert one.headline.endswith("its choice of features gives the model's prediction away.")
    assert one.answer.startswith("It gives the model's prediction away: ")


def test_honest_masks_do_not_give_the_prediction_away(found):
    one = found["honest"]
    assert one.prediction.verdict != "encodes"
    assert one.prediction.nats < 0.02
    assert (one.verdict, one.reason) == (one.encoding.verdict, one.encoding.reason)
    assert one.encoding_nats.value == one.encoding.nats
    assert "prediction" not in one.headline


def test_the_prediction_is_in_every_form_of_the_result(found, tmp_path):
    frame = found.to_frame()
    assert frame.loc["code", "prediction_verdict"] == "encodes"
    assert frame.loc["code", "prediction_nats"] == found["code"].prediction.nats
    found.save(tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    told = results["explanations"][1]["prediction"]
    assert told["verdict"] == "encodes"
    assert told["encoding_nats"]["value"] == found["code"].prediction.nats
    page = (tmp_path / "out" / "report.html").read_text()
    assert "gives the model&#39;s prediction away" in page
    text = page.replace("&#39;", "'")
    for what in ("y", "the model's prediction"):
        assert f"about {what} beyond the values shown" in text
    assert "the model's prediction away" in (tmp_path / "out" / "summary.md").read_text()
    assert any("its likeliest class" in line for line in found.assumptions)


def test_without_labels_the_verdict_itself_is_about_the_prediction():
    alone = audit({"code": PREDICTED}, X, model=ODD, settings=QUICK)
    assert alone["code"].verdict == "encodes"
    assert alone["code"].prediction is None


def test_without_a_model_there_is_no_word_of_a_prediction():
    result = audit({"code": code(Y)}, X, Y, settings=QUICK)
    assert result["code"].prediction is None
    assert "prediction_nats" not in result.to_frame()
    assert result.to_json()["explanations"][0]["prediction"] is None


def constant(rows: Any) -> np.ndarray:
    return np.tile([0.9, 0.1], (len(rows), 1))


def test_a_model_that_predicts_one_class_has_nothing_to_give_away():
    result = audit({"it": honest()}, X, Y, model=constant, settings=QUICK)
    assert result["it"].prediction is None
    assert any("was not tested" in line for line in result.assumptions)


def test_rows_of_a_class_that_is_hardly_ever_predicted_are_left_out():
    label = np.where(X["weight"] > 1, "lost", Y)

    def model(rows: Any) -> np.ndarray:
        which = np.where(rows["weight"] > 0, 1, 0)
        which[:2] = 2  # fewer rows than folds
        return np.eye(3)[which]

    result = audit({"it": code(ODD.predict(X))}, X, label, model=model, settings=QUICK)
    assert result["it"].prediction.rows == 398
    assert result["it"].prediction.classes == 2
    assert any("2 rows whose predicted class is too rare" in line for line in result.assumptions)


def test_a_finished_test_of_the_prediction_is_read_back_and_belongs_to_its_model(
    tmp_path, monkeypatch
):
    first = audit({"it": PREDICTED}, X, Y, model=ODD, settings=QUICK, checkpoint=tmp_path)
    (kept,) = tmp_path.glob("*/prediction-0.json")

    def asked_again(*_: Any) -> None:
        raise RuntimeError("tested again")

    monkeypatch.setattr("unmasked.auditing.run.encoding_of", asked_again)
    again = audit({"it": PREDICTED}, X, Y, model=ODD, settings=QUICK, checkpoint=tmp_path)
    assert again["it"].prediction.to_dict() == first["it"].prediction.to_dict()
    with pytest.raises(
        RuntimeError, match="tested again"
    ):  # another model's predictions are another audit
        audit({"it": PREDICTED}, X, Y, model=MODEL, settings=QUICK, checkpoint=tmp_path)
    assert kept.is_file()


# ---------------------------------------------------------------------- columns


def test_columns_may_come_in_another_order():
    masks = pd.DataFrame(honest(), columns=FEATURES, index=X.index)
    backwards = X[FEATURES[::-1]]
    result = audit({"it": masks}, backwards, Y, model=MODEL, settings=QUICK)
    right = (MODEL.predict(X.where(honest().astype(bool), X.mean(), axis=1)) == Y).mean()
    assert result["it"].metrics["posthoc_acc"].value == pytest.approx(right)


class Broken(LogisticRegression):
    def predict_proba(self, X: Any) -> Any:
        raise RuntimeError("out of order\nand more")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            LogisticRegression().fit(X.rename(columns={"age": "years"}), Y),
            "column 'years'.*not amo",
        ),
        (LogisticRegression().fit(X[FEATURES[:4]], Y), "4 columns without 'pulse'"),
        (LogisticRegression().fit(X.to_numpy()[:, :3], Y), "3 columns but the table has 5"),
        (LogisticRegression(), "cannot predict these rows .*not fitted"),
        (Broken().fit(X, Y), r"cannot predict these rows \(RuntimeError: out of order\)"),
        (LinearRegression().fit(X, Y == "ill"), "model must have predict_proba"),
    ],
)
@pytest.mark.parametrize("y", [Y, None])
def test_a_model_of_other_columns_gets_one_sentence(model, words, y):
    with pytest.raises(InputError, match=words) as caught:
        audit({"it": honest()}, X, y, model=model, settings=QUICK)
    assert_one_sentence(caught.value)


# ---------------------------------------------------------------------- files


def odd_step(values: Any) -> Any:
    return values


class Trap:
    """Leaves a file behind when it is unpickled, as any code could."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    skops.dump(MODEL, folder / "model.skops")
    joblib.dump(MODEL, folder / "model.joblib", compress=3)
    (folder / "model.pkl").write_bytes(pickle.dumps(MODEL))
    foreign = make_pipeline(FunctionTransformer(odd_step), LogisticRegression()).fit(X, Y)
    skops.dump(foreign, folder / "foreign.skops")
    skops.dump(LinearSVC().fit(X, Y), folder / "svc.skops")
    others = {"years": X.rename(columns={"age": "years"}), "four": X[FEATURES[:4]]}
    for name, rows in others.items():
        skops.dump(LogisticRegression().fit(rows, Y), folder / f"{name}.skops")
    skops.dump(LogisticRegression().fit(X, Y == "ill"), folder / "classes.skops")
    skops.dump(LogisticRegression(), folder / "unfitted.skops")
    (folder / "damaged.skops").write_bytes((folder / "model.skops").read_bytes()[:-200])
    (folder / "text.pkl").write_text("not a pickle")
    (folder / "trap.pkl").write_bytes(pickle.dumps(Trap(str(folder / "sprung"))))
    X.assign(outcome=Y).to_csv(folder / "patients.csv")
    masks = pd.DataFrame(honest(), columns=FEATURES, index=X.index)
    masks.to_csv(folder / "masks.csv")
    return folder


@pytest.mark.parametrize(
    ("name", "trust"),
    [("model.skops", False), ("model.skops", True), ("model.joblib", True), ("model.pkl", True),
     ("foreign.skops", True)],
)  # fmt: skip
def test_models_are_read_from_skops_joblib_and_pickle(files, name, trust):
    loaded = load_model(files / name, trust=trust)
    expected = MODEL if name.startswith("model") else loaded
    np.testing.assert_allclose(loaded.predict_proba(X), expected.predict_proba(X))


def test_a_pickle_does_not_run_unless_it_is_trusted(files):
    with pytest.raises(SavedError, match="can run any code"):
        load_model(files / "trap.pkl")
    assert not (files / "sprung").exists()
    with pytest.raises(InputError, match="must have predict_proba"):
        load_model(files / "trap.pkl", trust=True)
    assert (files / "sprung").exists()  # the trap works: the line above was no accident


def test_a_model_of_another_version_is_told(tmp_path):
    content = pickle.dumps(LogisticRegression().fit(X, Y))
    version = sklearn.__version__.encode()
    older = b"0" * len(version)
    assert content.count(version) == 1
    (tmp_path / "old.pkl").write_bytes(content.replace(version, older))
    with pytest.warns(DataWarning, match="saved with scikit-learn 0+ and read with"):
        load_model(tmp_path / "old.pkl", trust=True)


# ---------------------------------------------------------------------- the command


def run(files: Path, out: Path, *more: object) -> Any:
    call = [
        "audit", files / "patients.csv", "--id", "patient", "--masks", files / "masks.csv",
        "--out", out, "--learner", "boosting", "--folds", "2", "--quiet", *more,
    ]  # fmt: skip
    return CliRunner().invoke(app, [str(part) for part in call])


def test_the_command_with_a_model_says_what_python_says(files, tmp_path):
    out = tmp_path / "out"
    done = run(files, out, "--target", "outcome", "--model", files / "model.skops")
    assert done.exit_code == 0, done.output
    results = json.loads((out / "results.json").read_text())
    (one,) = results["explanations"]
    filled = X.where(honest().astype(bool), X.mean(), axis=1)
    right = (MODEL.predict(filled) == Y).mean()
    assert one["metrics"]["posthoc_acc"]["value"] == pytest.approx(right)
    assert one["prediction"]["rows"] == 400
    assert results["inputs"]["model"]["file"] == "model.skops"
    assert len(results["inputs"]["model"]["sha256"]) == 64
    assert results["roles"] == {"id": "patient"}


def test_the_command_without_labels_audits_what_the_model_predicts(files, tmp_path):
    out = tmp_path / "out"
    more = ("--drop", "outcome", "--model", files / "model.joblib", "--trust-model")
    done = run(files, out, *more)
    assert done.exit_code == 0, done.output
    results = json.loads((out / "results.json").read_text())
    counts = pd.Series(MODEL.predict(X)).value_counts()
    assert results["classes"] == {name: counts[name] for name in ("ill", "well")}
    assert results["target"] is None
    assert "the model's prediction in patients.csv" in (out / "summary.md").read_text()


REFUSED = {
    "neither": ([], "either --target"),
    "no such file": (["--target", "outcome", "--model", "absent.skops"], "is not a file"),
    "a pickle": (["--target", "outcome", "--model", "model.pkl"], "loading it can run any code"),
    "joblib's": (["--target", "outcome", "--model", "model.joblib"], "--trust-model"),
    "foreign parts": (["--target", "outcome", "--model", "foreign.skops"], "odd_step"),
    "damaged": (["--target", "outcome", "--model", "damaged.skops"], "no file of skops"),
    "no pickle": (
        ["--target", "outcome", "--model", "text.pkl", "--trust-model"],
        "cannot be read as a pickle",
    ),
    "no predict_proba": (
        ["--target", "outcome", "--model", "svc.skops"],
        "must have predict_proba but is a LinearSVC",
    ),
    "other columns": (["--target", "outcome", "--model", "years.skops"], "column 'years'"),
    "fewer columns": (["--target", "outcome", "--model", "four.skops"], "without 'pulse'"),
    "other classes": (["--target", "outcome", "--model", "classes.skops"], "knows the classes"),
    "not fitted": (["--target", "outcome", "--model", "unfitted.skops"], "not fitted"),
    "the labels left in": (["--model", "model.skops"], "without 'outcome'.*--drop"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_that_cannot_be_used_is_one_sentence_and_nothing_is_written(kind, files, tmp_path):
    options, words = REFUSED[kind]
    done = run(files, tmp_path / "out", *(files / o if "." in o else o for o in options))
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()) == 1
    assert re.search(words, done.stderr), done.stderr
    assert not (tmp_path / "out").exists()


def test_a_pipeline_that_reads_text_columns(tmp_path):
    town = np.array(["Ulm", "Graz"])[np.arange(400) % 2]
    rows = X.assign(town=town)
    encode = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    pipeline = make_pipeline(encode, LogisticRegression()).fit(rows, Y)
    skops.dump(pipeline, tmp_path / "pipeline.skops")
    loaded = load_model(tmp_path / "pipeline.skops")
    masks = np.column_stack([honest(), np.arange(400) % 3 == 0])
    result = audit({"it": masks}, rows, Y, model=loaded, settings=QUICK)
    assert result["it"].metrics["posthoc_acc"].value > 0.7
    assert result["it"].prediction is not None
