"""RealX as it comes, and with `search`, on draws of S1 to S3 whose truth is known.

    python benchmarks/defaults.py --seeds 5 --out results/defaults

For each set and seed: 10,000 rows to learn from (a fifth of them to validate), 10,000 others to
explain. TPR, FDR and CFSR against the features that made each row; the log-likelihood of what is
shown by the exact posterior P(y | x_R), beside random masks of the same sizes, the optimum (the
true features) and everything. Seconds are of fitting and explaining, on the device that is named.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unmasked import RealX
from unmasked.data import synthetic
from unmasked.data.synthetic import Synthetic
from unmasked.evaluation import ExactPosterior
from unmasked.evaluation.evaluator import same_size_masks
from unmasked.metrics import log_likelihoods

METHODS: dict[str, dict[str, Any]] = {"RealX()": {}, "RealX(search=True)": {"search": True}}
TEST_SEED = 100_000  # test rows are drawn apart from all others


def exact(name: str, rows: Synthetic, masks: NDArray[np.bool_]) -> float:
    """Mean exact log P(y | what is shown)."""
    predicted = ExactPosterior(name).predict_proba(rows.x, masks)
    return float(log_likelihoods(predicted, np.eye(2)[rows.y]).mean())


def figures(name: str, rows: Synthetic, masks: NDArray[np.bool_]) -> dict[str, float]:
    """How well selections meet the truth."""
    truth = rows.truth.astype(bool)
    right, size = (masks & truth).sum(1), np.maximum(masks.sum(1), 1)
    return {
        "tpr": float((right / truth.sum(1)).mean()),
        "fdr": float(((masks & ~truth).sum(1) / size).mean()),
        "cfsr": float(masks[:, 10].mean()),
        "f1": float((2 * right / (masks.sum(1) + truth.sum(1))).mean()),
        "size": float(masks.sum(1).mean()),
        "sets": len(np.unique(masks, axis=0)),
        "loglik": exact(name, rows, masks),
    }


def compare(name: str, seed: int, rows: int, device: str) -> list[dict[str, Any]]:
    """All methods on one draw, then the rows that they are read beside."""
    train = synthetic(name, rows, seed=seed)
    test = synthetic(name, 10_000, seed=TEST_SEED + seed)
    found = []
    for method, options in METHODS.items():
        begun = time.perf_counter()
        explainer = RealX(random_state=seed, device=device, progress=False, **options)
        masks = explainer.fit(train.x, train.y).explain(test.x).masks
        seconds = time.perf_counter() - begun
        more = {"sparsity": explainer.sparsity_, "choice": explainer.choice_, "seconds": seconds}
        found.append({"method": method, **figures(name, test, masks), **more})
    masks = test.truth.astype(bool)
    random = same_size_masks(masks, np.random.default_rng(seed))
    everything = np.ones_like(masks)
    for method, own in (("random", random), ("optimum", masks), ("everything", everything)):
        found.append({"method": method, **figures(name, test, own)})
    return [{"dataset": name, "seed": seed, **row} for row in found]


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, in words that fit into Markdown."""
    lines = ["| | | TPR | FDR | CFSR | features | log-likelihood | seconds |", "|---" * 8 + "|"]
    for name in dict.fromkeys(row["dataset"] for row in rows):
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [r for r in rows if (r["dataset"], r["method"]) == (name, method)]
            mean = {
                key: np.mean([row[key] for row in own])
                for key in ("tpr", "fdr", "cfsr", "size", "loglik")
            }
            seconds = [row["seconds"] for row in own if "seconds" in row]
            took = f"{np.mean(seconds):.1f}" if seconds else ""
            lines.append(
                f"| {name} | {method} | {mean['tpr']:.3f} | {mean['fdr']:.3f} | "
                f"{mean['cfsr']:.3f} | {mean['size']:.2f} | {mean['loglik']:.4f} | {took} |"
            )
    return "\n".join(lines)


def commit() -> str:
    """The commit that runs, if git knows."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", default="S1,S2,S3")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="folder for results.json and table.md")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name in args.sets.split(","):
            rows += compare(name, seed, args.rows, args.device)
            print(json.dumps(rows[-5:-3]), file=sys.stderr, flush=True)
    print(table(rows))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        cuda = torch.cuda.is_available()
        facts = {
            "command": " ".join(["python", *sys.argv]),
            "commit": commit(),
            "hardware": torch.cuda.get_device_name() if cuda else platform.processor(),
            "torch": torch.__version__,
        }
        (args.out / "results.json").write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
        (args.out / "table.md").write_text(table(rows) + "\n")


if __name__ == "__main__":
    main()
