"""The report of an audit: one self-contained page, and the same in short as Markdown."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from unmasked.auditing import svg
from unmasked.auditing.result import COLUMNS, AuditResult, Finding
from unmasked.io.page import footer
from unmasked.metrics import Interval

_MOST_FEATURES = 30  # of a heat map
_MOST_CLASSES = 12
_MOST_SHOWN = 12  # features of one row, in the gallery
_TONES = {"encodes": "bad", "no sign of encoding": "good", "cannot tell": "care"}
_HEALTH_TONES = {"good": "good", "use with care": "care"}


def page(result: AuditResult, title: str, facts: dict[str, Any]) -> str:
    """The whole report as HTML. facts : where it comes from (`provenance`)."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"sentence": _sentence, "typeset": _typeset}
    source = files("unmasked.auditing").joinpath("report.html").read_text(encoding="utf-8")
    columns = _columns(result)
    return environment.from_string(source).render(
        title=title,
        result=result,
        tones=_TONES,
        health_tone=_HEALTH_TONES.get(result.health.verdict, "bad"),
        facts=_facts(result),
        columns=list(columns.values()),
        comparison=[_comparison(one, list(columns)) for one in result.explanations],
        references=_references(result, list(columns)),
        forest=Markup(_forest(result)),
        curves=[(name, Markup(_curve(result, name))) for name in result.curves],
        heats=[_heat(one, result) for one in result.explanations],
        gallery=_gallery(result),
        reliability=Markup(_reliability(result)),
        by_size=Markup(_by_size(result)),
        health_rows=_health_rows(result),
        command=facts["command"],
        footer=footer(facts),
    )


def markdown(result: AuditResult, title: str, facts: dict[str, Any]) -> str:
    """The verdicts and the comparison as Markdown."""
    columns = _columns(result)
    text = [f"# {title}", ""]
    text += [f"- {_typeset(line)}" for line in result.summary]
    for one in result.explanations:
        text += ["", f"## {one.name}: {one.verdict}", "", f"**{one.answer}**", ""]
        prediction = "" if one.prediction is None else one.prediction.reason
        told = (one.encoding.reason, prediction, one.fidelity_reason, one.room)
        text += [_sentence(line) for line in told if line]
        text += ["", *(f"- {_sentence(remark)}" for remark in one.remarks)]
    text += ["", "## Comparison", ""]
    text.append("| | verdict | nats | " + " | ".join(columns.values()) + " |")
    text.append("|---" * (len(columns) + 3) + "|")
    for one in result.explanations:
        cells = [_typeset(str(one.metrics[name])) for name in columns]
        text.append(
            f"| {one.name.replace('|', '/')} | {one.verdict} | "
            + _typeset(f"{one.encoding_nats} | ")
            + " | ".join(cells)
            + " |"
        )
    text += ["", *(f"{line}\n" for line in [*result.ranking, *result.notes])]
    text += ["## What was assumed", "", *(f"- {line}" for line in result.assumptions)]
    text += ["", "## To repeat it", "", "```", facts["command"], "```", "", footer(facts), ""]
    return "\n".join(text)


def _columns(result: AuditResult) -> dict[str, str]:
    return {
        name: head
        for name, head in COLUMNS.items()
        if all(name in one.metrics for one in result.explanations)
    }


def _facts(result: AuditResult) -> dict[str, str]:
    table = result.table
    counts = np.bincount(table.label, minlength=len(table.classes))
    named = [f"{c} {n / len(table):.0%}" for c, n in zip(table.classes, counts, strict=True)]
    return {
        "rows": f"{len(table):,}",
        "features": f"{table.frame.shape[1]:,}",
        "classes": ", ".join(named[:8]) + (" …" if len(named) > 8 else ""),
    }


def _pair(interval: Interval, percent: bool = False) -> tuple[str, str]:
    """A figure and its interval, as two pieces of text."""
    if not math.isfinite(interval.value):
        return "–", ""
    if percent:
        return f"{interval.value:.0%}", ""
    value, low, high = (_typeset(f"{v:.3f}") for v in (interval.value, interval.low, interval.high))
    return value, f"{low} to {high}"


def _comparison(one: Finding, columns: list[str]) -> dict[str, Any]:
    return {
        "name": one.name,
        "verdict": one.verdict,
        "cells": [
            _pair(one.encoding_nats),
            *(_pair(one.metrics[name], name == "fraction") for name in columns),
        ],
    }


def _references(result: AuditResult, columns: list[str]) -> list[dict[str, Any]]:
    found = []
    for key, share in (("everything", 1.0), ("nothing", 0.0)):
        cells = [("", "")]
        for column in columns:
            own = result.references.get(f"{key}_{column}")
            if column == "fraction":
                cells.append((f"{share:.0%}", ""))
            else:
                cells.append(("", "") if own is None else _pair(own))
        found.append({"name": f"{key} shown", "cells": cells})
    return found


def _mark(label: str, figure: Interval, colour: int, hollow: bool = False) -> svg.Mark:
    return svg.Mark(label, figure.value, figure.low, figure.high, colour, hollow)


def _forest(result: AuditResult) -> str:
    marks = [_mark("everything shown", result.references["everything_eloglik"], 5)]
    for i, one in enumerate(result.explanations):
        colour = i % 5
        marks.append(_mark(one.name, one.metrics["eloglik"], colour))
        marks.append(
            _mark(f"random masks like {one.name}", one.metrics["random_eloglik"], colour, True)
        )
    marks.append(_mark("nothing shown", result.references["nothing_eloglik"], 5))
    return svg.forest(
        marks, "log-likelihood under EVAL-X, nats a row", "Log-likelihood of each explanation"
    )


def _points(sizes: Any, figures: list[Interval]) -> list[tuple[float, float, float, float]]:
    return [(float(s), f.value, f.low, f.high) for s, f in zip(sizes, figures, strict=True)]


def _curve(result: AuditResult, name: str) -> str:
    curve = result.curves[name]
    random = [point["eloglik"] for point in result.health.by_size]
    sizes = [point["size"] for point in result.health.by_size]
    return svg.lines(
        [
            svg.Series("shown, most important first", _points(curve.sizes, curve.insertion), 0),
            svg.Series("hidden, most important first", _points(curve.sizes, curve.deletion), 1),
            svg.Series("shown at random", _points(sizes, random), 5, "dash"),
        ],
        "features shown or hidden",
        "log-likelihood, nats",
        f"Insertion and deletion curves of {name}",
    )


def _reliability(result: AuditResult) -> str:
    points = []
    for sure, share, rows in result.health.reliability:
        error = 1.96 * math.sqrt(max(share * (1 - share), 1e-9) / rows)
        points.append((sure, share, max(0.0, share - error), min(1.0, share + error)))
    return svg.lines(
        [svg.Series("share that is right", points, 0)],
        "how sure the evaluator is",
        "share right",
        "Reliability of the evaluator",
        diagonal=True,
    )


def _by_size(result: AuditResult) -> str:
    sizes = [point["size"] for point in result.health.by_size]
    gains = [point["over_prior"] for point in result.health.by_size]
    flat = [(float(size), 0.0, 0.0, 0.0) for size in (sizes[0], sizes[-1])]
    return svg.lines(
        [
            svg.Series("evaluator, random masks", _points(sizes, gains), 0),
            svg.Series("class shares alone", flat, 5, "dash"),
        ],
        "features shown",
        "gain, nats a row",
        "Log-likelihood by mask size over the class shares",
    )


def _health_rows(result: AuditResult) -> list[list[str]]:
    health = result.health
    low, high = health.trained_sizes
    rows = []
    for one, outside, spread in zip(
        result.explanations, health.outside, health.spread, strict=True
    ):
        sizes = one.masks.sum(1)
        rows.append(
            [
                one.name,
                f"{sizes.min()} to {sizes.max()}",
                f"{1 - outside:.0%} within {low} to {high}",
                f"{spread:.4f}",
            ]
        )
    return rows


def _heat(one: Finding, result: AuditResult) -> dict[str, Any]:
    """Share of rows of each class in which each feature is shown."""
    table = result.table
    counts = np.bincount(table.label, minlength=len(table.classes))
    classes = np.argsort(-counts, kind="stable")[:_MOST_CLASSES]
    rates = one.masks.mean(0)
    chosen = [i for i in np.argsort(-rates, kind="stable")[:_MOST_FEATURES] if rates[i] > 0]
    by_class: NDArray[Any] = np.array(
        [one.masks[table.label == c].mean(0) for c in classes]
    )  # (classes, features)
    return {
        "name": one.name,
        "classes": [str(table.classes[c]) for c in classes],
        "more_classes": len(table.classes) - len(classes),
        "rows": [
            {
                "feature": str(table.frame.columns[i]),
                "rates": [float(by_class[c, i]) for c in range(len(classes))],
                "gap": float(by_class[:, i].max() - by_class[:, i].min()),
            }
            for i in chosen
        ],
        "hidden": int((rates == 0).sum()),
        "more": int((rates > 0).sum()) - len(chosen),
    }


def _gallery(result: AuditResult) -> list[dict[str, Any]]:
    """Some rows of each class: what each explanation shows of it, and what that predicts."""
    table = result.table
    random = np.random.default_rng((result.random_state, 17))
    order = random.permutation(len(table))
    place = np.empty(len(table), dtype=np.int64)  # a row's place among those of its class
    for label in range(len(table.classes)):
        own = order[table.label[order] == label]
        place[own] = np.arange(len(own))
    chosen = order[np.argsort(place[order], kind="stable")][: result.settings.gallery]
    names = [str(name) for name in table.frame.columns]
    cards = []
    for row in np.sort(chosen):
        values = table.frame.iloc[row]
        shown = []
        for one in result.explanations:
            features = np.flatnonzero(one.masks[row])
            shown.append(
                {
                    "name": one.name,
                    "features": [
                        (names[i], _value(values.iloc[i])) for i in features[:_MOST_SHOWN]
                    ],
                    "more": max(0, len(features) - _MOST_SHOWN),
                    "chance": f"{result.chances[one.name][row]:.2f}",
                    "gain": _typeset(f"{one.encoding.gains[row]:+.2f}")
                    if len(one.encoding.gains) == len(table)
                    else "",
                }
            )
        cards.append(
            {
                "id": str(table.ids[row]),
                "label": str(table.classes[table.label[row]]),
                "everything": f"{result.chances['everything'][row]:.2f}",
                "shown": shown,
            }
        )
    return cards


def _value(value: Any) -> str:
    if value is None or value is pd.NA or value != value:  # NaN differs from itself
        return "missing"
    if isinstance(value, float | np.floating):
        return _typeset(f"{value:.4g}")
    return str(value)


def _typeset(text: str) -> str:
    """Proper minus signs, and none before a zero.

    >>> _typeset("from -0.000 to -1.2, top-k")
    'from 0.000 to −1.2, top-k'
    """
    text = re.sub(r"(?<!\w)-(0\.0+)(?!\d)", r"\1", text)
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def _sentence(text: str) -> str:
    """With a capital letter and proper minus signs."""
    return _typeset(text[:1].upper() + text[1:])
