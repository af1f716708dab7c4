"""The report on drawn films, and on larger superpixels, says what the results say."""

from __future__ import annotations

import numpy as np
import pytest
from report_figures import (
    cells,
    chosen,
    films,
    interval,
    mean,
    measured,
    measured_full,
    numbers,
    prose,
    rows,
)

HONEST = ("REAL-X", "REAL-X-EXCHANGE")
SEARCHED = tuple(f"{name}, λ = {price}" for name in HONEST for price in (1, 2, 4))
TOLD = ("REAL-X-K, k = 16", "L2X, k = 16")
DRAWN = (*SEARCHED, *TOLD)
LARGE = tuple(f"REAL-X, λ = {price:g}" for price in (0.25, 0.5, 1, 2.5))
LARGE += ("L2X, k = 1", "L2X, k = 5", "L2X, k = 15", "INVASE, λ = 1")
LARGE += ("BASE-X, λ = 0.5", "BASE-X, λ = 1")


@pytest.mark.parametrize("name", ["FULL", *DRAWN, "optimum"])
def test_the_table_of_drawn_films_is_the_measured_one(name: str) -> None:
    found = measured(rows("cxr/phantom"), name, chosen=False)
    table, _ = films()[3].split("\n![")
    shown, *columns = cells(table, name)
    if name == "FULL":
        assert shown == "256"
    else:
        assert numbers(shown) == pytest.approx([256 * v for v in found["fraction"]], abs=0.051)
    keys = ("iou", "tpr", "fdr", "auroc", "eauroc", "eauroc_varied", "macc")
    for cell, key in zip(columns, keys, strict=True):
        assert numbers(cell) == pytest.approx(found[key], abs=5.1e-4), key


@pytest.mark.parametrize("name", DRAWN)
def test_the_table_of_runs_of_drawn_films_is_the_measured_one(name: str) -> None:
    _, table = films()[3].split("\n![")
    folders = ("cxr/scattered/phantom", "cxr/phantom/first", "cxr/phantom")
    for cell, folder in zip(cells(table, name), folders, strict=True):
        found = measured(rows(folder), name, chosen=False)["iou"]
        assert numbers(cell) == pytest.approx(found, abs=5.1e-4), folder


def _minus(values: list[float]) -> list[str]:
    return [f"{value:.3f}".replace("-", "−") for value in values]


def test_what_the_report_says_of_drawn_films_holds() -> None:
    text, table = prose(films()[3]), rows("cxr/phantom")
    for name, said in (
        ("REAL-X-K, k = 16", "told the number (REAL-X-K) {:.3f} and {:.3f}"),
        ("L2X, k = 16", "told the right number, has {:.3f} and {:.3f}"),
    ):
        assert said.format(*measured(table, name, chosen=False)["iou"]) in text
    real, true = (chosen(table, name) for name in ("REAL-X", "optimum"))
    assert [row["setting"]["sparsity"] for row in real] == [1.0, 2.0]
    figures = {
        key: [[row["metrics"][key] for row in own] for own in (real, true)]
        for key in ("iou", "macc", "eloglik", "eloglik_varied", "auroc")
    }
    assert "λ = 1 and 2, has {:.3f} and {:.3f};".format(*figures["iou"][0]) in text
    assert f"on average, {figures['auroc'][1][0]:.3f} on these films" in text
    own, best = map(_minus, figures["eloglik_varied"])
    assert "log-likelihood of {} and {} from REAL-X's".format(*own) in text
    assert "selections and {} and {} from the true superpixels".format(*best) in text
    own, best = map(_minus, figures["eloglik"])
    assert "judge less, {} and {} against {} and {}.".format(*own, *best) in text
    alone, true_alone = figures["macc"]
    assert "which* superpixels are true names {:.3f} and {:.3f} of".format(*true_alone) in text
    assert "the chosen settings {:.3f} and {:.3f}. A".format(*alone) in text
    shown = measured(table, "L2X, k = 16", chosen=False)["macc"]
    assert "L2X shows gives {:.3f} and {:.3f} away".format(*shown) in text


def test_what_the_report_says_of_the_runs_of_drawn_films_holds() -> None:
    text, now, before = prose(films()[3]), rows("cxr/phantom"), rows("cxr/phantom/first")
    for key in ("acc", "auroc", "loglik", "eacc", "eauroc", "eloglik_varied"):
        assert measured_full(now, key) == measured_full(before, key)  # "to the last digit"
    apart = {
        name: np.abs(np.subtract(*(measured(t, name, chosen=False)["iou"] for t in (now, before))))
        for name in DRAWN
    }
    assert max(apart[name].max() for name in SEARCHED) > 0.1
    assert max(apart[name].max() for name in TOLD) < 0.03  # "steady"

    def worth(name: str, price: float) -> list[float]:
        """Log-likelihood less λ · fraction."""
        method, setting = name.split(", ")
        own = [
            row["metrics"]
            for row in now
            if row["method"] == method and list(row["setting"].values()) == numbers(setting)
        ]
        return [metrics["loglik"] - price * metrics["fraction"] for metrics in own]

    found = [_minus(worth(name, 4)) for name in ("REAL-X, λ = 4", "REAL-X-K, k = 16")]
    assert "are worth {} and {} on the test films".format(*found[0]) in text
    assert "superpixels would be {} and {}, at λ = 2".format(*found[1]) in text
    found = [_minus(worth(name, 2)) for name in ("REAL-X, λ = 2", "REAL-X-K, k = 16")]
    assert "at λ = 2 {} and {} against {} and {},".format(*found[0], *found[1]) in text


@pytest.mark.parametrize("name", ["FULL", *LARGE])
def test_the_table_of_larger_superpixels_is_the_measured_one(name: str) -> None:
    table = rows("cxr/superpixels16")
    found = measured(table, name, chosen=False)
    method, _, setting = name.partition(", ")
    (best,) = chosen(table, method)
    bold = name != "FULL" and list(best["setting"].values()) == numbers(setting)
    shown, own, paper, varied, random = cells(films()[4], f"**{name}**" if bold else name)
    assert numbers(shown) == pytest.approx([100 * found["fraction"][0]], abs=0.051)
    for cell, keys in (
        (own, ("acc", "auroc")),
        (paper, ("eacc", "eauroc")),
        (varied, ("eacc_varied", "eauroc_varied")),
    ):
        assert numbers(cell) == pytest.approx([found[key][0] for key in keys], abs=5.1e-4)
    if name != "FULL":
        _, e, _, of_every_size = found["random"][0]
        assert numbers(random) == pytest.approx([e, of_every_size], abs=5.1e-4)


def test_what_the_report_says_of_larger_superpixels_holds() -> None:
    text, table = prose(films()[4]), rows("cxr/superpixels16")
    (real,) = chosen(table, "REAL-X")
    assert real["setting"] == {"sparsity": 1.0}
    metrics, over = real["metrics"], real["over_random"]
    assert "an eAUROC of {eauroc:.3f} and an eACC of {eacc:.3f},".format(**metrics) in text
    said = [interval(over[key]) for key in ("eauroc", "eauroc_varied")]
    assert "by {} in eAUROC (varied {}),".format(*said) in text
    full = mean(table, "FULL", "auroc")
    assert full == measured_full(rows("cxr"), "auroc")[0]  # "the same network"
    assert f"{full - metrics['eauroc']:.3f} below FULL's {full:.3f}" in text
    quarter = measured(table, "REAL-X, λ = 0.5", chosen=False)["eauroc"][0]
    assert f"with a quarter, {full - quarter:.3f} below" in text
    fine = measured(rows("cxr"), "REAL-X, λ = 0.5", chosen=False)
    assert f"an eAUROC of {fine['eauroc'][0]:.3f} from an eighth of the film" in text
    assert fine["fraction"][0] == pytest.approx(1 / 8, abs=0.005)
    for name, said in (
        ("REAL-X, λ = 1", "{:.3f} own and {:.3f} judged for REAL-X"),
        ("L2X, k = 5", "{:.3f} and {:.3f} for L2X at k = 5"),
        ("BASE-X, λ = 1", "{:.3f} and {:.3f} for BASE-X at λ = 1"),
        ("L2X, k = 1", "single superpixel ({:.3f} and {:.3f})"),
    ):
        found = measured(table, name, chosen=False)
        assert said.format(found["auroc"][0], found["eauroc"][0]) in text
