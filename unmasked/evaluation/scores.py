"""`Scores`: what an evaluator found, with intervals, beside what it is to be compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from unmasked import notebook
from unmasked.metrics import Interval

ROWS = {
    "explanation": "what the explanation shows",
    "everything": "everything shown",
    "random": "random masks of the same sizes",
    "nothing": "nothing shown",
}
METRICS = {
    "eauroc": "AUROC",
    "eacc": "accuracy",
    "eloglik": "log-likelihood",
    "kl": "KL from the model",
}


@dataclass(frozen=True, repr=False)
class Scores:
    """An explanation's fidelity under an evaluator, such as EVAL-X.

    Attributes
    ----------
    rows : for "explanation", "everything", "random" and "nothing", a dictionary of metrics
        ("eauroc", "eacc", "eloglik" in nats; "kl" where a model is explained), each an `Interval`
        from a bootstrap over rows.
    over_random : the explanation minus random masks of the same sizes, paired over rows.
    fraction : share of features shown.
    count : how many rows were judged.
    micro : whether the AUROC is the micro AUROC of several classes.
    remarks : sentences a reader should know before believing the figures.
    evaluator : who judged.
    """

    rows: dict[str, dict[str, Interval]]
    over_random: dict[str, Interval]
    fraction: float
    count: int
    micro: bool
    remarks: list[str] = field(default_factory=list)
    evaluator: str = "EVAL-X"

    def __getitem__(self, metric: str) -> Interval:
        """The explanation's own figure, such as ``scores["eauroc"]``."""
        return self.rows["explanation"][metric]

    def to_frame(self) -> pd.DataFrame:
        """One row per comparison, one column per metric."""
        return pd.DataFrame(
            {
                ROWS[name]: {metric: interval.value for metric, interval in row.items()}
                for name, row in self.rows.items()
            }
        ).T

    def figures(self, row: str) -> dict[str, dict[str, float]]:
        """The metrics of one row as plain values."""
        return {metric: interval.to_json() for metric, interval in self.rows[row].items()}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "rows": {name: self.figures(name) for name in self.rows},
            "over_random": {name: value.to_json() for name, value in self.over_random.items()},
            "fraction": self.fraction,
            "count": self.count,
            "auroc": "micro" if self.micro else "binary",
            "remarks": self.remarks,
            "evaluator": self.evaluator,
        }

    def _heads(self) -> list[str]:
        micro = " (micro)" if self.micro else ""
        return [METRICS[n] + (micro if n == "eauroc" else "") for n in self.rows["explanation"]]

    def _title(self) -> str:
        return (
            f"{self.evaluator} on {self.count:,} rows, {self.fraction:.0%} of the features shown; "
            "95% intervals"
        )

    def _repr_html_(self) -> str:
        """For notebooks: the same table as printed."""
        names = list(self.rows["explanation"])
        rows = [[ROWS[row], *(str(found[n]) for n in names)] for row, found in self.rows.items()]
        return notebook.block(
            notebook.lines([self._title()]),
            notebook.table(["", *self._heads()], rows),
            notebook.lines(f"note: {remark}" for remark in self.remarks),
        )

    def __repr__(self) -> str:
        names = list(self.rows["explanation"])
        width = max(len(text) for text in ROWS.values())
        lines = [self._title(), " " * width + "".join(f"  {head:>24}" for head in self._heads())]
        for row, figures in self.rows.items():
            lines.append(f"{ROWS[row]:<{width}}" + "".join(f"  {figures[n]!s:>24}" for n in names))
        return "\n".join(lines + [f"note: {remark}" for remark in self.remarks])
