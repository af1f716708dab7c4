"""In notebooks: results draw themselves, bars move without widgets, plots appear and keep ax."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from types import ModuleType, SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from unmasked import EvalX, Explanation, Training, synthetic
from unmasked.evaluation.encoding import Encoding
from unmasked.evaluation.encoding.networks import forest
from unmasked.evaluation.evaluator import Scores
from unmasked.explanation.html import explanation_html
from unmasked.metrics import Interval
from unmasked.plots import figures as plots
from unmasked.plots.notebook import (
    Cell,
    NotebookProgress,
    block,
    in_notebook,
    lines,
    picture,
    progress_bar,
    table,
)
from unmasked.training.progress import Bar

mpl.use("Agg")

EVIL = "<script>alert('x')</script> & \"dose\""


def parsed(html: str) -> ElementTree.Element:
    """HTML that is well formed, and holds nothing from elsewhere and no script."""
    root = ElementTree.fromstring(html)
    for element in root.iter():
        assert element.tag in {
            "div", "table", "thead", "tbody", "tr", "th", "td", "img"
        }, element.tag  # fmt: skip
        assert element.get("src", "data:").startswith("data:")
        style = element.get("style", "")
        assert "url(" not in style
        assert "#" not in style  # no fixed colour: both light and dark must do
    return root


def texts(root: ElementTree.Element, tag: str) -> list[str]:
    return [element.text or "" for element in root.iter(tag)]


# ---------------------------------------------------------------------- HTML


def test_tables_are_escaped_and_labelled() -> None:
    root = parsed(block(lines([EVIL]), table(["", EVIL], [["age", EVIL], ["<b>", Cell("1", 1.0)]])))
    assert texts(root, "th") == ["", EVIL, "age", "<b>"]
    assert texts(root, "td") == [EVIL, "1"]
    assert [cell.get("scope") for cell in root.iter("th")] == ["col", "col", "row", "row"]
    filled = [cell for cell in root.iter("td") if "background" in cell.get("style", "")]
    assert texts(root, "td").index("1") == 1
    assert len(filled) == 1
    assert "bold" in filled[0].get("style", "")  # not by colour alone
    with pytest.raises(ElementTree.ParseError):
        parsed("<div><script></div>")


def test_an_explanation_draws_its_first_rows_and_most_shown_features() -> None:
    chances = np.tile(np.linspace(0.9, 0.1, 20), (30, 1))
    chances[0] = 0.2
    names = [f"{EVIL} {i}" for i in range(20)]
    explanation = Explanation(chances > 0.5, chances, names, [f"<p{i}>" for i in range(30)])
    html = explanation._repr_html_()
    root = parsed(html)
    assert texts(root, "th")[1:13] == names[:12]
    labels = [cell.text for cell in root.iter("th") if cell.get("scope") == "row"]
    assert labels == ["shown in", *[f"<p{i}>" for i in range(8)]]
    cells = texts(root, "td")
    assert cells[:2] == ["97%", "97%"]  # of 30 rows, all but the first
    assert cells[12:14] == ["0.20", "0.20"]
    assert cells[24:26] == ["0.90", "0.86"]
    filled = [("background" in cell.get("style", "")) for cell in root.iter("td")]
    assert filled[12:] == explanation.masks[:8, :12].ravel().tolist()
    assert "22 more rows; 8 more features" in texts(root, "div")[-1]
    assert texts(root, "div")[1] == repr(explanation)[1:-1]
    assert len(html) < 30_000


def test_an_explanation_that_knows_its_rows_draws_their_values() -> None:
    masks = np.tile([True, False], (9, 1))
    known = Explanation(masks, feature_names=["age", "dose"]).with_values(
        np.array([[EVIL * 2, 7.5]] * 9, dtype=object)
    )
    root = parsed(known._repr_html_())
    cells = texts(root, "td")
    assert cells[:2] == ["100%", "0%"]
    assert cells[2:4] == [f"{EVIL[:23]}…", "7.5"]
    assert ["background" in cell.get("style", "") for cell in root.iter("td")][2:4] == [True, False]
    told = texts(root, "div")
    assert "the same 1 of 2 features for every row (age): a choice for all rows" in told[1]
    assert told[-1] == "filled: shown; in the cells: the rows' values; 1 more rows."


def test_an_explanation_of_masks_alone_of_nothing_and_of_images() -> None:
    masks = Explanation(np.eye(3, dtype=bool))
    assert texts(parsed(masks._repr_html_()), "td")[3:6] == ["●", "", ""]
    assert texts(parsed(masks[:0]._repr_html_()), "div")[1] == "Explanation of 0 rows × 3 features"
    images = Explanation(np.eye(4, dtype=bool)[:2], pixels=[[0, 1], [2, 3]])
    html = images._repr_html_()
    assert html.count("data:image/png;base64,") == 1
    assert 'alt="how often each pixel is shown"' in html
    assert "at most 50%" in html
    assert "<table" not in html


def test_names_cannot_leave_a_picture_s_text() -> None:
    assert '"><script' not in picture(b"x", '"><script>', 10)
    shown = np.ones((1, 1), dtype=bool)
    html = explanation_html(EVIL, shown, shown, [EVIL], np.array([EVIL]), None)
    assert "<script" not in html


def test_scores_draw_what_they_print() -> None:
    figures = {"eauroc": Interval(0.8, 0.7, 0.9), "eloglik": Interval(float("nan"), 0, 0)}
    scores = Scores(
        {"explanation": figures, "nothing": figures}, {}, 0.25, 1234, True, [EVIL], "<EVAL>"
    )
    root = parsed(scores._repr_html_())
    assert texts(root, "th") == [
        "", "AUROC (micro)", "log-likelihood", "what the explanation shows", "nothing shown"
    ]  # fmt: skip
    assert texts(root, "td") == ["0.800 [0.700, 0.900]", "–"] * 2
    assert texts(root, "div")[1:] == [
        "<EVAL> on 1,234 rows, 25% of the features shown; 95% intervals", f"note: {EVIL}"
    ]  # fmt: skip
    for cell in texts(root, "td") + texts(root, "th"):
        assert cell in repr(scores)


# ---------------------------------------------------------------------- progress


class Notebook:
    """IPython's display, which keeps what it was given."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, what: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.shown.append(what)
        return SimpleNamespace(update=self._update)

    def _update(self, what: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(what)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A kernel as far as rich and we look for one."""
    found = Notebook()
    shell = type("ZMQInteractiveShell", (), {"kernel": None})()
    for name, content in {
        "IPython": {"get_ipython": lambda: shell},
        "IPython.display": {"display": found.display},
    }.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("builtins.get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr("unmasked.plots.notebook._EVERY", 0.0)
    return found


def test_a_notebook_is_known(notebook: Notebook) -> None:
    assert in_notebook()


def test_elsewhere_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    assert not isinstance(progress_bar(BarColumn()), NotebookProgress)
    terminal = ModuleType("IPython")
    terminal.get_ipython = lambda: object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert not in_notebook()  # IPython in a terminal


def test_a_bar_is_redrawn_in_place_and_holds_no_control_characters(notebook: Notebook) -> None:
    with progress_bar(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    ) as bar:
        task = bar.add_task("<b>training</b>", total=4)
        for done in range(3):
            bar.advance(task) if done else bar.update(task, completed=1)
    plain = [what["text/plain"] for what in notebook.shown]
    assert [part for text in plain for part in text.split() if "/4" in part][-1] == "3/4"
    assert any("1/4" in text for text in plain)
    for what in notebook.shown:
        for text in what.values():
            assert not any(ord(letter) < 32 and letter != "\n" for letter in text)
        assert "<b>" not in what["text/html"]
    assert "&lt;b&gt;training" in notebook.shown[-1]["text/html"]


def test_a_bar_is_not_redrawn_more_often_than_needed(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmasked.plots.notebook._EVERY", 3600.0)
    with progress_bar(BarColumn(), MofNCompleteColumn()) as bar:
        task = bar.add_task("", total=1000)
        for _ in range(1000):
            bar.advance(task)
    assert len(notebook.shown) == 2  # when it starts and when it ends
    assert "1000/1000" in notebook.shown[-1]["text/plain"]


def test_training_shows_its_bar_in_a_notebook_without_widgets(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = synthetic("S1", 60, seed=0)
    EvalX(training=Training(epochs=2), random_state=0, progress=True).fit(rows.x, rows.y)
    assert "2/2" in notebook.shown[-1]["text/plain"]
    with Bar("some", 3, True) as bar:
        bar.update(1, 0.5, 0.25)
    assert "loss 0.5000, shows 25%" in notebook.shown[-1]["text/plain"]
    assert capsys.readouterr().err == ""  # and nothing beside it


# ---------------------------------------------------------------------- plots

MASKS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=bool)
ENCODING = Encoding(
    nats=0.01, low=0.0, high=0.02, verdict="cannot tell", reason="", detectable=0.1,
    effective_rows=10.0, rows=10, classes=2, threshold=0.02, gains=np.zeros(10),
)  # fmt: skip
DRAWN: dict[str, Any] = {
    "one_row": lambda ax: plots.one_row(
        np.array([0.9, 0.2, 0.1]), MASKS[0], ["a$b", "$\\frac$", "c"], title="cost $ $", ax=ax
    ),
    "heat_map": lambda ax: plots.heat_map(
        MASKS, ["a$b", "$\\frac$", "c"], groups=np.array(["$x", "y$", "$x", "y$"]), ax=ax,
        title="in $",
    ),
    "pixel_map": lambda ax: plots.pixel_map(np.zeros((3, 2)), title="image $1$", ax=ax),
    "over_image": lambda ax: plots.over_image(
        np.arange(6.0).reshape(1, 3, 2), np.eye(3, 2, dtype=bool), title="image $\\q$", ax=ax
    ),
    "sparsity_path": lambda ax: plots.sparsity_path(
        [0.1, 0.3], [0.6, 0.8], ["λ 1", "λ 2"], 1, score_name="AUROC",
        references={"all": 0.9}, intervals=[(0.5, 0.7), (0.7, 0.9)], ax=ax,
    ),
    "forest": lambda ax: forest({"a $ b": ENCODING, "$\\q$": ENCODING}, ax=ax),
    "explanation": lambda ax: Explanation(MASKS).plot(ax=ax),
    "explanation's row": lambda ax: Explanation(MASKS).plot(1, ax=ax),
}  # fmt: skip


@pytest.mark.parametrize("kind", DRAWN)
def test_every_plot_takes_and_returns_ax(kind: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert DRAWN[kind](left) is left
    assert not right.has_data()  # the neighbour is left alone
    figure.canvas.draw()  # names with dollars are names, not formulas
    made = DRAWN[kind](None)
    assert made.figure is not figure
    made.figure.canvas.draw()


@pytest.mark.parametrize("kind", DRAWN)
def test_a_plot_in_a_notebook_is_pyplot_s_so_that_it_is_drawn(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import pyplot

    monkeypatch.setattr(plots, "in_notebook", lambda: True)

    pyplot.close("all")
    made = DRAWN[kind](None)
    assert pyplot.get_fignums() == [made.figure.number]
    pyplot.close("all")
    ax = pyplot.figure().subplots()
    assert DRAWN[kind](ax) is ax  # on the given axes, and no other figure is made
    assert len(pyplot.get_fignums()) == 1
    pyplot.close("all")


def test_names_with_dollars_are_drawn_as_they_are() -> None:
    ax = plots.one_row(np.array([0.9, 0.2]), MASKS[0, :2], ["a$b$", "$"], title="t", ax=None)
    assert [label.get_text() for label in ax.get_yticklabels()] == [r"a\$b\$", r"\$"]
