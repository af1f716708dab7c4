"""How long does explaining an image take beside predicting it?

REAL-X on images of MNIST's size (random ones: only the time counts), 3 × 200 selector, 2 × 200
predictor. ``explain`` is everything a user calls: checking, standardising, the selector, masks. It
is timed in turn with one forward pass of the predictor alone on all images in batches; the ratio of
the medians is printed last.

    python benchmarks/explain_images.py [device] [images]
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import torch

from unmasked import RealX, Training
from unmasked.training.device import choose_device

REPEATS = 15


def main(device: str, count: int) -> None:
    random = np.random.default_rng(0)
    images = random.uniform(size=(count, 1, 28, 28)).astype(np.float32)
    labels = random.integers(10, size=count)
    explainer = RealX(
        sparsity=1.0, training=Training(epochs=1), device=device, progress=False, random_state=0
    ).fit(images[:2000], labels[:2000])
    where = choose_device(device)
    predictor = explainer.predictor_.to(where)
    shown = torch.rand(count, 2 * 784, device=where)

    def finish() -> None:
        if where.type == "cuda":
            torch.cuda.synchronize()

    explaining, predicting = [], []
    for i in range(REPEATS + 2):
        started = time.perf_counter()
        explainer.explain(images)
        finish()
        between = time.perf_counter()
        with torch.no_grad():
            for batch in shown.split(explainer.batch_size):
                predictor(batch)
        finish()
        ended = time.perf_counter()
        if i >= 2:  # the first ones warm up
            explaining.append(between - started)
            predicting.append(ended - between)
    one, other = statistics.median(explaining), statistics.median(predicting)
    print(
        f"{count:,} images on {where}: explained in {1e3 * one:.1f} ms, {count / one:,.0f} a second"
    )
    print(f"one forward pass of the predictor {1e3 * other:.1f} ms")
    print(f"ratio {one / other:.2f}")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else "auto",
        int(sys.argv[2]) if len(sys.argv) > 2 else 10_000,
    )
