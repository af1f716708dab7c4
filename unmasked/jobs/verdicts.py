"""Do selections say more than random ones? In words, kept with the model for later uses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from unmasked.evaluation import Scores
from unmasked.explainers import RealX
from unmasked.report.results import to_json

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
