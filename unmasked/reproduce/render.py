"""Render tables as text, Markdown and a page, with the words of what they are about."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unmasked.io.page import Section, TableBlock, footer, render
from unmasked.reproduce.tables import Table

EXCHANGE = "REAL-X-EXCHANGE"
"""REAL-X whose predictor learns from other images' selections too; ours, not the paper's."""
BUDGET = "REAL-X-K"
"""The same with L2X's way of drawing: exactly k in every image; ours too."""
WITH_K = ("L2X", BUDGET)
"""Methods whose settings are numbers k; the others' are prices λ."""
METHODS = ("FULL", "REAL-X", EXCHANGE, BUDGET, "L2X", "INVASE", "BASE-X")
OPTIMUM = "optimum"
"""The truth in place of a method, where it is known: true probabilities, true features shown."""
REFERENCES = ("FULL", OPTIMUM)
"""What methods are compared with: the same in every run of the same images and seeds."""


@dataclass(frozen=True)
class Subject:
    """An image table.

    dataset : as in the rows. table : its heading. title : the page's.
    unit : what is shown or hidden. classes : their names. thing : what an image is of, as in
    "a handwritten {}" with a class's name. samples : pictures of each class.
    published : the paper's figures by method, as fractions; it has none of methods of ours.
    """

    dataset: str
    table: str
    title: str
    unit: str
    thing: str
    classes: tuple[str, ...]
    samples: int
    published: Mapping[str, Mapping[str, float]]


MNIST = Subject(
    dataset="MNIST",
    table="Table 2: MNIST",
    title="MNIST: ours beside the paper's",
    unit="pixels",
    thing="a handwritten {}",
    classes=tuple(str(digit) for digit in range(10)),
    samples=2,
    published={
        "FULL": {"acc": 0.978, "auroc": 0.999},
        "REAL-X": {"acc": 0.938, "auroc": 0.997, "eacc": 0.867, "eauroc": 0.989, "sparsity": 5.0},
        "L2X": {"acc": 0.960, "auroc": 0.998, "eacc": 0.114, "eauroc": 0.561, "k": 1},
        "INVASE": {"acc": 0.931, "auroc": 0.996, "eacc": 0.503, "eauroc": 0.883, "sparsity": 10.0},
        "BASE-X": {"acc": 0.928, "auroc": 0.996, "eacc": 0.569, "eauroc": 0.899, "sparsity": 10.0},
    },
)
CXR = Subject(
    dataset="CXR",
    table="Table 3: chest X-rays",
    title="Chest X-rays: ours beside the paper's",
    unit="superpixels",
    thing="a chest X-ray, {}",
    classes=("normal", "cardiomegaly"),
    samples=5,
    published={
        "FULL": {"acc": 0.780, "auroc": 0.887},
        "REAL-X": {"acc": 0.750, "auroc": 0.838, "eacc": 0.703, "eauroc": 0.777, "sparsity": 2.5},
        "L2X": {"acc": 0.750, "auroc": 0.848, "eacc": 0.540, "eauroc": 0.581, "k": 10},
        "INVASE": {"acc": 0.743, "auroc": 0.819, "eacc": 0.523, "eauroc": 0.548, "sparsity": 2.5},
        "BASE-X": {"acc": 0.743, "auroc": 0.818, "eacc": 0.517, "eauroc": 0.595, "sparsity": 2.5},
    },
)


WIDTH = 120
TITLE = "S1, S2 and S3: ours beside the paper's"
DEVIATIONS = "Deviations from the paper, each with its effect where it was measured"


def to_text(table: Table) -> str:
    """Aligned columns, at most 120 characters wide; a wider block continues below itself."""
    parts = [f"{table.title}\n{'=' * len(table.title)}"]
    parts += [f"{block.title}\n{_aligned(block.table)}" for block in table.blocks]
    notes = [
        textwrap.fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ")
        for note in table.notes
    ]
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def _aligned(block: TableBlock) -> str:
    lines = [block.header, *block.rows]
    widths = [max(len(line[c]) for line in lines) for c in range(len(block.header))]
    pages: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        if sum(widths[c] + 2 for c in pages[-1]) + widths[column] > WIDTH and len(pages[-1]) > 1:
            pages.append([0])  # the labels again
        pages[-1].append(column)
    return "\n\n".join(_page(lines, widths, page) for page in pages)


def _page(lines: list[list[str]], widths: list[int], columns: list[int]) -> str:
    text: list[str] = []
    for line in lines:
        cells = [line[c].rjust(widths[c]) if c else line[c].ljust(widths[c]) for c in columns]
        text += [""] if not any(line[1:]) and len(text) > 1 else []  # a group begins
        text.append("  ".join(cells).rstrip())
    rule = "-" * max(len(line) for line in text)
    return "\n".join([text[0], rule, *text[1:]])


def to_markdown(table: Table) -> str:
    """Pipe tables below headings; stressed lines have bold labels."""
    parts = [f"## {table.title}"]
    for block in table.blocks:
        header, rows = block.table.header, block.table.rows
        lines = [_piped(header), _piped([":---"] + ["---:"] * (len(header) - 1))]
        for i, row in enumerate(rows):
            first = f"**{row[0]}**" if i in block.table.stressed else row[0]
            lines.append(_piped([first, *row[1:]]))
        parts += [f"### {block.title}", "\n".join(lines)]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in table.notes)]) + "\n"


def _piped(cells: list[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|").replace("<", "&lt;") for c in cells) + " |"


def to_html(
    found: list[Table], title: str, lead: list[str], footer: str, deviations: Sequence[str] = ()
) -> str:
    """One self-contained page; each table starts with its first note and ends with the others."""
    sections = []
    for table in found:
        sections.append(Section(table.title, table.notes[:1]))
        sections += [Section(block.title, table=_narrow(block.table)) for block in table.blocks]
        sections[-1] = replace(sections[-1], after=table.notes[1:])
    if deviations:
        sections.append(Section(DEVIATIONS, list(deviations)))
    return render(title, lead, sections, footer)


def _narrow(block: TableBlock) -> TableBlock:
    """Shorter errors: six columns of figures then fit the page without scrolling."""
    return replace(block, rows=[[c.replace(" ± 0.", " ±.") for c in row] for row in block.rows])


TABLES = ("tables.txt", "tables.md", "tables.html")
"""What `write_tables` writes."""


def write_tables(
    folder: Path,
    found: list[Table],
    facts: dict[str, Any],
    lead: list[str],
    deviations: Sequence[str] = (),
    *,
    title: str = TITLE,
) -> None:
    """Write ``tables.txt``, ``tables.md`` and ``tables.html`` into a folder.

    ``facts`` are ``report.results.provenance``'s; ``lead`` is what was found, in plain words;
    ``deviations`` are numbered.
    """
    origin = footer(facts)
    numbered = [f"{i}. {text}" for i, text in enumerate(deviations, 1)]
    head = [DEVIATIONS] if numbered else []
    plain = [textwrap.fill(text, WIDTH) for text in lead]
    plain += [*map(to_text, found), *head]
    plain += [textwrap.fill(text, WIDTH, subsequent_indent="   ") for text in numbered]
    text = "\n\n".join([title, *plain, textwrap.fill(origin, WIDTH)])
    markdown = [
        f"# {title}",
        *lead,
        *map(to_markdown, found),
        *(f"## {heading}" for heading in head),
    ]
    markdown += ["\n".join(numbered)] if numbered else []
    (folder / "tables.txt").write_text(text + "\n", encoding="utf-8")
    (folder / "tables.md").write_text("\n\n".join([*markdown, origin]) + "\n", encoding="utf-8")
    page = to_html(found, title, lead, origin, numbered)
    (folder / "tables.html").write_text(page, encoding="utf-8")
