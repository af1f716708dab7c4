"""RealX as it comes on tables whose truth is known: narrow and wide, few rows and many.

    python benchmarks/defaults.py --seeds 5 --features 11,100,1000 --out results/defaults

For each cell (set, features, rows, correlation) and seed: rows to learn from (a fifth of them to
validate), 10,000 others to explain. TPR, FDR, F1 and CFSR against the features that made each row;
the log-likelihood of what is shown by the exact posterior P(y | x_R), beside random masks of the
same sizes, the optimum (the true features) and everything. With ``--model`` a boosting model that
learned from the rows is explained instead of the data. Seconds are of fitting and explaining, on
the device that is named. Finished cells are kept in rows.jsonl: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from unmasked import RealX
from unmasked.data import synthetic
from unmasked.data.synthetic import Synthetic
from unmasked.evaluation import ExactPosterior
from unmasked.evaluation.evaluator import same_size_masks
from unmasked.metrics import log_likelihoods

METHODS: dict[str, dict[str, Any]] = {"RealX()": {}, "RealX(search=False)": {"search": False}}
TEST_SEED = 100_000  # test rows are drawn apart from all others
TESTED = 10_000


@dataclass(frozen=True)
class Cell:
    """What a row of the table is about."""

    name: str
    features: int
    rows: int
    correlation: float
    model: bool

    def draw(self, rows: int, seed: int) -> Synthetic:
        """So many rows."""
        noise = self.features - 11
        return synthetic(self.name, rows, seed, noise_features=noise, correlation=self.correlation)

    def loglik(self, rows: Synthetic, masks: NDArray[np.bool_]) -> float:
        """Mean exact log P(y | what is shown)."""
        judge = ExactPosterior(self.name, correlation=self.correlation)
        predicted = judge.predict_proba(rows.x, masks)
        return float(log_likelihoods(predicted, np.eye(2)[rows.y]).mean())

    def figures(self, rows: Synthetic, masks: NDArray[np.bool_]) -> dict[str, float]:
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
            "loglik": self.loglik(rows, masks),
        }


def compare(cell: Cell, seed: int, methods: list[str], device: str) -> list[dict[str, Any]]:
    """All methods on one draw, then the rows that they are read beside."""
    train, test = cell.draw(cell.rows, seed), cell.draw(TESTED, TEST_SEED + seed)
    target: dict[str, Any] = {}
    if cell.model:
        target["model"] = HistGradientBoostingClassifier(random_state=seed).fit(train.x, train.y)
    found = []
    for method in methods:
        begun = time.perf_counter()
        options = {**METHODS[method], **target, "random_state": seed, "device": device}
        explainer = RealX(progress=False, **options)
        explainer.fit(train.x, None if cell.model else train.y)
        masks = explainer.explain(test.x).masks
        seconds = time.perf_counter() - begun
        more = {"sparsity": explainer.sparsity_, "choice": explainer.choice_, "seconds": seconds}
        kept = cell.features - len(explainer.dropped_)
        found.append({"method": method, **cell.figures(test, masks), **more, "kept": kept})
    masks = test.truth.astype(bool)
    random = same_size_masks(masks, np.random.default_rng(seed))
    everything = np.ones_like(masks)
    for method, own in (("random", random), ("optimum", masks), ("everything", everything)):
        found.append({"method": method, **cell.figures(test, own)})
    return [{**asdict(cell), "seed": seed, **row} for row in found]


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, in words that fit into Markdown."""
    shown = ("tpr", "fdr", "f1", "cfsr", "size", "loglik")
    lines = [
        "| set | features | rows | ρ | | TPR | FDR | F1 | CFSR | shown | log-lik. | seconds |",
        "|---" * 12 + "|",
    ]
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (*(row[field.name] for field in fields(Cell)), row["method"])
        cells.setdefault(key, []).append(row)
    for (name, features, count, correlation, model, method), own in cells.items():
        mean = {key: float(np.mean([row[key] for row in own])) for key in shown}
        seconds = [row["seconds"] for row in own if "seconds" in row]
        took = f"{np.mean(seconds):.1f}" if seconds else ""
        what = f"{name}, boosting" if model else name
        figures = " | ".join(f"{mean[key]:.3f}" for key in shown[:-2])
        lines.append(
            f"| {what} | {features:,} | {count:,} | {correlation:g} | {method} | {figures} | "
            f"{mean['size']:.2f} | {mean['loglik']:.4f} | {took} |"
        )
    return "\n".join(lines)


def commit() -> str:
    """The commit that runs, if git knows."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def kept(path: Path | None) -> list[dict[str, Any]]:
    """The rows of an earlier run of the same command."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", default="Syn4,Syn5,Syn6")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--features", default="11")
    parser.add_argument("--rows", default="10000")
    parser.add_argument("--correlations", default="0")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--model", action="store_true", help="explain boosting, not the data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="folder for results.json and table.md")
    args = parser.parse_args()
    cells = [
        Cell(name, int(features), int(rows), float(correlation), args.model)
        for correlation in args.correlations.split(",")
        for rows in args.rows.split(",")
        for features in args.features.split(",")
        for name in args.sets.split(",")
    ]
    notes = None if args.out is None else args.out / "rows.jsonl"
    rows = kept(notes)
    done = {(*(row[field.name] for field in fields(Cell)), row["seed"]) for row in rows}
    for cell in cells:
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            if (*asdict(cell).values(), seed) in done:
                continue
            found = compare(cell, seed, args.methods.split(","), args.device)
            rows += found
            print(json.dumps(found[0]), file=sys.stderr, flush=True)
            if notes is not None:
                notes.parent.mkdir(parents=True, exist_ok=True)
                with open(notes, "a", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in found)
    print(table(rows))
    if args.out:
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
