"""The analysis in tables and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from unmasked.io.page import TableBlock
from unmasked.study.analysis import PUBLISHED, Analysis, Scope
from unmasked.study.answers import LETTERS
from unmasked.study.statistics import Test


def missing_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Count the expected answers and the missing ones, for each scope."""
    return [
        {
            "readers": s.name,
            "expected": s.expected,
            "missing_rankings": s.missing_rankings,
            "missing_sufficiency": s.missing_sufficiency,
        }
        for s in analysis.scopes
    ]


def rank_table(scope: Scope) -> TableBlock:
    """Mean ranks as in the paper's Table 4, best first."""
    header = ["", "mean rank ± SE", "95% by cases", "mid-rank", "ranked first", "sufficient"]
    header += ["95%", "rankings"]
    rows = [
        [
            m.method,
            f"{_number(m.mean_rank)} ± {_number(m.se)}" if m.rankings else "–",
            f"{m.low:.2f} – {m.high:.2f}" if m.rankings else "–",
            _number(m.mean_mid_rank),
            f"{m.best:.0%}" if m.rankings else "–",
            f"{m.sufficient:.0%}" if m.judged else "–",
            f"{m.sufficient_low:.0%} – {m.sufficient_high:.0%}" if m.judged else "–",
            str(m.rankings),
        ]
        for m in sorted(scope.methods, key=lambda method: method.mean_rank)
    ]
    return TableBlock(header, rows, frozenset({0}))


def published_table(scope: Scope) -> TableBlock | None:
    """Ours beside the paper's Table 4, if methods have the names that it uses."""
    rows = [
        [
            m.method,
            f"{m.mean_rank:.2f} ± {_number(m.se)}",
            "{:.2f} ± {:.2f}".format(*PUBLISHED[m.method]),
        ]
        for m in sorted(scope.methods, key=lambda method: method.mean_rank)
        if m.method in PUBLISHED
    ]
    return TableBlock(["", "these readers", "in the paper"], rows) if rows else None


def pair_table(scope: Scope) -> TableBlock:
    """Pairwise comparisons."""
    header = ["", "difference", "95% by cases", "first better", "tied", "p", "p, Holm"]
    rows = [
        [
            f"{pair.first} against {pair.second}",
            f"{pair.difference:+.2f}",
            f"{pair.low:+.2f} to {pair.high:+.2f}",
            f"{pair.better:.0%}",
            f"{pair.tied:.0%}",
            _p(pair.p),
            _p(pair.p_holm),
        ]
        for pair in scope.pairs
    ]
    sure = frozenset(i for i, pair in enumerate(scope.pairs) if pair.p_holm < 0.05)
    return TableBlock(header, rows, sure)


def position_table(analysis: Analysis) -> TableBlock:
    """Mean mid-ranks by where an option stood on the page."""
    found = analysis.positions
    figures = zip(found["mean_mid_rank"], found["se"], strict=True)
    rows = [[f"option {LETTERS[i]}", f"{m:.2f} ± {_number(e)}"] for i, (m, e) in enumerate(figures)]
    return TableBlock(["", "mean mid-rank ± SE"], rows)


def missing_table(analysis: Analysis) -> TableBlock:
    """Tabulate the expected and the missing answers of each scope."""
    rows = [
        [row["readers"], *(str(row[k]) for k in list(row)[1:])] for row in missing_rows(analysis)
    ]
    return TableBlock(["", "expected", "rankings missing", "sufficiency missing"], rows)


def agreement_table(analysis: Analysis) -> TableBlock:
    """Agreement between readers."""
    found = analysis.agreement
    w = found["kendall_w"]
    names = {
        "alpha_rank": "Krippendorff's α of ranks (ordinal)",
        "alpha_sufficient": "Krippendorff's α of sufficiency (nominal)",
    }
    chance = [_number(w["null"]), _number(w["null_95"]), _p(w["p"])]
    rows = [["Kendall's W, mean over cases", *_agreed(w), *chance]]
    rows += [[text, *_agreed(found[name]), "0", "–", "–"] for name, text in names.items()]
    return TableBlock(["", "value", "95% by cases", "by chance", "95% of chance", "p"], rows)


def _agreed(figure: dict[str, Any]) -> list[str]:
    if np.isnan(figure["value"]):
        return ["–", "–"]
    return [f"{figure['value']:.2f}", f"{figure['low']:.2f} – {figure['high']:.2f}"]


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"


def _p(value: float) -> str:
    if np.isnan(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def findings(analysis: Analysis) -> list[str]:
    """Sum the analysis up in sentences: best method, tests, agreement, missing answers."""
    scope = analysis.pooled
    text = [
        _best(scope),
        f"Are all methods ranked alike? Friedman's test over cases: {tested(scope.friedman)}.",
    ]
    if analysis.agreement:
        w = analysis.agreement["kendall_w"]
        if w["cases"]:
            text.append(
                f"Readers agree with W = {w['value']:.2f}, where chance alone gives "
                f"{w['null']:.2f} (p {equals(w['p'])})."
            )
    if open_ := analysis.ratings.unfinished:
        still = "has" if len(open_) == 1 else "have"
        text.append(f"{' and '.join(open_)} {still} not finished: these figures can still change.")
    if scope.missing_rankings or scope.missing_sufficiency:
        text.append(
            f"Of {scope.expected} answers, {scope.missing_rankings} rankings and "
            f"{scope.missing_sufficiency} judgements of sufficiency are missing; they are left "
            "out, not filled in."
        )
    return text


def _best(scope: Scope) -> str:
    """Name the method, or methods, that readers ranked best, and what it surely beats."""
    ordered = sorted(scope.methods, key=lambda method: method.mean_rank)
    first = ordered[0]
    cases = "1 case" if scope.friedman.blocks == 1 else f"{scope.friedman.blocks} cases"
    alike = [m.method for m in ordered if np.isclose(m.mean_rank, first.mean_rank)]
    if len(alike) > 1:
        shared = f"{' and '.join(alike)} share the best mean rank, {first.mean_rank:.2f},"
        return f"{shared} over {cases}."
    beaten = [
        pair.second if pair.first == first.method else pair.first
        for pair in scope.pairs
        if pair.p_holm < 0.05
        and first.method == (pair.first if pair.difference < 0 else pair.second)
    ]
    surely = (
        f"The difference to {', '.join(beaten)} is beyond chance (Wilcoxon, Holm's correction)."
        if beaten
        else "Its difference to no other method is beyond chance (Wilcoxon, Holm's correction)."
    )
    return (
        f"{first.method} was ranked best: mean rank {first.mean_rank:.2f} ± {_number(first.se)} "
        f"over {cases}, first or tied for first in {first.best:.0%} of "
        f"{first.rankings} rankings. {surely}"
    )


def tested(test: Test) -> str:
    """A test's outcome: χ² = 12.3, p = 0.006."""
    if not test.blocks:
        return "nothing ranked yet"
    return f"χ² = {test.statistic:.1f}, p {equals(test.p)}"


def equals(p: float) -> str:
    """= 0.012, or < 0.001."""
    return _p(p) if p < 0.001 else f"= {_p(p)}"


def as_text(analysis: Analysis) -> str:
    """All tables for a terminal."""
    parts = []
    for scope in reversed(analysis.scopes):
        parts += [scope.name, _lines(rank_table(scope)), f"Friedman: {tested(scope.friedman)}", ""]
    parts += ["pairs, " + analysis.pooled.name, _lines(pair_table(analysis.pooled)), ""]
    if analysis.agreement:
        parts += ["agreement", _lines(agreement_table(analysis)), ""]
    parts += ["missing", _lines(missing_table(analysis)), ""]
    return "\n".join(parts)


def _lines(table: TableBlock) -> str:
    rows = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
