"""Summaries -> the paper's three synthetic tables, ours beside the published."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from unmasked.io.page import TableBlock
from unmasked.reproduce.published import (
    COLLECTION,
    EVALUATORS,
    EXACT,
    LOG_LIKELIHOOD,
    METHODS,
    NAMES,
    PAPER,
    PREDICTION,
    REFERENCES,
    SCORES,
    SELECTION,
    SHORT,
    STEP,
    VARIED,
    published,
)
from unmasked.reproduce.summary import (
    NOTHING,
    Figure,
    Summaries,
    Summary,
    number,
    setting_text,
    summarise,
)


@dataclass(frozen=True)
class Block:
    """A part of a table with a heading of its own."""

    title: str
    table: TableBlock


@dataclass(frozen=True)
class Table:
    """One of the paper's tables: blocks below each other, then notes on how to read them."""

    title: str
    blocks: list[Block]
    notes: list[str]


def tables(rows: Iterable[dict[str, Any]]) -> list[Table]:
    """All three tables from the rows of ``results.json``."""
    summaries = summarise(rows)
    return [table1(summaries), collection(summaries), step(summaries)]


def table1(summaries: Summaries) -> Table:
    """Selections and predictions against the published, then every evaluator."""
    blocks = []
    for dataset in _datasets(summaries):
        selected = _beside(summaries, dataset, SELECTION, settings=True)
        blocks.append(Block(f"{dataset}: what is selected", selected))
        predicted = _beside(summaries, dataset, {key: NAMES[key] for key in PREDICTION})
        blocks.append(Block(f"{dataset}: how well it predicts", predicted))
    blocks += [
        Block(f"{dataset}: every evaluator", _evaluators(summaries, dataset))
        for dataset in _datasets(summaries)
    ]
    notes = [
        _seeds_note(summaries),
        PAPER,
        "CFSR: rows that show x11, which decides between the branches. TPR: share of the true "
        "features that is shown. FDR: share of what is shown that is not true. shown: fraction of "
        "all features.",
        "AUROC, ACC, log-lik.: under the method's own predictor; with e: under EVAL-X.",
        LOG_LIKELIHOOD,
        "FULL: a model trained on everything. random masks: as many features as REAL-X shows, "
        "drawn at random. true features: the truth shown; true, no x11: the same, control flow "
        "left out. optimum: the exact posterior on the true features of the same rows.",
        EXACT,
        COLLECTION,
        "own: the method's own predictor. ROAR: a model retrained on the explanation's own masks, "
        "which can learn to read them. post-hoc: a model of the full input fed masked inputs it "
        "never saw.",
    ]
    return Table("Table 1: the synthetic data sets", blocks, notes)


def collection(summaries: Summaries) -> Table:
    """EVAL-X and the collection of separately trained models against the exact posterior."""
    blocks = [
        Block("AUROC under EVAL-X, the collection and the truth", _three(summaries, "auroc", "ec")),
        Block("Log-likelihood under the same three", _three(summaries, "loglik")),
        Block("How well the evaluators agree", _agreement(summaries)),
    ]
    notes = [
        _seeds_note(summaries),
        PAPER,
        f"e: under EVAL-X, one model for all subsets. {COLLECTION}",
        EXACT,
        LOG_LIKELIHOOD,
        f"Agreement is over the means of {', '.join(METHODS)}, as many as have both figures. "
        "Differences are the first less the second; the correlation is Pearson's and needs three "
        "methods.",
    ]
    return Table("Appendix: EVAL-X against separately trained models", blocks, notes)


def step(summaries: Summaries) -> Table:
    """REAL-X against REAL-X-STEP, whose predictor is trained first."""
    blocks = []
    header = ["", "REAL-X", STEP, "difference", "REAL-X, paper", f"{STEP}, paper"]
    for dataset in _datasets(summaries):
        pair = [summaries.get((dataset, method)) for method in ("REAL-X", STEP)]
        paper = [published(dataset, method) for method in ("REAL-X", STEP)]
        settings = [s.setting if s else NOTHING for s in pair]
        lines = [["λ", *settings, NOTHING, *(setting_text([p.setting]) for p in paper)]]
        stressed = set()
        for key in NAMES:
            ours = [_figure(s, key) for s in pair]
            if not any(ours):
                continue
            difference = ours[1].minus(ours[0]) if ours[0] and ours[1] else None
            if key in paper[1].metrics:
                stressed.add(len(lines))
            lines.append(
                [NAMES[key], *map(_cell, ours), _cell(difference)]
                + [_cell(p.metrics.get(key)) for p in paper]
            )
        if any(pair):
            block = TableBlock(header, lines, frozenset(stressed))
            blocks.append(Block(f"{dataset}: REAL-X and {STEP}", block))
    notes = [
        _seeds_note(summaries, ("REAL-X", STEP)),
        PAPER,
        f"{STEP}: the predictor is trained first, then the selector; REAL-X trains both at once.",
        f"difference: {STEP} less REAL-X, seed by seed.",
        "Letters before a metric: e EVAL-X, o exact posterior, c collection of separately trained "
        "models, r ROAR, p post-hoc; none: the method's own predictor.",
    ]
    return Table(f"Appendix: REAL-X against {STEP}", blocks, notes)


def _beside(
    summaries: Summaries, dataset: str, names: dict[str, str], *, settings: bool = False
) -> TableBlock:
    """A line for each method, the paper's below it, then the references."""
    header = ["", *names.values(), *(["λ or k"] if settings else [])]
    lines = []
    for summary in _of(summaries, dataset):
        if summary.method == STEP:  # has a table of its own
            continue
        ours = [_cell(_figure(summary, key)) for key in names]
        lines.append([_label(summary), *ours, *([summary.setting] if settings else [])])
        paper = published(dataset, summary.method)
        if paper.metrics:
            theirs = [_cell(paper.metrics.get(key)) for key in names]
            setting = [setting_text([paper.setting])] if settings else []
            lines.append([f"{_label(summary)}, paper", *theirs, *setting])
    return TableBlock(header, lines)


def _evaluators(summaries: Summaries, dataset: str) -> TableBlock:
    """Each score under each evaluator; the second EVAL-X only where there is one."""
    found = _of(summaries, dataset)
    varied = any(key.endswith("_varied") for s in found for key in s.metrics)
    evaluators = EVALUATORS | (VARIED if varied else {})
    groups = {
        name: [
            [_label(s), *(_cell(_figure(s, form.format(score))) for form in evaluators)]
            for s in found
        ]
        for score, name in SCORES.items()
    }
    return _grouped(["", *evaluators.values()], groups)


def _three(summaries: Summaries, score: str, printed: str = "") -> TableBlock:
    """EVAL-X, collection and exact, with the paper's figure beside those that it prints."""
    header = [""]
    for letter in "eco":
        header += [NAMES[letter + score], *(["paper"] if letter in printed else [])]
    groups: dict[str, list[list[str]]] = {}
    for dataset in _datasets(summaries):
        groups[dataset] = []
        for summary in _of(summaries, dataset):
            ours = {letter: _figure(summary, letter + score) for letter in "eco"}
            if not any(ours.values()):
                continue
            paper = published(dataset, summary.method).metrics
            line = [_label(summary)]
            for letter, figure in ours.items():
                theirs = [_cell(paper.get(letter + score))] if letter in printed else []
                line += [_cell(figure), *theirs]
            groups[dataset].append(line)
    return _grouped(header, groups)


def _agreement(summaries: Summaries) -> TableBlock:
    """Differences and correlation, over methods, of each two evaluators."""
    pairs = {"eo": "EVAL-X − exact", "co": "collection − exact", "ec": "EVAL-X − collection"}
    groups: dict[str, list[list[str]]] = {}
    for dataset in _datasets(summaries):
        lines = groups.setdefault(dataset, [])
        ours = [s.metrics for s in _of(summaries, dataset) if s.method in METHODS]
        means = [{key: figure.mean for key, figure in metrics.items()} for metrics in ours]
        paper = [published(dataset, method).metrics for method in METHODS]
        for score in ("auroc", "loglik"):
            for pair, name in pairs.items():
                keys = (pair[0] + score, pair[1] + score)
                lines.append([f"{SCORES[score]}: {name}", *_compare(means, *keys)])
                if any(keys[0] in p and keys[1] in p for p in paper):
                    label = f"{SCORES[score]}: {name}, paper"
                    lines.append([label, *_compare(paper, *keys)])
    header = ["", "methods", "mean difference", "mean |difference|", "correlation"]
    return _grouped(header, groups)


def _compare(methods: list[dict[str, float]], first: str, second: str) -> list[str]:
    """Number of methods, mean difference, mean absolute difference, correlation."""
    pairs = [(m[first], m[second]) for m in methods if first in m and second in m]
    if not pairs:
        return ["0", NOTHING, NOTHING, NOTHING]
    differences = [a - b for a, b in pairs]
    correlation = None
    if len(pairs) > 2:
        try:
            correlation = statistics.correlation(*zip(*pairs, strict=True))
        except statistics.StatisticsError:  # one of the two does not vary
            correlation = None
    return [
        str(len(pairs)),
        number(statistics.fmean(differences)),
        number(statistics.fmean(map(abs, differences))),
        _cell(correlation),
    ]


def _grouped(header: list[str], groups: dict[str, list[list[str]]]) -> TableBlock:
    """Lines below a stressed line that names their group."""
    lines: list[list[str]] = []
    stressed = set()
    for name, group in groups.items():
        stressed.add(len(lines))
        lines += [[name] + [""] * (len(header) - 1), *group]
    return TableBlock(header, lines, frozenset(stressed))


def _datasets(summaries: Summaries) -> list[str]:
    return sorted({dataset for dataset, _ in summaries})


def _of(summaries: Summaries, dataset: str) -> list[Summary]:
    """A data set's summaries: methods, what we do not know, references."""
    order = [*METHODS, STEP, None, *REFERENCES]
    found = [s for s in summaries.values() if s.dataset == dataset]
    return sorted(found, key=lambda s: order.index(s.method if s.method in order else None))


def _figure(summary: Summary | None, key: str) -> Figure | None:
    if summary is None:
        return None
    figure = summary.metrics.get(key)
    if figure is None and summary.method == "optimum":  # the exact posterior is its own evaluator
        other = key.removeprefix("o") if key.startswith("o") else f"o{key}"
        return summary.metrics.get(other)
    return figure


def _cell(figure: Figure | float | None) -> str:
    if figure is None:
        return NOTHING
    return str(figure) if isinstance(figure, Figure) else number(figure)


def _label(summary: Summary) -> str:
    return SHORT.get(summary.method, summary.method)


def _seeds_note(summaries: Summaries, methods: tuple[str, ...] = ()) -> str:
    """State the number of seeds, and name the methods that have another number of them."""
    found = [s for s in summaries.values() if not methods or s.method in methods]
    if not found:
        return "There are no rows."
    usual = statistics.mode(s.seeds for s in found)
    others = [f"{s.dataset} {_label(s)} {s.seeds}" for s in found if s.seeds != usual]
    seeds = f"{usual} seed{'' if usual == 1 else 's'}"
    but = f" (but {', '.join(others)})" if others else ""
    return (
        f"Chosen settings, mean ± standard error over {seeds}{but}; one seed has no standard "
        f"error. {NOTHING}: no figure."
    )
