"""Rows of an image table -> tables, ours beside the published, and what they say in words."""

from __future__ import annotations

from typing import Any

from unmasked.report.page import TableBlock
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

DATASET, RANDOM = "MNIST", "random, as {}"
METHODS = ("FULL", "REAL-X", "L2X", "INVASE", "BASE-X")
# Table 2 of the paper, as fractions.
PUBLISHED: dict[str, dict[str, float]] = {
    "FULL": {"acc": 0.978, "auroc": 0.999},
    "REAL-X": {"acc": 0.938, "auroc": 0.997, "eacc": 0.867, "eauroc": 0.989, "sparsity": 5.0},
    "L2X": {"acc": 0.960, "auroc": 0.998, "eacc": 0.114, "eauroc": 0.561, "k": 1},
    "INVASE": {"acc": 0.931, "auroc": 0.996, "eacc": 0.503, "eauroc": 0.883, "sparsity": 10.0},
    "BASE-X": {"acc": 0.928, "auroc": 0.996, "eacc": 0.569, "eauroc": 0.899, "sparsity": 10.0},
}
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
    "macc": "mask alone",
    "loglik": "log-lik.",
    "eloglik": "e log-lik.",
    "eloglik_varied": "e log-lik., varied",
    "eloglik_token": "e log-lik., token",
}
_ALL = {
    "fraction": "shown",
    "acc": "ACC",
    "eacc": "eACC",
    "eacc_varied": "eACC, varied",
    "eacc_token": "eACC, token",
    "loglik": "log-lik.",
    "eloglik": "e log-lik.",
    "eloglik_varied": "e log-lik., varied",
    "macc": "mask alone",
}


def image_tables(rows: list[dict[str, Any]], tolerance: float = 0.05) -> list[Table]:
    """Table 2: the chosen settings beside the published, then every setting."""
    summaries = summarise(rows)
    blocks = [
        Block("Chosen settings beside the published", _chosen(summaries, _MAIN, beside=True)),
        Block("More of the chosen settings", _chosen(summaries, _MORE, beside=False)),
        *(
            Block(f"{name}: every setting", _every(rows, name))
            for name in METHODS
            if name != "FULL" and any(row["method"] == name for row in rows)
        ),
    ]
    return [Table("Table 2: MNIST", blocks, _notes(rows, tolerance))]


def _notes(rows: list[dict[str, Any]], tolerance: float) -> list[str]:
    seeds = len({row["seed"] for row in rows})
    fallen = sorted({row["method"] for row in rows if "as none is within" in row.get("reason", "")})
    return [
        f"Mean ± standard error over {seeds} seed{'' if seeds == 1 else 's'} on the 10,000 test "
        f"images; one seed has no standard error. {NOTHING}: no figure.",
        "paper: Jethani et al., AISTATS 2021, Table 2.",
        "Chosen on validation images held out of the 60,000: the sparsest setting whose ACC is "
        f"within {100 * tolerance:g} points of FULL's"
        + (f"; none was for {', '.join(fallen)}: the largest ACC there." if fallen else "."),
        "ACC, AUROC (micro), log-lik.: under the method's own predictor. With e: under EVAL-X "
        "trained on Bernoulli(½) masks, as in the paper; varied: under one that learned from masks "
        "of every size, and so knows masks as sparse as these; token: the same, and it sees which "
        "pixels are hidden, where the others see black.",
        "random: random masks of the same sizes. mask alone: how often a network that sees only "
        "*which* pixels are shown, not their values, names the digit; the choice gives away that "
        "much.",
    ]


def _chosen(summaries: Summaries, names: dict[str, str], *, beside: bool) -> TableBlock:
    lines = []
    for name in METHODS:
        summary = summaries.get((DATASET, name))
        if summary is None:
            continue
        lines.append([name, *_cells(summary, names), summary.setting])
        if beside:
            paper = PUBLISHED[name]
            theirs = [number(paper[k]) if k in paper else NOTHING for k in names]
            lines.append([f"{name}, paper", *theirs, setting_text([paper])])
        random = summaries.get((DATASET, RANDOM.format(name)))
        if random is not None:
            lines.append([random.method, *_cells(random, names), NOTHING])
    return TableBlock(["", *names.values(), "λ or k"], lines)


def _every(rows: list[dict[str, Any]], method: str) -> TableBlock:
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
                key: Figure({r["seed"]: r["metrics"][key] for r in own if key in r["metrics"]})
                for key in _ALL
            }
            if name == method and any(r["chosen"] for r in own):
                stressed.add(len(lines))
            cells = [str(f) if f.values else NOTHING for f in figures.values()]
            lines.append([setting_text([setting]) if name == method else "  random", *cells])
    return TableBlock(["λ or k", *_ALL.values()], lines, frozenset(stressed))


def _cells(summary: Summary, names: dict[str, str]) -> list[str]:
    return [str(summary.metrics[k]) if k in summary.metrics else NOTHING for k in names]


def image_lead(rows: list[dict[str, Any]]) -> list[str]:
    """What was found, in plain words."""
    summaries = summarise(rows)

    def mean(method: str, key: str) -> str:
        return number(summaries[DATASET, method].metrics[key].mean)

    found = []
    if (DATASET, "FULL") in summaries:
        found.append(f"FULL names {mean('FULL', 'acc')} of the digits (paper 0.978).")
    for name in METHODS[1:]:
        if (DATASET, name) not in summaries:
            continue
        own = summaries[DATASET, name]
        found.append(
            f"{name} at {'k' if name == 'L2X' else 'λ'} = {own.setting} shows "
            f"{100 * own.metrics['fraction'].mean:.2f}% of the pixels: ACC {mean(name, 'acc')} "
            f"under its own predictor (paper {number(PUBLISHED[name]['acc'])}), eACC "
            f"{mean(name, 'eacc')} under the paper's evaluator (paper "
            f"{number(PUBLISHED[name]['eacc'])}) and {mean(name, 'eacc_varied')} under one that "
            f"knows sparse masks; random pixels {mean(RANDOM.format(name), 'eacc')} and "
            f"{mean(RANDOM.format(name), 'eacc_varied')}. The mask alone gives away "
            f"{mean(name, 'macc')}."
        )
    return found
