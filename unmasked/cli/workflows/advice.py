"""Say whether EVAL-X may judge, what its verdict is, and what to try next."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.auditing.verdicts import worthless
from unmasked.cli.workflows.rows import Predictions
from unmasked.errors import DataWarning
from unmasked.evaluation import Scores
from unmasked.explainers import RealX
from unmasked.explainers.saving import has_skops
from unmasked.explanation.explanation import Explanation
from unmasked.explanation.features import count_sets, names_text, one_set_text, same_for_all
from unmasked.io.output_folder import to_json
from unmasked.metrics import Interval, bootstrap, log_likelihoods, mean_statistic

_DRAWS = 1000
_MUCH = 0.25  # of what is shown is worth: useless features always cost a little


def savable() -> str:
    """Return what `EvalX` may pick: "auto", or with a warning "network" where skops is missing."""
    if has_skops():
        return "auto"
    warnings.warn(
        DataWarning(
            "EVAL-X will be networks alone, as boosted trees cannot be saved without the package "
            "'skops'; run: pip install skops."
        ),
        stacklevel=2,
    )
    return "network"


def doubts(predictions: Predictions, classes: NDArray[Any], learned: Any, target: str) -> list[str]:
    """Say before any figure that EVAL-X can judge nobody, and why. Nothing where it can.

    learned : the labels that it learned from, of these classes, whose shares it should beat.
    """
    if predictions.labels is None:
        return []
    truth = predictions.labels[:, None] == np.array(predictions.classes, dtype=object)
    counts = (pd.Index(learned).to_numpy()[:, None] == classes).sum(0) + 0.5
    shares = counts / counts.sum()  # half a row more, so that none has no chance
    full, shown, trivial = (
        log_likelihoods(p, truth)
        for p in (predictions.everything, predictions.shown, np.broadcast_to(shares, truth.shape))
    )
    found = worthless(_paired(full - trivial))
    lost = _paired(shown - full)
    if lost.low > 0 and _paired(shown - full - _MUCH * (shown - trivial)).low > 0:
        found.append(
            f"it predicts {target} worse from everything than from what is shown, by {lost} nats "
            "a row"
        )
    if not found:
        return []
    return [
        f"EVAL-X, which judges here, is not good enough: {'; and '.join(found)}. Do not rely on "
        f"the figures below. What helps: more rows, or columns that say more about {target}."
    ]


def _paired(values: NDArray[np.float64]) -> Interval:
    return bootstrap({"it": mean_statistic(values)}, len(values), draws=_DRAWS, seed=0)["it"]


_FILE = "tested.json"
FEW = 10  # intervals drawn from fewer pictures again and again are too narrow


def over_random(scores: Scores, unit: str, told: str) -> str:
    """Is what is shown more informative than chance? By log-likelihood, paired over rows.

    ``unit`` is what a row is, such as "picture", and ``told`` what is predicted.
    """
    gain = scores.over_random["eloglik"]
    if np.isnan(gain.low):  # all rows are of one group
        return f"One group of {unit}s is too few to tell the selections from random ones."
    interval = f"nats a {unit} [{gain.low:.3f}, {gain.high:.3f}]"
    if gain.low > 0:
        return (
            f"The selections say more about the {told} than random ones: by {gain.value:.3f} "
            f"{interval}."
        )
    if gain.high < 0:
        return (
            f"The selections say less about the {told} than random ones of the same sizes: by "
            f"{-gain.value:.3f} nats a {unit} [{-gain.high:.3f}, {-gain.low:.3f}]: do not rely on "
            "them."
        )
    return (
        "The selections could not be told from random ones of the same sizes (difference "
        f"{gain.value:.3f} {interval}): do not rely on them."
    )


def write_tested(model: Path, tested: int, units: str, verdict: str) -> None:
    """Keep beside a model what was found on ``tested`` rows, such as "test pictures"."""
    found = {"tested": tested, "units": units, "verdict": verdict}
    (model / _FILE).write_text(to_json(found), encoding="utf-8")


def said_when_trained(model: Path, explainer: RealX, price: float) -> list[str]:
    """The verdict of the model's own test rows; nothing where an older program saved it."""
    try:
        content = json.loads((model / _FILE).read_text(encoding="utf-8"))
        units, verdict = (str(content[key]) for key in ("units", "verdict"))
        tested = int(content["tested"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    chosen = explainer.sparsity_
    at = "" if price == chosen else f" and at λ = {chosen:g}"
    return [f"When the model was trained, on {tested:,} {units}{at}: {verdict}"]


_MOST_SETS = 5  # that results and reports list
_MOST_TOLD, _MOST_OTHERS = 5, 3  # features that others could replace, and how many of these
_NEARLY_ALL = 0.95  # share of the rows
_LITTLE = 0.03  # share of the uncertainty that is there with nothing shown
_MANY_ROWS = 2000  # of which differences that matter are seen
_MOSTLY = 0.9  # share of the features
_LEAK = 0.95  # AUROC of a single feature that is worth a look
_RESTARTS = 3


def sets_results(explanation: Explanation) -> dict[str, Any]:
    """Count the different sets of features shown and list the commonest, for ``results.json``."""
    sets = explanation.feature_sets()
    commonest = sets.head(_MOST_SETS).assign(features=sets["features"].map(list))
    return {
        "different": len(sets),
        "commonest": commonest[["features", "rows", "share"]].to_dict("records"),
    }


def sets_sentences(explanation: Explanation, rows: str) -> list[str]:
    """Say whether rows are told apart. ``rows`` is what one of them is, such as "test row"."""
    masks, names = explanation.masks, explanation.feature_names
    if len(masks) < 2 or not masks.any():
        return []
    if same_for_all(masks):
        return [f"REAL-X shows {one_set_text(masks[0], names, rows)}."]
    first, counts = count_sets(masks)
    shown = names_text([name for name, mask in zip(names, masks[first[0]], strict=True) if mask])
    share = counts[0] / len(masks)
    text = (
        f"The {len(masks):,} {rows}s are shown {len(counts):,} different sets of features; the "
        f"commonest ({shown}) "
    )
    if share >= _NEARLY_ALL:
        others = len(masks) - int(counts[0])
        return [f"{text}in all but {others:,} of them: nearly one choice for all rows."]
    return [f"{text}in {share:.0%} of them."]


def interchangeable_sentences(explainer: RealX) -> list[str]:
    """Say which features could be shown in the place of others, by held-out rows."""
    found = list(explainer.interchangeable_.items())
    if not found:
        return []
    told = ", or where ".join(
        f"{name} is replaced by {' or '.join(own[:_MOST_OTHERS])}"
        for name, own in found[:_MOST_TOLD]
    )
    more = f" (and {len(found) - _MOST_TOLD:,} more)" if len(found) > _MOST_TOLD else ""
    return [
        f"Interchangeable: held-out rows keep at least three quarters of what a feature is worth "
        f"where {told}{more}. Another seed may show the other."
    ]


def edge_sentences(explainer: RealX, explanation: Explanation) -> list[str]:
    """A word where the chosen λ is the last of those tried, and more may lie beyond."""
    tried, chosen = [s.level for s in explainer.settings_], explainer.sparsity_
    if len(tried) < 2 or not chosen:
        return []
    if chosen == min(tried) and explanation.fraction < 1:
        beyond = _prices(chosen, (1 / 4, 1 / 2, 1))
        what = f"smallest of the {len(tried)} tried, so that a smaller one may say more"
    elif chosen == max(tried) and explanation.fraction > 0:
        beyond = _prices(chosen, (1, 2, 4))
        what = f"largest of the {len(tried)} tried, so that a larger one may do with less"
    else:
        return []
    return [f"The chosen λ = {chosen:g} is the {what}: to see, try --sparsity {beyond}."]


def advice(explanation: Explanation, scores: Scores, explainer: RealX, target: str) -> list[str]:
    """Advise what to try next, depending on what was seen; nothing where nothing is amiss."""
    if scores.over_random["eloglik"].low > 0:
        steps = _for_one_set(explanation, explainer)
        return [*_said(steps), *_about_leaks(explanation, scores, target)]
    return _said(_for_no_gain(explanation, scores, explainer, target))


def advice_for_new_rows(scores: Scores, explainer: RealX, price: float) -> list[str]:
    """Advise another λ or training anew where selections of new rows do not surely beat random."""
    if scores.over_random["eloglik"].low > 0:
        return []
    others = [f"{s.level:g}" for s in explainer.settings_ if s.level != price]
    steps = []
    if others:
        steps.append(
            f"another λ that the model was trained with (--sparsity {' or '.join(others)})"
        )
    steps.append("training again on a table that holds rows like these")
    return _said(steps)


def _said(steps: list[str]) -> list[str]:
    return [f"What to try next: {'; '.join(steps)}."] if steps else []


def _prices(price: float, factors: tuple[float, ...]) -> str:
    return ",".join(f"{price * factor:.3g}" for factor in factors)


def _for_one_set(explanation: Explanation, explainer: RealX) -> list[str]:
    if not same_for_all(explanation.masks):
        return []
    price, per_row = explainer.sparsity_, explainer.per_row_
    if not price or (per_row is not None and per_row.little):
        return []
    steps = [
        f"other prices may tell rows apart (--sparsity {_prices(price, (1 / 4, 1 / 2, 2, 4))})"
    ]
    return steps + _restart(explainer)


def _restart(explainer: RealX) -> list[str]:
    if explainer.choice_ is not None or explainer.restarts >= _RESTARTS:
        return []
    return [
        f"--restarts {_RESTARTS}, as a selector can settle in a selection that no small change "
        "improves"
    ]


def _for_no_gain(
    explanation: Explanation, scores: Scores, explainer: RealX, target: str
) -> list[str]:
    steps: list[str] = []
    nothing = scores.rows["nothing"]["eloglik"].value
    informs = scores.rows["everything"]["eloglik"].value - nothing
    if informs <= _LITTLE * abs(nothing):
        steps.append(
            f"more rows, or columns that say more about {target}: even with everything shown "
            f"EVAL-X gains only {informs:.3f} nats over nothing shown"
        )
    price = explainer.sparsity_
    blank = float((~explanation.masks.any(1)).mean())
    if not price:
        steps.append("a λ above 0 (--sparsity auto)")
    elif blank > 0.5:
        steps.append(
            f"a smaller λ, as {blank:.0%} of the rows show nothing "
            f"(--sparsity {_prices(price, (1 / 8, 1 / 4, 1 / 2))})"
        )
    elif explanation.fraction > _MOSTLY:
        steps.append(
            f"a larger λ, as random masks of the same sizes show nearly the same "
            f"(--sparsity {_prices(price, (2, 4, 8))})"
        )
    else:
        steps.append(f"other prices (--sparsity {_prices(price, (1 / 4, 1 / 2, 2))})")
    steps += _restart(explainer)
    gain = scores.over_random["eloglik"]
    if scores.count < _MANY_ROWS and gain.high > 0:
        steps.append(
            f"more rows, as with {scores.count:,} test rows a gain below about "
            f"{gain.high - gain.value:.3f} nats is not seen"
        )
    return steps


def _about_leaks(explanation: Explanation, scores: Scores, target: str) -> list[str]:
    """A warning where one feature alone, in nearly all rows, says nearly everything."""
    first, counts = count_sets(explanation.masks)
    alone = np.flatnonzero(explanation.masks[first[0]])
    strong = scores["eauroc"].value >= _LEAK
    if len(alone) != 1 or counts[0] < _NEARLY_ALL * len(explanation) or not strong:
        return []
    name = explanation.feature_names[int(alone[0])]
    return [
        f"{name} alone tells {target} nearly: if it is known only afterwards, it gives the answer "
        f"away, so leave it out (--drop {name!r})."
    ]
