"""Searching for sets: against brute force, and what a choice by context cannot give away."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from unmasked import RealX, SetMLP, Superpixels, Training, Zero
from unmasked.cli import app
from unmasked.datasets import synthetic
from unmasked.errors import InputError
from unmasked.explainers import stability
from unmasked.explainers.path import Candidate
from unmasked.explainers.search.choice import (
    ContextChoice,
    Questions,
    RowChoice,
    Split,
    chances_of,
    flips,
    grow,
    habits,
    leaves_of,
    prune,
    refine,
    route,
    sets_of,
    signed_logits,
)
from unmasked.explainers.search.find import _losses, _thin, better_kind, interchangeable, thinned
from unmasked.explainers.search.rounds import PerRow
from unmasked.explainers.search.values import (
    SetPredictor,
    by_frequency,
    closeness,
    log_likelihoods,
    of_size,
    paths,
    set_values,
)
from unmasked.explainers.softening import boosting_adds, may_soften, softened
from unmasked.inputs.table import bin_edges
from unmasked.masks.maskers import Groups
from unmasked.networks.tables import build
from unmasked.training import Data

INDEX = (0, 1, 1, 2, 3)  # the second feature has two columns
NETWORK = SetMLP((8,), inner=3, embedding=5, activation="gelu", bins=True)
NUMERIC = {0: (), 3: (-1.0, 0.0, 0.5), 4: (-2.0, 2.0)}
EVERY = torch.tensor(list(itertools.product([False, True], repeat=4)))


@pytest.fixture
def predictor():
    """Two untrained members: their answers differ from set to set as well as trained ones'."""
    members = [build(NETWORK.bound(NUMERIC), 10, 3, seed) for seed in (1, 2)]
    return SetPredictor(members, INDEX).double().eval()


@pytest.fixture
def x():
    return torch.randn(7, 5, generator=torch.Generator().manual_seed(0)).double()


def asked(predictor, x, mask):
    """Probabilities by the ordinary way: masker, network, softmax of each member, mean."""
    shown = Groups(INDEX)(x, mask.expand(len(x), -1).to(x.dtype))
    return torch.stack([member(shown).softmax(-1) for member in predictor.members]).mean(0)


def test_terms_add_up_to_what_the_networks_say(predictor, x):
    terms = predictor.terms(x)
    for mask in EVERY:
        expected = asked(predictor, x, mask)
        sums = torch.einsum("mrfn,f->mrn", terms, mask.double())
        torch.testing.assert_close(predictor.read(sums), expected)
        masked = Groups(INDEX)(x, mask.expand(len(x), -1).double())
        torch.testing.assert_close(predictor(masked).softmax(-1), expected)


def test_values_of_sets(predictor, x, monkeypatch):
    full = asked(predictor, x, EVERY[-1])
    expected = [closeness(full, asked(predictor, x, mask)) for mask in EVERY]
    torch.testing.assert_close(set_values(predictor, x, EVERY), torch.stack(expected, 1))
    assert set_values(predictor, x, EVERY)[:, -1].abs().max() < 1e-12
    monkeypatch.setattr("unmasked.explainers.search.values._NUMBERS", 1)  # row by row
    torch.testing.assert_close(set_values(predictor, x, EVERY), torch.stack(expected, 1))


def test_paths_hold_the_best_first_feature_and_the_one_missed_least(predictor, x):
    values = set_values(predictor, x, EVERY)
    found = {tuple(row) for row in paths(predictor, x).tolist()}
    sizes = EVERY.sum(1)
    for size in (1, 3):
        own = (sizes == size).nonzero().squeeze(1)
        best = own[values[:, own].argmax(1)]
        assert {tuple(row) for row in EVERY[best].tolist()} <= found
        for row, mask in zip(x, EVERY[best], strict=True):  # each row finds its own
            assert tuple(mask.tolist()) in {tuple(m) for m in paths(predictor, row[None]).tolist()}
    assert {tuple(EVERY[0].tolist()), tuple(EVERY[-1].tolist())} <= found
    one = paths(predictor, x[:1]).tolist()
    assert len(one) == len({tuple(row) for row in one})  # each set once
    assert len(one) <= 2 * 5


def test_habits_are_the_best_there_are():
    """The iteration maximises Σ_i price · log Σ_k w_k exp(u_ik / price), which is concave in w."""
    utility = torch.tensor([[0.0, 0.3], [0.2, 0.0], [0.1, 0.0], [0.05, 0.02]], dtype=torch.double)
    grid = torch.linspace(0.001, 0.999, 999, dtype=torch.double)
    weights = torch.stack([grid, 1 - grid], 1)  # (999, 2)
    for price in (0.05, 0.2, 1.0):
        worth = (weights[:, None] * (utility / price).exp()).sum(-1).log().sum(-1)
        best = weights[worth.argmax()]
        found = habits(utility, price, steps=2000)
        assert abs(float(found[0] - best[0])) <= 0.0021  # the grid, and weights that are cut off


def test_where_sets_are_equally_good_the_usual_one_is_taken():
    utility = torch.tensor([[0.0, 0.2]] * 3 + [[0.2, 0.0]] * 5)
    assert habits(utility, price=1.0).tolist() == [1.0, 0.0]
    different = torch.tensor([[0.0, 5.0]] * 3 + [[5.0, 0.0]] * 5)
    assert habits(different, price=0.1).tolist() == pytest.approx([5 / 8, 3 / 8])


def test_logits_stand_on_the_side_of_what_is_shown():
    shown = torch.tensor([[True, True, False, False]])
    logits = signed_logits(shown, torch.tensor([[0.9, 0.2, 0.8, 0.0]]))
    assert ((logits > 0) == shown).all()
    assert torch.isfinite(logits).all()


# ---------------------------------------------------------------------- choice by context


def switched(rows: int = 2000, seed: int = 0):
    """Utilities in which column 4 decides whether features 0 or 1 are worth showing."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 5, generator=generator)
    sets = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])
    left = x[:, 4] < 0
    first = torch.where(left, 0.5, 0.0)
    values = torch.stack([first, 0.5 - first, torch.full_like(first, 0.5), first, 0 * first], 1)
    return x, sets.bool(), values + 0.1 * torch.randn(values.shape, generator=generator)


def test_a_tree_finds_what_decides_and_shows_it():
    x, sets, values = switched()
    price = 0.05
    utility = values - price * sets.sum(1)
    tree = grow(Questions.about(x, INDEX), utility, sets, price)
    assert sets_of(tree) == {0, 1}
    assert all(column == 4 for asked, _ in leaves_of(tree) for column, _, _ in asked)
    wrong = (route(tree, x) == 0) != (x[:, 4] < 0)
    assert wrong.float().mean() < 2 / 32  # a bin of 32 on either side of the threshold
    fine = refine(tree, x, utility)
    wrong = (route(fine, x) == 0) != (x[:, 4] < 0)
    assert wrong.float().mean() < 0.005  # 0.5 of value on either side: few rows can be taken wrong


def test_a_split_that_does_not_pay_is_undone():
    x, sets, values = switched()
    utility = values - 0.05 * sets.sum(1)
    tree = Split(4, 0.0, Split(4, -1.0, 0, 0), 1)
    gain = float(utility.gather(1, route(tree, x)[:, None]).sum() - utility.sum(0)[:2].max())
    assert prune(tree, x, utility, gain - 1) == Split(4, 0.0, 0, 1)
    assert prune(tree, x, utility, gain + 1) in (0, 1)


def test_without_a_gain_there_is_one_set_for_all():
    x, sets, values = switched()
    assert grow(Questions.about(x, INDEX), values - 10.0 * sets.sum(1), sets, 10.0) == 4


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_is_hidden_can_change_a_choice_by_context(seed):
    """With any utilities: hidden values are exchanged, and every mask stays as it was."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(400, 5, generator=generator)
    x[:, 2] = (x[:, 2] > 0).float()
    utility = torch.randn(400, len(EVERY), generator=generator)
    utility += 3 * x[:, [4]] * EVERY[:, 0] + 2 * x[:, [2]] * EVERY[:, 3]
    tree = grow(Questions.about(x, INDEX), utility, EVERY, price=0.01)
    tree = prune(refine(tree, x, utility), x, utility, 5.0)
    leaves = leaves_of(tree)
    assert len(leaves) > 2
    module = ContextChoice.of(tree, EVERY, torch.rand(len(leaves), 4, generator=generator))
    logits = module(x)
    assert torch.equal(logits > 0, EVERY[route(tree, x)])
    shown = (logits > 0)[:, list(INDEX)]
    for _ in range(20):
        other = x[torch.randperm(len(x), generator=generator)] * 3 - 1
        assert torch.equal(module(torch.where(shown, x, other)), logits)


def test_a_flip_shows_or_hides_one_feature():
    for shown in EVERY:
        assert torch.equal(flips(shown) ^ shown, torch.eye(4, dtype=torch.bool))


def test_chances_are_above_one_half_where_a_feature_pays(predictor, x):
    """Each leaf's by its own rows alone: gain / (gain + price) of showing, or of not hiding it."""
    sets, price = EVERY[[9, 3]], 0.01
    found = chances_of(Split(4, 0.0, 0, 1), predictor, x, sets, price)
    for leaf, rows in ((0, x[x[:, 4] < 0]), (1, x[x[:, 4] >= 0])):
        values = set_values(predictor, rows, EVERY).mean(0)
        for j in range(4):
            other = sets[leaf].clone()
            other[j] = ~other[j]
            at = [int((own == EVERY).all(1).nonzero()) for own in (sets[leaf], other)]
            gain = values[at[1]] - values[at[0]]
            gain = (-gain if sets[leaf][j] else gain).clamp_min(0)
            torch.testing.assert_close(found[leaf, j], gain / (gain + price))


def test_as_frequent_sets_come_by_size_and_then_by_their_first_row():
    """The order of the columns does not matter: both orders give the same sets."""
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(40, 6, generator=generator) < 0.4
    masks = torch.cat([masks, masks[:5]])
    found = by_frequency(masks)
    same = (masks[:, None] == found).all(2)
    keys = [
        (-int(same[:, i].sum()), int(own.sum()), int(same[:, i].nonzero()[0]))
        for i, own in enumerate(found)
    ]
    assert keys == sorted(keys)
    order = torch.randperm(6, generator=generator)
    assert torch.equal(by_frequency(masks[:, order]), found[:, order])


def test_answers_add_up_to_each_threshold_of_columns_of_any_kind():
    generator = torch.Generator().manual_seed(0)
    x = torch.stack(
        [
            (torch.rand(300, generator=generator) < 0.3).float(),
            torch.randn(300, generator=generator),
            torch.ones(300),
        ],
        dim=1,
    )
    questions = Questions.about(x, (0, 1, 2))
    assert questions.hot.shape == (300, 2 + 32 + 1)  # no more places than answers
    weight = torch.randn(300, 2, generator=generator)
    sums, whole = questions.up_to(questions.hot.T @ weight)
    torch.testing.assert_close(whole, weight.sum(0).expand(35, 2), atol=1e-4, rtol=0)
    for place, column in enumerate(questions.column.tolist()):
        answer = int((questions.column[:place] == column).sum())
        below = (questions.answers[:, column] <= answer).float()
        torch.testing.assert_close(sums[place], below @ weight, atol=1e-4, rtol=0)


def test_what_does_not_pay_by_the_targets_is_dropped_but_what_was_asked_stays(predictor, x):
    """Targets that the predictor knows nothing of: every feature is dropped that may be."""
    target = torch.full((len(x), 3), 1 / 3, dtype=x.dtype)
    assert _thin(predictor, x, target, EVERY[15], {3}, 1e6).tolist() == [False, False, False, True]
    assert torch.equal(_thin(predictor, x, target, EVERY[9], {3}, -1e6), EVERY[9])


def test_of_many_features_several_are_dropped_at_once_unless_together_they_are_missed(
    predictor, x, monkeypatch
):
    monkeypatch.setattr("unmasked.explainers.search.find._SHARE", 1.0)
    target = torch.full((len(x), 3), 1 / 3, dtype=x.dtype)
    counted = []
    monkeypatch.setattr(
        "unmasked.explainers.search.find.log_likelihoods",
        lambda *given: counted.append(len(given[-1])) or log_likelihoods(*given),
    )
    assert not _thin(predictor, x, target, EVERY[15], (), 1e6).any()
    assert counted == [5, 2]  # all of them are tried, and then together
    one_of_two = {(1, 1): 0.0, (1, 0): 0.0, (0, 1): 0.0, (0, 0): -5.0}  # copies of each other
    monkeypatch.setattr(
        "unmasked.explainers.search.find.log_likelihoods",
        lambda _, x, __, sets: torch.tensor(
            [[one_of_two[int(own[0]), int(own[1])] for own in sets]] * len(x)
        ),
    )
    assert _thin(predictor, x, target, EVERY[15], (), 0.01).tolist()[:2].count(True) == 1


def test_a_question_stays_where_the_targets_want_both_sides(predictor):
    """Below 0 the targets are what one set says and the other does not; above it the reverse."""
    x = torch.randn(400, 5, generator=torch.Generator().manual_seed(1)).double()
    sets = EVERY[[9, 5]]  # features 0 and 3, 1 and 3
    every = torch.eye(3, dtype=x.dtype)
    said = torch.stack([log_likelihoods(predictor, x, y.expand(400, 3), sets) for y in every], 1)
    liked = said[:, :, 0] - said[:, :, 1]  # (rows, classes)
    low = x[:, 4] < 0
    target = every[torch.where(low[:, None], liked, -liked).argmax(1)]
    asked = Split(4, 0.0, 0, 1)
    tree, own = thinned(asked, predictor, x, target, sets, price=1e-9)
    assert tree == asked
    assert own[:, 3].all()
    tree, own = thinned(asked, predictor, x, target, sets, price=1e6)
    assert (tree, own.tolist()) == (0, [[False] * 4])
    tree, own = thinned(asked, predictor, x, target, EVERY[[1, 1]], price=1e-9)
    assert (tree, len(own)) == (0, 1)  # both sides show what was asked, and nothing else


def test_the_feature_that_is_missed_least_goes_first(predictor, x):
    target = torch.eye(3, dtype=x.dtype)[[0, 1, 2, 0, 1, 2, 0]]
    means = log_likelihoods(predictor, x, target, EVERY).mean(0)
    known = dict(zip(map(tuple, EVERY.tolist()), means.tolist(), strict=True))
    full = (True,) * 4
    without = [(*full[:j], False, *full[j + 1 :]) for j in range(4)]
    best = max(without, key=known.__getitem__)
    price = known[full] - known[best] + 1e-9  # pays for the first, and what comes then is looked at
    _, (own,) = thinned(15, predictor, x, target, EVERY, price)
    assert not own.logical_and(~torch.tensor(best)).any()


# ---------------------------------------------------------------------- which kind


def settings(*found):
    """(log-likelihood, share shown) at λ = 0.1, 0.2, …, of ten features."""
    noise = np.random.default_rng(0).standard_normal(100)
    noise -= noise.mean()
    return [
        Candidate(0.1 * (i + 1), share, 0.0, 0.0, loglik + noise)
        for i, (loglik, share) in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("context", "row", "kind"),
    [
        ((-0.40, 0.4), (-0.381, 0.4), "context"),  # by 0.019 nats
        ((-0.40, 0.4), (-0.379, 0.4), "row"),
        ((-0.40, 0.4), (-0.371, 0.5), "context"),  # a tenth more is shown, at a price of 0.1
        ((-0.40, 0.4), (-0.369, 0.5), "row"),
        ((-0.40, 0.4), (-0.40, 0.21), "context"),  # as good with less
        ((-0.40, 0.4), (-0.40, 0.19), "row"),
    ],
)
def test_a_choice_by_context_is_kept_unless_too_much_is_lost(context, row, kind):
    assert better_kind(settings(context), settings(row)) == kind


def test_both_kinds_pay_for_what_they_show_at_the_lowest_price():
    context = settings((-0.60, 0.9), (-0.40, 0.4))  # the second is chosen, at 0.2
    assert better_kind(context, settings((-0.40, 0.21))) == "context"
    assert better_kind(context[::-1], settings((-0.40, 0.19))) == "row"


def test_of_each_kind_the_setting_is_looked_at_that_would_be_chosen():
    context = settings((-0.60, 0.9), (-0.40, 0.4), (-0.69, 0.0))
    row = settings((-0.40, 0.4), (-0.50, 0.2), (-0.60, 0.1))
    assert better_kind(context, row) == "context"
    assert better_kind(context[:1] * 3, row) == "row"


@pytest.mark.parametrize(("gain", "kind"), [(0.081, "context"), (0.083, "row")])
def test_what_is_lost_must_surely_be_lost(gain, kind):
    other = np.random.default_rng(1).standard_normal(100)
    other *= 0.05 * np.sqrt(100) / other.std(ddof=1)  # a standard error of 0.05
    (row,) = settings((-0.40, 0.4))
    row = replace(row, logliks=row.logliks + other - other.mean() + gain)
    assert better_kind(settings((-0.40, 0.4)), [row]) == kind


# ---------------------------------------------------------------------- the whole


SMALL = SetMLP((16,), inner=4, embedding=16, activation="gelu", bins=True)
QUICK = {"predictor": SMALL, "progress": False, "random_state": 0}


def test_search_finds_the_control_flow_of_s3(one_thread):
    """3,000 rows and the default recipe: x11 in every row, and the branch's features.

    One set for all rows, both branches, would have an FDR of 4 / 9.
    """
    train, test = synthetic("S3", 3000, seed=4), synthetic("S3", 2000, seed=5)
    explainer = RealX(search=True, progress=False, random_state=0).fit(train.x, train.y)
    masks, truth = explainer.explain(test.x).masks, test.truth.astype(bool)
    assert explainer.choice_ == "context"
    assert masks[:, 10].all()
    assert (masks & truth).sum() / truth.sum() > 0.9
    assert (masks & ~truth).sum() / masks.sum() < 0.2
    assert 2 <= len(np.unique(masks, axis=0)) <= 4


@pytest.mark.parametrize("choice", ["context", "row"])
def test_both_kinds_are_saved_whole(tmp_path, monkeypatch, choice):
    monkeypatch.setattr("unmasked.explainers.search.rounds.better_kind", lambda *_: choice)
    rows = synthetic("S1", 400, seed=0)
    X = pd.DataFrame(rows.x, columns=[f"c{i}" for i in range(11)]).assign(t=["a", "b"] * 200)
    explainer = RealX(search=True, training=Training(epochs=20), **QUICK).fit(X, rows.y)
    explainer.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model")
    assert loaded.choice_ == choice
    for level in explainer.path_["sparsity"]:
        one, other = (own.explain(X, sparsity=level) for own in (explainer, loaded))
        np.testing.assert_array_equal(one.masks, other.masks)
        np.testing.assert_array_equal(one.probabilities, other.probabilities)
        np.testing.assert_array_equal(one.masks, one.probabilities > 0.5)
    np.testing.assert_allclose(explainer.predict_proba(X), loaded.predict_proba(X))


def test_a_fit_that_goes_on_gives_the_same(tmp_path):
    rows = synthetic("S1", 300, seed=0)
    options = {"search": True, "training": Training(epochs=5), "checkpoint": tmp_path, **QUICK}
    first = RealX(**options).fit(rows.x, rows.y)
    assert (tmp_path / "realx-predictor-0.safetensors").exists()
    again = RealX(**options).fit(rows.x, rows.y)
    np.testing.assert_array_equal(first.explain(rows.x).masks, again.explain(rows.x).masks)
    pd.testing.assert_frame_equal(first.path_, again.path_)


def test_a_model_can_be_searched(one_thread):
    rows = synthetic("S3", 500, seed=0)
    explainer = RealX(
        0.1, search=True, model=lambda X: 1 / (1 + np.exp(-X[:, 0])), training=Training(epochs=60),
        **QUICK,
    ).fit(rows.x)  # fmt: skip
    rates = explainer.explain(rows.x).masks.mean(0)
    assert rates[0] > 0.9
    assert rates[1:].max() < 0.2


def test_of_many_rows_some_are_searched(monkeypatch):
    """All limits at work at once: rows to search, to value, to place thresholds by, to judge by."""
    for name in ("find._SEARCHED", "find._VALUED", "find.PLACED"):
        monkeypatch.setattr(f"unmasked.explainers.search.{name}", 30)
    monkeypatch.setattr("unmasked.explainers.search.rounds.PLACED", 30)
    monkeypatch.setattr("unmasked.explainers.search.rounds._JUDGED", 20)
    rows = synthetic("S1", 400, seed=0)
    explainer = RealX(search=True, training=Training(epochs=5), **QUICK).fit(rows.x, rows.y)
    assert explainer.explain(rows.x).masks.shape == (400, 11)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"exchange": True}, "instead of exchange"),
        ({"predictor_first": True}, "instead of predictor_first"),
        ({"masker": Zero()}, "masker=Token"),
        ({"selector": torch.nn.Linear(11, 11)}, "no selector"),
        ({"predictor": SetMLP()}, "bins=True"),
        ({"restarts": 3}, "restarts"),
    ],
)
def test_what_does_not_go_with_search(options, word):
    rows = synthetic("S1", 100, seed=0)
    with pytest.raises(InputError, match=word):
        RealX(search=True, **options).fit(rows.x, rows.y)


@pytest.mark.parametrize("choice", ["context", "row"])
def test_where_features_are_free_nothing_breaks(monkeypatch, choice):
    """λ = 0, alone and beside others."""
    monkeypatch.setattr("unmasked.explainers.search.rounds.better_kind", lambda *_: choice)
    rows = synthetic("S1", 100, seed=0)
    for sparsity in (0.0, [0.0, 0.1]):
        explainer = RealX(sparsity, search=True, training=Training(epochs=3), **QUICK)
        explanation = explainer.fit(rows.x, rows.y).explain(rows.x)
        assert np.isfinite(explanation.probabilities).all()


def test_bins_are_looked_for_where_a_network_takes_them():
    rows = synthetic("S1", 100, seed=0)
    X = np.c_[rows.x, np.exp(3 * rows.x[:, 0])]
    trained = {"search": False, "training": Training(epochs=1), "progress": False}
    plain = RealX(0.1, **trained).fit(X, rows.y)
    searched = RealX(0.1, search=True, training=Training(epochs=1), **QUICK).fit(X, rows.y)
    assert not any(column.cuts for column in plain.columns_.columns)
    assert searched.columns_.columns[11].cuts


def test_images_are_not_searched():
    x = np.random.default_rng(0).random((20, 1, 4, 4))
    with pytest.raises(InputError, match="for tables"):
        RealX(search=True).fit(x, [0, 1] * 10)
    with pytest.raises(InputError, match="Token"):
        RealX(search=True, masker=Superpixels(2)).fit(x, [0, 1] * 10)


# ---------------------------------------------------------------------- columns in bins


def test_bins_are_for_what_is_far_from_normal():
    rng = np.random.default_rng(0)
    assert bin_edges(rng.standard_normal(2000)) == ()
    assert bin_edges(rng.uniform(size=2000) ** 4 * 100) != ()
    lumpy = np.where(rng.random(2000) < 0.5, 0.0, rng.exponential(size=2000))
    edges = np.array(bin_edges(lumpy))
    assert (np.diff(edges) > 0).all()
    assert (edges > 0).sum() > 16  # half the rows are one value; the others have 16 bins too


def test_of_very_many_numbers_some_say_where_to_cut():
    values = np.random.default_rng(0).uniform(size=400_000) ** 4
    edges = np.array(bin_edges(values))
    assert edges.tolist() == list(bin_edges(values))
    assert not set(edges) & set(np.quantile(values, np.linspace(0, 1, 17))[1:-1])
    ranks = np.searchsorted(np.sort(values), edges) / len(values)
    # of 200,000 drawn at random: five standard errors of a rank
    assert np.abs(ranks - np.linspace(0, 1, 17)).max() < 5 * 0.5 / np.sqrt(200_000)


def test_a_hidden_column_says_nothing_and_inputs_lie_in_their_bins(x):
    network = build(NETWORK.bound(NUMERIC), 10, 3, 0).double()
    ones = torch.ones_like(x)
    inputs = network.inputs(x, ones)
    assert inputs.shape[1] == len(network.owner)
    for column in range(5):
        mask = ones.clone()
        mask[:, column] = 0
        hidden = network.inputs(x * mask, mask)
        own = network.owner == column
        assert (hidden[:, own] == 0).all()
        torch.testing.assert_close(hidden[:, ~own], inputs[:, ~own])
    binned = inputs[:, 10:13]  # two bins of column 3, one of column 4
    torch.testing.assert_close(binned[:, 0], (x[:, 3] + 1).clamp(0, 1))
    torch.testing.assert_close(binned[:, 1], (x[:, 3] / 0.5).clamp(0, 1))


def test_choices_follow_their_predictor_to_another_precision(predictor, x):
    values = set_values(predictor, x, EVERY)
    choice = RowChoice.learn(predictor, EVERY, values, 0.01)
    assert list(choice.state_dict()) == ["sets", "bonus", "price"]  # the predictor is saved once
    choice.float()
    assert next(predictor.parameters()).dtype == torch.float32
    assert choice(x.float()).shape == (7, 4)


@pytest.mark.parametrize("choice", ["context", "row"])
def test_the_command_searches_and_explains_new_rows(tmp_path, monkeypatch, choice):
    monkeypatch.setattr("unmasked.explainers.search.rounds.better_kind", lambda *_: choice)
    rows = synthetic("S3", 300, seed=0)
    table = pd.DataFrame(rows.x, columns=[f"c{i}" for i in range(11)]).assign(y=rows.y)
    table.to_csv(tmp_path / "rows.csv", index=False)
    first, second = tmp_path / "first", tmp_path / "second"
    command = ["explain", str(tmp_path / "rows.csv"), "--target", "y", "--search", "--epochs", "10"]
    done = CliRunner().invoke(app, [*command, "--out", str(first), "--quiet"])
    assert done.exit_code == 0, done.output
    results = json.loads((first / "results.json").read_text())
    assert results["search"] == choice
    said = "gives nothing away" if choice == "context" else "may tell more"
    assert sum(said in sentence for sentence in results["summary"]) == 1
    again = ["explain", str(tmp_path / "rows.csv"), "--model", str(first), "--out", str(second)]
    done = CliRunner().invoke(app, [*again, "--quiet"])
    assert done.exit_code == 0, done.output
    masks = [pd.read_csv(own / "masks.csv", index_col="row") for own in (first, second)]
    pd.testing.assert_frame_equal(masks[0], masks[1].loc[masks[0].index])


# ---------------------------------------------------------------------- a size of one's own


def test_sets_of_a_size_are_at_least_as_good_as_either_way_alone(predictor, x):
    values = set_values(predictor, x, EVERY)
    sizes = EVERY.sum(1)
    places = {tuple(mask): i for i, mask in enumerate(EVERY.tolist())}
    for size in range(5):
        masks, missed = of_size(predictor, x, size)
        assert (masks.sum(1) == size).all()
        assert (missed[~masks] == 0).all()
        own = values[range(7), [places[tuple(mask)] for mask in masks.tolist()]]
        if size in (0, 1, 3, 4):  # one step from nothing or from everything: the best there is
            torch.testing.assert_close(own, values[:, sizes == size].amax(1))
    masks, missed = of_size(predictor, x, 2)
    for i in range(7):
        for j in masks[i].nonzero().flatten().tolist():
            without = masks[i].clone()
            without[j] = False
            lost = values[i, places[tuple(masks[i].tolist())]]
            lost = lost - values[i, places[tuple(without.tolist())]]
            torch.testing.assert_close(missed[i, j], lost.clamp_min(0))


def test_exactly_k_features_are_searched_for():
    rows = synthetic("S3", 400, seed=0)
    explainer = RealX(training=Training(epochs=20), **QUICK).fit(rows.x, rows.y)
    explanation = explainer.explain(rows.x, k=3)
    assert (explanation.masks.sum(1) == 3).all()
    np.testing.assert_array_equal(explanation.masks, explanation.probabilities > 0.49)
    assert explanation.about["top"] == 3
    with pytest.raises(InputError, match="whole number"):
        explainer.explain(rows.x, k=12)
    with pytest.raises(InputError, match="either sparsity or k"):
        explainer.explain(rows.x, k=2, sparsity=explainer.sparsity_)


@pytest.mark.parametrize("kind", ["context", "row"])
def test_either_kind_can_be_asked_for(kind):
    rows = synthetic("S3", 300, seed=0)
    explainer = RealX(search=kind, training=Training(epochs=20), **QUICK).fit(rows.x, rows.y)
    assert explainer.choice_ == kind
    if kind == "row":
        assert explainer.per_row_.captured == pytest.approx(explainer.per_row_.worth)


def test_what_choosing_for_each_row_is_worth():
    """By hand: two features shown instead of one, λ = 0.1 for all ten."""
    noise = np.array([-0.1, 0.1])
    fixed, own, row = (
        Candidate(0.1, size / 10, 0.0, 0.0, value + noise * i)
        for i, (size, value) in enumerate([(1, -0.5), (2, -0.45), (2, -0.4)])
    )
    found = PerRow.of(fixed, own, row)
    assert found.worth == pytest.approx(0.09)
    assert found.captured == pytest.approx(0.04)
    assert found.error == pytest.approx(0.2)
    assert "at most 0.490 nats" in str(found)
    assert "gains 0.090 nats" in str(PerRow(0.09, 0.04, 0.01))
    assert "this choice 0.040" in str(PerRow(0.09, 0.04, 0.01))


def test_without_a_word_what_can_be_searched_is():
    rows = synthetic("S1", 200, seed=0)
    searched = RealX(training=Training(epochs=3), progress=False).fit(rows.x, rows.y)
    assert searched.choice_ is not None
    assert "4 networks" in searched.decided_
    for options in ({"restarts": 2}, {"masker": Zero()}, {"exchange": True}, {"search": False}):
        plain = RealX(0.1, training=Training(epochs=1), progress=False, **options)
        assert plain.fit(rows.x, rows.y).choice_ is None


@pytest.mark.parametrize("progress", ["lines", False])
def test_what_was_decided_is_said_where_progress_is_shown(progress, capsys):
    rows = synthetic("S1", 200, seed=0)
    explainer = RealX(0.1, training=Training(epochs=3), progress=progress)
    explainer.fit(rows.x, rows.y)
    said = capsys.readouterr().err.splitlines()
    assert (f"REAL-X: {explainer.decided_}" in said) == bool(progress)
    assert any("searching for the sets of 11 features" in line for line in said) == bool(progress)


def test_stability_searches_again(tmp_path):
    rows = synthetic("S3", 1500, seed=0)
    explainer = RealX(0.1, checkpoint=tmp_path, training=Training(epochs=60), **QUICK)
    explainer.fit(rows.x, rows.y)
    found = stability(explainer, rows.x, rows.y, rows=rows.x[:200], seeds=2)
    assert found.masks.shape == (2, 200, 11)
    assert found.agreement.mean() > 0.8
    seeds = sorted(path.name for path in tmp_path.glob("seed-*"))
    assert len(seeds) == 2


# ---------------------------------------------------------------------- softened labels


def test_labels_are_softened_by_boosting_that_never_saw_them():
    """Labels of pure chance: a guess that had seen its label would lean to it."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 4)).astype(np.float32)
    target = torch.eye(2)[rng.integers(0, 2, 600)]
    soft = softened(Data(torch.from_numpy(x), target), seed=0).target
    torch.testing.assert_close(soft.sum(1), torch.ones(600), atol=2e-3, rtol=0)
    guess = 2 * soft - target
    lean = (guess * target).sum(1) - 0.5  # how much the guess knows of its label; 0 on average
    assert abs(lean.mean()) < 4 * lean.std() / np.sqrt(600)
    assert may_soften(Data(torch.from_numpy(x), target))
    assert not may_soften(Data(torch.from_numpy(x), soft))  # probabilities as they came
    assert not may_soften(Data(torch.from_numpy(x[:100]), target[:100]))


def test_boosting_adds_where_networks_know_nothing_and_not_where_they_know_all():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1500, 3)).astype(np.float32)
    chance = 1 / (1 + np.exp(-3 * x[:, 0]))
    target = torch.eye(2)[(rng.random(1500) < chance).astype(int)]
    rows = Data(torch.from_numpy(x), target)
    train, valid = (Data(rows.x[own], target[own]) for own in (slice(1000), slice(1000, None)))
    truth = np.stack([1 - chance, chance], 1)[1000:]
    assert boosting_adds(train, valid, np.full((500, 2), 0.5), seed=0)
    assert not boosting_adds(train, valid, truth, seed=0)


@pytest.mark.parametrize("rare", [1, 2])
def test_a_rare_class_is_softened_too(rare):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4)).astype(np.float32)
    label = np.r_[np.zeros(150, int), np.ones(150 - rare, int), np.full(rare, 2)]
    train = Data(torch.from_numpy(x), torch.eye(3)[label])
    soft = softened(train, seed=0).target
    torch.testing.assert_close(soft.sum(1), torch.ones(300))
    assert ((soft > 0).sum(1) <= 3).all()
    assert isinstance(boosting_adds(train, train, np.full((300, 3), 1 / 3), seed=0), bool)


def test_many_classes_and_one_that_is_nearly_all_are_softened_too():
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    many = Data(x, torch.eye(200)[torch.arange(400) % 200])
    assert softened(many, seed=0).target.shape == (400, 200)
    nearly_all = Data(x, torch.eye(2)[(torch.arange(400) > 398).long()])
    soft = softened(nearly_all, seed=0).target
    torch.testing.assert_close(soft.sum(1), torch.ones(400))


def test_a_loaded_search_can_be_fitted_again_and_asked_for_stability(tmp_path):
    rows = synthetic("S3", 300, seed=0)
    explainer = RealX(0.1, **QUICK).fit(rows.x, rows.y)
    explainer.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model")
    assert loaded.per_row_ == explainer.per_row_ is not None
    assert loaded.rounds_ == explainer.rounds_
    loaded.set_params(progress=False, training=Training(epochs=2), random_state=0)
    found = stability(loaded, rows.x, rows.y, rows=rows.x[:20], seeds=2)
    assert found.masks.shape == (2, 20, 11)
    assert loaded.fit(rows.x, rows.y).choice_ is not None


def test_what_an_earlier_search_said_is_forgotten():
    rows = synthetic("S3", 200, seed=0)
    explainer = RealX(0.1, **QUICK).fit(rows.x, rows.y)
    explainer.set_params(search=False).fit(rows.x, rows.y)
    assert (explainer.choice_, explainer.per_row_, explainer.decided_) == (None, None, "")


def test_the_rule_of_tolerance_asks_the_search_s_own_networks():
    rows = synthetic("S3", 300, seed=0)
    explainer = RealX((0.05, 0.5), choose="tolerance", **QUICK).fit(rows.x, rows.y)
    own = explainer.predict_proba(rows.x, everything=True).argmax(1) == rows.y
    assert explainer.full_accuracy_ is not None
    held_out = own[explainer.split_[1]]
    assert explainer.full_accuracy_ == pytest.approx(held_out.mean())


# ---------------------------------------------------------------------- what could stand in


def test_losses_of_hiding_a_feature_and_of_showing_another_in_its_place(predictor, x):
    masks = EVERY[[9, 3, 9, 3, 15, 9, 1]]
    masks[:, 0] = True
    target = torch.eye(3).double()[[0, 1, 2, 0, 1, 2, 0]]
    hidden, lost = _losses(predictor, x, target, masks, 0)
    for row in range(len(x)):
        own, label = x[row : row + 1], target[row : row + 1]
        without = masks[row].clone()
        without[0] = False
        sets = without.repeat(5, 1)
        sets[range(1, 5), range(4)] = True
        value = log_likelihoods(predictor, own, label, torch.cat([masks[row : row + 1], sets]))[0]
        torch.testing.assert_close(hidden[row], value[0] - value[1])
        others = ~masks[row]  # that are not shown already
        torch.testing.assert_close(lost[row][others], (value[0] - value[2:])[others])


@pytest.mark.parametrize(
    ("hiding", "instead", "expected"),
    [
        (0.1, 0.0, {0: [1]}),
        (0.1, 0.03, {}),  # loses something
        (0.0015, 0.0, {}),  # nobody would miss it
        (0.0035, 0.0019, {}),  # more than half of what it says
        (0.0045, 0.0019, {0: [1]}),
    ],
)
def test_when_a_feature_can_stand_for_another(predictor, monkeypatch, hiding, instead, expected):
    def told(own, x, target, masks, i):
        rows = torch.ones(len(x), dtype=torch.float64)
        others = torch.tensor([0.0, instead, 1.0, 1.0], dtype=torch.float64)
        return hiding * rows, rows[:, None] * others

    monkeypatch.setattr("unmasked.explainers.search.find._losses", told)
    masks = torch.zeros(200, 4, dtype=torch.bool)
    masks[:100, 0] = masks[:10, 2] = True  # feature 2 in too few rows to be asked about
    found = interchangeable(predictor, torch.zeros(200, 5), torch.zeros(200, 3), masks)
    assert found == expected
    masks[20:100, 1] = True  # shown already where feature 0 is
    found = interchangeable(predictor, torch.zeros(200, 5), torch.zeros(200, 3), masks)
    assert 0 not in found


def test_copies_of_a_column_are_called_interchangeable(tmp_path):
    x = np.random.default_rng(0).standard_normal((1500, 3))
    y = (x[:, 0] + 0.3 * x[:, 2] > 0).astype(int)
    options = {"search": "context", "training": Training(epochs=30), **QUICK}
    explainer = RealX(0.2, **options).fit(np.c_[x, x[:, 0]], y)
    (shown,) = {"x1", "x4"} & set(explainer.interchangeable_)
    assert explainer.interchangeable_[shown] == ["x4" if shown == "x1" else "x1"]
    explainer.save(tmp_path / "model")
    assert RealX.load(tmp_path / "model").interchangeable_ == explainer.interchangeable_
