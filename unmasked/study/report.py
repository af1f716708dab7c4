"""The analysis as files: a page, a plot, tables, CSV, JSON."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unmasked.errors import OutputError
from unmasked.io.output_folder import OLD, PART, all_or_nothing, prepare_folder, provenance, to_json
from unmasked.io.page import Section, footer, picture, png, render
from unmasked.study.analysis import PUBLISHED, Analysis
from unmasked.study.statistics import Test, mid_ranks, shared_ranks
from unmasked.study.tables import (
    agreement_table,
    as_text,
    findings,
    missing_rows,
    missing_table,
    pair_table,
    position_table,
    published_table,
    rank_table,
    tested,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILES = frozenset({"results.json", "methods.csv", "pairs.csv", "ratings.csv", "mean-ranks.png"})
FILES |= {"report.html", "tables.txt"}
UNDONE = (PART, OLD)  # how what an analysis that was killed leaves behind begins


def write_analysis(folder: Path, analysis: Analysis, command: str) -> list[str]:
    """Write all files, or none; return the findings in words."""
    try:
        foreign = [p.name for p in folder.iterdir() if not p.name.startswith(UNDONE)]
    except OSError:  # not there yet, or `prepare_folder` says why not
        foreign = []
    if not FILES.issuperset(foreign):
        raise OutputError(
            f"{folder} must be a new folder or one of an earlier analysis but holds something "
            "else; choose another with --out."
        )
    prepare_folder(folder)
    facts = provenance(command)
    words = findings(analysis)
    axes = plot(analysis)
    with all_or_nothing(folder) as part:
        (part / "results.json").write_text(to_json({**facts, **content(analysis)}), "utf-8")
        _write_csv(part / "methods.csv", method_rows(analysis))
        _write_csv(part / "pairs.csv", pair_rows(analysis))
        _write_csv(part / "ratings.csv", rating_rows(analysis))
        (part / "mean-ranks.png").write_bytes(png(axes))
        (part / "tables.txt").write_text(as_text(analysis), "utf-8")
        page = render(
            "What readers preferred", words, _sections(analysis, picture(axes)), footer(facts)
        )
        (part / "report.html").write_text(page, "utf-8")
    return words


# ---------------------------------------------------------------------- figures as rows


def content(analysis: Analysis) -> dict[str, Any]:
    """The analysis as plain data, for ``results.json``."""
    ratings = analysis.ratings
    return {
        "readers": list(ratings.readers),
        "cases": len(ratings.cases),
        "methods": list(ratings.methods),
        "rows": method_rows(analysis),
        "friedman": [{"readers": s.name, **asdict(s.friedman)} for s in analysis.scopes],
        "pairs": pair_rows(analysis),
        "agreement": analysis.agreement,
        "positions": analysis.positions,
        "missing": missing_rows(analysis),
        "changed_after_complete": ratings.changes,
        "not_finished": list(ratings.unfinished),
        "remarks": [
            {"reader": reader, "case": case, "remark": remark}
            for reader, case, remark in ratings.remarks
        ],
        "published": {name: list(PUBLISHED[name]) for name in ratings.methods if name in PUBLISHED},
    }


def method_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """A row for each scope and method."""
    return [{"readers": s.name, **asdict(method)} for s in analysis.scopes for method in s.methods]


def pair_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """A row for each scope and pair of methods."""
    return [{"readers": s.name, **asdict(pair)} for s in analysis.scopes for pair in s.pairs]


def rating_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Every rating, missing ones too, with the method's name."""
    ratings = analysis.ratings
    whole = ~np.isnan(ratings.ranked)
    shared = np.where(whole, shared_ranks(ratings.ranked), np.nan)
    middle = np.where(whole, mid_ranks(ratings.ranked), np.nan)
    rows = []
    for r, reader in enumerate(ratings.readers):
        for c, case in enumerate(ratings.cases):
            for m, method in enumerate(ratings.methods):
                figures = {
                    "place": ratings.places[r, c, m],
                    "rank": shared[r, c, m],
                    "mid_rank": middle[r, c, m],
                    "sufficient": ratings.sufficient[r, c, m],
                }
                plain = {k: None if np.isnan(v) else float(v) for k, v in figures.items()}
                rows.append({"reader": reader, "case": case, "method": method, **plain})
    return rows


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


# ---------------------------------------------------------------------- the page


def plot(analysis: Analysis) -> Axes:
    """Mean ranks with their intervals: all readers filled, each reader hollow below."""
    from matplotlib.figure import Figure

    order = [m.method for m in sorted(analysis.pooled.methods, key=lambda m: m.mean_rank)]
    axes = Figure(figsize=(7.2, 1.2 + 0.75 * len(order)), layout="constrained").subplots()
    scopes = list(reversed(analysis.scopes))
    colours = ["#1d2733", "#20639b", "#c8553d", "#2c8a5b", "#7a4fa3", "#9a6b00"]
    marks = "osD^vPX"
    for s, scope in enumerate(scopes):
        found = {m.method: m for m in scope.methods}
        y = np.arange(len(order)) + 0.22 * s / max(1, len(scopes) / 3)
        means = np.array([found[name].mean_rank for name in order])
        low = np.array([found[name].low for name in order])
        high = np.array([found[name].high for name in order])
        axes.errorbar(
            means,
            y,
            xerr=np.maximum(0, [means - low, high - means]),
            fmt=marks[s % len(marks)],
            color=colours[s % len(colours)],
            mfc=colours[s % len(colours)] if s == 0 else "white",
            markersize=8 if s == 0 else 6,
            capsize=3,
            label=scope.name,
        )
    axes.set_yticks(np.arange(len(order)), order)
    axes.invert_yaxis()
    axes.set_xlim(0.8, len(order) + 0.2)
    axes.set_xlabel("mean rank, 1 = best (ties share the better place); 95% intervals by cases")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#d8dee5", linewidth=0.7)
    axes.legend(frameon=False, loc="best")
    return axes


def _sections(analysis: Analysis, drawn: str) -> list[Section]:
    ratings, pooled = analysis.ratings, analysis.pooled
    several = len(analysis.scopes) > 1
    sections = [
        Section(
            f"Mean ranks, {pooled.name}",
            [
                f"{len(ratings.readers)} readers, {len(ratings.cases)} cases, "
                f"{len(ratings.methods)} methods. Readers did not know which option was whose."
            ],
            rank_table(pooled),
            pictures=[(drawn, "Mean rank of each method; the lower, the better.")],
            after=[
                "Mean rank: ranks as given, ties share the better place. Mid-rank: ties share the "
                "mean of their places; the tests use these. SE: over cases, each the mean of its "
                "readers, since two readers of one image are not two images. Intervals: bootstrap "
                "by cases; of sufficiency, Wilson's, with as many answers as those of "
                f"{len(ratings.cases)} cases are worth.",
            ],
        )
    ]
    if beside := published_table(pooled):
        text = "The paper's two radiologists ranked other images; its Table 4, by names of methods:"
        sections.append(Section("Beside the paper", [text], beside))
    if several:
        sections += [
            Section(
                f"Mean ranks, {scope.name}",
                [f"Friedman's test: {tested(scope.friedman)}."],
                rank_table(scope),
            )
            for scope in analysis.scopes[:-1]
        ]
    sections.append(
        Section(
            "Which differences are beyond chance?",
            [
                "Differences of mid-ranks, first minus second: below 0, the first is better. "
                "Wilcoxon's signed-rank test over cases, with Holm's correction for all pairs; "
                "rows in bold hold at 5%."
            ],
            pair_table(pooled),
        )
    )
    if analysis.agreement:
        sections.append(
            Section(
                "Do readers agree?",
                [
                    f"W is 1 if all readers rank alike, and about 1/{len(ratings.readers)} if they "
                    "rank at random, so look at it beside chance. α is 1 for perfect agreement and "
                    "0 for chance."
                ],
                agreement_table(analysis),
            )
        )
    if analysis.positions:
        found = analysis.positions
        sections.append(
            Section(
                "Does the place on the page matter?",
                [
                    "Methods stood in every place equally often, so without a habit of the readers "
                    "all places have the same mean. Friedman's test over rankings: "
                    f"{tested(Test(found['statistic'], found['p'], found['rankings']))}."
                ],
                position_table(analysis),
            )
        )
    sections.append(
        Section(
            "What is missing",
            [
                "A ranking counts when all options have a place. "
                f"{ratings.changes} answers were changed after they had been complete; the record "
                "in the study's database keeps every version with its time."
            ],
            missing_table(analysis),
        )
    )
    if ratings.remarks:
        said = [f"{reader}, {case}: {remark}" for reader, case, remark in ratings.remarks]
        sections.append(Section("Remarks", said))
    return sections
