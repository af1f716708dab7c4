"""KernelSHAP, TreeSHAP, LIME, REAL-X and L2X on S1, S2 and S3 at the same number of features.

    python benchmarks/shap_lime.py --out results/compare    # about a quarter of an hour
    python benchmarks/shap_lime.py --sets S3 --labels       # REAL-X and L2X of the labels as well
    python benchmarks/shap_lime.py --quick                  # seconds: does it run?

The explained model is boosted trees (scikit-learn) on 10,000 rows. Every method ranks each row's
features; the same number of them is shown and judged on test rows, under EVAL-X and under the exact
posterior. Two numbers: 5 for every row, the most true features that a row has (so the size of a
mask says nothing), and each row's own number of true features (3 or 5; on S3 always 5).

What is left open is chosen on validation rows, never on test rows, and for every method by the
same figure, EVAL-X's log-likelihood of 5 features: one of seven ways to use LIME (60 rows),
REAL-X's λ of 0.05, 0.1 and 0.2 (2,000 rows); the boosted model by its own log-likelihood.
KernelSHAP explains log-odds, as its documentation does, with 100 background rows and all 2,046
subsets, so it needs no regularisation and is exact: TreeSHAP with the same background finds the
same values. Times are of the same run: the methods take turns in five rounds, the slow ones with a
fifth of their rows in each, REAL-X and L2X with all rows seven times; medians, on as many threads
as OMP_NUM_THREADS allows to all of them. Prints a table for each set; with --out also writes
results.json and tables.md.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from shap_lime_tables import processor, speed, tables
from sklearn.ensemble import HistGradientBoostingClassifier
from timing import Timed, take_turns

from unmasked import L2X, MLP, EvalX, ExactPosterior, RealX, Training, selection_quality, synthetic
from unmasked.auditing.matching import first
from unmasked.datasets import Synthetic
from unmasked.datasets.synthetic import CONTROL_FLOW
from unmasked.io.output_folder import all_or_nothing, provenance, to_json
from unmasked.metrics import auroc_statistic, bootstrap, log_likelihoods, mean_statistic

with warnings.catch_warnings():  # SHAP's import calls what newer matplotlib is about to drop
    warnings.simplefilter("ignore")
    import shap
from lime.lime_tabular import LimeTabularExplainer

SETS = ("S1", "S2", "S3")
FEATURES, K = 11, 5
SAME, OWN = "5 features", "each row's true number"
PRICES = (0.05, 0.1, 0.2)
LIME_WAYS: dict[str, dict[str, Any]] = {
    f"{sampling}, {kernel}": {"feature_selection": "highest_weights", **how, **width}
    for sampling, how in {
        "quartiles": {},
        "continuous": {"discretize_continuous": False},
        "around the row": {"discretize_continuous": False, "sample_around_instance": True},
    }.items()
    for kernel, width in {"usual kernel": {}, "kernel of width 1": {"kernel_width": 1.0}}.items()
} | {"default settings": {}}
"""How LIME samples, what it calls near, and how it selects features."""


@dataclass(frozen=True)
class Plan:
    """How much work is done."""

    train: int = 10_000
    valid: int = 2_000
    test: int = 10_000
    background: int = 100
    kernel_rows: int = 50
    lime_rows: int = 200
    lime_tried: int = 60  # validation rows on which its settings are compared
    exact_rows: int = 2_000  # explained by TreeSHAP with background rows
    rounds: int = 5
    repeats: int = 7  # in a round, of what is quick
    draws: int = 300  # of the bootstrap
    training: Training | None = None


QUICK = Plan(300, 200, 200, 10, 4, 6, 4, 20, 2, 2, 20, Training(epochs=2))


@dataclass
class Method:
    """A method that is ready to explain, and what it found.

    timed : how it ranks features, the largest values first, and how long it takes; by_number :
    where it was trained for a number of features, its values for each. masks : an explanation of
    no fixed number. fit_seconds : training, where there is any.
    """

    name: str
    setting: str = ""
    timed: Timed | None = None
    fit_seconds: float | None = None
    by_number: dict[int, NDArray[Any]] | None = None
    masks: NDArray[np.bool_] | None = None
    known: dict[str, Any] = field(default_factory=dict)

    def shown(self, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Masks of these sizes for the rows that it explained."""
        if self.masks is not None:
            return self.masks
        if self.by_number is None:
            assert self.timed is not None
            values = self.timed.values
            return first(largest(values), sizes[: len(values)])
        masks = np.zeros((len(sizes), FEATURES), dtype=bool)
        for size, values in self.by_number.items():
            here = sizes == size
            masks[here] = first(largest(values)[here], size)
        return masks


def largest(values: NDArray[Any]) -> NDArray[np.int64]:
    """Each row's features from the largest value to the smallest."""
    return np.argsort(-np.abs(values), axis=1, kind="stable")


def loglik(predicted: NDArray[Any], y: NDArray[Any]) -> float:
    return float(log_likelihoods(predicted, np.eye(2)[y]).mean())


# ---------------------------------------------------------------------- the methods


def boosted(train: Synthetic, valid: Synthetic) -> HistGradientBoostingClassifier:
    """The explained model: early stopping and size by validation log-likelihood."""

    def grown(leaves: int, rate: float) -> HistGradientBoostingClassifier:
        model = HistGradientBoostingClassifier(
            learning_rate=rate, max_leaf_nodes=leaves, max_iter=2000, early_stopping=True,
            random_state=0,
        )  # fmt: skip
        return model.fit(train.x, train.y, X_val=valid.x, y_val=valid.y)

    models = [grown(leaves, rate) for leaves in (7, 15, 31) for rate in (0.05, 0.1)]
    return max(models, key=lambda model: loglik(model.predict_proba(valid.x), valid.y))


class Run:
    """One set: its rows, the explained model, the judge, and the methods."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.plan = plan
        sizes = (plan.train, plan.valid, plan.test)
        self.train, self.valid, self.test = (
            synthetic(name, rows, seed=seed) for seed, rows in enumerate(sizes)
        )
        self.model = boosted(self.train, self.valid)
        self.judge = EvalX(MLP(), progress=False, training=plan.training, random_state=0)
        self.judge.fit(self.train.x, self.train.y, validation=(self.valid.x, self.valid.y))
        self.exact = ExactPosterior(name)
        self.own = self.test.truth.sum(1)
        self.background = self.train.x[: plan.background]

    def fidelity(self, values: NDArray[Any]) -> float:
        """EVAL-X's log-likelihood of K features of the first validation rows: settings' measure."""
        x, y = self.valid.x[: len(values)], self.valid.y[: len(values)]
        return loglik(self.judge.predict_proba(x, first(largest(values), K)), y)

    def references(self) -> list[Method]:
        random = np.random.default_rng(7).random(self.test.x.shape)
        return [
            Method("random masks", by_number=dict.fromkeys(self.numbers, random)),
            Method("true features", masks=self.test.truth),
        ]

    @property
    def numbers(self) -> list[int]:
        """The numbers of features that are shown."""
        return sorted({int(size) for size in self.own} | {K})

    def libraries(self) -> list[Method]:
        """TreeSHAP, KernelSHAP and LIME, each in its best documented setting."""
        plan, background = self.plan, self.background
        tree = shap.TreeExplainer(self.model)
        exact = shap.TreeExplainer(self.model, background)
        kernel = shap.KernelExplainer(self.model.decision_function, background)
        rows = f"{plan.background} background rows"
        tried = self.valid.x[: plan.lime_tried]
        way = max(LIME_WAYS, key=lambda one: self.fidelity(self.lime(one)(tried)))
        return [
            Method(
                "TreeSHAP",
                "path-dependent",
                Timed(lambda x: tree.shap_values(x, check_additivity=False), plan.test),
            ),
            Method(
                "TreeSHAP, background",
                f"interventional, {rows}",
                Timed(lambda x: exact.shap_values(x, check_additivity=False), plan.exact_rows),
            ),
            Method(
                "KernelSHAP",
                f"log-odds, {rows}, all subsets",
                Timed(lambda x: kernel.shap_values(x, l1_reg=False, silent=True), plan.kernel_rows),
            ),
            Method(
                "LIME",
                f"{way}, 5,000 samples",
                Timed(self.lime(way), plan.lime_rows),
            ),
        ]

    def lime(self, way: str) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """LIME's weights of K features, 0 elsewhere."""
        explainer = LimeTabularExplainer(self.train.x, random_state=0, **LIME_WAYS[way])

        def weights(x: NDArray[Any]) -> NDArray[Any]:
            values = np.zeros(x.shape)
            for i, row in enumerate(x):
                found = explainer.explain_instance(row, self.model.predict_proba, num_features=K)
                for feature, weight in found.as_map()[1]:
                    values[i, feature] = weight
            return values

        return weights

    def trained(self, what: str) -> list[Method]:
        """REAL-X and L2X of the model, or of the labels."""
        of_model = what == "the model"
        y, valid_y = (None, None) if of_model else (self.train.y, self.valid.y)
        common: dict[str, Any] = {
            "model": self.model if of_model else None,
            "training": self.plan.training,
            "progress": False,
            "random_state": 0,
        }
        suffix = "" if of_model else ", of the labels"
        x, data = self.test.x, {"validation": (self.valid.x, valid_y)}

        started = time.perf_counter()
        realx = RealX(PRICES, **common).fit(self.train.x, y, **data)
        realx_seconds = time.perf_counter() - started
        started = time.perf_counter()
        l2x = L2X(self.numbers, **common).fit(self.train.x, y, **data)
        l2x_seconds = time.perf_counter() - started

        def chances(price: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
            return lambda rows: realx.explain(rows, sparsity=price).probabilities

        price = max(PRICES, key=lambda one: self.fidelity(chances(one)(self.valid.x)))
        quick = {"rows": len(x), "parts": False, "repeats": self.plan.repeats}
        own = Timed(lambda rows: realx.explain(rows).probabilities, **quick)
        return [
            Method(
                f"REAL-X{suffix}", f"λ = {price:g}", Timed(chances(price), **quick), realx_seconds
            ),
            Method(
                f"REAL-X{suffix}, own threshold", f"λ = {realx.sparsity_:g}", own, realx_seconds,
                masks=realx.explain(x).masks,
            ),
            Method(
                f"L2X{suffix}",
                f"k = {' and '.join(map(str, self.numbers))}",
                Timed(lambda rows: l2x.explain(rows, k=K).probabilities, **quick),
                l2x_seconds,
                by_number={k: l2x.explain(x, k=k).probabilities for k in self.numbers},
            ),
        ]  # fmt: skip


# ---------------------------------------------------------------------- judging


def judged(
    run: Run, masks: NDArray[np.bool_], beside: NDArray[np.bool_], rows: int
) -> dict[str, Any]:
    """Figures of the first rows, with 95% intervals; keys as in all our results.

    over_realx_… : the paired difference from REAL-X's masks, ``beside``, of the same rows.
    """
    x, y, masks = run.test.x[:rows], run.test.y[:rows], masks[:rows]
    stats, differences = {}, {}
    for letter, evaluator in (("e", run.judge), ("o", run.exact)):
        predicted = evaluator.predict_proba(x, masks)
        realx = evaluator.predict_proba(x, beside[:rows])
        stats[f"{letter}auroc"] = auroc_statistic(predicted, y)
        stats[f"{letter}loglik"] = mean_statistic(log_likelihoods(predicted, np.eye(2)[y]))
        stats[letter] = mean_statistic(log_likelihoods(realx, np.eye(2)[y]))
        differences[f"over_realx_{letter}loglik"] = (f"{letter}loglik", letter)
    figures = bootstrap(stats, rows, draws=run.plan.draws, seed=0, differences=differences)
    quality = selection_quality(masks, run.test.truth[:rows], CONTROL_FLOW)
    return {
        **{name: value.to_json() for name, value in figures.items() if name not in ("e", "o")},
        **quality.to_json(),
        "fraction": float(masks.mean()),
    }


def compare(name: str, plan: Plan, *, labels: bool) -> list[dict[str, Any]]:
    """All rows of one set: every method, cut and group of test rows."""
    started = time.perf_counter()

    def tell(what: str) -> None:
        spent = time.perf_counter() - started
        print(f"[{name}, {spent:.0f} s] {what}", file=sys.stderr, flush=True)

    run = Run(name, plan)
    tell("the model and EVAL-X are trained")
    methods = [*run.references(), *run.libraries()]
    tell("LIME's setting is chosen")
    for what in ("the model", "the labels")[: 1 + labels]:
        methods += run.trained(what)
        tell(f"REAL-X and L2X of {what} are trained")
    take_turns((m.timed for m in methods if m.timed is not None), run.test.x, plan.rounds)
    tell("all have explained")
    named = {method.name: method for method in methods}
    kernel, exact = (named[n].timed.values for n in ("KernelSHAP", "TreeSHAP, background"))
    away = float(np.abs(kernel - exact[: len(kernel)]).max())
    named["KernelSHAP"].known["largest_difference_from_TreeSHAP"] = away
    cuts = {SAME: np.full(plan.test, K)}
    if (run.own != K).any():
        cuts[OWN] = run.own
    rows = []
    for cut, sizes in cuts.items():
        beside = named["REAL-X"].shown(sizes)
        for method in methods:
            masks, timed = method.shown(sizes), method.timed
            for group in sorted({len(masks), plan.kernel_rows}):
                rows.append(
                    {
                        "dataset": name,
                        "method": method.name,
                        "setting": method.setting,
                        "seed": 0,
                        "chosen": True,
                        "cut": cut,
                        "judged_rows": group,
                        "explained_rows": len(masks),
                        "metrics": judged(run, masks, beside, group),
                        "seconds": {
                            "row": None if timed is None else timed.seconds,
                            "row_processor": None if timed is None else timed.processor,
                            "training": method.fit_seconds,
                        },
                        **method.known,
                    }
                )
    tell("judged")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--labels", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    plan = QUICK if options.quick else Plan()
    rows = []
    for name in options.sets:
        rows += compare(name, plan, labels=options.labels)
    text = tables(rows)
    print(text)
    if options.out is None:
        return
    facts = provenance(" ".join(["python benchmarks/shap_lime.py", *sys.argv[1:]]))
    threads = torch.get_num_threads()
    facts["hardware"] += f", {processor()}, {threads} thread{'s' if threads > 1 else ''} used"
    facts |= {name: version(name) for name in ("shap", "lime", "scikit-learn")}
    facts["seconds"] = time.perf_counter() - started
    header = (
        f"# SHAP, LIME, REAL-X and L2X at the same number of features\n\n`{facts['command']}`, "
        f"commit {facts['commit']}, {facts['hardware']}, {facts['seconds'] / 60:.0f} minutes. "
        "Intervals are 95% bootstrap intervals over rows; *e*: under EVAL-X; *exact*: under the "
        "exact posterior."
    )
    with all_or_nothing(options.out) as part:
        results = {**facts, "rows": rows, "speed": speed(rows)}
        (part / "results.json").write_text(to_json(results) + "\n", encoding="utf-8")
        (part / "tables.md").write_text(f"{header}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
