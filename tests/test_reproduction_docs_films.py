"""The report on the X-rays of the tuned preset says what the results say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from report_figures import (
    ROOT,
    assert_row_of_films,
    cells,
    chosen,
    films,
    interval,
    mean,
    mean_and_error,
    measured,
    measured_full,
    numbers,
    prose,
    rows,
)

FILMS = ("FULL", "REAL-X, λ = 1, 0.25, 0.1", "L2X, k = 10, 15, 15")
FILMS += ("INVASE, λ = 0.5, 0.5, 0.25", "BASE-X, λ = 2.5, 0.5, 2.5")
HONEST = ("REAL-X", "REAL-X-EXCHANGE")
BLANK = {"sparsity": 50.0}  # at this price nothing is shown
ALIKE = tuple(f"REAL-X, λ = {price:g}" for price in (0.25, 0.5, 1, 2.5))
ALIKE += tuple(f"BASE-X, λ = {price:g}" for price in (0.5, 1, 2.5))
ALIKE += ("L2X, k = 1", "L2X, k = 5", "L2X, k = 15", "INVASE, λ = 0.5")
TWICE = tuple(f"{name}, λ = {price:g}" for name in HONEST for price in (0.5, 1, 2.5))


@pytest.mark.parametrize("name", FILMS)
def test_the_table_of_films_is_the_measured_one(name: str) -> None:
    found = measured(rows("cxr"), name, chosen=True)
    assert bool(found["random"]) == (name != "FULL")
    assert_row_of_films(cells(films()[0], name), found)


@pytest.mark.parametrize("name", ALIKE)
def test_films_at_equal_settings_are_the_measured_ones(name: str) -> None:
    found = measured(rows("cxr"), name, chosen=False)
    shown, *columns, random = cells(films()[0], name)
    assert numbers(shown) == pytest.approx([256 * np.mean(found["fraction"])], abs=0.051)
    keys = ("acc", "eacc", "eacc_varied", "eauroc", "eauroc_varied")
    for cell, key in zip(columns, keys, strict=True):
        seeds = found[key]
        assert len(seeds) == 3
        assert numbers(cell) == pytest.approx(mean_and_error(seeds), abs=5.1e-4), key
    _, e, _, varied = np.mean(found["random"], axis=0)
    assert numbers(random) == pytest.approx([e, varied], abs=5.1e-4)


@pytest.mark.parametrize("name", ALIKE)
def test_the_table_of_scattered_masks_is_the_measured_one(name: str) -> None:
    columns = cells(films()[1], name)
    for number, folder in enumerate(("cxr/scattered", "cxr")):
        found = measured(rows(folder), name, chosen=False)
        shown, own, judged = columns[number::2]
        assert numbers(shown) == pytest.approx([256 * np.mean(found["fraction"])], abs=0.051)
        for cell, key in ((own, "acc"), (judged, "eauroc")):
            assert numbers(cell) == pytest.approx(mean_and_error(found[key]), abs=5.1e-4), key


@pytest.mark.parametrize("name", TWICE)
def test_the_table_of_two_runs_is_the_measured_one(name: str) -> None:
    folders = ("cxr/earlier", "cxr/scattered")
    runs = [measured(rows(folder), name, chosen=False) for folder in folders]
    columns = cells(films()[2], name)
    for (shown, judged), found in zip((columns[::2], columns[1::2]), runs, strict=True):
        shares = [256 * share for share in found["fraction"][:2]]
        assert numbers(shown) == pytest.approx(shares, abs=0.051)
        assert numbers(judged) == pytest.approx(found["eauroc_varied"][:2], abs=5.1e-4)


def test_what_the_report_says_of_chosen_films_holds() -> None:
    text, table = prose(films()[0]), rows("cxr")
    real = chosen(table, "REAL-X")
    for key, said in (
        ("eauroc", "above random ones by {}, {} and {}, by the judge"),
        ("eauroc_varied", "every size by {}, {} and {}: clearly with seeds 0 and 1"),
        ("eloglik_varied", "that judge finds {}, {} and {} nats more"),
        ("eloglik", "the paper's {}, {} and {}: with seed 1 it finds less"),
    ):
        over = [interval(row["over_random"][key]) for row in real]
        assert said.format(*over) in text
    overs = [row["over_random"] for row in real]
    sure = {
        key: [(over[key]["low"] > 0) - (over[key]["high"] < 0) for over in overs]
        for key in overs[0]
    }
    assert sure["eauroc"] == [1, 1, 0]
    assert sure["eauroc_varied"] == sure["eloglik_varied"] == [1, 1, 1]
    assert sure["eloglik"] == [1, -1, 0]
    one, like = (chosen(table, name)[1]["metrics"] for name in ("REAL-X", "random, as REAL-X"))
    accuracies = [row[key] for key in ("eacc", "eacc_varied") for row in (one, like)]
    same = "({:.3f} and {:.3f}; the other judge {:.3f} and {:.3f})".format(*accuracies)
    assert f"the same accuracy {same}" in text
    assert sure["eacc"][1] == 0
    means = [np.mean([row["metrics"][key] for row in real]) for key in ("eauroc", "eacc")]
    assert "REAL-X has the first two ({:.3f} and {:.3f};".format(*means) in text
    luck = [row["reason"][-5:] for row in real]
    full = [f"{row['metrics']['acc']:.3f}" for row in table if row["method"] == "FULL"]
    assert "FULL has {}, {} and {}, on the test films {}, {} and {}".format(*luck, *full) in text


def test_what_the_report_says_of_scattered_masks_holds() -> None:
    text, table, before = prose(films()[1]), rows("cxr"), rows("cxr/scattered")
    for key in ("acc", "auroc", "eacc", "eauroc", "eloglik"):  # FULL and the paper's judge
        own, then = (measured_full(t, key) for t in (table, before))
        assert own == then
    steadier, better = {"eauroc": 0, "eacc": 0}, []
    for name in ALIKE:
        now, then = (measured(t, name, chosen=False) for t in (table, before))
        for key in steadier:  # as the table shows them
            errors = [round(mean_and_error(found[key])[1], 3) for found in (now, then)]
            steadier[key] += errors[0] < errors[1]
        better.append(np.mean(now["acc"]) > np.mean(then["acc"]))
    assert len(ALIKE) == 11
    assert steadier == {"eauroc": 9, "eacc": 4}  # "nine of these eleven rows, in eACC in four"
    assert all(better[:3])
    shown = [
        [f"{256 * row['metrics']['fraction']:.0f}" for row in chosen(t, "REAL-X")]
        for t in (table, before)
    ]
    said = "{}, {} and {} superpixels instead of {}, {} and {} (there"
    assert said.format(*shown[0], *shown[1]) in text
    assert "none is within" in chosen(before, "REAL-X")[2]["reason"]  # "a fallback"
    exchanged = chosen(before, "REAL-X-EXCHANGE")
    assert [row["setting"]["sparsity"] for row in exchanged] == [1.0, 1.0, 0.25]
    over = [interval(row["over_random"]["eauroc"]) for row in exchanged]
    assert "above random superpixels by {}, {} and {} in eAUROC".format(*over) in text
    over = [interval(row["over_random"]["eauroc_varied"]) for row in exchanged]
    assert "by the judge of every size by {}, {} and {}. Its own".format(*over) in text
    keys = ("eauroc", "eacc", "eauroc_varied", "eacc_varied")
    means = [np.mean([row["metrics"][key] for row in exchanged]) for key in keys]
    assert (
        "eAUROC of {:.3f} and an eACC of {:.3f} (varied {:.3f} and {:.3f})".format(*means) in text
    )
    own = [
        "{:.3f} ± {:.3f}".format(
            *mean_and_error(measured(before, f"{n}, λ = 1", chosen=False)["acc"])
        )
        for n in reversed(HONEST)
    ]
    assert "at λ = 1 is {}, REAL-X's {} there".format(*own) in text


def test_what_the_report_says_of_sparse_films_holds() -> None:
    text, table = prose(films()[0]), rows("cxr")
    full, eighth = mean(table, "FULL", "auroc"), "REAL-X, λ = 0.5"
    assert f"FULL has {full:.3f} from the whole film" in text
    assert f"{full - mean(table, eighth, 'eauroc'):.3f} less by the paper's judge" in text
    assert f"{full - mean(table, eighth, 'eauroc_varied'):.3f} by the other" in text
    judges = [mean(table, "FULL", key) for key in ("eauroc", "eauroc_varied")]
    assert "the judges themselves {:.3f} and {:.3f}.".format(*judges) in text
    missing = np.subtract(judges, [mean(table, eighth, k) for k in ("eauroc", "eauroc_varied")])
    assert "whole film {:.3f} and {:.3f} are missing".format(*missing) in text
    assert 0.5 not in [row["setting"]["sparsity"] for row in chosen(table, "REAL-X")]
    found = measured(table, eighth, chosen=False)
    said = "shows {:.0f} of 256 superpixels with eAUROC {:.3f} ± {:.3f} (varied {:.3f} ± {:.3f})"
    figures = [f for key in ("eauroc", "eauroc_varied") for f in mean_and_error(found[key])]
    assert said.format(256 * np.mean(found["fraction"]), *figures) in text
    like = np.mean(found["random"], axis=0)
    assert f"random superpixels have {like[1]:.3f} and {like[3]:.3f}." in text
    keys = ("acc", "eacc", "eacc_varied")
    for name, said in (
        ("BASE-X, λ = 2.5", "accuracies of {:.3f}, {:.3f} and {:.3f}; at λ = 1"),
        ("BASE-X, λ = 1", "at λ = 1 accuracies of {:.3f}, {:.3f} and {:.3f}."),
        ("REAL-X, λ = 0.5", "REAL-X at λ = 0.5 has {:.3f}, {:.3f} and {:.3f},"),
        ("REAL-X, λ = 1", "at λ = 1 {:.3f}, {:.3f} and {:.3f},"),
        ("REAL-X, λ = 2.5", "at λ = 2.5 {:.3f}, {:.3f} and {:.3f}."),
    ):
        assert said.format(*(mean(table, name, key) for key in keys)) in text
    keys = ("auroc", "eauroc", "eauroc_varied")
    own, paper, varied = (mean(table, "BASE-X, λ = 2.5", key) for key in keys)
    assert f"AUROC of {own:.3f} by its own predictor, {paper:.3f} by the paper's judge and" in text
    assert f"and {varied:.3f} by the one of every size" in text
    one = measured(table, "L2X, k = 1", chosen=False)
    for key, said in (
        ("acc", "names {} of the films by its own predictor"),
        ("macc", "its place alone {}"),
        ("eauroc", "AUROC of {} and"),
        ("eauroc_varied", "and {} in it"),
    ):
        assert said.format("{:.3f} ± {:.3f}".format(*mean_and_error(one[key]))) in text
    assert f"(own {np.mean(one['auroc']):.3f})" in text
    few = [mean(table, "REAL-X, λ = 2.5", key) for key in ("acc", "macc")]
    assert "REAL-X's six at λ = 2.5 name {:.3f}, their places alone {:.3f}.".format(*few) in text
    where = measured(table, "BASE-X, λ = 2.5", chosen=False)["macc"]
    assert "BASE-X shows names {:.3f} ± {:.3f} of".format(*mean_and_error(where)) in text
    losses = {
        name: np.subtract(found["acc"], found["eacc_varied"])
        for name in (*ALIKE, "L2X, k = 5")
        for found in [measured(table, name, chosen=False)]
    }
    promised = [losses[f"REAL-X, λ = {price:g}"] for price in (0.5, 1, 2.5)]
    assert max(abs(loss.mean()) for loss in promised) < 0.015  # "within 0.015 on average"
    assert f"({max(loss.max() for loss in promised):.3f} with the worst seed)" in text
    lost = {name: f"{loss.mean():.3f}" for name, loss in losses.items()}
    assert lost["BASE-X, λ = 2.5"] == lost["L2X, k = 1"]
    assert f"by {lost['L2X, k = 1']} for BASE-X at λ = 2.5 and L2X at k = 1" in text
    assert f"by {lost['L2X, k = 5']} for L2X at k = 5, and by {lost['REAL-X, λ = 2.5']}" in text
    three = [lost[name] for name in ("BASE-X, λ = 1", "L2X, k = 15", "REAL-X, λ = 1")]
    assert "all three lose little ({}, {}, {})".format(*three) in text
    for name, said in (
        ("BASE-X, λ = 1", "BASE-X has {:.3f} ± {:.3f} with 22 superpixels"),
        ("L2X, k = 15", "L2X {:.3f} ± {:.3f} with 15,"),
        ("REAL-X, λ = 1", "REAL-X {:.3f} ± {:.3f} with 19;"),
        ("L2X, k = 5", "L2X {:.3f} ± {:.3f} with five,"),
        ("REAL-X, λ = 2.5", "REAL-X {:.3f} ± {:.3f} with six."),
    ):
        found = measured(table, name, chosen=False)
        assert said.format(*mean_and_error(found["eauroc_varied"])) in text
    shown = [round(256 * mean(table, name, "fraction")) for name in ("BASE-X, λ = 1", ALIKE[2])]
    assert shown == [22, 19]
    assert round(256 * mean(table, "REAL-X, λ = 2.5", "fraction")) == 6
    assert f"REAL-X does as well: {mean(table, 'REAL-X, λ = 2.5', 'eacc'):.3f} at" in text
    base = measured(table, "BASE-X, λ = 2.5", chosen=False)
    assert f"(with seed 2 BASE-X at λ = 2.5 does: {base['eacc'][2]:.3f})" in text
    invase = chosen(table, "INVASE")
    own, judged = (np.mean([r["metrics"][k] for r in invase]) for k in ("auroc", "eauroc_varied"))
    assert own <= judged  # "no more than that judge finds"
    assert f"an AUROC of {own:.3f} and {judged:.3f})" in text
    one = invase[1]
    assert f"names {-one['over_random']['eacc']['value']:.3f} fewer films" in text
    assert "({eacc:.3f}, own {acc:.3f})".format(**one["metrics"]) in text
    assert one["over_random"]["eacc"]["high"] < 0
    for row in invase:
        for key in ("eauroc", "eauroc_varied"):
            assert row["over_random"][key]["low"] < 0 < row["over_random"][key]["high"]
    shown = [
        256 * row["metrics"]["fraction"]
        for row in table
        if row["method"] == "INVASE" and row["setting"]["sparsity"] >= 2.5
    ]
    assert max(shown) < 0.2  # superpixels: "next to nothing"


def test_what_the_report_says_of_the_papers_judge_holds() -> None:
    text, table = prose(films()[0]), rows("cxr")
    alone = measured(table, "REAL-X, λ = 1", chosen=False)
    shares = "({:.1f}, {:.1f} and {:.1f}%)".format(*(100 * share for share in alone["fraction"]))
    assert f"REAL-X shows at λ = 1 {shares}" in text
    for key, said in (("eacc", "inputs: {}, {} and {}"), ("eacc_varied", "size has {}, {} and {}")):
        assert said.format(*(f"{value:.3f}" for value in alone[key])) in text
    blank = [
        row["metrics"]["eloglik"]
        for row in table
        if row["method"] == "REAL-X" and row["setting"] == BLANK
    ]
    assert "{}, {} and {}".format(*(f"−{-value:.2f}" for value in blank)) in text


def test_what_the_report_says_of_hearts_holds() -> None:
    text = prose(films()[0])
    path = ROOT / "results" / "cxr" / "results.json"
    places = json.loads(path.read_text(encoding="utf-8"))["places"]
    band = {
        name: found["groups"]["all"]["places"]["margin"]
        for name, found in places["methods"].items()
    }
    own = band["REAL-X"]
    assert f"{own['shown']['value']:.0%} of what REAL-X shows lies on the band" in text
    more = "{value:.1f} [{low:.1f}, {high:.1f}] times its share".format(**own["enrichment"])
    assert f"which takes {own['area']['value']:.1%} of a film: {more}" in text
    assert f"selections would have {own['others']['value']:.0%} there" in text
    assert own["beyond_others"]["low"] > 0  # "the selector follows each film's own heart"
    own, l2x, base = (
        {key: 100 * value for key, value in band[name]["beyond_others"].items()}
        for name in ("REAL-X", "L2X", "BASE-X")
    )
    assert "own heart: {value:.1f} [{low:.1f}, {high:.1f}] points more".format(**own) in text
    few = f"{band['L2X']['shown']['value']:.0%} ({band['L2X']['enrichment']['value']:.1f} times;"
    assert f"L2X, with ten superpixels, it is {few} {l2x['value']:.1f} points more)" in text
    eight = f"{band['BASE-X']['shown']['value']:.0%} ({base['value']:.1f} points)"
    assert f"BASE-X, with eight, {eight}, for INVASE" in text
    assert f"two thirds of a film, {band['INVASE']['shown']['value']:.0%}." in text
    shares = [
        round(256 * chosen(rows("cxr"), name)[0]["metrics"]["fraction"])
        for name in ("L2X", "BASE-X", "INVASE")
    ]
    assert shares == [10, 8, 168]
    ratio = interval(places["hearts"]["ratio_auroc"])
    assert f"tells the labels apart with AUROC {ratio}" in text
    for part in places["segmenter"]["scores"].values():
        assert f"Dice {part['dice']:.2f}" in text


def test_what_the_report_says_of_the_earlier_run_holds() -> None:
    text, now, before = prose(films()[2]), rows("cxr/scattered"), rows("cxr/earlier")

    def repeated(table: list[dict[str, Any]]) -> list[Any]:
        """FULL under all judges, and REAL-X's predictor and judges where nothing is shown."""
        return [
            row["metrics"]
            for row in table
            if row["seed"] < 2
            and (row["method"] == "FULL" or (row["method"], row["setting"]) == (HONEST[0], BLANK))
        ]

    assert repeated(now) == repeated(before)
    fewest = {
        (name, price): min(
            256 * row["metrics"]["fraction"]
            for row in (*now, *before)
            if row["method"] == name and row["setting"] == {"sparsity": price}
        )
        for name in HONEST
        for price in (1.0, 2.5)
    }
    exchanged = [fewest["REAL-X-EXCHANGE", price] for price in (1.0, 2.5)]
    assert (
        "never showed fewer than {:.0f} superpixels at λ = 1 and {:.0f}".format(*exchanged) in text
    )
    assert fewest["REAL-X", 1.0] < 2
    few = [
        row["setting"]["sparsity"]
        for row in (*now, *before)
        if row["method"] == "REAL-X"
        and row["setting"]["sparsity"] <= 2.5
        and 256 * row["metrics"]["fraction"] < 2
    ]
    assert sorted(few) == [1.0, 2.5, 2.5]  # "once not two at λ = 1, and at λ = 2.5 twice"
    first, second = chosen(before, "REAL-X-EXCHANGE")
    own = "eAUROC of {eauroc:.3f} and an eACC of {eacc:.3f}, ".format(**first["metrics"])
    assert own + f"{interval(first['over_random']['eauroc'])} above random" in text
    assert f"no better than random: {interval(second['over_random']['eauroc'])}" in text
    assert second["setting"] == {"sparsity": 0.1}


def test_what_the_report_says_of_exchanged_masks_in_patches_holds() -> None:
    text, table = prose(films()[1]), rows("cxr/exchange")
    text = text.split("**REAL-X-EXCHANGE with masks in patches**")[1]
    for key in ("acc", "auroc", "eacc", "eauroc", "eloglik", "eauroc_varied"):
        assert measured_full(table, key) == measured_full(rows("cxr"), key)
    own = chosen(table, "REAL-X-EXCHANGE")
    assert [row["setting"]["sparsity"] for row in own] == [1.0, 0.5, 0.5]
    shown = [256 * row["metrics"]["fraction"] for row in own]
    assert "{:.1f}, {:.1f} and {:.1f} superpixels".format(*shown) in text
    keys = ("eauroc", "eacc", "eauroc_varied", "eacc_varied")
    means = [np.mean([row["metrics"][key] for row in own]) for key in keys]
    assert (
        "an eAUROC of {:.3f} and an eACC of {:.3f} (varied {:.3f} and {:.3f})".format(*means)
        in text
    )
    for key, said in (
        ("eauroc", "random superpixels by {}, {} and {} in eAUROC"),
        ("eauroc_varied", "every size by {}, {} and {}: clearly"),
    ):
        overs = [row["over_random"][key] for row in own]
        assert said.format(*map(interval, overs)) in text
        assert all(over["low"] > 0 for over in overs)
    for price, said in ((1, "own accuracy is {} (REAL-X {})"), (0.5, "at λ = 0.5 {} (REAL-X {})")):
        pair = [
            "{:.3f} ± {:.3f}".format(*mean_and_error(measured(t, n, chosen=False)["acc"]))
            for t, n in (
                (table, f"REAL-X-EXCHANGE, λ = {price:g}"),
                (rows("cxr"), f"REAL-X, λ = {price:g}"),
            )
        ]
        assert said.format(*pair) in text


def test_the_report_sums_up_the_films_as_they_were_measured() -> None:
    text, table = prose(films()[0]), rows("cxr")
    for name, key, said in (
        ("REAL-X, λ = 0.5", "eauroc_varied", "tell the films with AUROC {}"),
        ("REAL-X, λ = 0.5", "eauroc", "(the paper's judge: {})"),
        ("L2X, k = 1", "acc", "claims an accuracy of {}"),
        ("L2X, k = 1", "macc", "that superpixel alone gives {}"),
        ("L2X, k = 1", "eauroc_varied", "the judge finds an AUROC of {}"),
    ):
        found = measured(table, name, chosen=False)[key]
        assert said.format("{:.3f} ± {:.3f}".format(*mean_and_error(found))) in text
    like = np.mean(measured(table, "REAL-X, λ = 0.5", chosen=False)["random"], axis=0)[3]
    whole = mean(table, "FULL", "eauroc_varied")
    assert f"the whole film {whole:.3f}, as many random ones {like:.3f}" in text
