"""How a selector's gradient is estimated: REBAR beside samplers that ask about 0/1 masks alone.

    python benchmarks/gradients.py --out results/gradients

A sampler asks the predictor about some masks of each row ("questions"); REBAR also wants the
gradient of two of its answers, so it takes five passes through the predictor where others take as
many as they have questions.

First part: variance and bias against enumeration. A predictor learns from random masks of each set
(11 features, so 2,048 masks, all of them asked about for each row). Selectors' logits are drawn
about the features that made the row ("early", "middle" and "late" in training), and each sampler
estimates the gradient many times. Given are the total variance of one estimate times its passes
(the mean of m independent estimates has 1/m of the variance at m times the cost), with REBAR as 1;
and z, the mean square of what the estimates' mean is off in standard errors: 1 where a sampler is
unbiased (of coordinates whose standard error is known: a hundred draws show them and a hundred hide
them). Where there are more features (S3 with 100, and drawn films of 8 × 8 superpixels under a
convolutional predictor) variance alone.

Second part: ``RealX(search=False, sampler=…)`` at one λ, same rows, same steps, same predictor
(which learns from the same random masks whatever the sampler). The objective is mean
log q(y | what is shown) - λ · fraction shown on validation rows; TPR, FDR and CFSR are of 10,000
other rows. Samplers and their settings are to be compared by the objective alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kept import add_rows, commit, read_rows
from torch import Tensor, nn
from torch.nn.functional import one_hot, softplus

from unmasked import CNN, MLP, EvalX, RealX, Superpixels, Training
from unmasked.datasets import phantom, synthetic
from unmasked.datasets.phantom import truth_of_superpixels
from unmasked.masks.binary_samplers import ArmsBernoulli, DisarmBernoulli, LocalExpectation
from unmasked.masks.maskers import Masker
from unmasked.masks.samplers import BernoulliSampler, RebarBernoulli, ScoreBernoulli
from unmasked.training.methods import log_likelihood

SAMPLERS: dict[str, BernoulliSampler] = {
    "REBAR, τ = 0.1": RebarBernoulli(0.1),
    "REBAR, τ = 0.5": RebarBernoulli(0.5),
    "score function": ScoreBernoulli(),
    "DisARM": DisarmBernoulli(),
    "leave one out, 5": ArmsBernoulli(5, "independent"),
    "ARMS, 3": ArmsBernoulli(3),
    "ARMS, 5": ArmsBernoulli(5),
    "ARMS, 5, Dirichlet": ArmsBernoulli(5, "dirichlet"),
    "local expectation, 2 flips": LocalExpectation(2),
    "local expectation, 4 flips": LocalExpectation(4),
    "local expectation, 16 flips": LocalExpectation(16),
    "local expectation, all": LocalExpectation(),
}
TRAINED = (
    "REBAR, τ = 0.1",
    "REBAR, τ = 0.5",
    "DisARM",
    "ARMS, 5",
    "local expectation, 4 flips",
    "local expectation, all",
)
STAGES = {"early": (0.0, 0.3), "middle": (1.0, 1.0), "late": (5.0, 1.0)}
"""Logits: so far towards the truth, and so much normal noise."""
FEATURES, TEST_SEED, TESTED = 11, 100_000, 10_000
_NUMBERS_AT_ONCE = 200_000
WIDE = "-100"
"""What the name of a set ends in where it has 100 features."""


def questions(sampler: BernoulliSampler, features: int = FEATURES) -> int:
    """How many masks of a row the predictor is asked about."""
    logits = torch.zeros(1, features)
    draws, width = sampler.noise_shape(features)
    return 1 + len(sampler.draw(logits, torch.full((draws, 1, width), 0.3), 0.0).others)


def passes(sampler: BernoulliSampler, features: int = FEATURES) -> int:
    """Forward passes of the predictor, and backward ones to its inputs."""
    asked = questions(sampler, features)
    return asked + (asked - 1 if isinstance(sampler, RebarBernoulli) else 0)


# ---------------------------------------------------------------------- variance and bias


@dataclass(frozen=True)
class Row:
    """The value of the masks of one row."""

    network: nn.Module
    masker: Masker
    x: Tensor  # (columns,)
    target: Tensor  # (classes,)

    def __call__(self, masks: Tensor) -> Tensor:
        """Masks (…, features) -> log q(y | x_s) (…)."""
        flat = masks.reshape(-1, masks.shape[-1])
        shown = self.masker(self.x.expand(len(flat), -1), flat)
        logits = self.network(shown)
        return log_likelihood(logits, self.target.expand_as(logits)).reshape(masks.shape[:-1])

    def exact(self, logits: Tensor) -> Tensor:
        """∇ Σ_s p(s) h(s) over all masks, (features,)."""
        a, features = logits.clone().requires_grad_(), len(logits)
        number = torch.arange(2**features).unsqueeze(1)
        masks = ((number >> torch.arange(features)) & 1).double()
        chance = (masks * a - softplus(a)).sum(1).exp()
        with torch.no_grad():
            values = self(masks)
        (gradient,) = torch.autograd.grad((chance * values).sum(), a)
        return gradient

    def estimates(
        self, sampler: BernoulliSampler, logits: Tensor, draws: int, source: torch.Generator
    ) -> Tensor:
        """Independent estimates of the same, (draws, features)."""
        found, (count, width) = [], sampler.noise_shape(len(logits))
        size = max(1, _NUMBERS_AT_ONCE // (len(self.x) * questions(sampler, len(logits))))
        for start in range(0, draws, size):
            some = min(size, draws - start)
            noise = torch.rand(count, some, width, dtype=torch.float64, generator=source)
            a = logits.repeat(some, 1).requires_grad_()
            found += torch.autograd.grad(sampler(a, self, noise).sum(), a)
        return torch.cat(found)


def problem(name: str, seed: int, rows: int, epochs: int | None) -> tuple[list[Row], Any]:
    """Rows under a predictor that learned from random masks, and which features made them."""
    options = {"device": "cpu", "progress": False, "random_state": seed}
    if name == "films":
        learn, test = phantom(1_000, 32, seed), phantom(rows, 32, TEST_SEED + seed)
        truth = truth_of_superpixels(test.truth, 8)
        judge = EvalX(
            CNN((8, 16, 32)),
            masker=Superpixels(8),
            training=Training(epochs=epochs or 20),
            **options,
        )
        judge.fit(learn.x, learn.y)
    else:
        noise_features = 89 if name.endswith(WIDE) else 0
        drawn = [
            synthetic(name.removesuffix(WIDE), count, own, noise_features=noise_features)
            for count, own in ((10_000, seed), (rows, TEST_SEED + seed))
        ]
        truth, test = drawn[1].truth, drawn[1]
        judge = EvalX(MLP((200, 200)), training=Training(epochs=epochs), **options)
        judge.fit(drawn[0].x, drawn[0].y)
    x = torch.from_numpy(judge._matrix(test.x)).double()
    target = one_hot(torch.from_numpy(test.y), 2).double()
    network = judge.predictor_.double().requires_grad_(False)
    return [Row(network, judge.masker_, *pair) for pair in zip(x, target, strict=True)], truth


def accuracy(name: str, seed: int, rows: int, draws: int, epochs: int | None) -> list[Any]:
    """Variance and bias of each sampler in each stage of training, over rows of one set."""
    (values, truth), random = problem(name, seed, rows, epochs), np.random.default_rng(seed)
    features, found = truth.shape[1], []
    for stage, (towards, spread) in STAGES.items():
        noisy = towards * (2.0 * truth - 1) + spread * random.standard_normal(truth.shape)
        logits = torch.from_numpy(noisy)
        exact = None
        if features <= FEATURES:
            exact = [value.exact(own) for value, own in zip(values, logits, strict=True)]
        for method, sampler in SAMPLERS.items():
            if isinstance(sampler, LocalExpectation) and features <= (sampler.flips or 0):
                continue  # the same as all
            source, variance, off = torch.Generator().manual_seed(seed), [], []
            begun = time.perf_counter()
            for i, (value, own) in enumerate(zip(values, logits, strict=True)):
                samples = value.estimates(sampler, own, draws, source)
                variance.append(float(samples.var(0).sum()))
                if exact is not None:
                    off.append(off_by(samples, exact[i], own))
            squares = torch.cat(off) if off else torch.zeros(0)
            found.append(
                {
                    "name": name,
                    "seed": seed,
                    "stage": stage,
                    "method": method,
                    "questions": questions(sampler, features),
                    "passes": passes(sampler, features),
                    "variance": float(np.mean(variance)),
                    "z": float(squares.sum()) / max(1, len(squares)),
                    "coordinates": len(squares),
                    "seconds": time.perf_counter() - begun,
                }
            )
    return found


def off_by(samples: Tensor, exact: Tensor, logits: Tensor) -> Tensor:
    """How far the mean is off in standard errors, squared, where these are known."""
    error = samples.std(0) / len(samples) ** 0.5
    # the error of what hardly ever happens is itself not known from few draws
    square = (samples - samples.mean(0)).square()
    effective = square.sum(0) ** 2 / square.square().sum(0).clamp_min(1e-300)
    rarer = len(samples) * torch.sigmoid(-logits.abs())
    known = torch.minimum(effective, rarer) >= 100
    return ((samples.mean(0) - exact)[known] / error[known]).square()


def accuracy_table(rows: Sequence[dict[str, Any]]) -> str:
    """Variance at equal cost, REBAR as 1, and z."""
    columns = list(dict.fromkeys((row["name"], row["stage"]) for row in rows))
    heads = [f"{name}, {stage}" for name, stage in columns]
    head = f"| variance × passes | questions | passes | {' | '.join(heads)} | z |"
    lines = [head, "|---" * (len(columns) + 4) + "|"]

    def cost(row: dict[str, Any]) -> float:
        return float(row["variance"] * row["passes"])

    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        cells = []
        for column in columns:
            here = [row for row in rows if (row["name"], row["stage"]) == column]
            first = np.mean([cost(row) for row in here if row["method"] == next(iter(SAMPLERS))])
            cells.append(np.mean([cost(row) for row in here if row["method"] == method]) / first)
        figures = " | ".join(f"{cell:.2g}" for cell in cells)
        weight = [row["coordinates"] for row in own]
        z = f"{np.average([row['z'] for row in own], weights=weight):.2f}" if sum(weight) else ""
        lines.append(f"| {method} | {own[0]['questions']} | {own[0]['passes']} | {figures} | {z} |")
    return "\n".join(lines)


# ---------------------------------------------------------------------- training


def train(name: str, method: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """One selector, judged on validation rows and on rows of its own."""
    learn, test = (
        synthetic(name, rows, own, noise_features=args.features - FEATURES)
        for rows, own in ((args.rows, seed), (TESTED, TEST_SEED + seed))
    )
    explainer = RealX(
        args.sparsity,
        search=False,
        sampler=SAMPLERS[method],
        training=Training(epochs=args.epochs),
        device="cpu",
        progress=False,
        random_state=seed,
    )
    begun = time.perf_counter()
    explainer.fit(learn.x, learn.y)
    seconds = time.perf_counter() - begun
    masks, truth, kept = explainer.explain(test.x).masks, test.truth, explainer.path_.iloc[0]
    return {
        "name": name,
        "method": method,
        "seed": seed,
        "features": args.features,
        "passes": passes(SAMPLERS[method], args.features),
        "objective": float(kept.loglik - args.sparsity * kept.fraction),
        "loglik": float(kept.loglik),
        "fraction": float(kept.fraction),
        "tpr": float(((masks & truth).sum(1) / truth.sum(1)).mean()),
        "fdr": float(((masks & ~truth).sum(1) / np.maximum(masks.sum(1), 1)).mean()),
        "cfsr": float(masks[:, 10].mean()),
        "seconds": seconds,
    }


def training_table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over seeds; how far the objective is above REBAR's, paired, with its standard error."""
    lines = [
        "| | | passes | objective | above REBAR | TPR | FDR | CFSR | shown | seconds |",
        "|---" * 10 + "|",
    ]
    known = {(row["name"], row["method"], row["seed"]): row for row in rows}
    first = next(iter(SAMPLERS))
    for name in dict.fromkeys(row["name"] for row in rows):
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if (row["name"], row["method"]) == (name, method)]
            pairs = [(row, known.get((name, first, row["seed"]))) for row in own]
            gains = [row["objective"] - one["objective"] for row, one in pairs if one is not None]
            if not own:
                continue
            mean = {key: np.mean([r[key] for r in own]) for key in own[0] if key not in _WORDS}
            error = np.std(gains, ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
            gain = f"{np.mean(gains):+.4f} ± {error:.4f}" if gains and method != first else ""
            lines.append(
                f"| {name} | {method} | {own[0]['passes']} | {mean['objective']:.4f} | {gain} | "
                f"{mean['tpr']:.3f} | {mean['fdr']:.3f} | {mean['cfsr']:.3f} | "
                f"{mean['fraction'] * own[0]['features']:.2f} | {mean['seconds']:.1f} |"
            )
    return "\n".join(lines)


_WORDS = ("name", "method", "seed")


# ---------------------------------------------------------------------- the command


class Kept:
    """Rows of finished work, in a file to which each is added: the same command goes on."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self.path = None if folder is None else folder / name
        self.rows: list[dict[str, Any]] = read_rows(self.path) if self.path else []

    def has(self, **wanted: Any) -> bool:
        """Whether something of this is there."""
        return any(all(row[k] == v for k, v in wanted.items()) for row in self.rows)

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add the rows of one piece of work, all of them or none."""
        self.rows += rows
        print(json.dumps(rows[0]), file=sys.stderr, flush=True)
        if self.path is not None:
            add_rows(self.path, *rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", default="S1,S2,S3")
    parser.add_argument("--wide", default="S3-100,films", help="in the first part, not enumerated")
    parser.add_argument("--parts", default="accuracy,wide,training")
    parser.add_argument("--test-rows", type=int, default=8, help="rows in the first part")
    parser.add_argument("--draws", type=int, default=4_000, help="estimates for each of them")
    parser.add_argument("--methods", default=";".join(TRAINED), help="trained, apart by ;")
    parser.add_argument("--seeds", type=int, default=1, help="in the second part")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=5_000, help="to learn from, a fifth validates")
    parser.add_argument("--features", type=int, default=FEATURES, help="in the second part")
    parser.add_argument("--sparsity", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, help="default: RealX's own, about 1,500 steps")
    parser.add_argument("--commit", default="", help="where git cannot tell it")
    parser.add_argument("--out", type=Path, help="folder for results.json and table.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    begun_at = commit(args.commit)
    measured, trained = Kept(args.out, "accuracy.jsonl"), Kept(args.out, "training.jsonl")
    wide = Kept(args.out, "wide.jsonl")
    seed, rows, draws = args.first_seed, args.test_rows, args.draws
    for name in args.sets.split(",") if "accuracy" in args.parts else ():
        if not measured.has(name=name, seed=seed):
            measured.add(accuracy(name, seed, rows, draws, args.epochs))
    for name in args.wide.split(",") if "wide" in args.parts else ():
        if not wide.has(name=name, seed=seed):
            wide.add(accuracy(name, seed, max(1, rows // 2), draws // 16, args.epochs))
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name in args.sets.split(",") if "training" in args.parts else ():
            for method in args.methods.split(";"):
                if not trained.has(name=name, method=method, seed=seed):
                    trained.add([train(name, method, seed, args)])
    parts = [
        (accuracy_table, measured.rows),
        (accuracy_table, wide.rows),
        (training_table, trained.rows),
    ]
    text = "\n\n".join(table(rows) for table, rows in parts if rows)
    print(text)
    if args.out:
        facts = {
            "command": " ".join(["python", *sys.argv]),
            "commit": begun_at,
            "hardware": f"{platform.processor() or platform.machine()}, one core",
            "torch": torch.__version__,
        }
        found = {"accuracy": measured.rows, "wide": wide.rows, "training": trained.rows}
        (args.out / "results.json").write_text(json.dumps({**facts, **found}, indent=1) + "\n")
        (args.out / "table.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
