"""Searching wide tables: screening, dropping what nothing shows, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from unmasked import Patches, RealX, SetMLP, Training
from unmasked.datasets import synthetic
from unmasked.explainers.search import rounds
from unmasked.explainers.search.screen import (
    Part,
    PartPredictor,
    PartSelector,
    best_features,
    evidence,
)
from unmasked.explainers.search.values import _descent

INDEX = (0, 1, 1, 2, 3, 3)
SMALL = SetMLP((16,), inner=4, embedding=16, activation="gelu", bins=True)
QUICK = {"predictor": SMALL, "training": Training(epochs=20), "progress": False, "random_state": 0}


# ---------------------------------------------------------------------- a part of the columns


def test_a_part_has_the_columns_of_its_features():
    part = Part.of([3, 1], INDEX)
    assert (part.features, part.columns, part.index) == ((1, 3), (1, 2, 4, 5), (0, 0, 1, 1))
    assert part.numeric({0: (), 2: (0.0, 1.0), 5: ()}) == {1: (0.0, 1.0), 3: ()}
    assert not part.plain
    assert Part.of([0, 2], INDEX).plain


def test_networks_of_a_part_see_it_alone_and_show_nothing_else():
    part = Part.of([1, 3], INDEX)
    x, mask = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    selector = PartSelector(torch.nn.Linear(4, 2), part, 4)
    logits = selector(x)
    torch.testing.assert_close(logits[:, [1, 3]], selector.selector(x[:, [1, 2, 4, 5]]))
    assert (logits[:, [0, 2]] < -5).all()
    inner = torch.nn.Linear(8, 3)
    seen = torch.cat([x[:, [1, 2, 4, 5]], mask[:, [1, 2, 4, 5]]], 1)
    whole = torch.cat([x, mask], 1)
    torch.testing.assert_close(PartPredictor(inner, part, 6)(whole), inner(seen))


# ---------------------------------------------------------------------- screening


def evidence_by_hand(x, *ys):
    """Of each column, one product after the other; p times how many of them there are."""
    x = x - x.mean(0)
    square = x**2 - (x**2).mean(0)
    found = []
    for i in range(x.shape[1]):
        others = [v[:, j] for v in (x, square) for j in range(x.shape[1]) if j != i]
        both = []
        for terms in ((x[:, i], square[:, i]), [x[:, i] * other for other in others]):
            products = [(y - y.mean()) * own for y in ys for own in terms]
            z = max(abs(product.sum()) / np.sqrt((product**2).sum()) for product in products)
            both.append(-norm.logsf(z) - np.log(2 * len(terms)))
        found.append(max(both))
    return found


def test_evidence_is_what_is_counted_by_hand(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 7))
    y = rng.random(50) < 0.4
    target = torch.from_numpy(np.stack([~y, y], 1).astype(float))
    expected = evidence_by_hand(x, y.astype(float))
    for block, numbers in ((500, 2**26), (3, 30)):
        monkeypatch.setattr("unmasked.explainers.search.screen._BLOCK", block)
        monkeypatch.setattr("unmasked.explainers.search.screen._NUMBERS", numbers)
        found = evidence(torch.from_numpy(x), target)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_of_several_classes_the_clearest_counts():
    rng = np.random.default_rng(1)
    x, label = rng.standard_normal((60, 4)), rng.integers(0, 3, 60)
    target = torch.from_numpy(np.eye(3)[label])
    expected = evidence_by_hand(x, *((label == k).astype(float) for k in range(3)))
    found = evidence(torch.from_numpy(x), target)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_many_products_do_not_drown_what_a_column_says_alone():
    """600 columns, 300 rows, 10 weak effects: noise columns have 1,198 products each."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 600))
    y = x[:, :10].sum(1) * 0.7 + rng.standard_normal(300) > 0
    target = torch.from_numpy(np.stack([~y, y], 1).astype(np.float32))
    kept = best_features(evidence(torch.from_numpy(x).float(), target), range(600))[:60]
    z = np.abs(((y - y.mean()) @ x) / np.sqrt((y - y.mean()) ** 2 @ x**2))
    clear = set(np.flatnonzero(z > 2.5)) & set(range(10))
    assert len(clear) >= 5
    assert clear <= set(kept)


def test_more_rows_speak_of_columns_than_of_pairs(monkeypatch):
    monkeypatch.setattr(
        "unmasked.explainers.search.screen._PRODUCTS", 20 * 6**2
    )  # 20 rows for pairs
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 6))
    y = 0.2 * x[:, 4] + rng.standard_normal(2000) > 0
    target = torch.from_numpy(np.stack([~y, y], 1).astype(float))
    scores = evidence(torch.from_numpy(x), target)
    assert int(scores.argmax()) == 4
    assert scores[4] > 10
    assert scores[[0, 1, 2, 3, 5]].max() < 5


@pytest.mark.parametrize("name", ["S1", "S2", "S3"])
def test_screening_finds_products_and_squares_among_many_columns(name):
    """10,000 rows: no true feature is lost with 600 columns, x1 and x2 of S1 neither."""
    rows = synthetic(name, 10_000, seed=2, noise_features=589)
    scores = evidence(torch.from_numpy(rows.x).float(), torch.eye(2)[rows.y])
    kept = best_features(scores, range(600))[:100]
    assert set(np.flatnonzero(rows.truth.any(0))) <= set(kept)


def test_a_feature_is_as_good_as_its_best_column():
    assert best_features(torch.tensor([0.0, 9.0, 1.0, 5.0, 0.0, 2.0]), INDEX) == [1, 2, 3, 0]
    assert best_features(torch.zeros(6), INDEX) == [0, 2, 1, 3]  # the others have two columns each
    assert best_features(torch.tensor([-3.0, -1.0, -0.5, 2.0]), range(4)) == [3, 2, 1, 0]


def test_all_features_are_hidden_in_the_end():
    for features in (1, 30, 31, 200):
        assert sum(_descent(features)) == features


# ---------------------------------------------------------------------- rounds


@pytest.fixture
def narrow(monkeypatch):
    """Rounds for tables of a few columns, so that tests are quick."""
    monkeypatch.setattr("unmasked.explainers.defaults.NARROW", 8)


def wide(rows, seed, noise=20):
    drawn = synthetic("S3", rows, seed=seed, noise_features=noise)
    return pd.DataFrame(drawn.x, columns=drawn.feature_names), drawn.y, drawn.truth.astype(bool)


def test_useless_columns_are_dropped_and_named(one_thread, tmp_path):
    """3,000 rows of S3 with 60 columns and the default recipe: x11 stays, most noise goes."""
    X, y, _ = wide(3000, 4, 49)
    explainer = RealX(progress=False, random_state=0).fit(X, y)
    assert "x11" not in explainer.dropped_
    assert len(explainer.dropped_) > 25
    assert explainer.rounds_[0].features == 60
    other, _, true = wide(2000, 5, 49)
    explanation = explainer.explain(other)
    assert explanation.masks[:, 10].mean() > 0.95
    assert (explanation.masks & true).sum() / true.sum() > 0.85
    assert (explanation.masks & ~true).sum() / explanation.masks.sum() < 0.25
    hidden = [X.columns.get_loc(name) for name in explainer.dropped_]
    assert not explanation.masks[:, hidden].any()
    explainer.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model")
    assert loaded.dropped_ == explainer.dropped_
    np.testing.assert_array_equal(loaded.explain(other).masks, explanation.masks)
    changed = other.assign(**dict.fromkeys(explainer.dropped_, 7.0))
    np.testing.assert_array_equal(loaded.explain(changed).masks, explanation.masks)


def test_dropping_can_be_switched_off(narrow):
    X, y, _ = wide(300, 0)
    explainer = RealX(search=True, drop=False, **QUICK).fit(X, y)
    assert explainer.dropped_ == []
    assert explainer.rounds_ == []


def test_where_no_tree_shows_anything_the_first_round_keeps_what_screening_likes(
    narrow, monkeypatch
):
    """Networks that know too little for any tree: x1 and x2 of a product are kept all the same."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 30))
    find = rounds.Search._find

    def shows_nothing(self, learned, prices, valid, *, each_row=True):
        found = find(self, learned, prices, valid, each_row=each_row)
        for choice in [] if each_row else found.context:
            choice.logits.fill_(-1.0)
        return found

    monkeypatch.setattr(rounds.Search, "_find", shows_nothing)
    monkeypatch.setattr(rounds.Learned, "better_than", lambda *_: True)
    explainer = RealX(search=True, **QUICK).fit(x, x[:, 0] * x[:, 1] > 0)
    assert [(own.features, own.kept) for own in explainer.rounds_] == [(30, 20)]
    assert not {"x1", "x2"} & set(explainer.dropped_)


def test_what_a_drop_costs_too_much_is_undone(narrow, monkeypatch):
    """A round that keeps useless columns alone: they know less, so all come back."""
    X, y, _ = wide(2000, 0, 2)
    monkeypatch.setattr(rounds.Search, "_kept", lambda *_, **__: [11, 12])
    explainer = RealX(search=True, **{**QUICK, "training": Training(epochs=60)}).fit(X, y)
    assert explainer.dropped_ == []
    assert explainer.rounds_ == []


def test_a_killed_search_goes_on_to_the_same_bits(narrow, monkeypatch, tmp_path):
    """Killed after its first round, and after its second: the finished rounds are read back."""
    X, y, _ = wide(400, 0)
    monkeypatch.setattr(
        rounds.Search, "_kept", lambda self, learned, first: learned.part.features[:-6]
    )
    monkeypatch.setattr(rounds.Learned, "better_than", lambda *_: True)
    whole = RealX(search=True, **QUICK).fit(X, y)
    assert len(whole.rounds_) > 1
    learn = rounds.Search._learn
    for finished in (1, 2):
        calls = []

        def dies(self, *args, finished=finished, calls=calls):
            calls.append(args)
            if len(calls) > finished:
                raise KeyboardInterrupt
            return learn(self, *args)

        monkeypatch.setattr(rounds.Search, "_learn", dies)
        with pytest.raises(KeyboardInterrupt):
            RealX(search=True, checkpoint=tmp_path / str(finished), **QUICK).fit(X, y)
        monkeypatch.setattr(rounds.Search, "_learn", learn)
        again = RealX(search=True, checkpoint=tmp_path / str(finished), **QUICK).fit(X, y)
        assert again.rounds_ == whole.rounds_
        np.testing.assert_array_equal(
            again.explain(X).probabilities, whole.explain(X).probabilities
        )


def test_a_very_wide_table_is_screened_first(monkeypatch):
    monkeypatch.setattr("unmasked.explainers.defaults.SCREENED", 12)
    X, y, _ = wide(300, 0)
    explainer = RealX(search=True, **QUICK).fit(X, y)
    assert explainer.rounds_[0] == rounds.Round(31, 12, None)
    assert len(explainer.dropped_) >= 31 - 12
    part = 31 - len(explainer.dropped_)
    explanation = explainer.explain(X, k=part + 3)  # more than took part: dropped ones follow
    assert (explanation.sizes == part + 3).all()
    always = explanation.masks.all(0)
    assert set(explainer.dropped_[:3]) <= {
        n for n, own in zip(X.columns, always, strict=True) if own
    }
    last = explanation.probabilities.argsort(1)[0][::-1][part : part + 3]
    assert [explanation.feature_names[i] for i in last] == explainer.dropped_[:3]
    assert ((explanation.probabilities > 0.5) == explanation.masks).all()


@pytest.mark.parametrize("better", [False, True])
def test_a_round_that_is_cut_short_is_kept_only_if_it_is_better(narrow, monkeypatch, better):
    X, y, _ = wide(300, 0)
    learn = rounds.Search._learn

    def cut_short(self, part, train, members, name):
        found = learn(self, part, train, members, name)
        ended = replace(found.trained, interrupted=name == "1")
        return replace(found, trained=ended)

    monkeypatch.setattr(rounds.Search, "_learn", cut_short)
    monkeypatch.setattr(rounds.Search, "_kept", lambda *_, **__: list(range(12)))
    monkeypatch.setattr(rounds.Learned, "better_than", lambda *_: better)
    monkeypatch.setattr(
        rounds.Search, "_completed", lambda *_: pytest.fail("nothing more is trained")
    )
    explainer = RealX(search=True, **QUICK).fit(X, y)
    assert explainer.interrupted_
    assert len(explainer.rounds_) == better


def test_masks_of_a_grid_are_never_narrowed(narrow):
    X, y, _ = wide(300, 0, 25)
    explainer = RealX(search=True, mask_law=Patches((6, 6)), **QUICK).fit(X, y)
    assert explainer.dropped_ == []


def test_labels_are_called_softened_only_where_they_were(narrow, monkeypatch):
    X, y, _ = wide(150, 0)  # too few to be softened
    monkeypatch.setattr(rounds.Search, "_kept", lambda *_, **__: list(range(12)))
    monkeypatch.setattr(rounds.Learned, "better_than", lambda *_: True)
    explainer = RealX(search=True, **QUICK).fit(X, y)
    assert explainer.dropped_
    assert "softened" not in explainer.decided_
