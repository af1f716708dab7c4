"""``unmasked audit`` as a user runs it, its report in a real browser, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_audits import FEATURES, QUICK, attributions, code, honest, table
from typer.testing import CliRunner

from unmasked import audit
from unmasked.cli import app

ENVIRONMENT = {**os.environ, "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
QUICKLY = ["--learner", "boosting", "--folds", "2"]


def arguments(*more: object) -> list[str]:
    return [sys.executable, "-m", "unmasked", "audit", *map(str, more)]


def run(*more: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        arguments(*more), capture_output=True, text=True, env=ENVIRONMENT, timeout=300
    )
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def refused(*more: object) -> str:
    """What a command that must end with code 2 says; in this process, as that is quicker."""
    done = CliRunner().invoke(app, ["audit", *map(str, more)])
    assert done.exit_code == 2, done.output
    return done.stderr


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A table with ids and a town, and explanations in files of several kinds."""
    folder = tmp_path_factory.mktemp("audit")
    X, y = table()
    town = np.array(["Ulm", "Graz"])[np.arange(400) % 2]
    X.assign(town=town, outcome=y).to_csv(folder / "patients.csv")
    names = [*FEATURES, "town"]

    def frame(values) -> pd.DataFrame:
        wide = np.column_stack([values, np.zeros(400)])
        return pd.DataFrame(wide, columns=names, index=X.index)

    frame(honest()).astype(int).sample(frac=1, random_state=1).to_csv(folder / "honest.csv")
    frame(code(y)).astype(int)[names[::-1]].to_parquet(folder / "code.parquet")
    frame(attributions(X)).to_csv(folder / "linear.tsv", sep="\t")
    np.save(folder / "perclass.npy", np.random.default_rng(0).normal(size=(400, 6, 2)))
    np.save(folder / "narrow.npy", honest())
    frame(honest()).iloc[:390].to_csv(folder / "short.csv")
    (folder / "twice.csv").write_text("age,age,outcome\n" + "1,2,ill\n3,4,well\n" * 20)
    return folder


@pytest.fixture(scope="module")
def out(files) -> Path:
    done = run(
        files / "patients.csv", "--target", "outcome", "--id", "patient",
        "--masks", files / "honest.csv", "--masks", files / "code.parquet",
        "--masks", f"ours={files / 'linear.tsv'}", "--top", 2, "--out", files / "out", *QUICKLY,
    )  # fmt: skip
    assert "code: encodes: its choice of features gives the answer away." in done.stdout
    assert "rows by label, columns by name" in done.stdout
    return files / "out"


def test_the_planted_code_is_called_out_and_the_honest_masks_are_not(out):
    results = json.loads((out / "results.json").read_text())
    found = {one["name"]: one for one in results["explanations"]}
    assert list(found) == ["honest", "code", "ours"]  # stems, or the name that was given
    assert found["code"]["verdict"] == "encodes"
    assert found["honest"]["verdict"] != "encodes"
    assert found["honest"]["fidelity"] == "informs"
    assert found["code"]["encoding_nats"]["low"] > 0.3
    for one in found.values():
        assert one["reason"]
        assert set(one["encoding_nats"]) == {"value", "low", "high"}
        assert {"fraction", "eauroc", "eacc", "eloglik"} <= set(one["metrics"])
    assert found["ours"]["cut"] == {"top": 2}
    assert results["command"].startswith("python -m unmasked audit")
    assert set(results["inputs"]) == {"patients.csv", "honest", "code", "ours"}
    assert results["health"]["verdict"] in ("good", "use with care")
    assert sorted(p.name for p in out.iterdir()) == ["report.html", "results.json", "summary.md"]


def test_the_summary_says_the_same(out):
    text = (out / "summary.md").read_text()
    assert text.index("code: encodes") < text.index("## Comparison")
    assert "python -m unmasked audit" in text


# ---------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        flags = ["--no-sandbox", "--disable-gpu"]
        opened = started.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_the_report_in_a_browser(browser, out, width, scheme):
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    asked, troubles = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((out / "report.html").as_uri())
    assert asked == [(out / "report.html").as_uri()]  # nothing but the file itself
    first = page.locator("main .card").first
    assert first.bounding_box()["y"] < 400  # verdicts come first, on the first screen
    assert page.locator(".card .badge").all_inner_texts()[1] == "encodes"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # rows can be searched, and all can be shown
    rows = page.locator("#rows > li:visible")
    assert rows.count() == 12
    page.locator("#all").click()
    assert rows.count() == 80
    page.fill("#find", "well ulm")
    assert page.locator("#found").inner_text().endswith(" of 80 rows")
    texts = [text.lower() for text in rows.all_inner_texts()]
    assert all("well" in text for text in texts)
    page.fill("#find", "no such thing")
    assert rows.count() == 0
    page.fill("#find", "")
    assert rows.count() == 80
    assert page.locator("svg").count() >= 4
    for box in page.locator("svg").all():
        assert box.bounding_box()["width"] <= width
    assert troubles == []
    context.close()


def test_the_report_is_accessible_and_prints(browser, out):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto((out / "report.html").as_uri())
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.close()
    page = browser.new_page()
    page.goto((out / "report.html").as_uri())
    page.emulate_media(media="print")
    assert not page.locator("#find").is_visible()
    assert page.pdf(format="A4")[:5] == b"%PDF-"
    page.close()


def test_names_cannot_break_the_page(browser, tmp_path):
    nasty = "</script><b onclick=alert(1)>&amp; {{ title }}"
    X, y = table()
    X = X.rename(columns={"age": nasty})
    result = audit({f"<i>{nasty}": honest()}, X, y, settings=QUICK)
    (tmp_path / "report.html").write_text(result.report(command=nasty), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator("main i:not([class]), main b").count() == 0
    assert nasty in page.locator("table.heat").first.inner_text()
    assert nasty in page.locator("h2.name").inner_text()
    page.close()


# ---------------------------------------------------------------------- what is refused

REFUSED = {
    "attributions without a cut": (["--masks", "linear.tsv"], "say where to cut"),
    "attributions of each class": (
        ["--masks", "perclass.npy", "--top", "2"],
        "for 2 classes; name one of ill, well",
    ),
    "another width": (["--masks", "narrow.npy"], "5 columns but the table has 6"),
    "too few rows": (["--masks", "short.csv"], "390 rows but the table has 400, with rows 'p390'"),
    "no such file": (["--masks", "absent.csv"], "not a file"),
    "the same name": (["--masks", "honest.csv", "--masks", "honest.csv"], "two files"),
    "no such group": (["--masks", "honest.csv", "--group", "clinic"], "'clinic', which is not in"),
    "a cut of text": (["--masks", "linear.tsv", "--top", "few"], "--top must be a number"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_bad_input_is_one_sentence_and_overwrites_nothing(kind, files, out):
    options, words = REFUSED[kind]
    options = [str(files / o) if "." in o else o for o in options]
    before = (out / "results.json").read_bytes()
    stderr = refused(
        files / "patients.csv", "--target", "outcome", "--id", "patient", *options, "--out", out,
        *QUICKLY,
    )  # fmt: skip
    assert words in stderr
    assert len(stderr.strip().splitlines()) == 1
    assert (out / "results.json").read_bytes() == before


def test_a_target_that_is_an_id_and_columns_that_come_twice(files):
    stderr = refused(files / "patients.csv", "--target", "patient", "--masks", "x.csv")
    assert "looks like an identifier" in stderr
    stderr = refused(files / "twice.csv", "--target", "outcome", "--masks", "x.csv")
    assert "'age' twice" in stderr
    assert not (files / "patients-audited").exists()


# ---------------------------------------------------------------------- after kill -9


def test_a_killed_audit_goes_on_where_it_stopped(files, out, tmp_path):
    options = [
        files / "patients.csv", "--target", "outcome", "--id", "patient",
        "--masks", files / "honest.csv", "--masks", files / "code.parquet",
        "--masks", f"ours={files / 'linear.tsv'}", "--top", 2, "--out", tmp_path / "out", *QUICKLY,
    ]  # fmt: skip
    process = subprocess.Popen(arguments(*options), env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    pattern = ".checkpoint/*/judged-0.npz"
    for _ in range(1200):
        if list((tmp_path / "out").glob(pattern)) or process.poll() is not None:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (kept,) = (tmp_path / "out").glob(pattern)
    assert not (tmp_path / "out" / "results.json").exists()
    with np.load(kept) as parts:
        assert parts["p/everything"].shape[0] == 2  # both seeds had been kept
    run(*options, "--quiet")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    whole = json.loads((out / "results.json").read_text())
    assert results["explanations"] == whole["explanations"]
    assert results["health"] == whole["health"]
    assert not (tmp_path / "out" / ".checkpoint").exists()
