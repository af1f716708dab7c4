"""The report on the X-rays of the paper preset says what the results say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from report_figures import (
    ROOT,
    assert_row_of_films,
    cells,
    chosen,
    interval,
    mean,
    measured,
    numbers,
    prose,
    rows,
    section,
)

PAPER = ("FULL", "REAL-X, λ = 0.1", "**REAL-X, λ = 1**", "REAL-X, λ = 2.5")
PAPER += ("**BASE-X, λ = 0.1**", "BASE-X, λ = 1", "BASE-X, λ = 2.5")
PAPER += ("INVASE, λ = 0.1", "**INVASE, λ = 1**", "INVASE, λ = 2.5", "**L2X, k = 5**")
PAPER += tuple(f"L2X, k = {k}" for k in (1, 10, 15, 50, 100))


@pytest.mark.parametrize("name", PAPER)
def test_the_table_of_films_by_the_paper_is_the_measured_one(name: str) -> None:
    plain, table = name.strip("*"), rows("cxr/paper")
    found = measured(table, plain, chosen=False)
    assert bool(found["random"]) == (name != "FULL")
    assert_row_of_films(cells(section("Chest X-rays: the paper preset"), name), found)
    if name != "FULL":  # what is bold was chosen
        (row,) = chosen(table, plain.partition(", ")[0])
        assert (list(row["setting"].values()) == numbers(plain.partition(", ")[2])) == (
            name != plain
        )


def test_what_the_report_says_of_the_paper_preset_holds() -> None:
    text, table = prose(section("Chest X-rays: the paper preset")), rows("cxr/paper")
    real, base = (measured(table, f"{name}, λ = 1", chosen=False) for name in ("REAL-X", "BASE-X"))
    (over,) = [row["over_random"] for row in chosen(table, "REAL-X")]
    for words in (
        "eAUROC {:.3f} and {:.3f} (varied {:.3f}, {:.3f})".format(
            *(found[key][0] for key in ("eauroc", "eauroc_varied") for found in (real, base))
        ),
        f"every size, {interval(over['eloglik_varied'])} nats,",
        f"in eAUROC {interval(over['eauroc'])} by the paper's judge",
        f"from them: {interval(over['eacc'])} and {interval(over['eloglik'])}.",
    ):
        assert words in text
    assert over["eacc"]["low"] < 0
    assert over["eloglik"]["low"] < 0
    like, _, varied, _ = base["random"][0]
    own, own_varied = base["eacc"][0], base["eacc_varied"][0]
    assert (
        f"an eACC of {own:.3f} against {like:.3f} (varied {own_varied:.3f}, {varied:.3f};" in text
    )
    most = 2 * np.sqrt(0.25 / 1012)  # of a difference of two shares, however they go together
    assert f"is at most {most:.3f})" in text
    assert like - own > 3 * most
    alone = [found["macc"][0] for found in (real, base)] + [
        found["acc"][0] for found in (real, base)
    ]
    assert "alone names {:.3f} (REAL-X) and {:.3f} (BASE-X)".format(*alone[:2]) in text
    assert "their own predictors {:.3f} and {:.3f}.".format(*alone[2:]) in text
    full, tuned = measured(table, "FULL", chosen=True), rows("cxr")
    assert f"FULL has an AUROC of {full['auroc'][0]:.3f} where the paper has 0.887" in text
    both = [mean(tuned, "FULL", key) for key in ("eauroc", "eauroc_varied")]
    both += [full[key][0] for key in ("eauroc", "eauroc_varied")]
    assert (
        "have {:.3f} and {:.3f} from whole films, here they have {:.3f} and {:.3f}.".format(*both)
        in text
    )
    for price in (5.0, 50.0):
        shown = [r["metrics"]["fraction"] for r in table if r["setting"] == {"sparsity": price}]
        assert shown
        assert not any(shown)


def test_what_the_report_says_of_joint_methods_by_the_paper_holds() -> None:
    text, table = prose(section("Chest X-rays: the paper preset")), rows("cxr/paper")
    full = measured(table, "FULL", chosen=True)
    many = measured(table, "L2X, k = 15", chosen=False)
    few, hidden = (measured(table, name, chosen=True) for name in ("L2X, k = 5", "INVASE, λ = 1"))
    (over,) = [row["over_random"] for row in chosen(table, "INVASE")]
    real = measured(table, "REAL-X, λ = 1", chosen=True)
    apart = [
        row["metrics"]["auroc"] - row["metrics"]["eauroc"]
        for row in table
        if row["method"] == "L2X" and row["setting"]["k"] <= 50
    ]
    for form, figures in (
        (
            "an AUROC of {:.3f} and an accuracy of {:.3f}, FULL {:.3f} and {:.3f}.",
            (many["auroc"], many["acc"], full["auroc"], full["acc"]),
        ),
        (
            "judge finds {:.3f} and {:.3f} in them, the judge of every size {:.3f} and {:.3f}; the "
            "mask alone names {:.3f}.",
            [many[key] for key in ("eauroc", "eacc", "eauroc_varied", "eacc_varied", "macc")],
        ),
        ("names {:.3f} of the films, its own predictor {:.3f}.", (hidden["macc"], hidden["acc"])),
        ("the rule chooses, has {:.3f}, and", [few["eauroc"]]),
        (
            "({:.3f}; varied {:.3f} and {:.3f})",
            (real["eauroc"], few["eauroc_varied"], real["eauroc_varied"]),
        ),
    ):
        assert form.format(*(figure[0] for figure in figures)) in text
    assert f"its AUROC is {min(apart):.3f} to {max(apart):.3f} above" in text
    assert f"(eAUROC {interval(over['eauroc'])}, varied {interval(over['eauroc_varied'])})" in text
    assert f"and random superpixels {few['random'][0][1]:.3f}:" in text
    assert hidden["fraction"][0] > 0.5
    assert real["fraction"][0] / few["fraction"][0] == pytest.approx(6, abs=0.5)
    nothing = [r for r in table if r["method"] == "INVASE" and r["setting"]["sparsity"] >= 2.5]
    assert nothing
    assert not any(row["metrics"]["fraction"] for row in nothing)


def test_what_the_report_says_of_hearts_by_the_paper_holds() -> None:
    text = prose(section("Chest X-rays: the paper preset"))
    path = ROOT / "results" / "cxr" / "paper" / "places.json"
    methods = json.loads(path.read_text(encoding="utf-8"))["methods"]

    def times(name: str, place: str) -> str:
        (share,) = [methods[name]["groups"]["all"]["places"][place]["enrichment"]]
        return "{value:.2f} [{low:.2f}, {high:.2f}]".format(**share)

    heart = methods["REAL-X 1"]["groups"]["all"]["places"]["heart"]["area"]["value"]
    assert f"The heart takes {heart:.1%} of a film." in text
    assert f"shows it {times('REAL-X 1', 'heart')} times as much as its share" in text
    assert f"its outline {times('REAL-X 1', 'margin')} times;" in text
    assert f"five superpixels {times('L2X 5', 'heart')} and {times('L2X 5', 'margin')}" in text
    both = [
        [times(f"{name} 1", place) for name in ("BASE-X", "INVASE")] for place in ("heart", "lungs")
    ]
    assert "leave the heart out, {} and {} times its share".format(*both[0]) in text
    assert "lungs around it, {} and {} times theirs".format(*both[1]) in text
    band = [times(f"{name} 1", "margin").split()[0] for name in ("BASE-X", "INVASE")]
    assert "of the band along the outline {} and {}.".format(*band) in text
    shown = methods["L2X 5"]["groups"]["all"]["places"]["heart_or_margin"]["shown"]["value"]
    assert shown == pytest.approx(0.75, abs=0.01)
