"""Many settings trained as one program are the settings trained alone, and nothing leaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_runs import (
    COLUMNS,
    FAST,
    SIX,
    TINY,
    TINY_BATCH,
    Dropped,
    data,
    method,
    numbers,
    score_by_hand,
    train,
)
from torch import nn

from unmasked.errors import InputError
from unmasked.masks.distributions import Bernoulli
from unmasked.masks.maskers import Token
from unmasked.networks.tables import build
from unmasked.training import Data, Method, Settings, Trained, Training, fit, methods, noise
from unmasked.training.methods import log_likelihood
from unmasked.training.program import Program

# What rounding may grow to in 50 steps. A bias before a BatchNorm has a true gradient of zero;
# Adam divides the rounding that is there instead (1e-17) by its ε (1e-8) and moves the bias and
# the running mean by about 1e-9 at these rates, but no output: scores agree to 1e-10 everywhere.
NETWORKS: dict[str, tuple[Any, float]] = {
    "plain": (TINY, 1e-10),
    "batch norm": (TINY_BATCH, 1e-8),
    "dropout": (Dropped, 1e-10),
}
each_network = pytest.mark.parametrize(
    ("network", "rounding"), NETWORKS.values(), ids=NETWORKS.keys()
)
each_order = pytest.mark.parametrize("predictor_first", [False, True], ids=["joint", "first"])
ONE = Settings((0.1,), (3,))


def slots_per_epoch(trained: Trained, phase: int) -> list[int]:
    return [len(note["slots"]) for note in trained.history if note["phase"] == phase]


def assert_stacked_equals_separate(what: Method, training: Training, rounding: float) -> Trained:
    together = train(what, SIX, training)
    alone = [
        train(what, Settings((sparsity,), (seed,)), training)
        for seed in SIX.seeds
        for sparsity in SIX.levels
    ]
    assert together.epochs == [one.epochs[0] for one in alone]
    assert together.scores == pytest.approx([one.scores[0] for one in alone], abs=1e-10)
    for kind in ("selectors", "predictors"):
        stacked = numbers(getattr(together, kind))
        separate = [numbers(getattr(one, kind)) for one in alone]
        assert len(stacked) == 6, f"there must be one of the {kind} for each setting"
        assert [len(networks) for networks in separate] == [1] * 6, kind
        for this, (that,) in zip(stacked, separate, strict=True):
            torch.testing.assert_close(dict(this), dict(that), rtol=0, atol=rounding)
    return together


@each_order
@each_network
def test_stacked_equals_separate(network: Any, rounding: float, predictor_first: bool) -> None:
    assert_stacked_equals_separate(method(network, predictor_first=predictor_first), FAST, rounding)


@each_order
def test_stacked_equals_separate_when_some_stop_early(predictor_first: bool) -> None:
    """Settings stop in different epochs, and those that stopped everywhere leave the stack."""
    what = method(predictor_first=predictor_first)
    early = replace(FAST, epochs=40, patience=2, schedule="constant", selector_delay=0.0)
    together = assert_stacked_equals_separate(what, early, 1e-10)
    sizes = slots_per_epoch(together, phase=len(what.phases) - 1)
    assert sizes[0] == 6
    assert 0 < sizes[-1] < 6, "the stack was never made smaller: this test tests nothing"


@pytest.mark.parametrize(("network", "maps"), [(TINY, True), (TINY_BATCH, True), (Dropped, False)])
def test_what_can_be_vectorised_is(network: Any, maps: bool) -> None:
    """Else the test above compares a loop with a loop; random layers must run one at a time."""
    rows = data(20)
    program = Program(method(network), SIX, [rows], [rows], torch.device("cpu"), torch.float64)
    assert program.random_layers != maps


@each_order
def test_there_is_one_of_each_network_for_each_setting(predictor_first: bool) -> None:
    trained = train(method(predictor_first=predictor_first), training=replace(FAST, epochs=1))
    counts = (len(trained.selectors), len(trained.predictors), len(trained.scores))
    assert counts == (6, 6, 6)


def test_an_evaluator_has_one_network_for_each_seed() -> None:
    trained = train(method(explains=False), training=replace(FAST, epochs=1))
    assert (len(trained.predictors), len(trained.selectors), len(trained.scores)) == (2, 0, 2)


@each_network
def test_a_seed_decides_everything(network: Any, rounding: float) -> None:
    """Torch's own random state takes no part and is left as it was."""
    results = []
    for own, seed in ((0, 3), (1, 3), (0, 4)):
        torch.manual_seed(own)
        state = torch.get_rng_state()
        trained = train(method(network), Settings((0.1,), (seed,)), replace(FAST, epochs=2))
        assert torch.equal(torch.get_rng_state(), state)
        results.append(numbers(trained.selectors + trained.predictors))
    first, again, other = results
    for a, b, c in zip(first, again, other, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)
        assert not any(torch.equal(a[name], c[name]) for name in a if name.endswith("weight"))


@each_order
@each_network
def test_the_kept_networks_are_those_of_the_best_epoch(
    network: Any, rounding: float, predictor_first: bool
) -> None:
    """Scored again by hand, with ordinary modules, they give the best score on record."""
    trained = train(method(network, predictor_first=predictor_first), ONE)
    final = [n for n in trained.history if "selector" in n["trains"]]
    scores = [note["score"][0] for note in final]
    assert trained.epochs == [final[scores.index(max(scores))]["epoch"]]
    assert trained.scores == [max(scores)]
    by_hand = score_by_hand(trained.predictors[0], trained.selectors[0], 0.1, data(400, seed=1))
    assert by_hand == pytest.approx(max(scores), abs=1e-10)
    note = final[scores.index(max(scores))]
    assert note["score"][0] == pytest.approx(note["loglik"][0] - 0.1 * note["fraction"][0])


def test_an_evaluators_kept_network_gives_its_best_score() -> None:
    """With everything shown the validation score has no luck in it."""
    what = methods.full(Token(), TINY_BATCH)
    trained = train(what, Settings(seeds=(0,)))
    rows = data(400, seed=1)
    with torch.no_grad():
        logits = trained.predictors[0](torch.cat([rows.x, torch.ones_like(rows.x)], 1))
    by_hand = float(log_likelihood(logits, rows.target).mean())
    assert by_hand == pytest.approx(trained.scores[0], abs=1e-10)
    assert trained.scores[0] == max(note["score"][0] for note in trained.history)


@each_order
def test_patience_stops_each_setting_when_it_has_waited_long_enough(
    predictor_first: bool,
) -> None:
    patience = 2
    what = method(predictor_first=predictor_first)
    trained = train(what, ONE, replace(FAST, epochs=60, patience=patience, schedule="constant"))
    for phase, _ in enumerate(what.phases):
        notes = [note for note in trained.history if note["phase"] == phase]
        scores = [note["score"][0] for note in notes]
        assert len(scores) < 60
        assert len(scores) == scores.index(max(scores)) + patience + 1
    assert trained.epochs == [scores.index(max(scores))]
    assert (len(trained.predictors), len(trained.selectors)) == (1, 1)


@each_network
def test_a_joint_selector_does_not_touch_the_predictor(network: Any, rounding: float) -> None:
    """In one epoch the predictor moves as if alone: no gradient comes from the selector's loss,
    and value passes leave BatchNorm's statistics (and their count of batches) where they are.
    """
    training = replace(FAST, epochs=1)
    joint = train(method(network), ONE, training).predictors[0].state_dict()
    alone = train(method(network, explains=False), ONE, training).predictors[0].state_dict()
    torch.testing.assert_close(dict(joint), dict(alone), rtol=0, atol=1e-14)
    if network is TINY_BATCH:
        assert [int(v) for k, v in joint.items() if k.endswith("num_batches_tracked")] == [5]


@each_network
def test_the_selector_phase_leaves_a_finished_predictor_alone(
    network: Any, rounding: float
) -> None:
    """Weights and BatchNorm statistics are those of an evaluator that never met a selector."""
    first = train(method(network, predictor_first=True), ONE).predictors
    alone = train(method(network, explains=False), ONE).predictors
    for this, that in zip(numbers(first), numbers(alone), strict=True):
        assert all(torch.equal(this[name], that[name]) for name in this)


def test_a_predictor_that_comes_first_may_have_passes_of_its_own() -> None:
    """It is the one that so many passes make, and the selector has no more or fewer for it."""
    what = method(predictor_first=True)
    own = train(what, ONE, replace(FAST, epochs=2, predictor_epochs=5))
    alike = train(what, ONE, replace(FAST, epochs=5))
    for this, that in zip(numbers(own.predictors), numbers(alike.predictors), strict=True):
        assert all(torch.equal(this[name], that[name]) for name in this)
    assert [len(slots_per_epoch(own, phase=phase)) for phase in (0, 1)] == [5, 2]
    fewer = train(what, ONE, replace(FAST, epochs=5, predictor_epochs=2))
    assert [len(slots_per_epoch(fewer, phase=phase)) for phase in (0, 1)] == [2, 5]


def test_passes_of_a_predictor_that_comes_first_change_nothing_where_none_does() -> None:
    plain, with_option = (
        train(method(), ONE, replace(FAST, epochs=2, predictor_epochs=own)) for own in (None, 7)
    )
    for this, that in zip(numbers(plain.selectors), numbers(with_option.selectors), strict=True):
        assert all(torch.equal(this[name], that[name]) for name in this)


def test_a_selector_with_batch_norm_counts_its_own_batches_only() -> None:
    """Validation runs after each epoch and must not be counted."""
    trained = train(method(TINY_BATCH), ONE, replace(FAST, epochs=1))
    buffers = trained.selectors[0].state_dict()
    assert [int(v) for k, v in buffers.items() if k.endswith("num_batches_tracked")] == [5]


def test_a_users_module_is_copied_and_its_frozen_part_stays() -> None:
    user = nn.Sequential(nn.Linear(2 * COLUMNS, 6), nn.Tanh(), nn.Linear(6, 2))
    user[0].requires_grad_(False)
    before = {name: value.clone() for name, value in user.state_dict().items()}
    trained = train(method(user, explains=False), Settings(seeds=(0, 1)))
    assert all(torch.equal(value, before[name]) for name, value in user.state_dict().items())
    for after in numbers(trained.predictors):
        assert torch.equal(after["0.weight"], before["0.weight"].double())
        assert not torch.equal(after["2.weight"], before["2.weight"].double())


class Spare(nn.Module):
    """A user's network with a layer that takes no part, such as the head of another task."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.used(x)
        return result


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_layer_that_takes_no_part_is_no_obstacle(seeds: tuple[int, ...]) -> None:
    still = replace(FAST, epochs=2, weight_decay=0.0)
    trained = train(method(Spare), Settings((0.1, 0.5), seeds), still)
    assert len(trained.predictors) == 2 * len(seeds)
    start = build(Spare, 2 * COLUMNS, 2, 0).state_dict()
    after = trained.predictors[0].state_dict()
    assert torch.equal(after["spare.weight"], start["spare.weight"].double())
    assert not torch.equal(after["used.weight"], start["used.weight"].double())


def test_a_batch_larger_than_the_data_shrinks_to_it() -> None:
    large = train(method(), ONE, replace(FAST, batch_size=50), rows=7)
    exact = train(method(), ONE, replace(FAST, batch_size=7), rows=7)
    assert large.scores == exact.scores
    assert all(torch.isfinite(torch.tensor(large.scores)))


@pytest.mark.parametrize(
    "training",
    [
        replace(FAST, learning_rate=1e200, clip=None, schedule="constant"),
        replace(FAST, learning_rate=1e200, clip=None, schedule="constant", patience=1),
    ],
    ids=["to the end", "with patience"],
)
def test_a_run_that_diverges_says_so(training: Training) -> None:
    with pytest.raises(InputError, match=r"finite.*learning_rate \(1e\+200\)"):
        train(method(), ONE, training)


def test_data_that_are_not_numbers_are_refused_in_the_end() -> None:
    broken = Data(torch.full((40, COLUMNS), torch.nan), data(40).target)
    with pytest.raises(InputError, match="finite"):
        fit(method(), ONE, broken, data(40), replace(FAST, epochs=1), device="cpu", show=False)


@pytest.mark.parametrize(("learn", "validate"), [(0, 5), (5, 0)])
def test_no_rows_are_refused_by_number(learn: int, validate: int) -> None:
    with pytest.raises(InputError, match=f"{learn} and {validate}"):
        fit(method(), ONE, data(learn), data(validate), FAST, device="cpu", show=False)


@pytest.mark.parametrize("name", ["predictor", "selector"])
def test_a_network_of_the_wrong_width_is_refused_by_name(name: str) -> None:
    wrong = methods.real_x(
        Token(),
        Bernoulli(),
        nn.Linear(2 * COLUMNS, 7) if name == "predictor" else TINY,
        nn.Linear(COLUMNS, 7) if name == "selector" else TINY,
    )
    with pytest.raises(InputError, match=rf"the {name} must return shape .*but returned \(2, 7\)"):
        train(wrong, ONE)


def test_a_selector_that_still_waits_is_never_the_best() -> None:
    """Half of the epochs the selector does not move: it is neither kept nor stopped there."""
    waits = replace(FAST, selector_delay=0.5, patience=2)
    trained = train(method(), training=waits)
    waiting = [entry["epoch"] for entry in trained.history if entry["waiting"]]
    assert waiting == [0, 1, 2, 3, 4]
    assert min(trained.epochs) >= 5
    start = train(method(), training=replace(FAST, epochs=1, selector_learning_rate=1e-12))
    for moved, still in zip(trained.selectors, start.selectors, strict=True):
        difference = [
            (a - b).abs().max()
            for a, b in zip(moved.parameters(), still.parameters(), strict=False)
        ]
        assert max(difference) > 1e-3


def test_a_draw_does_not_depend_on_how_many_there_are() -> None:
    """One program for several k draws as often as the largest; the first ones are a small k's."""
    few, many = (
        noise.Tape(d, 30, 5, torch.float64, torch.device("cpu"))([3, 4], "s", 0, 7)
        for d in (20, 100)
    )
    assert torch.equal(few, many[:, :20])
    one = noise.Tape(20, 30, 5, torch.float64, torch.device("cpu"))([4], "s", 0, 7)
    assert torch.equal(one, few[1:])
    flat = many.reshape(2 * 100, -1)
    assert len(torch.unique(flat, dim=0)) == 200  # no two draws are the same
