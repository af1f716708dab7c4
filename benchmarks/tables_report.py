"""What `benchmarks/tables.py` found, as Markdown."""

from __future__ import annotations

from typing import Any

import numpy as np
from shap_lime_tables import table

Row = dict[str, Any]


def report(rows: list[Row]) -> str:
    """Tables: equal k, RealX's own sizes, everything shown, and overlap where it was measured."""
    found = [row for row in rows if "seed" in row]
    parts = [
        f"RealX at the same k: {tally(found)}",
        "## The same k in every row: log-likelihood under the judge",
        equal(found),
        "## RealX's own sizes",
        own(found),
        "## Everything shown, and seconds",
        everything(found),
    ]
    alike = [row for row in rows if "overlap" in row]
    if alike:
        parts += ["## What explainers share (Jaccard, mean over rows and pairs)", overlaps(alike)]
    return "\n\n".join(parts)


def tally(rows: list[Row]) -> str:
    """How often RealX is better and worse than others at the same k, by the intervals."""
    said = []
    for other in ("TreeSHAP", "fixed"):
        found = [
            d
            for row in rows
            for d in row["differences"]
            if (d["of"], d["less"]) == ("RealX", other) and d["k"] != "own"
        ]
        better, worse = (sum(_sure(d) * sign > 0 for d in found) for sign in (1, -1))
        said.append(
            f"surely better than {other} {better} times of {len(found)}, surely worse {worse} times"
        )
    return "; ".join(said) + "."


def brief(rows: list[Row]) -> str:
    """A line for each table: RealX beside others at each k, by itself, and the judge."""
    heads = ["", "rows", "features", "RealX − TreeSHAP", "RealX − fixed", "shown by itself", "sets",
             "captured", "AUROC of everything: judge, tuned boosting",
             "log-likelihood", "seconds"]  # fmt: skip
    lines = []
    for row in rows:
        ks = sorted({d["k"] for d in row["differences"] if d["of"] == "RealX" and d["k"] != "own"})
        (full,) = (f for f in row["figures"] if f["method"] == "everything")
        tuned = row["boosting"].get("tuned boosting")
        both = [[f"{one[key]:.3f}" for one in (full, tuned) if one] for key in ("auroc", "loglik")]
        lines.append(
            [_name(row), f"{row['rows']:,}", f"{row['features']:,}"]
            + [_shortly(row, ks, other) for other in ("TreeSHAP", "fixed")]
            + [f"{row['size']:.1f} ({row['choice']})", f"{row['sets']:,}"]
            + [_share(row["captured"]["own"]["RealX"])]
            + [_minus(", ".join(values)) for values in both]
            + [f"{row['seconds']['RealX, fit']:.0f}"]
        )
    return table(heads, lines)


def _shortly(row: Row, ks: list[int], other: str) -> str:
    """Differences at each k without their intervals; bold where these are sure."""
    found = []
    for k in ks:
        for d in row["differences"]:
            if (d["k"], d["of"], d["less"]) == (k, "RealX", other):
                text = f"{d['value']:+.3f}"
                found.append(f"**{text}**" if _sure(d) else text)
    return _minus(f"k = {', '.join(map(str, ks))}: {', '.join(found)}")


def equal(rows: list[Row]) -> str:
    methods = ("RealX", "TreeSHAP", "LIME", "fixed", "per row", "random")
    heads = ["", "k", *methods, "RealX − TreeSHAP", "RealX − LIME", "RealX − fixed",
             "per row − fixed", "captured", "by TreeSHAP", "sets: RealX, per row"]  # fmt: skip
    lines = []
    for row in rows:
        for k in sorted({f["k"] for f in row["figures"] if f["method"] == "RealX"}):
            here = [f for f in row["figures"] if f["k"] == k]
            share = row["captured"][str(k)]
            sets = [max((f["sets"] for f in here if f["method"] == m), default=0)
                    for m in ("RealX", "per row")]  # fmt: skip
            lines.append(
                [f"{_name(row)}", str(k)]
                + [_loglik([f for f in here if f["method"] == m], row) for m in methods]
                + [_difference(row, k, "RealX", other) for other in ("TreeSHAP", "LIME", "fixed")]
                + [_difference(row, k, "per row", "fixed")]
                + [_share(share.get("RealX")), _share(share.get("TreeSHAP"))]
                + [f"{sets[0]:,}, {sets[1]:,}"]
            )
    return table(heads, lines)


def own(rows: list[Row]) -> str:
    heads = ["", "choice", "λ", "features shown", "sets", "log-likelihood", "RealX − fixed",
             "per row − fixed", "captured"]  # fmt: skip
    lines = []
    for row in rows:
        (figure,) = (f for f in row["figures"] if f["method"] == "RealX, own sizes")
        lines.append(
            [_name(row), str(row["choice"]), f"{row['sparsity']:.3g}"]
            + [f"{row['size']:.1f} of {row['features']}", f"{row['sets']:,}"]
            + [_minus(f"{figure['loglik']:.3f}")]
            + [_difference(row, "own", one, "fixed") for one in ("RealX", "per row")]
            + [_share(row["captured"]["own"]["RealX"])]
        )
    return table(heads, lines)


def everything(rows: list[Row]) -> str:
    heads = ["", "rows", "features", "classes", "judge", "boosting", "tuned boosting",
             "judge − tuned", "RealX's predictor", "nothing", "RealX fit", "explain", "judge fit",
             "TreeSHAP"]  # fmt: skip
    lines = []
    for row in rows:
        by = {f["method"]: f for f in row["figures"] if f["method"] in ("everything", "nothing")}
        full, seconds = by["everything"], row["seconds"]
        lines.append(
            [_name(row), f"{row['rows']:,}", f"{row['features']:,}", str(row["classes"])]
            + [
                _both(full),
                *(_both(row["boosting"].get(m)) for m in ("boosting", "tuned boosting")),
            ]
            + [_difference(row, "everything", "judge", "tuned boosting")]
            + [_minus(f"{value:.3f}") for value in (full["own_loglik"], by["nothing"]["loglik"])]
            + [f"{seconds[m]:.1f} s" for m in ("RealX, fit", "RealX, explain", "judge, fit")]
            + [f"{seconds['TreeSHAP']:.1f} s" if "TreeSHAP" in seconds else "–"]
        )
    return table(heads, lines)


def overlaps(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        for name, alike in row["overlap"].items():
            values = ", ".join(f"{k}: {value:.2f}" for k, value in alike.items())
            lines.append([_name(row), name, values, *_numbers(row.get("shown", {}).get(name))])
    return table(["", "differ in", "by k", "shown by itself", "apart"], lines)


def _numbers(shown: list[float] | None) -> list[str]:
    """How many features each shows, and the largest less the smallest as a share of the mean."""
    if not shown:
        return ["–", "–"]
    mean = float(np.mean(shown))
    apart = (max(shown) - min(shown)) / mean if mean else 0.0
    return [", ".join(f"{size:.1f}" for size in shown), f"{apart:.0%}"]


def _name(row: Row) -> str:
    name = f"{row['table']}, boosting" if row.get("model") else row["table"]
    return f"{name}, seed {row['seed']}" if row.get("seed") else name


def _loglik(figures: list[Row], row: Row) -> str:
    """The best of several ways, or the mean of several draws; of how many rows, unless all."""
    if not figures:
        return "–"
    values = [f["loglik"] for f in figures]
    text = f"{np.mean(values) if 'draw' in figures[0] else max(values):.3f}"
    rows = figures[0]["rows"]
    return _minus(text if rows == row["parts"][2] else f"{text} ({rows} rows)")


def _difference(row: Row, k: float | str, of: str, less: str) -> str:
    for d in row["differences"]:
        if (d["k"], d["of"], d["less"]) == (k, of, less):
            text = f"{d['value']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]"
            return _minus(f"**{text}**" if _sure(d) else text)
    return "–"


def _sure(difference: Row) -> int:
    """1 or −1 where the interval lies on one side of 0, else 0."""
    return int(difference["low"] > 0) - int(difference["high"] < 0)


def _both(figure: Row | None) -> str:
    if figure is None:
        return "–"
    return _minus(f"{figure['auroc']:.3f}, {figure['loglik']:.3f}")


def _share(value: float | None) -> str:
    return "–" if value is None else _minus(f"{value:.2f}")


def _minus(text: str) -> str:
    return text.replace("-", "−")
