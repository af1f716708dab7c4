"""`AuditResult`: what an audit found, as an object, a table, JSON, Markdown and a page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.auditing import verdicts
from unmasked.auditing.evaluators import NO_MODEL, POSTHOC_BLIND, ROAR_BLIND
from unmasked.auditing.model import AuditTable
from unmasked.auditing.settings import AuditSettings
from unmasked.auditing.verdicts import Health
from unmasked.errors import InputError
from unmasked.metrics import Interval
from unmasked.plots import notebook

if TYPE_CHECKING:
    from unmasked.evaluation.encoding import Encoding


FILES = ("report.html", "summary.md", "results.json")
"""What an audit writes."""


@dataclass(frozen=True)
class Curve:
    """Log-likelihood while features are shown (insertion) or hidden (deletion), most important
    first; ``sizes`` says how many."""

    sizes: tuple[int, ...]
    insertion: list[Interval]
    deletion: list[Interval]

    def area(self, which: str) -> float:
        """The mean height of a curve, over the fraction of features."""
        heights = [point.value for point in getattr(self, which)]
        return float(np.trapezoid(heights, self.sizes) / (self.sizes[-1] - self.sizes[0]))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "sizes": list(self.sizes),
            "insertion": [point.to_json() for point in self.insertion],
            "deletion": [point.to_json() for point in self.deletion],
            "insertion_area": self.area("insertion"),
            "deletion_area": self.area("deletion"),
        }


@dataclass(frozen=True, repr=False, eq=False)
class Finding:
    """One explanation's audit.

    Attributes
    ----------
    name, source : its name, and that of what it was cut from; cut : {"top": k} of attributions.
    encoding : the encoding test's `Encoding`. prediction : the same test of the model's likeliest
        class, where labels and a model came. verdict, reason, encoding_nats : the one that decides,
        in short: an explanation encodes if it gives either away.
    fidelity, fidelity_reason : how well what it shows informs, in a word and in a sentence.
    room : how much better masks of the same sizes could be. metrics : figures with intervals.
    """

    name: str
    source: str
    cut: dict[str, int]
    how: str
    masks: NDArray[np.bool_]
    encoding: Encoding
    fidelity: str
    fidelity_reason: str
    room: str
    metrics: dict[str, Interval]
    remarks: list[str] = field(default_factory=list)
    prediction: Encoding | None = None

    @property
    def gives_prediction_away(self) -> bool:
        """Return true if its choice was seen to tell the model's prediction, and not the labels."""
        told = self.prediction is not None and self.prediction.verdict == "encodes"
        return told and self.encoding.verdict != "encodes"

    @property
    def decides(self) -> Encoding:
        """The test that the verdict is of: that of the labels, or of the prediction where only
        that is given away."""
        if self.gives_prediction_away:
            assert self.prediction is not None
            return self.prediction
        return self.encoding

    @property
    def verdict(self) -> str:
        """ "encodes", "no sign of encoding" or "cannot tell"."""
        return self.decides.verdict

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        return self.decides.reason

    @property
    def encoding_nats(self) -> Interval:
        """Return the nats that the choice says beyond the values shown about y, or about the
        model's prediction where only that is given away."""
        return Interval(self.decides.nats, self.decides.low, self.decides.high)

    @property
    def headline(self) -> str:
        """The explanation in a line."""
        return verdicts.headline(self.name, self.verdict, self.fidelity, self.gives_prediction_away)

    @property
    def answer(self) -> str:
        """Say in plain words what to make of the explanation, by its verdict and its fidelity."""
        return verdicts.answer(self.verdict, self.fidelity, self.gives_prediction_away)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "source": self.source,
            "cut": self.cut,
            "matched": self.how,
            "answer": self.answer,
            "verdict": self.verdict,
            "reason": self.reason,
            "encoding_nats": self.encoding_nats.to_json(),
            "encoding": self.encoding.to_dict(),
            "prediction": None if self.prediction is None else self.prediction.to_dict(),
            "fidelity": self.fidelity,
            "fidelity_reason": self.fidelity_reason,
            "room": self.room,
            "metrics": {name: value.to_json() for name, value in self.metrics.items()},
            "remarks": self.remarks,
        }


COLUMNS = {
    "fraction": "shown",
    "eauroc": "eAUROC",
    "eacc": "eACC",
    "eloglik": "log-likelihood",
    "random_eloglik": "random masks",
    "over_random_eloglik": "over random",
    "below_best_eloglik": "below best found",
    "roar_acc": "ROAR accuracy",
    "posthoc_acc": "post-hoc accuracy",
}
"""The comparison's columns."""


@dataclass(frozen=True, repr=False, eq=False)
class AuditResult:
    """Findings of an audit, with the evaluator's health and the figures behind them.

    Attributes
    ----------
    explanations : a `Finding` for each, in order; ``result["name"]`` is one of them.
    references : everything_* and nothing_* figures of the same evaluator and rows.
    compared : for two explanations, the paired difference of their log-likelihoods.
    ranking : sentences, which of two explanations informs more.
    health : how far the evaluator can be trusted.
    curves : insertion and deletion of each explanation whose features have an order, a `Curve`
        each.
    sampled : how many rows the best masks were searched for.
    assumptions : what was taken for granted and how rows were matched.
    table : the audited rows with their labels.
    chances : (rows,) the probability of each row's own class, under "everything" and each
        explanation's name.
    has_model : whether the explained model came, so that there is post-hoc accuracy.
    settings : the options that it ran with, see `AuditSettings`.
    random_state : the seed that it ran with.
    seconds : how long it took.
    """

    explanations: list[Finding]
    references: dict[str, Interval]
    compared: dict[tuple[str, str], Interval]
    ranking: list[str]
    health: Health
    curves: dict[str, Curve]
    sampled: int
    assumptions: list[str]
    table: AuditTable
    chances: dict[str, NDArray[Any]]
    has_model: bool
    settings: AuditSettings
    random_state: int
    seconds: float

    def __getitem__(self, name: str) -> Finding:
        for one in self.explanations:
            if one.name == name:
                return one
        names = ", ".join(repr(one.name) for one in self.explanations)
        raise InputError(f"there is no explanation {name!r} in this audit; there are {names}.")

    @property
    def summary(self) -> list[str]:
        """The verdicts in words, then the evaluator's health."""
        lines = [one.headline for one in self.explanations]
        return [
            *lines,
            f"The evaluator is {self.health.verdict}: {'; '.join(self.health.reasons)}.",
        ]

    @property
    def notes(self) -> list[str]:
        """Say what ROAR and post-hoc accuracy cannot see, or why there is no post-hoc accuracy."""
        return [ROAR_BLIND, POSTHOC_BLIND if self.has_model else NO_MODEL]

    def to_frame(self) -> pd.DataFrame:
        """One row for each explanation: verdict, nats and the figures of the comparison."""
        rows = {}
        for one in self.explanations:
            shown = {name: one.metrics[name].value for name in COLUMNS if name in one.metrics}
            rows[one.name] = {
                "verdict": one.verdict,
                "encoding_nats": one.encoding_nats.value,
                **_of_prediction(one),
                "fidelity": one.fidelity,
                **shown,
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    def to_json(self) -> dict[str, Any]:
        """Plain values: the content of results.json, without where it comes from."""
        counts = np.bincount(self.table.label, minlength=len(self.table.classes))
        return {
            "audited_rows": len(self.table),
            "features": [str(name) for name in self.table.frame.columns],
            "classes": {
                str(label): int(n) for label, n in zip(self.table.classes, counts, strict=True)
            },
            "summary": self.summary,
            "explanations": [one.to_json() for one in self.explanations],
            "references": {name: value.to_json() for name, value in self.references.items()},
            "compared": [
                {"left": a, "right": b, "eloglik": value.to_json()}
                for (a, b), value in self.compared.items()
            ],
            "health": self.health.to_json(),
            "curves": {name: curve.to_json() for name, curve in self.curves.items()},
            "best_sample": self.sampled,
            "assumptions": self.assumptions,
            "notes": self.notes,
            "settings": self.settings.to_json(),
            "random_state": self.random_state,
            "seconds": self.seconds,
        }

    def report(self, title: str = "Audit of explanations", command: str = "") -> str:
        """The whole report as one self-contained HTML page.

        Parameters
        ----------
        title : the page's title, "Audit of explanations" by default.
        command : the command or call that it says repeats the audit; "" (default) for
            ``unmasked.audit(…)``.
        """
        from unmasked.auditing.page import page
        from unmasked.io.output_folder import provenance

        return page(self, title, provenance(command or "unmasked.audit(…)"))

    def save(self, folder: str | Path, command: str = "unmasked.audit(…)") -> None:
        """Write results.json, report.html and summary.md, all or none of them.

        Parameters
        ----------
        folder : where to write; it is made if need be. An earlier audit in it is replaced.
        command : the command or call that the files say repeats the audit, ``unmasked.audit(…)`` by
            default.
        """
        from unmasked.auditing.page import markdown, page
        from unmasked.io.output_folder import all_or_nothing, prepare_folder, provenance, to_json

        folder = Path(folder)
        facts = provenance(command)
        title = "Audit of " + ", ".join(one.name for one in self.explanations[:4])
        prepare_folder(folder, writes=FILES)
        with all_or_nothing(folder) as part:
            results = to_json({**facts, **self.to_json()})
            (part / "results.json").write_text(results, encoding="utf-8")
            (part / "report.html").write_text(page(self, title, facts), encoding="utf-8")
            (part / "summary.md").write_text(markdown(self, title, facts), encoding="utf-8")

    def __repr__(self) -> str:
        return "\n".join([f"audit of {len(self.table):,} rows", *self.summary])

    def _repr_html_(self) -> str:
        """For notebooks: the verdicts and the comparison."""
        heads = ["", "verdict", "nats", *(t for n, t in COLUMNS.items() if self._has(n))]
        rows = []
        for one in self.explanations:
            figures = [str(one.metrics[n]) for n in COLUMNS if self._has(n)]
            rows.append([one.name, one.verdict, str(one.encoding_nats), *figures])
        return notebook.block(
            notebook.lines([f"Audit of {len(self.table):,} rows", *self.summary]),
            notebook.table(heads, rows),
        )

    def _has(self, name: str) -> bool:
        return all(name in one.metrics for one in self.explanations)


def _of_prediction(one: Finding) -> dict[str, Any]:
    """Columns of the comparison that are there where the model's prediction was tested."""
    found = one.prediction
    return (
        {}
        if found is None
        else {"prediction_verdict": found.verdict, "prediction_nats": found.nats}
    )
