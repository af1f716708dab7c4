"""The analysis of a study: known preferences come back, missing answers are shown."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from small_studies import METHODS, SECRET, small_study

from unmasked.errors import InputError, OutputError, SavedError
from unmasked.study.analysis import Ratings, analyse, read_ratings
from unmasked.study.database import open_database
from unmasked.study.folder import read_study
from unmasked.study.key import read_key
from unmasked.study.report import write_analysis
from unmasked.study.statistics import interval, resampled
from unmasked.study.tables import as_text, findings

NAN = np.nan


def ratings(places: np.ndarray, sufficient: np.ndarray | None = None) -> Ratings:
    readers, cases, methods = places.shape
    return Ratings(
        readers=tuple(f"Reader {i + 1}" for i in range(readers)),
        cases=tuple(f"case {i}" for i in range(cases)),
        methods=METHODS[:methods],
        places=places.astype(float),
        sufficient=np.full(places.shape, NAN) if sufficient is None else sufficient.astype(float),
    )


def simulated(probabilities, cases: int, readers: int, seed: int) -> np.ndarray:
    """Readers who give one of a few rankings, each with its probability: moments are known."""
    rankings = np.array([[1, 2, 3, 4], [1, 1, 3, 4], [2, 1, 3, 3], [1, 4, 2, 3]], float)
    rng = np.random.default_rng(seed)
    return rankings[rng.choice(4, (readers, cases), p=probabilities)]


def test_known_preferences_give_known_ranks_and_errors():
    """The paper's design, 2 readers and 50 cases, 60 times: means and standard errors."""
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    rankings = np.array([[1, 2, 3, 4], [1, 1, 3, 4], [2, 1, 3, 3], [1, 4, 2, 3]], float)
    mean = probabilities @ rankings
    deviation = np.sqrt(probabilities @ (rankings - mean) ** 2)
    studies = [
        analyse(ratings(simulated(probabilities, 50, 2, seed)), draws=100).pooled.methods
        for seed in range(60)
    ]
    for j in range(4):
        found = np.array([[m[j].mean_rank, m[j].se, m[j].se_ratings] for m in studies])
        truth = deviation[j] / np.sqrt(100)  # readers are independent here: 100 rankings
        assert found[:, 0].mean() == pytest.approx(mean[j], abs=5 * truth / np.sqrt(60))
        assert found[:, 0].std() == pytest.approx(truth, rel=5 / np.sqrt(2 * 60))
        assert found[:, 1].mean() == pytest.approx(truth, rel=0.05)
        assert found[:, 2].mean() == pytest.approx(truth, rel=0.05)
    assert [m.method for m in studies[0]] == list(METHODS)


def test_readers_who_repeat_each_other_do_not_shrink_the_error():
    one = simulated([0.25] * 4, 50, 1, 0)
    twice = np.concatenate([one, one])
    pooled = analyse(ratings(twice), draws=100).pooled.methods
    alone = analyse(ratings(one), draws=100).pooled.methods
    for a, b in zip(pooled, alone, strict=True):
        assert a.se == pytest.approx(b.se)
        assert a.se_ratings == pytest.approx(b.se / np.sqrt(2), rel=0.02)
        assert (a.low, a.high) == pytest.approx((b.low, b.high))


def test_figures_equal_scipys():
    places = simulated([0.4, 0.3, 0.2, 0.1], 50, 1, 5)
    found = analyse(ratings(places), draws=100)
    middle = stats.rankdata(places[0], axis=1)
    theirs = stats.friedmanchisquare(*places[0].T)
    assert found.pooled.friedman.statistic == pytest.approx(theirs.statistic)
    assert found.pooled.friedman.p == pytest.approx(theirs.pvalue)
    for pair in found.pooled.pairs:
        a, b = METHODS.index(pair.first), METHODS.index(pair.second)
        assert pair.p == pytest.approx(stats.wilcoxon(middle[:, a], middle[:, b]).pvalue)
        assert pair.p_holm >= pair.p
    for j, method in enumerate(found.pooled.methods):
        ranks = stats.rankdata(places[0], method="min", axis=1)[:, j]
        assert method.mean_rank == pytest.approx(ranks.mean())
        assert method.se == pytest.approx(stats.sem(ranks))


def test_pooled_blocks_are_cases():
    places = simulated([0.4, 0.3, 0.2, 0.1], 30, 3, 7)
    found = analyse(ratings(places), draws=100)
    middle = stats.rankdata(places, axis=-1).mean(0)  # (cases, methods)
    theirs = stats.friedmanchisquare(*middle.T)
    assert found.pooled.friedman.blocks == 30
    assert found.pooled.friedman.statistic == pytest.approx(theirs.statistic)
    assert [scope.name for scope in found.scopes][-1] == "all readers"


def test_intervals_hold_their_promise():
    """95% intervals by cases cover the true mean rank in about 95% of studies, though the second
    reader only repeats the first: rankings are far from independent."""
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    truth = 1.2  # of the first method: rank 1, 1, 2, 1
    covered = 0
    for seed in range(400):
        ranks = simulated(probabilities, 50, 1, seed)[0, :, 0]
        low, high = interval(resampled(2 * ranks, np.full(50, 2.0), 400, seed))
        covered += low <= truth <= high
    assert abs(covered / 400 - 0.93) < 4 * np.sqrt(0.93 * 0.07 / 400)  # a little less at 50 cases


def test_missing_answers_are_counted_and_left_out():
    places = simulated([0.4, 0.3, 0.2, 0.1], 10, 2, 0)
    enough = np.ones_like(places)
    places[0, 0] = NAN  # no answer
    places[1, 1, 2] = NAN  # one option not placed: the ranking does not count
    enough[1, :4] = NAN
    found = analyse(ratings(places, enough), draws=100)
    assert [s.missing_rankings for s in found.scopes] == [1, 1, 2]
    assert [s.missing_sufficiency for s in found.scopes] == [0, 4, 4]
    assert [s.expected for s in found.scopes] == [10, 10, 20]
    assert all(m.rankings == 18 and m.judged == 16 for m in found.pooled.methods)
    assert found.pooled.friedman.blocks == 10  # each case has a ranking by someone
    assert found.agreement["kendall_w"]["cases"] == 8
    assert "2 rankings" in " ".join(findings(found))


def test_sufficiency_rates_and_their_intervals():
    places = simulated([0.25] * 4, 40, 1, 0)
    enough = np.zeros_like(places)
    enough[0, :30, 0] = 1
    method = analyse(ratings(places, enough), draws=100).pooled.methods[0]
    wilson = stats.binomtest(30, 40).proportion_ci(method="wilson")
    assert method.sufficient == 0.75
    assert (method.sufficient_low, method.sufficient_high) == pytest.approx(tuple(wilson))
    both = np.concatenate([enough, enough])
    pooled = analyse(ratings(np.concatenate([places] * 2), both), draws=2000).pooled.methods[0]
    half = (pooled.sufficient_high - pooled.sufficient_low) / 2
    assert half == pytest.approx(1.96 * np.sqrt(0.75 * 0.25 / 40), rel=0.15)  # 40 cases, not 80
    assert pooled.judged == 80


def test_a_reader_without_answers_has_dashes(tmp_path):
    """And one case has no standard error; nothing says "nan"."""
    places = simulated([0.4, 0.3, 0.2, 0.1], 4, 2, 0)
    places[1] = NAN
    places[0, 0], places[0, 1:] = [1, 2, 3, 4], NAN
    found = analyse(ratings(places), draws=100)
    words = write_analysis(tmp_path / "out", found, "")
    for name in ("report.html", "tables.txt"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert "nan" not in re.sub(r"base64,\S+", "", text)
        assert "nothing ranked yet" in text
    assert "± – over 1 case," in words[0]


def test_methods_that_share_the_best_rank_are_both_named():
    places = np.array([[1.0, 1, 3, 4]] * 6)[None]
    assert findings(analyse(ratings(places), draws=100))[0] == (
        "REAL-X and L2X share the best mean rank, 1.00, over 6 cases."
    )


def test_nothing_ranked_is_said():
    with pytest.raises(InputError, match="at least one case"):
        analyse(ratings(np.full((2, 3, 4), NAN)))


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """A study whose first reader always prefers methods in one order, whose second ties two."""
    made = small_study(tmp_path_factory.mktemp("answered"), cases=8)
    study = read_study(made.folder)
    key = json.loads(made.key.read_text())
    database = open_database(study.answers, study.digest)
    wish = [
        {"REAL-X": 1, "BASE-X": 2, "INVASE": 3, "L2X": 4},
        {"REAL-X": 1, "BASE-X": 1, "INVASE": 2, "L2X": 3},  # counts as 1, 1, 3, 4
    ]
    for r, reader in enumerate(study.readers):
        for n, case in enumerate(reader.cases):
            if (r, n) == (1, 7):
                continue  # one answer is missing
            methods = key["readers"][r]["cases"][case.id]["methods"]
            content = {
                "places": [wish[r][m] for m in methods],
                "sufficient": [m == "REAL-X" for m in methods],
                "remark": "clear" if n == 0 else "",
            }
            empty = {**content, "places": [None] * 4}
            database.save_answer(r, case.id, empty, base=0, change="first one")
            database.save_answer(r, case.id, content, base=1, change="second one")
    database.close()
    return made


def test_answers_are_unblinded_with_the_right_key(answered):
    found = read_ratings(answered.folder)
    order = [found.methods.index(m) for m in ("REAL-X", "BASE-X", "INVASE", "L2X")]
    assert (found.places[0][:, order] == [1, 2, 3, 4]).all()
    missing = np.isnan(found.places[1]).all(-1)
    assert missing.sum() == 1
    assert (found.places[1][~missing][:, order] == [1, 1, 2, 3]).all()
    pooled = {m.method: m for m in analyse(found, draws=200).pooled.methods}
    assert pooled["REAL-X"].mean_rank == 1
    assert pooled["BASE-X"].mean_rank == pytest.approx((8 * 2 + 7 * 1) / 15)
    assert pooled["INVASE"].mean_rank == 3  # ties share the better place: the next is third
    assert pooled["REAL-X"].sufficient == 1
    assert pooled["L2X"].sufficient == 0


def test_a_habit_for_a_place_is_seen():
    """Readers who always put first what stands first."""
    rng = np.random.default_rng(0)
    stood = rng.permuted(np.tile(np.arange(4.0), (2, 50, 1)), axis=-1)
    habit = analyse(replace(ratings(stood + 1), positions=stood), draws=100).positions
    assert habit["mean_mid_rank"] == [1, 2, 3, 4]
    assert habit["p"] < 1e-6
    none = rng.permuted(np.tile(np.arange(1.0, 5), (2, 50, 1)), axis=-1)
    fair = analyse(replace(ratings(none), positions=stood), draws=100).positions
    assert np.abs(np.array(fair["mean_mid_rank"]) - 2.5).max() < 5 * np.sqrt(1.25 / 100)
    assert fair["p"] > 1e-4
    assert fair["rankings"] == 100


def test_the_analysis_is_written_whole(answered, tmp_path):
    found = analyse(read_ratings(answered.folder), draws=200)
    out = tmp_path / "out"
    words = write_analysis(out, found, "unmasked study analyse")
    assert "REAL-X was ranked best: mean rank 1.00" in words[0]
    assert "Ann and Bo have not finished: these figures can still change." in words
    results = json.loads((out / "results.json").read_text())
    assert results["missing"][-1]["missing_rankings"] == 1
    assert len(results["rows"]) == 3 * 4
    assert len(results["pairs"]) == 3 * 6
    assert results["published"]["L2X"] == [3.57, 0.1]
    assert results["not_finished"] == ["Ann", "Bo"]
    assert {r["reader"] for r in results["remarks"]} == {"Ann", "Bo"}
    lines = (out / "ratings.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 8 * 4  # missing ones have their line too
    assert sum(line.endswith(",,,,") for line in lines) == 4
    page = (out / "report.html").read_text()
    for text in (
        "Mean ranks, Ann",
        "Do readers agree?",
        "Does the place",
        "What is missing",
        "3.57 ± 0.10",
    ):
        assert text in page
    assert (out / "mean-ranks.png").read_bytes().startswith(b"\x89PNG")
    text = as_text(found)
    assert text.index("all readers") < text.index("Ann")
    write_analysis(out, found, "again")  # an earlier analysis may be replaced
    (out / "mine.txt").write_text("precious")
    with pytest.raises(OutputError, match="something else"):
        write_analysis(out, found, "again")


def test_analysis_refuses_what_was_tampered_with(answered, tmp_path):
    copy = tmp_path / "study"
    shutil.copytree(answered.folder, copy)
    shutil.copy(answered.key, tmp_path / "study.key.json")
    assert read_ratings(copy).readers == ("Ann", "Bo")
    other = small_study(tmp_path / "other", cases=8, secret=bytes(32))
    with pytest.raises(SavedError, match="not the one"):
        read_ratings(copy, other.key)
    with pytest.raises(SavedError, match="--key"):
        read_ratings(copy, tmp_path / "absent.json")
    with sqlite3.connect(copy / "answers.sqlite") as database:
        database.execute("DROP TRIGGER no_update_of_record")
        database.execute("UPDATE record SET content = replace(content, '1', '2') WHERE id = 5")
    database.close()
    with pytest.raises(SavedError, match="changed by another program"):
        read_ratings(copy)


def test_the_key_regenerates_from_its_secret(answered, tmp_path):
    """Who has the key can show that orders were drawn, not chosen."""
    key = read_key(answered.key, read_study(answered.folder))
    assert bytes.fromhex(key["secret"]) == SECRET
    again = small_study(tmp_path, cases=8)
    assert json.loads(again.key.read_text()) == key
