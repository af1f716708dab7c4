"""How long an epoch of X-rays takes: FULL, EVAL-X, and REAL-X's selector with one λ.

    python benchmarks/xray_epochs.py [cuda] [films] [batch] [precision]

Films are noise of 128 × 128 pixels in a grid of 16 × 16 superpixels; networks are DenseNet121 and
MONAI's UNet; the selector's epoch runs its three masks through the finished predictor. Each figure
is the time of three epochs less that of one, halved: what starting costs does not count.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import replace

import torch

from unmasked.masks.distributions import UniformSize
from unmasked.reproduce.cxr_recipes import paper
from unmasked.reproduce.image_recipes import ImageRecipe
from unmasked.training import Data, Method, Settings, Training, fit, methods

SIZE = 128


def films(rows: int) -> Data:
    x = torch.randn(rows, SIZE * SIZE, generator=torch.Generator().manual_seed(rows))
    return Data(x, torch.nn.functional.one_hot(torch.arange(rows) % 2, 2).float())


def seconds(method: Method, train: Data, valid: Data, training: Training, device: str) -> float:
    """Of one epoch."""
    taken = []
    for epochs in (1, 1, 3):  # the first finds kernels
        options = replace(training, epochs=epochs, validate_every=epochs)
        start = time.perf_counter()
        fit(method, Settings((1.0,), (0,)), train, valid, options, device=device, show=False)
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return (taken[2] - taken[1]) / 2


def main(device: str = "cpu", rows: str = "5000", batch: str = "64", kind: str = "") -> None:
    warnings.simplefilter("ignore")
    count, valid = int(rows), films(64)
    recipe: ImageRecipe = paper().bound((1, SIZE, SIZE))
    precision = kind or ("bfloat16" if device == "cuda" else "float32")
    training = Training(batch_size=int(batch), precision=precision)  # type: ignore[arg-type]
    train = films(count)
    parts = (recipe.masker, recipe.predictor)
    both = methods.real_x(
        recipe.masker, UniformSize(), recipe.predictor, recipe.selector, predictor_first=True
    )
    print(f"{count:,} films of {SIZE} × {SIZE}, batches of {batch}, {precision}, {device}")
    full = seconds(methods.full(*parts), train, valid, training, device)
    print(f"FULL              {full:6.2f} s an epoch", flush=True)
    judge = seconds(methods.eval_x(recipe.masker, UniformSize(), recipe.predictor), train, valid,
                    training, device)  # fmt: skip
    print(f"EVAL-X            {judge:6.2f} s an epoch", flush=True)
    whole = seconds(both, train, valid, training, device)  # an epoch of each, one after the other
    print(f"REAL-X's selector {whole - judge:6.2f} s an epoch of one λ")


if __name__ == "__main__":
    main(*sys.argv[1:])
