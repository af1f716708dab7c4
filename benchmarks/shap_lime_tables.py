"""What benchmarks/shap_lime.py found, as ratios and as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def speed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each set and library: how many times quicker we are, and from how many rows it pays."""
    found = []
    for name in dict.fromkeys(row["dataset"] for row in rows):
        own = {row["method"]: row["seconds"] for row in rows if row["dataset"] == name}
        for ours in ("REAL-X", "L2X"):
            for theirs in ("KernelSHAP", "LIME", "TreeSHAP, background", "TreeSHAP"):
                saved = own[theirs]["row"] - own[ours]["row"]
                found.append(
                    {
                        "dataset": name,
                        "method": ours,
                        "against": theirs,
                        "times_quicker": own[theirs]["row"] / own[ours]["row"],
                        "times_quicker_processor": own[theirs]["row_processor"]
                        / own[ours]["row_processor"],
                        "pays_from_rows": own[ours]["training"] / saved if saved > 0 else None,
                    }
                )
    return found


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "| :--- |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def interval(value: dict[str, float]) -> str:
    text = f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
    return text.replace("-", "−")


def figures(rows: list[dict[str, Any]]) -> str:
    """All the rows that each method explained."""
    heads = ["", "rows", "eAUROC", "e log-lik.", "exact AUROC", "exact log-lik.", "TPR", "FDR",
             "CFSR", "shown"]  # fmt: skip
    lines = []
    for row in rows:
        m = row["metrics"]
        lines.append(
            [row["method"], f"{row['judged_rows']:,}"]
            + [interval(m[key]) for key in ("eauroc", "eloglik", "oauroc", "ologlik")]
            + [f"{m[key]:.3f}" for key in ("tpr", "fdr", "cfsr", "fraction")]
        )
    return table(heads, lines)


def paired(rows: list[dict[str, Any]]) -> str:
    """The rows that all explained, with the difference from REAL-X on them."""
    heads = ["", "e log-lik. over REAL-X", "exact log-lik. over REAL-X", "TPR", "FDR", "CFSR"]
    lines = []
    for row in rows:
        m = row["metrics"]
        lines.append(
            [row["method"]]
            + [interval(m[f"over_realx_{letter}loglik"]) for letter in "eo"]
            + [f"{m[key]:.3f}" for key in ("tpr", "fdr", "cfsr")]
        )
    return table(heads, lines)


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def pays_from(pay: dict[str, Any] | None) -> str:
    if pay is None:
        return "–"
    return "never" if pay["pays_from_rows"] is None else f"{pay['pays_from_rows']:,.0f}"


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: for each set the cuts, the rows that KernelSHAP explained, and the times."""
    pays = speed(rows)
    text = []
    for name in dict.fromkeys(row["dataset"] for row in rows):
        own = [row for row in rows if row["dataset"] == name]
        text.append(f"## {name}")
        for cut in dict.fromkeys(row["cut"] for row in own):
            here = [row for row in own if row["cut"] == cut]
            whole = [row for row in here if row["judged_rows"] == row["explained_rows"]]
            few = min(row["judged_rows"] for row in here)
            same = [row for row in here if row["judged_rows"] == few]
            text += [f"### {name}, {cut}: all the rows that each explained", figures(whole)]
            text += [f"### {name}, {cut}: the {few} rows that all explained", paired(same)]
        text.append(f"### {name}: time")
        once = {row["method"]: row for row in own if row["seconds"]["row"] is not None}
        against = {(pay["method"], pay["against"]): pay for pay in pays if pay["dataset"] == name}
        lines = []
        for method, row in once.items():
            taken = row["seconds"]
            line = [method, row["setting"], seconds(taken["row"]), seconds(taken["row_processor"])]
            line.append(seconds(taken["training"]))
            ours = [against.get((name, method)) for name in ("REAL-X", "L2X")]
            line.append("–" if ours[0] is None else f"{ours[0]['times_quicker']:,.0f}")
            line += [pays_from(pay) for pay in ours]
            lines.append(line)
        text.append(
            table(
                ["", "setting", "a row", "a row, processor", "training", "REAL-X is quicker, times",
                 "REAL-X pays from rows", "L2X pays from rows"],
                lines,
            )
        )  # fmt: skip
    return "\n\n".join(text)


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "an unknown processor"
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
