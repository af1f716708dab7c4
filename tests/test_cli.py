"""The commands as a user runs them: real processes, real files, real small tables."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from sklearn.datasets import load_breast_cancer, load_wine
from typer.main import get_command

from unmasked import EvalX, Explanation, RealX
from unmasked.cli import app

CHECKPOINT = ".checkpoint/*/realx-predictor-*.safetensors"
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "OMP_NUM_THREADS": "1"}


def run(*arguments: object, code: int = 0, **more) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "unmasked", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=300,
        **more,
    )
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def cancer(tmp_path_factory) -> Path:
    """The breast-cancer table as a CSV with a text column added, target in words."""
    data = load_breast_cancer(as_frame=True)
    table = data.data.copy()
    table["clinic"] = np.where(np.arange(len(table)) % 3 == 0, "north", "south")
    table["diagnosis"] = data.target_names[data.target]
    path = tmp_path_factory.mktemp("table") / "cancer.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def explained(cancer) -> Path:
    """The output of the whole explain command on it."""
    out = cancer.parent / "out"
    done = run("explain", cancer, "--target", "diagnosis", "--out", out, "--epochs", 40)
    assert "REAL-X shows" in done.stdout
    assert "EVAL-X" in done.stdout
    return out


class Page(HTMLParser):
    """Collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href") and value]


def test_explain_writes_everything(explained, cancer):
    results = json.loads((explained / "results.json").read_text())
    methods = {row["method"]: row for row in results["rows"]}
    assert set(methods) == {"REAL-X", "random masks", "everything shown", "nothing shown"}
    ours, everything = methods["REAL-X"]["metrics"], methods["everything shown"]["metrics"]
    assert ours["eauroc"]["low"] <= ours["eauroc"]["value"] <= ours["eauroc"]["high"]
    assert ours["eauroc"]["value"] > 0.9
    assert everything["fraction"] == 1.0
    assert results["command"].startswith("python -m unmasked explain")
    assert results["split"] == {"train": 341, "valid": 114, "test": 114}

    masks = pd.read_csv(explained / "masks.csv", index_col="row")
    assert masks.shape == (114, 31)  # the text column is one feature
    assert set(np.unique(masks)) <= {0, 1}
    assert ours["fraction"] == pytest.approx(masks.to_numpy().mean())
    explanation = Explanation.load(explained / "explanation.npz")
    assert (explanation.masks == masks.to_numpy()).all()
    assert explanation.index.tolist() == masks.index.tolist()
    for name in ("selections.png", "path.png"):
        assert (explained / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert not (explained / ".checkpoint").exists()
    assert not (explained / ".unmasked.part").exists()

    chances = pd.read_csv(explained / "chances.csv", index_col="row")
    assert ((chances > 0.5) == masks.astype(bool)).to_numpy().all()
    assert not (explained / "probabilities.csv").exists()

    # the saved model explains the same rows in the same way
    table = pd.read_csv(cancer)
    loaded = RealX.load(explained / "model")
    rows = table.loc[masks.index].drop(columns="diagnosis")
    assert (loaded.explain(rows).masks == masks.to_numpy()).all()
    evaluator = EvalX.load(explained / "evaluator")
    assert evaluator.sizes_ == (0, 31)

    # predictions are the evaluator's, and each row says what it shows in the table's own words
    assert results["predictor"] == "EVAL-X"
    found = pd.read_csv(explained / "predictions.csv", index_col="row")
    classes = ["benign", "malignant"]
    assert list(found.columns) == [
        *(f"shown_{label}" for label in classes),
        *(f"everything_{label}" for label in classes),
        "predicted", "label",
    ]  # fmt: skip
    for name, shown in (("shown", masks.to_numpy()), ("everything", None)):
        expected = evaluator.predict_proba(rows, shown)
        own = found[[f"{name}_{label}" for label in classes]].to_numpy()
        np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-6)
    assert (found["label"] == table.loc[found.index, "diagnosis"]).all()
    assert (found["label"] == found["predicted"]).mean() == pytest.approx(ours["eacc"]["value"])
    said = pd.read_csv(explained / "explanations.csv", index_col="row")
    assert (said["size"] == masks.sum(axis=1)).all()
    for position, row in enumerate(said.index[:20]):
        shown = explanation.shown(position)
        if not shown:
            assert said.loc[row, "shown"] == "nothing"
            continue
        parts = [part.split(" = ") for part in said.loc[row, "shown"].split("; ")]
        assert [name for name, _ in parts] == shown
        for name, value in parts:
            own = table.loc[row, name]
            assert value == own if name == "clinic" else float(value) == own
    assert results["sets"]["different"] == len(masks.drop_duplicates())
    assert results["sets"]["commonest"][0]["rows"] == masks.value_counts().iloc[0]


def test_report_is_self_contained(explained):
    page = Page()
    text = (explained / "report.html").read_text(encoding="utf-8")
    page.feed(text)
    assert page.sources
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert not page.tags & {"script", "link", "iframe"}
    assert "http" not in text
    assert text.index("REAL-X shows") < text.index("How good is it?")  # words come first
    assert text.count('<article class="card">') == 10
    said = pd.read_csv(explained / "explanations.csv", index_col="row")
    right = said[said["predicted"] == said["label"]]
    first = int(text.split("<h3>Row ")[1].split("<")[0])  # among the surest that are right
    assert right.loc[first, "probability"] == right["probability"].max()
    for sentence in json.loads((explained / "results.json").read_text("utf-8"))["summary"]:
        assert unescape(text).count(sentence) == 1  # each remark once


def test_new_rows_with_a_saved_model(explained, cancer, tmp_path):
    new = pd.read_csv(cancer).head(25)
    unlabelled = tmp_path / "new.csv"
    new.drop(columns="diagnosis").to_csv(unlabelled, index=False)
    done = run("explain", "--model", explained / "model", unlabelled)
    assert "25 rows explained" in done.stdout
    verdict = json.loads((explained / "model" / "tested.json").read_text())["verdict"]
    assert verdict in json.loads((explained / "results.json").read_text())["summary"]
    assert f"When the model was trained, on 114 test rows: {verdict}" in done.stdout
    other = shutil.copytree(explained, tmp_path / "other-model")
    done = run("explain", "--model", explained, unlabelled, "--out", other, code=2)
    assert "holds a model of its own and its results" in " ".join(done.stderr.split())
    said = pd.read_csv(tmp_path / "new-explained" / "explanations.csv", index_col="row")
    assert len(said) == 25
    assert "label" not in said
    masks = pd.read_csv(tmp_path / "new-explained" / "masks.csv", index_col="row")
    loaded = RealX.load(explained / "model")
    assert (loaded.explain(new.drop(columns="diagnosis")).masks == masks.to_numpy()).all()

    for price in (loaded.path_["sparsity"].iloc[0], loaded.path_["sparsity"].iloc[-1]):
        out = tmp_path / "other"  # λ as it is printed, of the trained path
        run("explain", "--model", explained, unlabelled, "--sparsity", f"{price:g}", "--out", out)
        (row,) = json.loads((out / "results.json").read_text())["rows"]
        assert row["setting"] == {"sparsity": price}
        assert row["chosen"] == (price == loaded.sparsity_)
        other = loaded.explain(new.drop(columns="diagnosis"), sparsity=price)
        masks = pd.read_csv(out / "masks.csv", index_col="row")
        assert (other.masks == masks.to_numpy()).all()
        assert f"25 rows explained at λ = {price:g}" in (out / "report.html").read_text("utf-8")
    for given, words in (("7", "one of the trained"), ("0.1,0.2", "is 0.1, 0.2; give one")):
        done = run(
            "explain", "--model", explained, unlabelled, "--sparsity", given,
            "--out", tmp_path / "never", code=2,
        )  # fmt: skip
        assert words in " ".join(done.stderr.split())
        assert not (tmp_path / "never").exists()

    parquet = tmp_path / "labelled.parquet"
    new.to_parquet(parquet)
    done = run(
        "explain", "--model", explained, parquet, "--target", "diagnosis", "--json",
        "--out", tmp_path / "scored",
    )  # fmt: skip
    metrics = json.loads(done.stdout)["rows"][0]["metrics"]
    assert metrics["eacc"]["value"] > 0.5
    labels = pd.read_csv(tmp_path / "scored" / "predictions.csv")["label"]
    assert labels.tolist() == new["diagnosis"].tolist()


def test_quiet_prints_nothing(tmp_path, cancer):
    done = run(
        "explain", cancer, "--target", "diagnosis", "--out", tmp_path, "--epochs", 1,
        "--sparsity", "0.5,2", "--quiet",
    )  # fmt: skip
    assert done.stdout == done.stderr == ""
    assert len(json.loads((tmp_path / "results.json").read_text())["path"]) == 2


def test_same_seed_same_masks(tmp_path):
    data = load_wine(as_frame=True)
    path = tmp_path / "wine.csv"
    data.frame.to_csv(path, index=False)
    for name in ("a", "b"):
        run(
            "explain", path, "--target", "target", "--epochs", 3, "--sparsity", 0.5,
            "--out", tmp_path / name, "--seed", 5, "--quiet",
        )  # fmt: skip
    one, two = ((tmp_path / name / "chances.csv").read_text() for name in "ab")
    assert one == two


def test_demo_through_the_command_line(tmp_path):
    out = tmp_path / "demo"
    done = run("demo", "--rows", 600, "--epochs", 3, "--out", out)
    assert "published" in done.stdout
    assert "optimum" in done.stdout
    results = json.loads((out / "results.json").read_text())
    methods = [row["method"] for row in results["rows"]]
    assert methods.count("REAL-X") == 4
    assert sum(row["method"] == "REAL-X" and row["chosen"] for row in results["rows"]) == 1
    optimum = next(r for r in results["rows"] if r["method"] == "optimum")["metrics"]
    assert 0.85 < optimum["auroc"] < 0.95
    assert (out / "report.html").exists()


def trained(out: Path) -> bool:
    """Whether a checkpoint holds some epochs; the first one, of epoch 0, does not count."""
    for checkpoint in out.glob(CHECKPOINT):
        with safe_open(checkpoint, framework="pt") as file:
            if json.loads(file.metadata()["unmasked-checkpoint"])["epoch"]:
                return True
    return False


def test_killed_explain_resumes_to_the_same_result(tmp_path, cancer):
    """kill -9 in the middle, run again: the same masks as an unbroken run."""
    arguments = ["explain", str(cancer), "--target", "diagnosis", "--epochs", "30",
                 "--sparsity", "0.3", "--quiet", "--out"]  # fmt: skip
    run(*arguments, tmp_path / "whole")
    command = [sys.executable, "-m", "unmasked", *arguments, str(tmp_path / "broken")]
    process = subprocess.Popen(command, env=ENVIRONMENT)
    deadline = time.monotonic() + 200
    while (
        not trained(tmp_path / "broken") and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert process.poll() is None, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "broken" / "masks.csv").exists()
    run(*arguments, tmp_path / "broken")
    for name in ("masks.csv", "chances.csv", "predictions.csv", "explanations.csv"):
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "broken" / name).read_text()


def test_full_disk_leaves_earlier_results_untouched(explained, cancer, tmp_path):
    """A file-size limit stands in for a full disk: writing fails half-way."""
    before = {p.name: p.read_bytes() for p in explained.iterdir() if p.is_file()}

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    done = run(
        "explain", "--model", explained, cancer, "--out", explained.parent / "full", code=2,
        preexec_fn=limit,
    )  # fmt: skip
    assert "cannot be written" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list((explained.parent / "full").glob("*.html"))
    assert before == {p.name: p.read_bytes() for p in explained.iterdir() if p.is_file()}


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def bad_cases(folder: Path) -> dict[str, tuple[list[object], str]]:
    """name -> (arguments, words that the one sentence must hold)."""
    rows = "\n".join(f"{i},{i % 3},{'ab'[i % 2]}" for i in range(40))
    good = write(folder / "good.csv", f"age,dose,outcome\n{rows}\n")
    holes = write(folder / "holes.csv", "age,dose,outcome\n" + ",1,a\n,2,b\n" * 20)
    infinite = write(folder / "infinite.csv", f"age,dose,outcome\ninf,1,a\n{rows}\n")
    single = write(folder / "one.csv", "age,outcome\n" + "1,a\n2,a\n" * 20)
    empty = write(folder / "empty.csv", "")
    header = write(folder / "header.csv", "age,outcome\n")
    binary = write(folder / "binary.csv", bytes(range(256)) * 20)
    broken = write(folder / "broken.parquet", b"PAR1 and then nothing")
    ids = write(folder / "ids.csv", "age,name\n" + "\n".join(f"{i},p{i}" for i in range(40)))
    number = write(
        folder / "number.csv", "age,price\n" + "\n".join(f"{i},{i * 1.7}" for i in range(60))
    )
    lone = write(folder / "lone.csv", "outcome\n" + "a\nb\n" * 20)
    file = write(folder / "file", "x")
    target = ["--target", "outcome"]
    frozen = "/proc/unmasked"  # nobody, not even root, can make a folder there
    return {
        "no such table": (["explain", folder / "no.csv", *target], "does not exist"),
        "typo in target": (["explain", good, "--target", "outcom"], "did you mean 'outcome'"),
        "neither target nor model": (["explain", good], "--target"),
        "a column of holes": (["explain", holes, *target], "'age' has no value in any"),
        "infinite values": (["explain", infinite, *target], "'age' has 1 infinite"),
        "one class": (["explain", single, *target], "one class only ('a')"),
        "empty file": (["explain", empty, *target], "is empty"),
        "header only": (["explain", header, *target], "no rows"),
        "binary file": (["explain", binary, *target], "binary file"),
        "broken parquet": (["explain", broken, *target], "Parquet"),
        "folder for a table": (["explain", folder, *target], "is a folder"),
        "identifier as target": (["explain", ids, "--target", "name"], "identifier"),
        "measurement as target": (["explain", number, "--target", "price"], "measurement"),
        "target only": (["explain", lone, *target], "'outcome' only"),
        "negative price": (["explain", good, *target, "--sparsity=-1"], "-1.0"),
        "nonsense price": (["explain", good, *target, "--sparsity", "lots"], "'lots'"),
        "same price twice": (["explain", good, *target, "--sparsity", "1,1"], "different"),
        "unknown device": (["explain", good, *target, "--device", "abacus"], "'abacus'"),
        "output is a file": (["explain", good, *target, "--out", file], "is a file"),
        "output below a file": (["explain", good, *target, "--out", file / "x"], "cannot be"),
        "read-only output": (["explain", good, *target, "--out", frozen], frozen),
        "model is no model": (["explain", "--model", folder, good], "config.json"),
    }  # fmt: skip


def test_user_errors_are_one_sentence_with_exit_code_2(tmp_path):
    """All cases in one process, so that libraries load once; every failure is reported."""
    from typer.testing import CliRunner

    from unmasked.cli import app

    wrong = []
    for name, (arguments, words) in bad_cases(tmp_path).items():
        if "--out" not in arguments:
            arguments = [*arguments, "--out", tmp_path / "out"]
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        lines = done.stderr.strip().splitlines()
        good = done.exit_code == 2 and len(lines) == 1 and lines[0].startswith("error: ")
        if not good or words not in lines[0] or (tmp_path / "out" / "results.json").exists():
            wrong.append(f"{name}: exit {done.exit_code}, {done.stderr!r} {done.exception!r}")
    assert not wrong, "\n".join(wrong)


def test_a_user_error_in_a_real_process(tmp_path):
    done = run("explain", tmp_path / "no.csv", "--target", "y", code=2)
    assert done.stderr.startswith("error: ")
    assert "does not exist" in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert done.stdout == ""


def test_damaged_checkpoint_is_refused(tmp_path, cancer):
    out = tmp_path / "out"
    command = ["explain", str(cancer), "--target", "diagnosis", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "unmasked", *command], env=ENVIRONMENT)
    deadline = time.monotonic() + 100
    while not list(out.glob(CHECKPOINT)) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    checkpoint = min(out.glob(CHECKPOINT))
    checkpoint.write_bytes(b"garbage")
    done = run(*command, code=2)
    assert "is damaged" in done.stderr
    assert checkpoint.name in done.stderr
    assert done.stderr.strip().count("\n") == 0


def test_a_folder_called_model_is_not_overwritten(tmp_path, cancer):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("precious")
    done = run("explain", cancer, "--target", "diagnosis", "--out", tmp_path, code=2)
    assert "is not a saved RealX" in done.stderr
    assert (tmp_path / "model" / "mine.txt").read_text() == "precious"


def test_missing_column_in_new_rows(explained, cancer, tmp_path):
    table = pd.read_csv(cancer).rename(columns={"mean radius": "mean_radius"})
    path = tmp_path / "renamed.csv"
    table.to_csv(path, index=False)
    done = run("explain", "--model", explained, path, "--out", tmp_path / "o", code=2)
    assert "'mean radius'" in done.stderr
    assert "did you mean 'mean_radius'?" in done.stderr


def _helps(command: Any) -> list[str]:
    """The help texts of a command's options, and of the commands below it."""
    below = [text for own in getattr(command, "commands", {}).values() for text in _helps(own)]
    return [own.help for own in command.params if getattr(own, "help", None)] + below


def test_no_help_is_lost_to_markup() -> None:
    """Square brackets are markup to what prints it: [default: 128] would vanish."""
    texts = _helps(get_command(app))
    assert len(texts) > 80
    assert [text for text in texts if "[" in text] == []
