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
and z, the mean square of what the
estimates' mean is off in standard errors: 1 where a sampler is unbiased (of coordinates whose
standard error is known, from a hundred and more effective draws).

Second part: ``RealX(search=False, sampler=…)`` at one λ, same rows, same steps, same predictor
(which learns from the same random masks whatever the sampler). The objective is mean
log q(y | what is shown) - λ · fraction shown on validation rows; TPR, FDR and CFSR are of 10,000
other rows. Samplers and their settings are to be compared by the objective alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, softplus

from unmasked import MLP, RealX, Token, Training, UniformSize, methods
from unmasked.binarysamplers import ArmsBernoulli, DisarmBernoulli, LocalExpectation
from unmasked.data import synthetic
from unmasked.engine import Data, Settings, fit
from unmasked.objectives import log_likelihood
from unmasked.samplers import BernoulliSampler, RebarBernoulli, ScoreBernoulli

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
_ROWS_AT_ONCE = 4_000


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


def predictor(name: str, seed: int, epochs: int | None) -> nn.Module:
    """log q(y | what is shown), learned from random masks of 10,000 rows."""

    def rows(count: int, own: int) -> Data:
        drawn = synthetic(name, count, own)
        return Data(torch.from_numpy(drawn.x).float(), one_hot(torch.from_numpy(drawn.y), 2))

    learner = methods.eval_x(Token(), UniformSize(), MLP((200, 200)))
    training, settings = Training(epochs=epochs), Settings((0.0,), (seed,))
    data = rows(10_000, seed), rows(2_000, TEST_SEED - 1 - seed)
    trained = fit(learner, settings, *data, training, device="cpu", show=False)
    return trained.predictors[0].double()


class Row:
    """The value of the masks of one row."""

    def __init__(self, network: nn.Module, x: Tensor, target: Tensor) -> None:
        self.network, self.x, self.target = network, x, target

    def __call__(self, masks: Tensor) -> Tensor:
        """Masks (…, features) -> log q(y | x_s) (…)."""
        x = self.x.expand(masks.shape)
        logits = self.network(torch.cat([x * masks, masks], -1))
        return log_likelihood(logits, self.target.expand_as(logits))

    def exact(self, logits: Tensor) -> Tensor:
        """∇ Σ_s p(s) h(s) over all masks, (features,)."""
        a = logits.clone().requires_grad_()
        number = torch.arange(2**FEATURES).unsqueeze(1)
        masks = ((number >> torch.arange(FEATURES)) & 1).double()
        chance = (masks * a - softplus(a)).sum(1).exp()
        with torch.no_grad():
            values = self(masks)
        (gradient,) = torch.autograd.grad((chance * values).sum(), a)
        return gradient

    def estimates(
        self, sampler: BernoulliSampler, logits: Tensor, draws: int, source: torch.Generator
    ) -> Tensor:
        """Independent estimates of the same, (draws, features)."""
        found, (count, width) = [], sampler.noise_shape(FEATURES)
        for start in range(0, draws, _ROWS_AT_ONCE):
            some = min(_ROWS_AT_ONCE, draws - start)
            noise = torch.rand(count, some, width, dtype=torch.float64, generator=source)
            a = logits.repeat(some, 1).requires_grad_()
            found += torch.autograd.grad(sampler(a, self, noise).sum(), a)
        return torch.cat(found)


def accuracy(name: str, seed: int, rows: int, draws: int, epochs: int | None) -> list[Any]:
    """Variance and bias of each sampler in each stage of training, over rows of one set."""
    network = predictor(name, seed, epochs).requires_grad_(False)
    test, random = synthetic(name, rows, TEST_SEED + seed), np.random.default_rng(seed)
    found = []
    for stage, (towards, spread) in STAGES.items():
        towards_truth = towards * (2.0 * test.truth - 1)
        logits = torch.from_numpy(towards_truth + spread * random.standard_normal(test.x.shape))
        values = [
            Row(network, torch.from_numpy(x).double(), one_hot(torch.tensor(int(y)), 2).double())
            for x, y in zip(test.x, test.y, strict=True)
        ]
        truth = [value.exact(own) for value, own in zip(values, logits, strict=True)]
        length = float(torch.stack([own.square().sum() for own in truth]).mean())
        for method, sampler in SAMPLERS.items():
            if sampler == LocalExpectation(16):  # all of 11
                continue
            source, variance, off = torch.Generator().manual_seed(seed), [], []
            begun = time.perf_counter()
            for value, own, exact in zip(values, logits, truth, strict=True):
                samples = value.estimates(sampler, own, draws, source)
                variance.append(float(samples.var(0).sum()))
                error = samples.std(0) / draws**0.5
                # the error of what hardly ever happens is itself not known from few draws
                square = (samples - samples.mean(0)).square()
                known = square.sum(0) ** 2 >= 100 * square.square().sum(0).clamp_min(1e-300)
                off.append(((samples.mean(0) - exact)[known] / error[known]).square())
            found.append(
                {
                    "name": name,
                    "seed": seed,
                    "stage": stage,
                    "method": method,
                    "questions": questions(sampler),
                    "passes": passes(sampler),
                    "variance": float(np.mean(variance)),
                    "exact": length,
                    "z": float(torch.cat(off).sum() / max(1, torch.cat(off).numel())),
                    "coordinates": int(torch.cat(off).numel()),
                    "seconds": time.perf_counter() - begun,
                }
            )
    return found


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
        z = np.average([row["z"] for row in own], weights=weight)
        lines.append(
            f"| {method} | {own[0]['questions']} | {own[0]['passes']} | {figures} | {z:.2f} |"
        )
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


def commit() -> str:
    """The commit that runs, if git knows."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


class Kept:
    """Rows of finished work, in a file to which each is added: the same command goes on."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self.path = None if folder is None else folder / name
        there = self.path is not None and self.path.exists()
        lines = self.path.read_text(encoding="utf-8").splitlines() if there and self.path else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def has(self, **wanted: Any) -> bool:
        """Whether something of this is there."""
        return any(all(row[k] == v for k, v in wanted.items()) for row in self.rows)

    def add(self, rows: list[dict[str, Any]]) -> None:
        self.rows += rows
        print(json.dumps(rows[0]), file=sys.stderr, flush=True)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", default="S1,S2,S3")
    parser.add_argument("--parts", default="accuracy,training")
    parser.add_argument("--test-rows", type=int, default=8, help="rows in the first part")
    parser.add_argument("--draws", type=int, default=4_000, help="estimates for each of them")
    parser.add_argument("--methods", default=";".join(TRAINED), help="trained, apart by ;")
    parser.add_argument("--seeds", type=int, default=1, help="in the second part")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=5_000, help="to learn from, a fifth validates")
    parser.add_argument("--features", type=int, default=FEATURES, help="in the second part")
    parser.add_argument("--sparsity", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, help="default: RealX's own, about 1,500 steps")
    parser.add_argument("--out", type=Path, help="folder for results.json and table.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    begun_at = commit()
    measured, trained = Kept(args.out, "accuracy.jsonl"), Kept(args.out, "training.jsonl")
    for name in args.sets.split(",") if "accuracy" in args.parts else ():
        if not measured.has(name=name, seed=args.first_seed):
            measured.add(accuracy(name, args.first_seed, args.test_rows, args.draws, args.epochs))
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for name in args.sets.split(",") if "training" in args.parts else ():
            for method in args.methods.split(";"):
                if not trained.has(name=name, method=method, seed=seed):
                    trained.add([train(name, method, seed, args)])
    parts = [(accuracy_table, measured.rows), (training_table, trained.rows)]
    text = "\n\n".join(table(rows) for table, rows in parts if rows)
    print(text)
    if args.out:
        facts = {
            "command": " ".join(["python", *sys.argv]),
            "commit": begun_at,
            "hardware": f"{platform.processor() or platform.machine()}, one core",
            "torch": torch.__version__,
        }
        rows = {"accuracy": measured.rows, "training": trained.rows}
        (args.out / "results.json").write_text(json.dumps({**facts, **rows}, indent=1) + "\n")
        (args.out / "table.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
