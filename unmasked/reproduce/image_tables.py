"""Rows of an image table -> tables, ours beside the published, and what they say in words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from unmasked.io.page import TableBlock
from unmasked.reproduce.render import METHODS, MNIST, OPTIMUM, WITH_K, Subject
from unmasked.reproduce.summary import (
    NOTHING,
    Figure,
    Summaries,
    Summary,
    number,
    setting_text,
    summarise,
)
from unmasked.reproduce.tables import Block, Table

RANDOM = "random, as {}"
_BLIND = 0.1  # of AUROC that an evaluator may miss in the truth
_MAIN = {
    "acc": "ACC",
    "auroc": "AUROC",
    "eacc": "eACC",
    "eauroc": "eAUROC",
    "eacc_varied": "eACC, varied",
    "eauroc_varied": "eAUROC, varied",
    "eacc_token": "eACC, token",
    "eauroc_token": "eAUROC, token",
}
_MORE = {
    "fraction": "shown",
    "iou": "IoU",
    "tpr": "TPR",
    "fdr": "FDR",
    "macc": "mask alone",
    "loglik": "log-lik.",
    "eloglik": "e log-lik.",
    "eloglik_varied": "e log-lik., varied",
    "eloglik_token": "e log-lik., token",
}
_ALL = {
    "fraction": "shown",
    "iou": "IoU",
    "tpr": "TPR",
    "fdr": "FDR",
    "acc": "ACC",
    "eacc": "eACC",
    "eauroc": "eAUROC",
    "eacc_varied": "eACC, varied",
    "eauroc_varied": "eAUROC, varied",
    "eacc_token": "eACC, token",
    "loglik": "log-lik.",
    "eloglik": "e log-lik.",
    "eloglik_varied": "e log-lik., varied",
    "macc": "mask alone",
}


def comparable(subject: Subject, rows: list[dict[str, Any]]) -> Subject:
    """The subject, without the paper's figures where the truth is known: such images are drawn."""
    if not any("iou" in row["metrics"] for row in rows):
        return subject
    return replace(subject, title=subject.title.split(":")[0], published={})


def image_tables(
    rows: list[dict[str, Any]], tolerance: float = 0.05, subject: Subject = MNIST
) -> list[Table]:
    """The chosen settings beside the published, then every setting."""
    subject = comparable(subject, rows)
    summaries = summarise(rows)
    present = {key for row in rows for key in row["metrics"]}
    main, more, every = (
        {key: name for key, name in names.items() if key in present}
        for names in (_MAIN, _MORE, _ALL)
    )
    blocks = [
        Block(
            "Chosen settings" + (" beside the published" if subject.published else ""),
            _chosen(summaries, subject, main, beside=True),
        ),
        Block("More of the chosen settings", _chosen(summaries, subject, more, beside=False)),
    ]
    if any("over_random" in row for row in rows):
        blocks.append(Block("Chosen settings less random masks of the same sizes", _paired(rows)))
    blocks += [
        Block(f"{name}: every setting", _every(rows, name, every))
        for name in METHODS
        if name != "FULL" and any(row["method"] == name for row in rows)
    ]
    return [Table(subject.table, blocks, _notes(rows, tolerance, subject, present))]


def _notes(
    rows: list[dict[str, Any]], tolerance: float, subject: Subject, present: set[str]
) -> list[str]:
    seeds = len({row["seed"] for row in rows})
    fallen = sorted({row["method"] for row in rows if "as none is within" in row.get("reason", "")})
    notes = [
        f"Mean ± standard error over {seeds} seed{'' if seeds == 1 else 's'} on the test images; "
        f"one seed has no standard error. {NOTHING}: no figure.",
        f"paper: Jethani et al., AISTATS 2021, {subject.table.split(':')[0]}."
        if subject.published
        else "The images are drawn, so the paper's figures, which are of others, are left out.",
        "Chosen on validation images, which no network learns from: the sparsest setting whose ACC "
        f"is within {100 * tolerance:g} points of FULL's"
        + (f"; none was for {', '.join(fallen)}: the largest ACC there." if fallen else "."),
        f"ACC, AUROC{' (micro)' if len(subject.classes) > 2 else ''}, log-lik.: under the method's "
        "own predictor. With e: under EVAL-X trained on Bernoulli(½) masks, as in the paper; "
        "varied: under one that learned from masks of every size, and so knows masks as sparse as "
        "these"
        + (
            f"; token: the same, and it sees which {subject.unit} are hidden, where the others see "
            "black."
            if "eacc_token" in present
            else "."
        ),
        "random: random masks of the same sizes. mask alone: how often a network that sees only "
        f"*which* {subject.unit} are shown, not their values, names the class; the choice gives "
        "away that much.",
    ]
    if "iou" in present:
        notes.append(
            "IoU: of what is shown with the truth, the cells on the edges of heart and thorax that "
            "decide the label. TPR: the share of the truth that is shown; FDR: the share of what "
            "is shown that is not in it, counted as 0 for an image of which nothing is shown."
        )
    if any(row["method"] == OPTIMUM for row in rows):
        notes.append(
            "optimum: ACC, AUROC and log-lik. of the true probabilities, which no prediction "
            "beats on average; all else is of the truth, shown as a method's selection would be."
        )
    if any("over_random" in row for row in rows):
        notes.append(
            "Less random: the difference on the same test images, with the 95% interval of a "
            "bootstrap over images (over patients, where they are known), for each seed's chosen "
            "setting."
        )
    return notes


def _chosen(
    summaries: Summaries, subject: Subject, names: dict[str, str], *, beside: bool
) -> TableBlock:
    lines = []
    for name in (*METHODS, OPTIMUM):
        summary = summaries.get((subject.dataset, name))
        if summary is None:
            continue
        lines.append([name, *_cells(summary, names), summary.setting])
        if beside and name in subject.published:
            paper = subject.published[name]
            theirs = [number(paper[k]) if k in paper else NOTHING for k in names]
            lines.append([f"{name}, paper", *theirs, setting_text([dict(paper)])])
        random = summaries.get((subject.dataset, RANDOM.format(name)))
        if random is not None:
            lines.append([random.method, *_cells(random, names), NOTHING])
    return TableBlock(["", *names.values(), "λ or k"], lines)


def _paired(rows: list[dict[str, Any]]) -> TableBlock:
    """Tabulate how far each seed's chosen settings beat random masks of the same sizes."""
    chosen = [row for row in rows if row["chosen"] and "over_random" in row]
    keys = list(dict.fromkeys(key for row in chosen for key in row["over_random"]))
    lines = []
    for row in chosen:
        cells = []
        for key in keys:
            found = row["over_random"].get(key)
            if found is None or not all(map(_known, found.values())):
                cells.append(NOTHING)
                continue
            value, low, high = (_signed(found[name]) for name in ("value", "low", "high"))
            cells.append(f"{value} [{low}, {high}]")
        lines.append([f"{row['method']}, seed {row['seed']}", *cells])
    names = {**_MAIN, **_MORE}
    return TableBlock(["", *(names.get(key, key) for key in keys)], lines)


def _known(value: float | None) -> bool:
    """Tell whether a figure is there and finite; ``results.json`` has null where there is none."""
    return value is not None and math.isfinite(value)


def _signed(value: float) -> str:
    """A difference, with its sign.

    >>> _signed(0.0123), _signed(-0.5), _signed(-0.0001)
    ('+0.012', '−0.500', '0.000')
    """
    text = number(value)
    return f"+{text}" if float(f"{value:.3f}") > 0 else text


def _every(rows: list[dict[str, Any]], method: str, names: dict[str, str]) -> TableBlock:
    """All settings of a method, over seeds, each above its random masks."""
    lines: list[list[str]] = []
    stressed = set()
    settings: list[dict[str, Any]] = []
    for row in rows:
        if row["method"] == method and row["setting"] not in settings:
            settings.append(row["setting"])
    for setting in settings:
        for name in (method, RANDOM.format(method)):
            own = [r for r in rows if r["method"] == name and r["setting"] == setting]
            figures = {
                key: Figure(
                    {r["seed"]: r["metrics"][key] for r in own if _known(r["metrics"].get(key))}
                )
                for key in names
            }
            if name == method and any(r["chosen"] for r in own):
                stressed.add(len(lines))
            cells = [str(f) if f.values else NOTHING for f in figures.values()]
            lines.append([setting_text([setting]) if name == method else "  random", *cells])
    return TableBlock(["λ or k", *names.values()], lines, frozenset(stressed))


def _cells(summary: Summary, names: dict[str, str]) -> list[str]:
    return [str(summary.metrics[k]) if k in summary.metrics else NOTHING for k in names]


def image_lead(rows: list[dict[str, Any]], subject: Subject = MNIST) -> list[str]:
    """Sum up each method's results in plain words, beside the paper's where they compare."""
    return sentences(rows, comparable(subject, rows))


def sentences(rows: list[dict[str, Any]], subject: Subject) -> list[str]:
    """A sentence for each method, beside the figures that the subject has of the paper."""
    summaries = summarise(rows)

    def figure(method: str, key: str) -> Figure | None:
        summary = summaries.get((subject.dataset, method))
        return None if summary is None else summary.metrics.get(key)

    def mean(method: str, key: str) -> str:
        found = figure(method, key)
        return NOTHING if found is None else number(found.mean)

    def mean_share(method: str) -> str:
        shown = figure(method, "fraction")
        return NOTHING if shown is None else f"{100 * shown.mean:.2f}%"

    found = []
    for name in METHODS:
        if (subject.dataset, name) not in summaries:
            continue
        theirs = {
            key: f" (paper {number(value)})"
            for key, value in subject.published.get(name, {}).items()
        }
        if name == "FULL":
            found.append(
                f"FULL: ACC {mean(name, 'acc')}{theirs.get('acc', '')}, AUROC "
                f"{mean(name, 'auroc')}{theirs.get('auroc', '')}."
            )
            continue
        own, random = summaries[subject.dataset, name], RANDOM.format(name)
        share = mean_share(name)
        # accuracy of ten digits, order of two classes: what each table of the paper is read for
        key = "auroc" if len(subject.classes) == 2 else "acc"
        said = key.upper()
        found.append(
            f"{name} at {'k' if name in WITH_K else 'λ'} = {own.setting} shows "
            f"{share} of the {subject.unit}: {said} "
            f"{mean(name, key)} under its own predictor{theirs.get(key, '')}, e{said} "
            f"{mean(name, 'e' + key)} under the paper's evaluator{theirs.get('e' + key, '')} and "
            f"{mean(name, f'e{key}_varied')} under one that knows "
            f"sparse masks; random {subject.unit} {mean(random, 'e' + key)} and "
            f"{mean(random, f'e{key}_varied')}. The mask alone names the class in "
            f"{mean(name, 'macc')}."
        )
    if (subject.dataset, OPTIMUM) in summaries:
        truth, whole = (figure(name, "eauroc_varied") for name in (OPTIMUM, "FULL"))
        blind = truth is not None and whole is not None and whole.mean - truth.mean > _BLIND
        found.append(
            f"Nobody can do better than AUROC {mean(OPTIMUM, 'auroc')} on these images on average. "
            f"The true {subject.unit}, {mean_share(OPTIMUM)} of all, have eAUROC "
            f"{mean(OPTIMUM, 'eauroc')} under the paper's evaluator and "
            f"{mean(OPTIMUM, 'eauroc_varied')} under the other; which they are names the class in "
            f"{mean(OPTIMUM, 'macc')}."
            + (
                f" From everything the other has {mean('FULL', 'eauroc_varied')}: it has not "
                "learned to read so little, so what it says of sparse selections counts for little."
                if blind
                else ""
            )
        )
    return found
