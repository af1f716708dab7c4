"""Statistics of rankings, against SciPy, published examples and enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from unmasked.errors import InputError
from unmasked.study.analysis import Ratings, analyse
from unmasked.study.power import (
    Design,
    first_is_best,
    needed,
    power_of,
    power_table,
    simulate,
    with_ties,
)
from unmasked.study.statistics import (
    clustered_alpha,
    clustered_wilson,
    friedman,
    friedman_statistic,
    holm,
    interval,
    kendall_w,
    krippendorff,
    mean_w,
    mid_ranks,
    resampled,
    shared_ranks,
    signed_rank,
    signed_rank_p,
    wilson,
)

NAN = np.nan


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_ranks_of_ties():
    places = np.array([[2, 1, 2, 2], [1, 1, 1, 1], [4, 3, 2, 1], [1, 3, 3, 4]])
    assert shared_ranks(places).tolist() == [[2, 1, 2, 2], [1, 1, 1, 1], [4, 3, 2, 1], [1, 2, 2, 4]]
    assert (mid_ranks(places).sum(1) == 10).all()
    assert mid_ranks(places)[0].tolist() == [3, 1, 3, 3]


@pytest.mark.parametrize("methods", [3, 4, 6])
@pytest.mark.parametrize("tied", [False, True])
def test_friedman_equals_scipy(rng, methods, tied):
    for cases in (3, 20, 100):
        values = (
            rng.integers(1, 4, (cases, methods)).astype(float)
            if tied
            else rng.random((cases, methods))
        )
        ours, theirs = friedman(values), stats.friedmanchisquare(*values.T)
        assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-10)
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
        assert ours.blocks == cases


def test_friedman_of_two_methods_is_the_sign_test_and_of_ties_is_nothing(rng):
    values = rng.random((30, 2))
    wins = (values[:, 0] < values[:, 1]).sum()
    assert friedman(values).statistic == pytest.approx((2 * wins - 30) ** 2 / 30)
    assert friedman(np.ones((10, 4))) == friedman(np.zeros((10, 4)))
    assert friedman(np.ones((10, 4))).p == 1.0


def test_repetitions_at_once_equal_one_after_the_other(rng):
    values = rng.integers(1, 5, (7, 30, 4)).astype(float)
    each = [friedman(block).statistic for block in values]
    assert friedman_statistic(values) == pytest.approx(each)


def test_signed_ranks_equal_scipy(rng):
    for scale in (1, 3, 100):
        many = np.rint(rng.normal(0.3, 1, (20, 40)) * scale) / scale
        expected = [stats.wilcoxon(row, method="asymptotic").pvalue for row in many]
        assert signed_rank_p(many) == pytest.approx(expected, rel=1e-9)
    smooth = rng.normal(0.4, 1, 25)
    assert signed_rank(smooth).p == stats.wilcoxon(smooth).pvalue
    assert signed_rank(np.zeros(5)).p == 1.0


def test_signed_ranks_of_few_cases_are_exact(rng):
    """By all 2ⁿ signs, with ties and with cases that have no difference; SciPy's, too."""
    for cases in (1, 2, 5, 8):
        few = rng.integers(-2, 4, (10, cases)) / 2
        for row, p in zip(few, signed_rank_p(few), strict=True):
            ranks = np.where(row == 0, 0, stats.rankdata(np.abs(row)) - (row == 0).sum())
            signs = np.array(list(itertools.product([0, 1], repeat=cases)))
            null, found = signs @ ranks, (row > 0) @ ranks
            expected = min(1, 2 * min((null <= found).mean(), (null >= found).mean()))
            assert p == pytest.approx(expected, abs=1e-12)
            assert signed_rank(row).p == pytest.approx(expected, abs=1e-12)
    few = np.array([-0.5, 0.5, 1.5, 1.5, 2.5, 0, 2])
    theirs = stats.wilcoxon(few)
    assert (signed_rank(few).statistic, signed_rank(few).p) == pytest.approx(
        (theirs.statistic, theirs.pvalue)
    )


def test_ties_between_means_of_three_readers_are_ties(rng):
    """4/3 − 1 and 2 − 5/3 differ in the last bit: a test on sums, which are exact, tells."""
    for readers in (3, 7):
        sums = mid_ranks(rng.integers(1, 5, (readers, 20, 4))).sum(0)  # (cases, methods)
        for a, b in itertools.combinations(range(4), 2):
            expected = stats.wilcoxon(sums[:, a] - sums[:, b]).pvalue
            means = sums[:, a] / readers - sums[:, b] / readers
            assert signed_rank(means).p == pytest.approx(expected, rel=1e-12)
            assert signed_rank_p(means) == pytest.approx(expected, rel=1e-9)


def test_holm_by_its_definition(rng):
    """The smallest level at which the step-down procedure rejects."""
    p = rng.random(6) ** 3
    corrected = holm(p)
    for i in range(6):
        order = np.argsort(p)
        steps = [(6 - k) * p[j] for k, j in enumerate(order)]
        rank = order.tolist().index(i)
        assert corrected[i] == pytest.approx(min(1, max(steps[: rank + 1])))
    assert (holm(np.stack([p, p[::-1]]))[1] == corrected[::-1]).all()


def test_krippendorffs_published_example():
    """Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability": 4 observers, 12 units."""
    values = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
            [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
        ]
    )
    assert krippendorff(values, "nominal") == pytest.approx(0.743, abs=5e-4)
    assert krippendorff(values, "ordinal") == pytest.approx(0.815, abs=5e-4)


def test_krippendorff_by_hand():
    """Units (1, 2), (2, 2), (1, 3): pairs by hand, with the ordinal distance of the definition."""
    values = np.array([[1, 2, 1], [2, 2, 3]], float)
    counts = {1: 2, 2: 3, 3: 1}

    def distance(a: int, b: int) -> float:
        low, high = min(a, b), max(a, b)
        between = sum(counts[g] for g in range(low, high + 1))
        return (between - (counts[low] + counts[high]) / 2) ** 2 if a != b else 0.0

    observed = 2 * (distance(1, 2) + distance(1, 3)) / 6
    everything = [v for v, count in counts.items() for _ in range(count)]
    expected = sum(distance(a, b) for a, b in itertools.permutations(everything, 2)) / 30
    assert krippendorff(values) == pytest.approx(1 - observed / expected)


def test_agreement_at_its_limits(rng):
    same = np.tile(rng.permuted(np.tile(np.arange(1.0, 5), (50, 1)), axis=1), (3, 1, 1))
    assert krippendorff(same.reshape(3, -1)) == pytest.approx(1)
    assert kendall_w(same.swapaxes(0, 1)) == pytest.approx(np.ones(50))
    assert np.isnan(krippendorff(np.ones((2, 5))))
    assert np.isnan(kendall_w(np.ones((3, 4))))
    value, low, high = clustered_alpha(same, "ordinal", draws=200, seed=0)
    assert (value, low, high) == pytest.approx((1, 1, 1))


def test_kendalls_w_is_friedmans_statistic_scaled(rng):
    """W = χ² / (m (k − 1)), ties or not."""
    for _ in range(20):
        places = rng.integers(1, 5, (5, 6)).astype(float)
        expected = stats.friedmanchisquare(*places.T).statistic / (5 * 5)
        assert kendall_w(places) == pytest.approx(expected)


def test_the_null_of_w_by_enumeration(rng):
    """Two readers without ties: all 24 orders of one against the other, mean exactly ½."""
    orders = np.array(list(itertools.permutations(range(1, 5))), float)
    pairs = np.stack([np.broadcast_to(orders[0], orders.shape), orders], 1)
    exact = kendall_w(pairs)
    assert exact.mean() == pytest.approx(0.5)
    places = rng.permuted(np.tile(np.arange(1.0, 5), (2, 40, 1)), axis=-1)
    found = mean_w(places, draws=4000, seed=0)
    error = exact.std() / np.sqrt(40)
    assert found.null == pytest.approx(0.5, abs=5 * error / np.sqrt(4000))
    assert found.null_high == pytest.approx(0.5 + 1.645 * error, abs=0.02)
    agreed = places.copy()
    agreed[1] = agreed[0]
    assert mean_w(agreed, draws=500, seed=0).p == pytest.approx(1 / 501)


def test_w_uses_cases_that_several_readers_ranked(rng):
    places = rng.permuted(np.tile(np.arange(1.0, 5), (3, 20, 1)), axis=-1)
    places[0, :5], places[1, 3:8] = NAN, NAN  # cases 3 and 4 have one reader, others two or three
    assert mean_w(places, draws=100, seed=0).cases == 18
    places[1:] = NAN
    assert mean_w(places, draws=100, seed=0).cases == 0


def test_the_null_p_of_w_is_fair(rng):
    """At random, p is below 0.05 once in twenty: within 4 standard errors over 300 studies."""
    low = 0
    for seed in range(300):
        places = np.random.default_rng([1, seed]).integers(1, 5, (2, 12, 4)).astype(float)
        low += mean_w(places, draws=200, seed=seed).p <= 0.05
    assert abs(low - 15) < 4 * np.sqrt(300 * 0.05 * 0.95)


def test_bootstrap_by_cases_has_the_clusters_standard_error(rng):
    """Two equal readers are no more information than one: the spread is that of cases."""
    one = rng.normal(size=80)
    single = resampled(one, np.ones(80), 4000, 0)
    double = resampled(2 * one, 2 * np.ones(80), 4000, 0)
    assert double == pytest.approx(single)
    expected = one.std() / np.sqrt(80)
    assert single.std() == pytest.approx(expected, rel=5 / np.sqrt(2 * 4000))
    low, high = interval(single)
    assert (high - low) / 2 == pytest.approx(1.96 * expected, rel=0.1)


def test_wilson_equals_scipy():
    for yes, of in ((0, 10), (3, 10), (50, 50), (41, 100)):
        theirs = stats.binomtest(yes, of).proportion_ci(method="wilson")
        assert wilson(yes, of) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert np.isnan(wilson(0, 0)).all()


def test_rates_of_cases_with_several_answers(rng):
    """One answer each: Wilson's. Copies are worth nothing. All alike: as if each case had one."""
    one = (rng.random(40) < 0.7).astype(float)
    plain = wilson(one.sum(), 40)
    assert clustered_wilson(one, np.ones(40)) == pytest.approx(plain)
    assert clustered_wilson(3 * one, np.full(40, 3.0)) == pytest.approx(plain)
    assert clustered_wilson(np.full(40, 2.0), np.full(40, 2.0)) == pytest.approx(wilson(40, 40))
    assert clustered_wilson(np.zeros(40), np.full(40, 2.0)) == pytest.approx(wilson(0, 40))
    assert clustered_wilson(np.ones(40), np.full(40, 2.0)) == pytest.approx(wilson(40, 80))
    missing = np.array([1.0] * 20 + [0.0] * 20)  # half the cases were not judged
    assert clustered_wilson(one * missing, missing) == pytest.approx(wilson(one[:20].sum(), 20))
    assert np.isnan(clustered_wilson(np.zeros(3), np.zeros(3))).all()


def test_intervals_of_rates_near_one_hold_their_promise(rng):
    """20 cases, 2 readers who agree half the time, a rate of 95%: 4 standard errors of 1,000."""
    covered = 0
    for _ in range(1000):
        case = rng.random(20) < 0.95
        own = rng.random((2, 20)) < 0.95
        said = np.where(rng.random((2, 20)) < np.sqrt(0.5), case, own)
        low, high = clustered_wilson(said.sum(0).astype(float), np.full(20, 2.0))
        covered += low <= 0.95 <= high
    assert covered / 1000 > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 1000)  # the bootstrap: 0.78


# ---------------------------------------------------------------------- power


def test_simulated_readers_prefer_as_often_as_asked():
    design = Design(effect=0.7, ties=0.0, agreement=0.4)
    places = simulate(design, 200, 2, 40, np.random.default_rng(0))
    wins = places[..., 0] < places[..., 1]
    # Readers share a part of what they see, so a case is at most one independent answer.
    assert wins.mean() == pytest.approx(0.7, abs=5 * np.sqrt(0.21 / 8000))
    same = Design(effect=0.5, ties=0.2, methods=2)
    tied = simulate(same, 200, 1, 40, np.random.default_rng(1))
    share = (tied[..., 0] == tied[..., 1]).mean()
    assert share == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / 8000))


def test_readers_agree_beyond_the_effect_as_asked():
    """Correlation of two readers' utilities is ρ; of their preferences, (2/π) asin ρ."""
    design = Design(effect=0.5, methods=2, ties=0.0, agreement=0.6)
    places = simulate(design, 200, 2, 50, np.random.default_rng(0))
    signs = np.sign(places[..., 0] - places[..., 1])
    found = (signs[:, 0] * signs[:, 1]).mean()
    assert found == pytest.approx(2 / np.pi * np.arcsin(0.6), abs=5 / np.sqrt(10_000))


def test_without_an_effect_nothing_is_found():
    """Holm keeps the chance of any false finding below 5%."""
    found = power_of(Design(effect=0.5), 40, 2, studies=1000, seed=0)
    assert found.power < 0.05
    assert found.friedman < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 1000)


def test_power_of_two_methods_is_that_of_the_test_itself():
    """One reader, two methods, no ties: Wilcoxon over signs is the sign test, which is exact."""
    design = Design(effect=0.75, methods=2, ties=0.0)
    found = power_of(design, 40, 1, studies=4000, seed=0)
    wins = np.arange(41)
    # All differences are ±1, so z = (wins − losses) / √n.
    rejects = (2 * stats.norm.sf(np.abs(2 * wins - 40) / np.sqrt(40)) < 0.05) & (wins > 20)
    exact = stats.binom.pmf(wins, 40, 0.75)[rejects].sum()
    assert found.power == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000))


@pytest.mark.parametrize(
    ("cases", "readers", "effect"), [(10, 3, 0.92), (20, 3, 0.8), (30, 1, 0.8)]
)
def test_simulated_studies_are_judged_as_real_ones(cases, readers, effect):
    """Each study alone, by `analyse`: the same ones succeed."""
    places = simulate(Design(effect), cases, readers, 25, np.random.default_rng(0))
    found = first_is_best(mid_ranks(places).mean(1), 0.05)
    assert 3 <= found.sum() <= 22
    names = ("a", "b", "c", "d")
    for study, succeeded in zip(places, found, strict=True):
        empty = np.full(study.shape, NAN)
        ratings = Ratings(tuple("xyz"[:readers]), ("c",) * cases, names, study, empty)
        pairs = analyse(ratings, draws=100).pooled.pairs
        best = [p.p_holm < 0.05 and p.difference < 0 for p in pairs if p.first == "a"]
        assert all(best) == succeeded


def test_the_effect_is_a_mean_rank():
    """1 + (k − 1)(1 − effect), each other method sharing the rest: within 5 standard errors."""
    for methods in (2, 4):
        design = Design(effect=0.8, methods=methods, ties=0.0)
        places = simulate(design, 100, 1, 100, np.random.default_rng(0)).reshape(-1, methods)
        error = 5 * places.std(0) / np.sqrt(len(places))
        best, others = design.mean_ranks
        assert abs(places[:, 0].mean() - best) < error[0]
        assert (np.abs(places[:, 1:].mean(0) - others) < error[1:]).all()


def test_power_is_seeded_and_grows():
    design = Design(effect=0.75)
    rows = power_table(design, [1, 3], cases=(10, 20, 40, 80), studies=300, seed=3)
    assert rows == power_table(design, [1, 3], cases=(10, 20, 40, 80), studies=300, seed=3)
    enough = needed(rows, 0.8)
    assert enough[3] <= enough[1] <= 80
    assert needed(power_table(Design(effect=0.55), [1], cases=(5,), studies=100), 0.8) == {1: None}


def test_ties_chain():
    assert with_ties(np.array([0.0, 0.4, 0.8, 3.0]), 0.5).tolist() == [2, 2, 2, 1]


@pytest.mark.parametrize(
    "wrong",
    [{"effect": 0.4}, {"effect": 1.0}, {"effect": 0.7, "methods": 1},
     {"effect": 0.7, "agreement": 1.0}, {"effect": 0.7, "ties": -0.1},
     {"effect": 0.7, "level": 0.0}],
)  # fmt: skip
def test_impossible_designs(wrong):
    with pytest.raises(InputError):
        Design(**wrong)
