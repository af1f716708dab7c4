"""How much of a REAL-X training step on the CPU is matrix products?

One setting, batch 1,000, 11 features, width 200, 3 + 2 hidden layers, mask token. The step is the
engine's own (rows, noise, losses, gradients, clipping, AdamW); the products are those that the
step cannot do without, alone: the selector's and the predictor's forward and backward passes and
the value passes, counted as 3 B rows forward and 2 B rows of input gradients. Both are timed in
turn, and the ratio of the medians is printed last.

    python benchmarks/step_ratio.py [repeats]
"""

from __future__ import annotations

import statistics
import sys
import time
from itertools import pairwise

import torch
from torch import Tensor

from unmasked import MLP, Token, Training, UniformSize, synthetic
from unmasked.training import Data, Settings, methods
from unmasked.training.device import flushed_denormals
from unmasked.training.program import Program
from unmasked.training.step import Optimiser, Stepper

BATCH, FEATURES, WIDTH, CLASSES = 1000, 11, 200, 2
SELECTOR = [FEATURES, WIDTH, WIDTH, WIDTH, FEATURES]
PREDICTOR = [2 * FEATURES, WIDTH, WIDTH, CLASSES]


class Products:
    """Matrix products of one network on ``rows`` rows, into memory that is already there."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.weights = [torch.randn(b, a) for a, b in pairwise(sizes)]

    def passes(
        self, rows: int, *, inputs: bool, weights: bool, first: bool = False
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """(left, right, result) of a forward pass and of the gradients that are asked for."""
        found = []
        for i, weight in enumerate(self.weights):
            x, y = torch.randn(rows, weight.shape[1]), torch.randn(rows, weight.shape[0])
            found.append((x, weight.t(), torch.empty_like(y)))
            if weights:
                found.append((y.t(), x, torch.empty_like(weight)))
            if inputs and (i > 0 or first):
                found.append((y, weight, torch.empty_like(x)))
        return found


def step_products() -> list[tuple[Tensor, Tensor, Tensor]]:
    """All products of one REAL-X step."""
    selector, predictor = Products(SELECTOR), Products(PREDICTOR)
    return [
        *selector.passes(BATCH, inputs=True, weights=True),
        *predictor.passes(BATCH, inputs=True, weights=True),
        *predictor.passes(BATCH, inputs=False, weights=False),
        *predictor.passes(2 * BATCH, inputs=True, weights=False, first=True),
    ]


def engine_step() -> tuple[Stepper, Tensor, dict[str, None]]:
    """The engine's step for one setting on S3."""
    rows = synthetic("S3", 10_000, seed=0)
    data = Data(
        torch.from_numpy(rows.x).float(),
        torch.nn.functional.one_hot(torch.from_numpy(rows.y), CLASSES).float(),
    )
    method = methods.real_x(
        Token(), UniformSize(), MLP((WIDTH,) * 2, "silu"), MLP((WIDTH,) * 3, "silu")
    )
    training = Training().resolve(data.rows)
    program = Program(
        method, Settings((0.1,), (0,)), [data], [data], torch.device("cpu"), torch.float32
    )
    optimisers = {
        name: Optimiser(stack, training, selector=name == "selector", delayed=False)
        for name, stack in program.stacks.items()
    }
    for optimiser in optimisers.values():
        optimiser.set_pace(500, 1500)
    stepper = Stepper(program, method.phases[0], optimisers)
    return stepper, torch.randperm(data.rows)[:BATCH].unsqueeze(0), dict.fromkeys(optimisers)


def main(repeats: int) -> None:
    stepper, rows, active = engine_step()
    products = step_products()
    flops = sum(2 * left.shape[0] * left.shape[1] * right.shape[1] for left, right, _ in products)
    step_times, product_times = [], []
    with flushed_denormals():
        for i in range(repeats + 10):
            started = time.perf_counter()
            stepper(rows, 0, i % 10, active)
            between = time.perf_counter()
            for left, right, result in products:
                torch.mm(left, right, out=result)
            ended = time.perf_counter()
            if i >= 10:  # the first ones warm up
                step_times.append(between - started)
                product_times.append(ended - between)
    step, alone = statistics.median(step_times), statistics.median(product_times)
    print(f"{flops / 1e9:.2f} GFLOP in {len(products)} products, {torch.get_num_threads()} threads")
    print(f"step {1e3 * step:.2f} ms, its matrix products alone {1e3 * alone:.2f} ms")
    print(f"ratio {step / alone:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
