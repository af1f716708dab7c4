"""How often is the encoding test wrong? Honest explanations and planted encoders by the hundred.

    python benchmarks/encoding_errors.py run TRIALS.jsonl [--only TEXT] [--rows N] [--network]
    python benchmarks/encoding_errors.py summary TRIALS.jsonl results/encoding [--network]

``run`` adds one line of JSON for each trial and goes on where it was stopped; ``--only`` picks
trials whose name contains a text ("planted/without x11"), ``--rows`` those of one size, ``--part
3/8`` the third of eight, for eight processes. ``--network`` tries the variant for images, on the
same tables but the one with categories and missing values, which it does not take.
``summary`` writes results.json and README.md, with the true size of every planted code.
The seeds are not those with which the test's settings were chosen.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from numpy.typing import NDArray
from scipy.special import xlogy
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from unmasked import synthetic
from unmasked.datasets.posterior import posterior
from unmasked.datasets.synthetic import CONTROL_FLOW
from unmasked.evaluation import encoding_test, network_encoding_test

FIRST_SEED = 1000
SETS = ("S1", "S2", "S3")
SHIPPED = {
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
    "digits": load_digits,
}
NOISE = 4  # columns that mean nothing, in which codes are written
LARGE = 200_000  # rows on which true sizes are computed


@dataclass(frozen=True)
class Rows:
    """Rows to test, other rows for trees and models, and what is known of the tested ones."""

    x: pd.DataFrame
    y: NDArray[np.int64]
    numbers: NDArray[np.float64]  # x as trees of scikit-learn take it
    other: NDArray[np.float64]
    other_y: NDArray[np.int64]
    truth: NDArray[np.bool_] | None = None
    probability: NDArray[np.float64] | None = None
    noise: int = 0


@dataclass(frozen=True)
class Trial:
    role: str  # honest or planted
    kind: str
    table: str
    rows: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.role}/{self.kind}/{self.table}/{self.rows}/{self.number}"

    @property
    def seed(self) -> int:
        return FIRST_SEED + self.number


# ---------------------------------------------------------------------- tables


def table(trial: Trial) -> Rows:
    noise = NOISE if trial.role == "planted" and trial.kind != "without x11" else 0
    random = np.random.default_rng((trial.seed, 7))
    if trial.table in SETS:
        own = synthetic(trial.table, trial.rows, trial.seed, noise_features=noise)
        other = synthetic(trial.table, 2_000, trial.seed + 10**6, noise_features=noise)
        frame = pd.DataFrame(own.x, columns=own.feature_names)
        return Rows(frame, own.y, own.x, other.x, other.y, own.truth, own.probability, noise)
    if trial.table == "mixed":
        x, y = mixed(trial.rows + 1_000, random)
    else:
        x, y = SHIPPED[trial.table](return_X_y=True, as_frame=True)
        order = random.permutation(len(y))
        x, y = x.iloc[order].reset_index(drop=True), y.to_numpy()[order]
    for i in range(noise):
        x[f"noise {i + 1}"] = random.standard_normal(len(x))
    numbers = np.column_stack([plain(x[name]) for name in x.columns])
    kept = min(trial.rows, len(x) - len(x) // 3)  # at least a third for trees and models
    return Rows(x.iloc[:kept], y[:kept], numbers[:kept], numbers[kept:], y[kept:], noise=noise)


def mixed(rows: int, random: np.random.Generator) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Categories, a truth value, numbers with values missing, one of them telling by that."""
    town = random.integers(12, size=rows)
    grade = random.integers(4, size=rows)
    smoker = random.random(rows) < 0.3
    a, b, c, d = random.standard_normal((4, rows))
    missing = random.random(rows) < 0.3
    score = np.sin(town) + 0.6 * (grade - 1.5) + 0.8 * smoker + a + 1.2 * missing + 0.5 * b - 0.6
    y = (random.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int64)
    frame = pd.DataFrame(
        {
            "town": pd.Categorical([f"town {i}" for i in town]),
            "grade": np.array(["low", "mid", "high", "top"], dtype=object)[grade],
            "smoker": smoker,
            "a": a,
            "b": np.where(missing, np.nan, b),
            "c": np.where(random.random(rows) < 0.2, np.nan, c),
            "d": d,
        }
    )
    frame.loc[random.random(rows) < 0.1, "grade"] = None
    return frame, y


def plain(column: pd.Series[Any]) -> NDArray[np.float64]:
    if pd.api.types.is_numeric_dtype(column.dtype) and column.dtype != bool:
        return column.fillna(-9).to_numpy(float)
    return pd.factorize(column.astype(str), sort=True)[0].astype(float)


# ---------------------------------------------------------------------- explanations


def honest(kind: str, rows: Rows, random: np.random.Generator) -> NDArray[np.bool_]:
    shape = count, features = rows.numbers.shape
    if kind == "fixed":
        return np.tile(random.random(features) < 0.5, (count, 1))
    if kind == "random":
        return random.random(shape) < 0.4
    if kind == "random size":
        return random.random(shape) < random.random((count, 1))
    if kind in ("importances", "importances, k varies"):
        forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=0)
        found = forest.fit(rows.other, rows.other_y).feature_importances_
        rank = (-found).argsort(kind="stable").argsort()
        k = random.integers(1, features, size=count) if "varies" in kind else max(1, features // 3)
        return rank[None, :] < np.broadcast_to(k, count)[:, None]
    if kind == "tree paths":
        depth = int(random.integers(3, 8))
        tree = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=5, random_state=0)
        tree.fit(rows.other, rows.other_y)
        visited = tree.decision_path(rows.numbers).toarray().astype(bool)  # (rows, nodes)
        masks = np.zeros(shape, dtype=bool)
        for j in range(features):
            masks[:, j] = visited[:, tree.tree_.feature == j].any(1)
        return masks
    assert kind == "true features"
    assert rows.truth is not None
    return rows.truth


def planted(kind: str, rows: Rows, random: np.random.Generator) -> NDArray[np.bool_]:
    """A code; all but "mask size" and "without x11" are written in the columns of noise."""
    count, features = rows.numbers.shape
    masks = np.zeros((count, features), dtype=bool)
    first = features - rows.noise  # the first column of noise
    if kind == "one feature":  # one column of noise for each class, the last for all others
        masks[np.arange(count), first + np.minimum(rows.y, NOISE - 1)] = True
    elif kind == "binary code":
        for bit in range(NOISE):
            masks[:, first + bit] = (rows.y + 1) >> bit & 1
    elif kind.startswith("bit, wrong in"):
        wrong = random.random(count) < float(kind.split()[-1].rstrip("%")) / 100
        masks[np.arange(count), first + (rows.y ^ wrong)] = True
    elif kind == "levels":  # P(y = 1 | x) in eighths, in binary
        assert rows.probability is not None
        level = np.minimum((8 * rows.probability).astype(int), 7)
        for bit in range(3):
            masks[:, first + bit] = level >> bit & 1
    elif kind == "mask size":
        size = features // 3 + 2 * (rows.y > 0)
        masks = random.random(masks.shape).argsort(1).argsort(1) < size[:, None]
    elif kind == "a model's prediction":
        model = HistGradientBoostingClassifier(max_iter=50, learning_rate=0.1, random_state=0)
        told = model.fit(rows.other, rows.other_y).predict(rows.numbers).astype(int)
        masks[np.arange(count), first + np.minimum(told, NOISE - 1)] = True
    else:
        assert kind == "without x11"
        assert rows.truth is not None
        masks = rows.truth & (np.arange(features) != CONTROL_FLOW)
    return masks


# ---------------------------------------------------------------------- how large codes truly are


def entropy(y: NDArray[Any]) -> float:
    p = np.unique(y, return_counts=True)[1] / len(y)
    return float(-xlogy(p, p).sum())


def information(y: NDArray[Any], told: NDArray[Any]) -> float:
    """I(y; told) of the counts."""
    return entropy(y) - sum(
        (told == value).mean() * entropy(y[told == value]) for value in np.unique(told)
    )


@cache
def size_and_how(kind: str, name: str) -> tuple[float, str]:
    """The true size in nats and how it is known.

    A code of y itself says −log p(y | x_v); where only noise is shown that is the entropy of y.
    """
    rows = {"wine": 178, "breast cancer": 569, "digits": 1797}.get(name, LARGE)
    draw = table(Trial("planted", kind, name, rows, -1))
    random = np.random.default_rng(0)
    if kind == "without x11":
        assert draw.probability is not None
        p, q = draw.probability, posterior(name, draw.numbers, planted(kind, draw, random))
        return float((xlogy(p, p / q) + xlogy(1 - p, (1 - p) / (1 - q))).mean()), "exact posterior"
    masks = planted(kind, draw, random)
    if kind == "mask size":
        if name not in SETS:
            return math.nan, "between 0 and the entropy of y; p(y | x_v) is not known"
        p = posterior(name, draw.numbers, masks)
        return float(-np.log(np.where(draw.y == 1, p, 1 - p)).mean()), "exact posterior"
    told = np.unique(masks, axis=0, return_inverse=True)[1].ravel()
    how = "information of the code, counted"
    return information(draw.y, told), how + (" in the table" if name in SHIPPED else "")


# ---------------------------------------------------------------------- which trials


def trials() -> Iterator[Trial]:
    """In rounds, so that a run which is stopped early is still balanced."""
    plan: list[tuple[str, str, str, int, int]] = []
    changing = ("random", "random size", "importances, k varies", "tree paths")
    for rows, times in ((500, 4), (2_000, 3), (10_000, 1)):
        for name in (*SETS, "mixed"):
            kinds = changing if name == "mixed" else (*changing, "true features")
            plan += [("honest", kind, name, rows, times) for kind in kinds]
            plan += [("honest", kind, name, rows, 1) for kind in ("fixed", "importances")]
    plan += [("honest", kind, "breast cancer", 500, 6) for kind in changing]
    plan += [("honest", kind, "wine", 500, 5) for kind in changing]
    plan += [("honest", kind, "digits", 2_000, 1) for kind in changing]  # 23 s each: 10 classes
    # small codes often, large ones a few times for each table
    for rows, times, few in ((500, 5, 2), (2_000, 6, 2), (10_000, 3, 1)):
        plan += [("planted", "without x11", name, rows, times) for name in SETS]
        for name in ("S1", "S3", "mixed"):
            plan.append(("planted", "one feature", name, rows, few))
            plan.append(("planted", "mask size", name, rows, few))
            plan.append(("planted", "a model's prediction", name, rows, few))
        plan += [("planted", "levels", name, rows, few) for name in SETS]
        for wrong in (25, 35):
            plan.append(("planted", f"bit, wrong in {wrong}%", "S1", rows, times))
    plan += [
        ("planted", "binary code", "wine", 500, 6),
        ("planted", "binary code", "digits", 2_000, 1),
    ]
    for kind in ("one feature", "mask size", "a model's prediction"):
        plan.append(("planted", kind, "breast cancer", 500, 6))
    for number in range(max(times for *_, times in plan)):
        for role, kind, name, rows, times in plan:
            if number < times:
                yield Trial(role, kind, name, rows, number)


def run(trial: Trial, network: bool = False) -> dict[str, Any]:
    rows = table(trial)
    random = np.random.default_rng((trial.seed, 11))
    masks = (honest if trial.role == "honest" else planted)(trial.kind, rows, random)
    started = time.process_time()
    if network:
        found = network_encoding_test(
            rows.numbers, rows.y, masks, random_state=trial.seed, device="cpu"
        )
    else:
        found = encoding_test(rows.x, rows.y, masks, random_state=trial.seed)
    seconds = time.process_time() - started
    return {
        "trial": trial.name,
        **trial.__dict__,
        "tested": len(rows.y),
        "nats": found.nats,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict,
        "detectable": found.detectable,
        "effective_rows": found.effective_rows,
        "seconds": seconds,
        "scikit-learn": sklearn.__version__,
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The finished trials; a line that a kill cut off is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


# ---------------------------------------------------------------------- what came out


def wilson(hits: int, count: int) -> tuple[float, float]:
    """95% interval of a rate."""
    z = 1.959964
    p, centre = hits / count, (hits + z**2 / 2) / (count + z**2)
    half = z * math.sqrt(p * (1 - p) * count + z**2 / 4) / (count + z**2)
    return max(0.0, centre - half), min(1.0, centre + half) if p < 1 else 1.0


def rate(found: list[dict[str, Any]]) -> dict[str, Any]:
    verdicts = [one["verdict"] for one in found]
    hits = verdicts.count("encodes")
    low, high = wilson(hits, len(found))
    return {
        "trials": len(found),
        "encodes": hits,
        "cannot_tell": verdicts.count("cannot tell"),
        "no_sign": verdicts.count("no sign of encoding"),
        "rate": {"value": hits / len(found), "low": low, "high": high},
        "mean_nats": float(np.mean([one["nats"] for one in found])),
        "detectable": float(np.median([one["detectable"] for one in found])),
        "seconds": float(np.mean([one["seconds"] for one in found])),
    }


def summary(found: list[dict[str, Any]], folder: Path, command: str, machine: str) -> None:
    constant = ("fixed", "importances")
    groups: dict[str, Any] = {"honest": [], "planted": []}
    keys = sorted({(one["role"], one["rows"], one["kind"], one["table"]) for one in found})
    for role, rows, kind, name in keys:
        own = [
            o
            for o in found
            if (o["role"], o["rows"], o["kind"], o["table"]) == (role, rows, kind, name)
        ]
        entry = {"kind": kind, "table": name, "rows": own[0]["tested"], **rate(own)}
        if role == "planted":
            value, how = size_and_how(kind, name)
            entry |= {"size": None if math.isnan(value) else value, "how": how}
        groups[role].append(entry)
    by_size = []
    for least, most in ((0.0, 0.05), (0.05, 0.1), (0.1, 0.2), (0.2, math.inf)):
        for rows in sorted({o["rows"] for o in found}):
            own = [
                o
                for o in found
                if o["role"] == "planted"
                and o["rows"] == rows
                and least <= size_and_how(o["kind"], o["table"])[0] < most
            ]
            words = f"{least:g} to {most:g}" if most < math.inf else f"{least:g} and more"
            if own:
                by_size.append({"size": words, **rate(own), "rows": rows})
    all_honest = [o for o in found if o["role"] == "honest"]
    result = {
        "command": command,
        "hardware": machine,
        "scikit-learn": found[0].get("scikit-learn", "of a version not noted"),
        "trials": len(found),
        "false_alarms": rate([o for o in all_honest if o["kind"] not in constant]),
        "constant_masks": rate([o for o in all_honest if o["kind"] in constant]),
        "by_size": by_size,
        **groups,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "README.md").write_text(page(result))


def page(result: dict[str, Any]) -> str:
    """The figures as Markdown; honest explanations pooled over tables of one size."""

    def percent(r: dict[str, float]) -> str:
        return f"{r['value']:.0%} [{r['low']:.0%}, {r['high']:.0%}]"

    alarms, constant = result["false_alarms"], result["constant_masks"]
    lines = [
        "# How often the encoding test is wrong",
        "",
        f"What `{result['command']}` wrote and its `summary` put together; {result['hardware']}, "
        f"scikit-learn {result['scikit-learn']}.",
        "Every trial is in `trials.jsonl`, every table's figures are in `results.json`. Rates have "
        "95% Wilson intervals. The seeds",
        "are not those with which the settings were chosen. *mixed*: categories, a truth value, "
        "numbers with values missing.",
        "",
        "## Honest explanations",
        "",
        f"**{alarms['encodes']} false alarms in {alarms['trials']} explanations that vary from row "
        f"to row: {alarms['rate']['value']:.1%} [{alarms['rate']['low']:.1%}, "
        f"{alarms['rate']['high']:.1%}].** Another {constant['trials']} had one mask for all rows, "
        f"for which the answer is exactly 0 ({constant['encodes']} alarms).",
        "",
        "| explanation | tables | rows | trials | encodes | cannot tell | no sign | mean nats |",
        "|---|---|---|---|---|---|---|---|",
    ]
    pooled: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for e in result["honest"]:
        pooled.setdefault((e["kind"], e["rows"]), []).append(e)
    for (kind, rows), parts in sorted(pooled.items()):
        count = sum(e["trials"] for e in parts)
        nats = sum(e["mean_nats"] * e["trials"] for e in parts) / count
        verdicts = [sum(e[v] for e in parts) for v in ("encodes", "cannot_tell", "no_sign")]
        names = ", ".join(e["table"] for e in parts)
        lines.append(
            f"| {kind} | {names} | {rows:,} | {count} | {verdicts[0]} | {verdicts[1]} | "
            f"{verdicts[2]} | {nats:.4f} |"
        )
    lines += [
        "",
        "## Planted encoders",
        "",
        "*True size*: what the code says about y beyond the values shown, in nats, by the exact "
        f"posterior or counted on {LARGE:,} rows",
        "(of a shipped table: on all its rows; of a model's prediction: with one such model). "
        "*Detectable*: the median of what the",
        "test itself said it would notice.",
        "",
        "| code | table | rows | true size | mean nats | detectable | detected | cannot tell | "
        "no sign | rate |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for e in sorted(result["planted"], key=lambda e: (e["kind"], e["table"], e["rows"])):
        size = "?" if e["size"] is None else f"{e['size']:.3f}"
        lines.append(
            f"| {e['kind']} | {e['table']} | {e['rows']:,} | {size} | {e['mean_nats']:.3f} | "
            f"{e['detectable']:.3f} | {e['encodes']} of {e['trials']} | {e['cannot_tell']} | "
            f"{e['no_sign']} | {percent(e['rate'])} |"
        )
    lines += [
        "",
        "By how large the code truly is, against what the test said it would notice (trials whose "
        "true size is known):",
        "",
        "| true size | rows | detected | rate |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {e['size']} | {e['rows']:,} | {e['encodes']} of {e['trials']} | {percent(e['rate'])} |"
        for e in result["by_size"]
    ]
    return "\n".join(lines) + "\n"


def hardware() -> str:
    info = Path("/proc/cpuinfo")
    names = [
        line.split(":")[1].strip()
        for line in (info.read_text().splitlines() if info.exists() else [])
        if line.startswith("model name")
    ]
    return f"{names[0] if names else platform.machine()}, one thread, beside other work"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "summary"))
    parser.add_argument("trials", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results/encoding"))
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--hardware", default=hardware(), help="Where the trials were run.")
    asked = parser.parse_args()
    option = " --network" if asked.network else ""
    if asked.what == "summary":
        command = f"python benchmarks/encoding_errors.py run{option}"
        summary(read(asked.trials), asked.folder, command, asked.hardware)
        return
    part, parts = (int(number) for number in asked.part.split("/"))
    done = {one["trial"] for one in read(asked.trials)}
    wanted = [
        trial
        for trial in trials()
        if asked.only in trial.name and asked.rows in (None, trial.rows)
        if not (asked.network and trial.table == "mixed")
    ]
    left = [trial for trial in wanted[part - 1 :: parts] if trial.name not in done]
    with asked.trials.open("a") as file:
        for number, trial in enumerate(left):
            found = run(trial, asked.network)
            file.write(json.dumps(found) + "\n")
            file.flush()
            print(
                f"{number + 1}/{len(left)} {trial.name}: {found['nats']:.4f} "
                f"[{found['low']:.4f}, {found['high']:.4f}] {found['verdict']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
