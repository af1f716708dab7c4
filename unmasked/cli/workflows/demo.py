"""The demonstration: REAL-X explains S3, whose truth is known, and EVAL-X checks it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.cli.workflows.advice import savable
from unmasked.cli.workflows.saved import fitted_whole
from unmasked.datasets.synthetic import CONTROL_FLOW, Synthetic, synthetic
from unmasked.evaluation import EvalX, Scores
from unmasked.evaluation.evaluator import same_size_masks
from unmasked.explainers import RealX
from unmasked.explanation.explanation import Explanation
from unmasked.io.output_folder import (
    MODELS,
    all_or_nothing,
    checkpoint_folder,
    prepare_folder,
    provenance,
    remove_checkpoints,
    to_json,
)
from unmasked.io.page import Section, TableBlock, footer, picture, png, render
from unmasked.metrics import label_scores, selection_quality
from unmasked.plots import figures
from unmasked.reproduce.published import published
from unmasked.training import Training
from unmasked.training.progress import Show

SPARSITIES = (0.05, 0.1, 0.15, 0.2)
PUBLISHED = {
    key: published("S3", "REAL-X").metrics[key]
    for key in ("cfsr", "tpr", "fdr", "auroc", "acc", "eauroc", "eacc")
}
"""REAL-X on S3 in the paper (AISTATS 2021, Table 1), λ = 0.1."""

COLUMNS = ("cfsr", "tpr", "fdr", "fraction", "auroc", "eauroc", "eacc", "eloglik")
HEADER = ["", "CFSR", "TPR", "FDR", "shown", "AUROC", "eAUROC", "eACC", "e log-lik."]


@dataclass(frozen=True)
class DemoResult:
    """Rows of the table (see ``results.json``) and where the files are."""

    rows: list[dict[str, Any]]
    table: TableBlock
    summary: list[str]
    folder: Path
    seconds: float

    @property
    def chosen(self) -> dict[str, Any]:
        """The row of the chosen REAL-X setting."""
        return next(r for r in self.rows if r["method"] == "REAL-X" and r["chosen"])


def run_demo(
    folder: Path,
    *,
    seed: int = 0,
    device: str = "auto",
    show: Show = "auto",
    rows: int = 10_000,
    training: Training | None = None,
    command: str = "unmasked demo",
) -> DemoResult:
    """Draw S3, train REAL-X over a few λ and EVAL-X, compare with the truth, write a report."""
    started = time.monotonic()
    prepare_folder(folder, MODELS, ("selections.png", "path.png", "report.html", "results.json"))
    # Three independent draws; validation rows are extra, training keeps all of its own.
    train, valid, test = (synthetic("S3", rows, 3 * seed + part) for part in range(3))
    options: dict[str, Any] = {
        "training": training,
        "device": device,
        "progress": show,
        "random_state": seed,
        "checkpoint": checkpoint_folder(
            folder, "demo", seed=seed, rows=rows, training=training, device=device
        ),
    }
    picks = savable()
    explainer = RealX(SPARSITIES, **options)
    explainer.fit(train.x, train.y, validation=(valid.x, valid.y))
    judge = EvalX(estimator=picks, **options)
    evaluator = fitted_whole(judge, train.x, train.y, validation=(valid.x, valid.y))
    judged = [
        _judge(
            explainer, evaluator, test, s.sparsity, draws=1000 if i == explainer.chosen_ else 200
        )
        for i, s in enumerate(explainer.settings_)
    ]
    found = _rows(explainer, evaluator, judged, test, seed)
    table = _table(found)
    summary = _summary(found, explainer)
    explanation = judged[explainer.chosen_][0]
    by_branch = figures.heat_map(
        explanation.masks,
        test.feature_names,
        groups=_branch_names(test),
        keep_order=True,
        title="What REAL-X shows, by the row's true branch",
    )
    path = figures.sparsity_path(
        [e.fraction for e, _ in judged],
        [s["eauroc"].value for _, s in judged],
        [f"λ = {s.sparsity:g}" for s in explainer.settings_],
        explainer.chosen_,
        score_name="AUROC under EVAL-X, test rows",
        references={
            "optimum": next(r for r in found if r["method"] == "optimum")["metrics"]["auroc"],
            "everything shown": judged[0][1].rows["everything"]["eauroc"].value,
        },
        intervals=[(s["eauroc"].low, s["eauroc"].high) for _, s in judged],
    )
    seconds = time.monotonic() - started
    facts = provenance(command)
    with all_or_nothing(folder) as part:
        (part / "results.json").write_text(
            to_json({**facts, "summary": summary, "seconds": seconds, "rows": found}),
            encoding="utf-8",
        )
        (part / "selections.png").write_bytes(png(by_branch))
        (part / "path.png").write_bytes(png(path))
        page = _page(summary, table, picture(by_branch), picture(path), facts, explainer)
        (part / "report.html").write_text(page, encoding="utf-8")
        explainer.save(part / "model")
        evaluator.save(part / "evaluator")
    remove_checkpoints(folder)
    return DemoResult(found, table, summary, folder, seconds)


def _judge(
    explainer: RealX, evaluator: EvalX, test: Synthetic, sparsity: float, *, draws: int
) -> tuple[Explanation, Scores]:
    explanation = explainer.explain(test.x, sparsity=sparsity)
    return explanation, evaluator.evaluate(explanation, test.x, test.y, bootstrap_draws=draws)


def _rows(
    explainer: RealX,
    evaluator: EvalX,
    judged: list[tuple[Explanation, Scores]],
    test: Synthetic,
    seed: int,
) -> list[dict[str, Any]]:
    """All rows of the table, in the form of ``results.json``."""
    rows = []

    def add(method: str, chosen: bool, metrics: dict[str, Any], **more: Any) -> None:
        row = {"dataset": test.name, "method": method, "setting": more.pop("setting", {})}
        rows.append({**row, "seed": seed, "chosen": chosen, "metrics": metrics, **more})

    for i, (explanation, scores) in enumerate(judged):
        setting = explainer.settings_[i]
        quality = selection_quality(explanation.masks, test.truth, CONTROL_FLOW).to_json()
        own = explainer.predict_proba(test.x, sparsity=setting.sparsity)
        add(
            "REAL-X",
            i == explainer.chosen_,
            {
                **quality,
                "fraction": explanation.fraction,
                **label_scores(own, test.y),
                **scores.figures("explanation"),
            },
            setting={"sparsity": setting.sparsity},
            seconds={"fit": explainer.seconds_, "fit_evaluator": evaluator.seconds_},
        )
    chosen = judged[explainer.chosen_][1]
    random_quality = _random_quality(judged[explainer.chosen_][0], test, seed)
    add("random masks", True, {**random_quality, **chosen.figures("random")})
    add("everything shown", True, {"fraction": 1.0, **chosen.figures("everything")})
    truth = evaluator.evaluate(test.truth, test.x, test.y, bootstrap_draws=200)
    perfect = selection_quality(test.truth, test.truth, CONTROL_FLOW).to_json()
    share = {"fraction": float(test.truth.mean())}
    add("true features", True, {**perfect, **share, **truth.figures("explanation")})
    exact = np.stack([1 - test.probability, test.probability], axis=1)
    add("optimum", True, {**perfect, **share, **label_scores(exact, test.y)})
    add("REAL-X, published", False, dict(PUBLISHED), setting={"sparsity": 0.1})
    return rows


def _random_quality(explanation: Explanation, test: Synthetic, seed: int) -> dict[str, float]:
    masks = same_size_masks(explanation.masks, np.random.default_rng(seed))
    quality = selection_quality(masks, test.truth, CONTROL_FLOW).to_json()
    return {**quality, "fraction": explanation.fraction}


def _value(metrics: dict[str, Any], name: str) -> float | None:
    figure = metrics.get(name)
    return figure["value"] if isinstance(figure, dict) else figure


def _table(rows: list[dict[str, Any]]) -> TableBlock:
    cells, stressed = [], set()
    for i, row in enumerate(rows):
        label = row["method"]
        if label == "REAL-X":
            label += f" λ = {row['setting']['sparsity']:g}"
            if row["chosen"]:
                label += " (chosen)"
                stressed.add(i)
        metrics = dict(row["metrics"])
        if label == "optimum":  # the exact posterior is its own evaluator
            metrics |= {"eauroc": metrics["auroc"], "eacc": metrics["acc"]}
            metrics |= {"eloglik": metrics["loglik"]}
        values = [_value(metrics, name) for name in COLUMNS]
        cells.append([label, *("–" if v is None else f"{v:.3f}" for v in values)])
    return TableBlock(HEADER, cells, frozenset(stressed))


def _summary(rows: list[dict[str, Any]], explainer: RealX) -> list[str]:
    chosen = next(r for r in rows if r["method"] == "REAL-X" and r["chosen"])["metrics"]

    def get(name: str) -> float:
        return _value(chosen, name) or 0.0

    optimum = next(r for r in rows if r["method"] == "optimum")["metrics"]["auroc"]
    random = next(r for r in rows if r["method"] == "random masks")["metrics"]["eauroc"]["value"]
    text = [
        f"REAL-X found {get('tpr'):.1%} of the features that truly made each row, and "
        f"{get('fdr'):.1%} of what it shows is not among them. It shows {get('fraction'):.0%} of "
        "all features.",
        f"It shows the control-flow feature x11, which decides between the two branches and which "
        f"methods that cheat leave out, in {get('cfsr'):.1%} of the rows.",
        f"EVAL-X, a model of its own that never saw these selections, predicts y from what is "
        f"shown with AUROC {get('eauroc'):.3f}. Nobody can do better than {optimum:.3f} on these "
        f"rows; random features of the same number give {random:.3f}.",
        f"λ = {explainer.sparsity_:g} was chosen on validation rows: {explainer.reason_}.",
    ]
    if explainer.interrupted_:
        text.append("Training was interrupted, so the figures are those of a shorter run.")
    return text


def _branch_names(test: Synthetic) -> NDArray[np.str_]:
    names = {"B": "x11 < 0:\ny from x3 … x6", "C": "x11 ≥ 0:\ny from x7 … x10"}
    return np.array([names[branch] for branch in test.branch])


def _page(
    summary: list[str],
    table: TableBlock,
    by_branch: str,
    path: str,
    facts: dict[str, Any],
    explainer: RealX,
) -> str:
    rows = int(explainer.path_.shape[0])
    sections = [
        Section(
            "How good is it?",
            [
                "S3 is a table made by the software: eleven independent normal features, of "
                "which x11 decides whether x3 … x6 or x7 … x10 make y. So every row's true "
                "features are known.",
            ],
            table,
            after=[
                "CFSR: rows that show x11. TPR: share of the true features that is shown. FDR: "
                "share of the shown features that is not true. AUROC: under the explainer's own "
                "predictor; eAUROC, eACC and log-likelihood (nats): under EVAL-X.",
                "The optimum is the exact P(y | x) on the same rows. “True features” are EVAL-X's "
                "figures when exactly the true features are shown: what is missing to the "
                "optimum there is the evaluator's own error. The published row is the paper's "
                "(other rows of the same kind).",
            ],
        ),
        Section(
            "What is shown, and when?",
            ["Each line of the picture is a test row; a filled cell is a feature shown."],
            pictures=[(by_branch, "Selections by branch of the tree; below, how often shown.")],
        ),
        Section(
            "How much is enough?",
            [
                f"REAL-X tried {rows} prices λ. A higher price shows fewer features; the picture "
                "shows what that costs."
            ],
            pictures=[(path, "AUROC under EVAL-X against the fraction shown, 95% intervals.")],
        ),
        Section(
            "On your own table",
            ["A CSV or Parquet file, one column to predict; everything else is done for you:"],
            code="unmasked explain my_table.csv --target outcome --out explained\n"
            "unmasked explain --model explained/model new_rows.csv",
        ),
    ]
    return render("REAL-X on S3, checked by EVAL-X", summary, sections, footer(facts))
