"""How much do selections of digits say beyond the pixels they show? The encoding test on MNIST.

    python benchmarks/mnist_encoding.py OUT --data FOLDER [--device auto]

OUT is what ``unmasked reproduce mnist`` wrote: the test runs on its ``masks.npz``, on test images
alone, for every λ of REAL-X and for the chosen setting of the others, L2X also with one pixel. A
selection that is done is kept in ``encoding.json``, so a stopped run goes on; ``encoding.md`` has
the table.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from unmasked import network_encoding_test
from unmasked.datasets.mnist import mnist
from unmasked.io.output_folder import provenance, to_json
from unmasked.reproduce.image_figures import Selection, read_masks


def wanted(one: Selection) -> bool:
    return one.method == "REAL-X" or one.chosen or (one.method == "L2X" and one.setting == 1)


def name(one: Selection) -> str:
    return f"{one.method} {'k' if one.method == 'L2X' else 'λ'} = {one.setting:g}, seed {one.seed}"


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| selection | pixels shown | nats beyond what is shown | verdict | effective rows |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {key} | {row['shown']:.2%} | {row['nats']:.3f} [{row['low']:.3f}, {row['high']:.3f}] "
        f"| {row['verdict']} | {row['effective_rows']:,.0f} |"
        for key, row in found.items()
    ]
    return "\n".join(lines) + "\n"


def main(
    out: Path, data: Annotated[Path, typer.Option()], device: str = "auto", batch: int = 500
) -> None:
    test = mnist(data).test
    path = out / "encoding.json"
    facts = provenance(f"python benchmarks/mnist_encoding.py {out} --data FOLDER")
    found: dict[str, dict[str, Any]] = {}
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))["selections"]
    masks = filter(wanted, read_masks(out / "masks.npz"))
    for one in sorted(masks, key=lambda one: one.seed):  # a stopped run has whole seeds
        if name(one) in found:
            continue
        started = time.perf_counter()
        result = network_encoding_test(
            test.x, test.y, one.masks, batch_size=batch, learning_rate=2e-3, device=device
        )
        found[name(one)] = {
            "shown": float(one.masks.mean()),
            "chosen": one.chosen,
            "nats": result.nats,
            "low": result.low,
            "high": result.high,
            "verdict": result.verdict,
            "reason": result.reason,
            "effective_rows": result.effective_rows,
            "seconds": time.perf_counter() - started,
        }
        path.write_text(to_json({**facts, "selections": found}), encoding="utf-8")
        print(name(one), found[name(one)], flush=True)
    text = table(found)
    (out / "encoding.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    typer.run(main)
