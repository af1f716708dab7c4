"""REAL-X whose predictor learns from what the selector draws for other rows."""

from __future__ import annotations

import math
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import COLUMNS, FAST, TINY, TINY_BATCH, data, exchanged, method, train
from torch import Tensor, nn

from unmasked import RealX
from unmasked.errors import InputError
from unmasked.masks.distributions import Bernoulli
from unmasked.masks.maskers import Token
from unmasked.masks.samplers import ConcreteTopK
from unmasked.networks.tables import MLP
from unmasked.training import Data, Training, loop, methods
from unmasked.training.method import Exchanged, Learner, Method, Random, Settings
from unmasked.training.program import Program
from unmasked.training.rows import Batch

ONE = Settings((0.1,), (0,))


def program(what: Method, settings: Settings = ONE) -> Program:
    rows = [data(20)]
    return Program(what, settings, rows, rows, torch.device("cpu"), torch.float64)


def test_every_second_row_has_the_draw_of_the_row_before() -> None:
    """The others have what the law draws for them, as without exchange."""
    settings = Settings((0.1, 0.5, 2.0), (0, 1))
    own, plain = program(exchanged(), settings), program(method(), settings)
    trains = own.method.phases[0]
    noise = own.noise(trains, 10, 0, 0)
    x = torch.randn(2, 10, COLUMNS, dtype=torch.float64)
    batch = Batch(x, torch.ones(2, 10, 2), None, noise)
    drawn = (torch.rand(2, 3, 10, COLUMNS) < 0.5).double()
    masks = own._source_masks("predictor", batch, drawn)
    law = plain._source_masks("predictor", batch)
    assert masks.shape == drawn.shape
    for world in range(2):
        for setting in range(3):
            for row in range(10):
                expected = drawn[world, setting, row - 1] if row % 2 else law[world, row]
                assert torch.equal(masks[world, setting, row], expected)


def test_the_predictor_is_moved_by_its_own_loss_alone() -> None:
    """The selector climbs what the predictor says; its loss leaves the predictor where it is."""
    own = program(exchanged())
    trains = own.method.phases[0]
    leaves = {name: own.stacks[name].weights(learn=True) for name in trains}
    rows = data(20)
    batch = Batch(rows.x[None], rows.target[None], None, own.noise(trains, 20, 0, 0))
    losses = own.losses(trains, leaves, batch)
    for judged, moved in (("selector", {"selector"}), ("predictor", {"predictor"})):
        found = torch.autograd.grad(
            losses[judged].sum(),
            [weight for name in sorted(trains) for weight in leaves[name].values()],
            retain_graph=True,
            allow_unused=True,
        )
        owners = [name for name in sorted(trains) for _ in leaves[name]]
        touched = {name for name, g in zip(owners, found, strict=True) if g is not None and g.any()}
        assert touched == moved


class Coder(nn.Module):
    """A selector that writes the label, which it reads in the last column, into its choice.

    It shows column 0 for one class and column 1 for the other, and never the last one.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        one = torch.where(x[:, -1:] > 0, 40.0, -40.0)
        rest = x.new_full((len(x), self.idle.shape[0] - 2), -40.0)
        return torch.cat([one, -one, rest], 1) + 0 * self.idle


@pytest.mark.parametrize("exchange", [True, False], ids=["exchanged", "its own"])
def test_a_code_is_learned_from_own_masks_and_not_from_others(exchange: bool) -> None:
    """Columns 0 and 1 are noise: whatever is shown of them says nothing, only the choice does.

    From its own masks a predictor reads the code and is sure. From other rows' masks it can know
    no more than the classes' shares, and has −log 2 also where masks name the class, but for
    chance: of the 500 rows of an epoch that a mask came to, the share of a class has a standard
    deviation of 0.5 / √500, its log-odds of 2 / √500, those of two masks differ by √2 times that,
    and log q gains a quarter of the difference: 0.03. Four times that is allowed; the code is
    worth 0.69.
    """
    source = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, 3, dtype=torch.float64, generator=source)
    label = (torch.rand(4000, generator=source) < 0.5).long()
    x = torch.cat([noise, (2.0 * label - 1)[:, None]], 1)
    rows = Data(x, nn.functional.one_hot(label, 2).double())
    learn, validate = (Data(rows.x[s], rows.target[s]) for s in (slice(2000), slice(2000, None)))
    what: Any = (
        methods.real_x(Token(), Bernoulli(0.0), TINY, Coder, exchange=True)
        if exchange
        else methods.base_x(Token(), TINY, Coder)
    )
    training = Training(epochs=8, batch_size=50, learning_rate=0.02, keep="last")
    trained = train(what, Settings((0.0,), (0,)), training, learn=learn, validate=validate)
    loglik = trained.history[-1]["loglik"][0]
    if exchange:
        chance = math.sqrt(2) * 2 / math.sqrt(500) / 4
        assert loglik < -math.log(2) + 4 * chance
        assert loglik > -math.log(2) - 0.1, "it has not even learned the classes' shares"
    else:
        assert loglik > -0.05


def test_batches_cannot_be_cut_up() -> None:
    """Masks go from row to row: in pieces of a batch they would go to other rows."""
    assert program(exchanged()).needs_whole_batches
    assert not program(method()).needs_whole_batches


def test_a_selector_that_looks_at_its_whole_batch_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through BatchNorm a row's mask would know the row that it goes to."""
    what = methods.real_x(Token(), Bernoulli(), TINY, TINY_BATCH, exchange=True)
    with pytest.raises(InputError, match="one row at a time, but this one has BatchNorm"):
        program(what)
    with monkeypatch.context() as patch:  # a predictor has not practised for nothing
        patch.setattr(Program, "losses", lambda *_: pytest.fail("a step was taken"))
        with pytest.raises(InputError, match="one row at a time, but this one has BatchNorm"):
            train(replace(what, predictor_first=True), ONE)
    program(methods.real_x(Token(), Bernoulli(), TINY_BATCH, TINY, exchange=True))


def test_a_batch_of_one_has_nobody_to_exchange_with() -> None:
    training = replace(FAST, epochs=1, batch_size=1)
    with pytest.raises(InputError, match="batch_size is 1; make it larger"):
        train(exchanged(), ONE, training)


def test_masks_of_a_selector_need_a_selector() -> None:
    learners = {"predictor": Learner(TINY, Exchanged(Bernoulli()))}
    with pytest.raises(InputError, match="a selector"):
        Method(Token(), learners)
    Method(Token(), {"predictor": Learner(TINY, Random(Bernoulli()))})


def test_exchange_changes_what_is_learned() -> None:
    """Else the tests of stacks and of resuming compare REAL-X with itself."""
    plain, own = (train(what, ONE, replace(FAST, epochs=3)) for what in (method(), exchanged()))
    assert plain.scores != own.scores


def test_an_explainer_exchanges_masks_when_asked_to() -> None:
    """Each λ has a predictor of its own, also where it has learned from random masks before."""
    x, y = data(200).x.numpy(), data(200).target.argmax(1).numpy()
    common: dict[str, Any] = {
        "selector": TINY,
        "predictor": TINY,
        "training": replace(FAST, epochs=2),
        "progress": False,
        "device": "cpu",
        "random_state": 0,
    }
    plain, own = (RealX([0.1, 0.5], exchange=ex, **common).fit(x, y) for ex in (False, True))
    assert isinstance(own._method().learners["predictor"].source, Exchanged)
    assert len({id(setting.predictor) for setting in own.settings_}) == 2
    assert list(plain.path_["loglik"]) != list(own.path_["loglik"])
    after = RealX([0.1, 0.5], exchange=True, predictor_first=True, **common).fit(x, y)
    assert len({id(setting.predictor) for setting in after.settings_}) == 2
    assert list(after.path_["loglik"]) != list(own.path_["loglik"])


def test_a_predictor_practises_on_random_masks_before_it_meets_others() -> None:
    """By hand: EVAL-X's training, then exchanged masks from there, without a wait."""
    settings, training = Settings((0.1, 0.5), (0, 1)), replace(FAST, epochs=3, predictor_epochs=4)
    alone = replace(settings, levels=(0.0,))
    first = train(method(explains=False), alone, replace(training, epochs=4))
    start = {"predictor": first.stacks["predictor"]}
    rest = train(exchanged(), settings, replace(training, selector_delay=0.0), start=start)
    own = train(exchanged(predictor_first=True), settings, training)
    assert own.scores == rest.scores
    assert own.epochs == rest.epochs
    assert [note["phase"] for note in own.history] == [0] * 4 + [1] * 3
    assert [note["loss"] for note in own.history] == [
        note["loss"] for note in [*first.history, *rest.history]
    ]
    assert own.scores != train(exchanged(), settings, training).scores


def test_what_is_practised_starts_as_told() -> None:
    """Networks to start from go to the practice; a selector's, to what follows."""
    begun = train(method(), ONE, replace(FAST, epochs=1))
    what, training = exchanged(predictor_first=True), replace(FAST, epochs=2)
    told = {
        name: train(what, ONE, training, start={name: begun.stacks[name]})
        for name in ("predictor", "selector")
    }
    plain = train(what, ONE, training)
    first = {key: [note["loss"] for note in own.history[:2]] for key, own in told.items()}
    assert first["predictor"] != [note["loss"] for note in plain.history[:2]]
    assert first["selector"] == [note["loss"] for note in plain.history[:2]]
    assert told["selector"].scores != plain.scores


def test_control_c_while_practising_keeps_the_checkpoint_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no selector yet, so nothing is said to be kept; the next call goes on from there."""
    what, training = exchanged(predictor_first=True), replace(FAST, epochs=3)
    path, losses = tmp_path / "run.pt", Program.losses
    steps: list[frozenset[str]] = []
    pressed = 7  # in the second of three epochs of five steps

    def counted(self: Program, trains: frozenset[str], *arguments: Any) -> dict[str, Tensor]:
        steps.append(trains)
        if len(steps) == pressed:
            signal.raise_signal(signal.SIGINT)
        return losses(self, trains, *arguments)

    whole = train(what, ONE, training)
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(loop, "_SAVING_SHARE", 0)
    monkeypatch.setattr(Program, "losses", counted)
    with pytest.raises(KeyboardInterrupt):
        train(what, ONE, training, path)
    assert [file.name for file in tmp_path.iterdir()] == ["run-practice.pt"]
    steps.clear()
    pressed = 0
    assert train(what, ONE, training, path).scores == whole.scores
    assert [len(trains) for trains in steps] == [1] * 10 + [2] * 15
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run-practice.pt", "run.pt"]


def test_the_noise_of_a_practice_does_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do the orders of rows: what follows is another phase."""
    noise, seen = Program.noise, []

    def noted(
        self: Program, trains: frozenset[str], rows: int, phase: int, step: int, *more: int
    ) -> dict[str, Tensor]:
        found = noise(self, trains, rows, phase, step, *more)
        seen.append((phase, step, float(found["predictor"].sum())))
        return found

    monkeypatch.setattr(Program, "noise", noted)
    train(exchanged(predictor_first=True), ONE, replace(FAST, epochs=2))
    assert [(phase, step) for phase, step, _ in seen] == [(p, s) for p in (0, 1) for s in range(10)]
    assert len({value for _, _, value in seen}) == 20


@pytest.mark.parametrize("wrong", ["k", "start"])
def test_what_follows_a_practice_is_looked_at_before_it(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = train(method(MLP((5,))), ONE, replace(FAST, epochs=1)).stacks["selector"]
    monkeypatch.setattr(Program, "losses", lambda *_: pytest.fail("a step was taken"))
    what = methods.real_x(
        Token(), Bernoulli(), TINY, TINY, ConcreteTopK(2), predictor_first=True, exchange=True
    )
    settings = Settings((1, 3) if wrong == "k" else (1, 2))
    start = {"selector": other} if wrong == "start" else None
    with pytest.raises(InputError, match="largest, 2" if wrong == "k" else "own architecture"):
        train(what, settings, start=start)
