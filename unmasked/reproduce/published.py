"""Hold the paper's figures on S1, S2 and S3 as fractions, and the names that tables use."""

from __future__ import annotations

from dataclasses import dataclass

STEP = "REAL-X-STEP"
REFERENCES = ("FULL", "random masks", "true features", "true features without x11", "optimum")
SHORT = {"true features without x11": "true, no x11"}
"""Shorter names, so that a line stays within 120 characters."""

SELECTION = {"cfsr": "CFSR", "tpr": "TPR", "fdr": "FDR", "fraction": "shown"}
SCORES = {"auroc": "AUROC", "acc": "ACC", "loglik": "log-lik."}
PREDICTION = ("auroc", "eauroc", "acc", "eacc", "loglik", "eloglik")
EVALUATORS = {
    "{}": "own",
    "e{}": "EVAL-X",
    "o{}": "exact",
    "c{}": "collection",
    "r{}": "ROAR",
    "p{}": "post-hoc",
}
"""How an evaluator's metric keys are made from "auroc", "acc" and "loglik"."""
VARIED = {"e{}_varied": "EVAL-X, second"}

PAPER = "paper: Jethani et al., AISTATS 2021; its rows are other draws of the same data sets."
LOG_LIKELIHOOD = "log-lik.: mean log-likelihood of a row's label, in nats; the paper prints none."
EXACT = (
    "exact: the true posterior P(y | what is shown), computed from the formulas that make the "
    "data. On average, no selection is better under it than the optimum."
)
COLLECTION = "collection: 2,048 models, one trained for each subset of the eleven features."


def _names() -> dict[str, str]:
    """Every metric key and how a header writes it, in the order of the tables."""
    names = dict(SELECTION)
    for form in [*EVALUATORS, *VARIED]:
        for score, name in SCORES.items():
            letter = form[: form.index("{")]
            space = " " if letter and score == "loglik" else ""
            second = ", second" if form in VARIED else ""
            names[form.format(score)] = f"{letter}{space}{name}{second}"
    return names


NAMES = _names()


DATASETS = ("S1", "S2", "S3")

# Each triple is S1, S2, S3. All but the last line of a method is Table 1; cauroc is the appendix's
# comparison with 2,048 separately trained models, REAL-X-STEP the one with a predictor trained
# first.
_FIGURES: dict[str, dict[str, tuple[float, float, float]]] = {
    "REAL-X": {
        "cfsr": (1.0, 1.0, 1.0),
        "tpr": (0.984, 0.967, 0.935),
        "fdr": (0.107, 0.063, 0.026),
        "auroc": (0.782, 0.805, 0.875),
        "eauroc": (0.774, 0.804, 0.873),
        "acc": (0.701, 0.715, 0.796),
        "eacc": (0.686, 0.712, 0.793),
        "cauroc": (0.798, 0.807, 0.876),
    },
    "L2X": {
        "cfsr": (0.243, 0.312, 0.615),
        "tpr": (0.785, 0.811, 0.810),
        "fdr": (0.220, 0.202, 0.190),
        "auroc": (0.752, 0.790, 0.852),
        "eauroc": (0.742, 0.771, 0.848),
        "acc": (0.671, 0.705, 0.767),
        "eacc": (0.684, 0.701, 0.769),
        "cauroc": (0.759, 0.776, 0.849),
    },
    "INVASE": {
        "cfsr": (0.411, 0.472, 0.376),
        "tpr": (0.806, 0.804, 0.863),
        "fdr": (0.013, 0.031, 0.011),
        "auroc": (0.803, 0.806, 0.886),
        "eauroc": (0.740, 0.783, 0.868),
        "acc": (0.713, 0.714, 0.806),
        "eacc": (0.668, 0.692, 0.788),
        "cauroc": (0.767, 0.788, 0.870),
    },
    "BASE-X": {
        "cfsr": (0.350, 0.245, 0.272),
        "tpr": (0.847, 0.756, 0.835),
        "fdr": (0.013, 0.016, 0.011),
        "auroc": (0.799, 0.805, 0.886),
        "eauroc": (0.762, 0.773, 0.867),
        "acc": (0.710, 0.712, 0.806),
        "eacc": (0.685, 0.688, 0.787),
        "cauroc": (0.773, 0.777, 0.870),
    },
    "REAL-X-STEP": {"eauroc": (0.778, 0.801, 0.872)},
}
_SETTINGS: dict[str, tuple[str, tuple[float, float, float]]] = {
    "REAL-X": ("sparsity", (0.05, 0.05, 0.1)),
    "L2X": ("k", (4, 4, 5)),
    "INVASE": ("sparsity", (0.2, 0.15, 0.2)),
    "BASE-X": ("sparsity", (0.15, 0.125, 0.2)),
}
METHODS = tuple(_SETTINGS)
"""The methods of the paper's Table 1, in its order."""


@dataclass(frozen=True)
class Published:
    """A method's published figures on one data set, keyed as in ``results.json``."""

    setting: dict[str, float]
    metrics: dict[str, float]


def published(dataset: str, method: str) -> Published:
    """Return the paper's figures of a method on a data set; empty where it prints nothing.

    >>> published("S3", "L2X").setting, published("S3", "L2X").metrics["cfsr"]
    ({'k': 5}, 0.615)
    >>> published("S3", "REAL-X-STEP")
    Published(setting={}, metrics={'eauroc': 0.872})
    """
    if dataset not in DATASETS:
        return Published({}, {})
    column = DATASETS.index(dataset)
    metrics = {key: triple[column] for key, triple in _FIGURES.get(method, {}).items()}
    if method not in _SETTINGS:
        return Published({}, metrics)
    name, triple = _SETTINGS[method]
    return Published({name: triple[column]}, metrics)
