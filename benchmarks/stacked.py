"""All settings of a method as one program against one setting at a time, on one device.

REAL-X on S1, S2 and S3 with the paper's seven λ: 21 settings. Both ways train the same number of
epochs through `unmasked.training.fit`, after a warm-up that is not counted; the ratio of the times
is printed last.

    python benchmarks/stacked.py [device] [epochs]
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from unmasked.reproduce.recipes import DATASETS, tuned
from unmasked.reproduce.replicates import data_of, draw_worlds
from unmasked.training import Settings, fit


def main(device: str, epochs: int) -> None:
    recipe = tuned()
    worlds = draw_worlds(DATASETS, (100,), recipe.rows)
    train, valid = data_of(worlds, "train"), data_of(worlds, "valid")
    method, levels = recipe.method("REAL-X"), recipe.levels("REAL-X")
    training = replace(recipe.options("REAL-X"), epochs=epochs, validate_every=epochs)
    quick = replace(training, epochs=1, validate_every=1)

    def run(settings: Settings, which: slice, options: object) -> float:
        started = time.perf_counter()
        fit(method, settings, train[which], valid[which], options, device=device, show=False)  # type: ignore[arg-type]
        return time.perf_counter() - started

    everything = Settings(levels, tuple(world.seed for world in worlds))
    run(everything, slice(None), quick)
    together = run(everything, slice(None), training)
    one = Settings(levels[:1], (worlds[0].seed,))
    run(one, slice(0, 1), quick)
    apart = 0.0
    for i, world in enumerate(worlds):
        for level in levels:
            apart += run(Settings((level,), (world.seed,)), slice(i, i + 1), training)
    count = len(worlds) * len(levels)
    print(f"{count} settings, {epochs} epochs, {device}")
    print(f"as one program {together:.2f} s, one at a time {apart:.2f} s")
    print(f"ratio {apart / together:.2f}")


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else "auto", int(sys.argv[2]) if len(sys.argv) > 2 else 20
    )
