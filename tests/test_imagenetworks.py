"""Networks for pictures: sizes, stacks, means over superpixels, saving."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from unmasked import (
    CNN,
    DenseNet121,
    InputError,
    MissingExtra,
    MonaiUNet,
    RealX,
    Superpixels,
    Training,
    UNet,
)
from unmasked.errors import UnmaskedWarning
from unmasked.inputs.images import ForImages, Row
from unmasked.masks.distributions import Bernoulli
from unmasked.masks.maskers import Zero
from unmasked.networks import images as networks
from unmasked.networks.tables import build
from unmasked.training import Data, Settings, methods
from unmasked.training.program import Program
from unmasked.training.stack import Stack
from unmasked.training.step import Optimiser, Stepper

CPU = torch.device("cpu")
SHAPE = (2, 9, 13)
INPUTS = 2 * 9 * 13


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 3), (3, 9, 13), (1, 28, 28), (1, 33, 64)])
@pytest.mark.parametrize("widths", [(8,), (4, 8), (8, 16, 24, 8)])
def test_any_size_works(shape: tuple[int, int, int], widths: tuple[int, ...]) -> None:
    x = torch.randn(2, *shape)
    assert CNN(widths)(shape, 5)(x).shape == (2, 5)
    assert UNet(widths)(shape, 5)(x).shape == (2, 1, *shape[1:])


@pytest.mark.parametrize("factory", [CNN((4, 8)), UNet((4, 8))])
def test_an_image_does_not_feel_its_neighbours(factory: Any) -> None:
    module = factory(SHAPE, 3).double().train()
    x = random(6, *SHAPE)
    torch.testing.assert_close(module(x)[2:3], module(x[2:3]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("factory", [CNN((4, 8)), UNet((4, 8))])
def test_many_as_one_are_those_networks(factory: Any) -> None:
    """Values and gradients, with rows of their own."""
    regions = Superpixels((3, 4)).bound(SHAPE).map
    made = [build(ForImages(factory, SHAPE, regions), INPUTS, 12, s).double() for s in range(3)]
    stack = Stack(made, CPU, torch.float64, random(2, INPUTS))
    assert stack.mode == "each"
    x, weight = random(3, 4, INPUTS, seed=1), random(3, 4, 12, seed=2)
    leaves = stack.weights(learn=True)
    result = stack.forward(leaves, x, training=True)
    found = torch.autograd.grad((result * weight).sum(), list(leaves.values()))
    for i, module in enumerate(made):
        alone = module(x[i])
        # sums of a few hundred numbers of about 1, in double precision
        torch.testing.assert_close(result[i], alone, rtol=0, atol=1e-11)
        gradients = torch.autograd.grad((alone * weight[i]).sum(), list(module.parameters()))
        for own, expected in zip(found, gradients, strict=True):
            torch.testing.assert_close(own[i], expected, rtol=0, atol=1e-10)


class Normalised(nn.Module):
    """A network of a user's whose statistics move while it learns."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.seen, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.last = nn.LazyLinear(outputs)
        self(torch.zeros(2, inputs))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.norm(self.seen(x.reshape(-1, *SHAPE))).flatten(1))
        return result


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
@pytest.mark.parametrize("factory", [ForImages(CNN((4, 8)), SHAPE), Normalised], ids=["CNN", "own"])
@pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor")
def test_compiled_networks_are_the_same_and_are_compiled_once(factory: Any, training: bool) -> None:
    """Values, gradients and statistics; three networks of one architecture take one compilation."""
    made = [build(factory, INPUTS, 3, seed) for seed in range(3)]
    x = random(3, 4, INPUTS, seed=1).float()
    results, compiled = [], []

    def traced(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph

    for how in (nullcontext(), None):
        torch.compiler.reset()
        stack = Stack(made, CPU, torch.float32, x[0])
        with how or stack.compiled(traced):
            leaves, rows = stack.weights(learn=True), x.clone().requires_grad_()
            result = stack.forward(leaves, rows, training=training)
            found = torch.autograd.grad(result.square().sum(), [*leaves.values(), rows])
        results.append([result, *found, *stack.buffers.values()])
        assert len(compiled) == (0 if how else 1)
        stack.forward(leaves, x[:, :3], training=training)
        assert len(compiled) == (0 if how else 1)  # no other shape was compiled outside
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("works", [True, False], ids=["a compiler", "none"])
def test_a_step_is_the_same_where_no_compiler_works(
    works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks are compiled as long as a step is prepared; without a compiler it is said, once."""
    regions = Superpixels((3, 4), masker=Zero()).bound(SHAPE)
    pair = [ForImages(CNN((4, 4)), SHAPE), ForImages(UNet((4, 4)), SHAPE, regions.map)]
    x, target = random(8, INPUTS).float(), torch.eye(2).repeat(4, 1)
    what = methods.real_x(regions, Bernoulli(), *pair)
    program = Program(
        what, Settings((0.1, 1.0)), [Data(x, target)], [Data(x, target)], CPU, torch.float32
    )
    training = Training().resolve(8)
    optimisers = {
        name: Optimiser(stack, training, selector=name == "selector", delayed=False)
        for name, stack in program.stacks.items()
    }
    stepper = Stepper(program, what.phases[0], optimisers, compiles=True)
    rows, active = torch.arange(8)[None], dict.fromkeys(optimisers)
    stepper._rows, stepper._noise = rows, program.noise(what.phases[0], 8, 0, 0)
    stepper._active = active
    before = {name: stack.flat.clone() for name, stack in program.stacks.items()}
    plain = stepper._gradients(rows, stepper._noise, 0)
    asked = []

    def compiler(function: Any, **options: Any) -> Any:
        asked.append(function)

        def run(*arguments: Any) -> Any:
            if not works:
                raise RuntimeError("no compiler here\nand more")
            return function(*arguments)

        return run

    monkeypatch.setattr(torch, "compile", compiler)
    said = nullcontext() if works else pytest.warns(UnmaskedWarning, match=r"\(no compiler here\)")
    with ExitStack() as compiled:
        with said:
            stepper._compile(compiled)
        assert [stack._compiled is not None for stack in program.stacks.values()] == [works] * 2
        for name, stack in program.stacks.items():
            stack.flat = before[name].clone()
        found = stepper._gradients(rows, stepper._noise, 0)
    assert len(asked) == 2
    assert all(stack._compiled is None for stack in program.stacks.values())
    for name, value in plain.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
@pytest.mark.parametrize("factory", [CNN((4, 8)), UNet((4, 8))])
def test_low_precision_is_near_and_leaves_weights_and_results_alone(
    factory: Any, training: bool
) -> None:
    """bfloat16 keeps 8 bits: a result of about ten layers is right to a few of its steps, 2⁻⁸."""
    made = [build(ForImages(factory, SHAPE), INPUTS, INPUTS, s) for s in range(2)]
    x = random(2, 4, INPUTS, seed=1).float()
    precise, low = (
        Stack(made, CPU, torch.float32, x[0], precision) for precision in (None, torch.bfloat16)
    )
    results, gradients = [], []
    for stack in (precise, low):
        leaves = stack.weights(learn=True)
        result = stack.forward(leaves, x, training=training)
        results.append(result.detach())
        gradients.append(stack.gather(torch.autograd.grad(result.sum(), list(leaves.values()))))
    assert low.flat.dtype == results[1].dtype == gradients[1].dtype == torch.float32
    assert not torch.equal(*results)  # it was indeed low
    for one, other in (results, gradients):
        error = (one - other).norm() / one.norm()
        assert error < 10 * 2**-8


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
def test_the_papers_network_runs_one_at_a_time_and_only_learning_moves_its_statistics(
    training: bool,
) -> None:
    pytest.importorskip("monai", reason="DenseNet121 is MONAI's, in the extra 'images'")
    shape = (1, 32, 32)
    made = [build(ForImages(DenseNet121(), shape), 1024, 2, s) for s in range(2)]
    x = random(2, 4, 1024, seed=1).float()
    stack = Stack(made, CPU, torch.float32, x[0], torch.bfloat16)
    assert stack.mode == "each"  # so that a step of it can be captured
    before = {name: v.clone() for name, v in stack.buffers.items() if "running" in name}
    assert len(before) > 200
    stack.forward(stack.weights(), x, training=training)
    moved = [not torch.equal(before[name], stack.buffers[name]) for name in before]
    assert all(moved) if training else not any(moved)


# ---------------------------------------------------------------------- means over superpixels


def test_a_map_of_pixels_becomes_means_over_regions() -> None:
    regions = np.array([[0, 0, 1], [2, 1, 1]])
    x = torch.arange(12.0).reshape(2, 1, 2, 3)
    expected = torch.tensor([[0.5, 11 / 3, 3.0], [6.5, 29 / 3, 9.0]])
    torch.testing.assert_close(Row(regions)(x), expected)


def test_what_is_no_map_of_pixels_is_only_flattened() -> None:
    regions = np.array([[0, 0, 1], [2, 1, 1]])
    cells, logits = torch.rand(2, 1, 3, 1), torch.rand(2, 3)
    assert torch.equal(Row(regions)(cells), cells.flatten(1))
    assert Row(regions)(logits) is logits
    assert torch.equal(Row()(torch.ones(2, 1, 2, 3)), torch.ones(2, 6))


def test_each_pixel_a_feature_keeps_its_logit() -> None:
    regions = Superpixels().bound(SHAPE).map
    module = ForImages(UNet((4,)), SHAPE, regions)(INPUTS, 9 * 13)
    x = torch.randn(2, INPUTS)
    torch.testing.assert_close(module(x), module[1](x.reshape(2, *SHAPE)).flatten(1))


# ---------------------------------------------------------------------- through the API


@pytest.mark.parametrize(
    "masker", [Superpixels(4), Superpixels(labels=np.arange(64).reshape(8, 8) // 16)]
)
def test_an_explainer_with_small_networks_learns_and_is_saved(masker: Any, tmp_path: Path) -> None:
    """The label is the brightness of the upper left quarter."""
    random_rows = np.random.default_rng(0)
    x = random_rows.normal(size=(300, 1, 8, 8)).astype(np.float32)
    x[:, :, :4, :4] += np.where(np.arange(300) % 2, 1.0, -1.0)[:, None, None, None]
    y = np.arange(300) % 2
    explainer = RealX(
        sparsity=0.3,
        masker=masker,
        predictor=CNN((8, 16)),
        selector=UNet((8, 8)),
        training=Training(epochs=12, batch_size=50, selector_learning_rate=5e-3),
        device="cpu",
        progress=False,
        random_state=0,
    ).fit(x, y)
    assert (explainer.predict(x) == y).mean() > 0.9
    explainer.save(tmp_path / "model")
    loaded = RealX.load(tmp_path / "model", device="cpu")
    assert loaded.predictor == CNN((8, 16))
    assert loaded.selector == UNet((8, 8))
    assert np.array_equal(loaded.explain(x).masks, explainer.explain(x).masks)


# ---------------------------------------------------------------------- MONAI's


def test_monais_networks_have_the_papers_shapes() -> None:
    x = torch.randn(2, 2, 32, 32)
    assert DenseNet121()((2, 32, 32), 3).eval()(x).shape == (2, 3)
    assert MonaiUNet()((2, 32, 32), 16)(x).shape == (2, 1, 32, 32)
    dense = DenseNet121()((1, 128, 128), 2)
    assert sum(p.numel() for p in dense.parameters()) == 6_949_634  # 6.95 million


def test_group_norm_makes_densenet_look_at_one_image_at_a_time() -> None:
    """In training, what it says of an image does not depend on the others of the batch."""
    x = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    grouped, batched = (
        DenseNet121(norm=norm)((1, 32, 32), 2).train() for norm in ("group", "batch")
    )
    torch.testing.assert_close(grouped(x)[:2], grouped(x[:2]), rtol=0, atol=1e-5)
    assert (batched(x)[:2] - batched(x[:2])).abs().max() > 1e-3
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in grouped.modules())
    assert sum(p.numel() for p in grouped.parameters()) == sum(
        p.numel() for p in batched.parameters()
    )
    with pytest.raises(InputError, match="norm must be 'batch' or 'group' but is 'layer'"):
        DenseNet121(norm="layer")  # type: ignore[arg-type]


def test_a_size_that_monais_unet_cannot_halve_is_refused() -> None:
    """With advice for Python and for commands, whose images are square."""
    with pytest.raises(
        InputError,
        match=r"are 28 × 28; use images of 24 × 24 \(--size 24\), or UNet\(\) \(.*network: small",
    ):
        MonaiUNet()((1, 28, 28), 16)
    with pytest.raises(InputError, match=r"are 28 × 4; use images of 24 × 8, or UNet\(\)"):
        MonaiUNet()((1, 28, 4), 16)


def test_without_monai_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(networks, "import_module", missing)
    for factory in (DenseNet121(), MonaiUNet()):
        with pytest.raises(MissingExtra, match=r'pip install "unmasked\[images\]"'):
            factory((1, 32, 32), 2)


@pytest.mark.parametrize("widths", [(), (0,), (12,), (8.0,), 8, "8"])
@pytest.mark.parametrize("kind", [CNN, UNet])
def test_impossible_widths_are_refused(kind: Any, widths: Any) -> None:
    with pytest.raises(InputError, match="widths must list whole numbers"):
        kind(widths)


def test_a_module_of_ones_own_is_copied() -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, 3))
    made = ForImages(own, SHAPE)(INPUTS, 3)
    made[1][1].weight.data.zero_()
    assert own[1].weight.abs().sum() > 0
