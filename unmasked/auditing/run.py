"""The work of an audit, piece by piece: judges, encoding tests, retrained models, intervals."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unmasked.auditing import verdicts
from unmasked.auditing.evaluators import (
    Fold,
    Model,
    encoding_of,
    enough_predicted,
    folds_of,
    kept_encoding,
    learn_and_stop,
    matrix_of,
    of_prediction,
    one_thread,
    roar,
    take,
    train_judge,
)
from unmasked.auditing.figures import Resampler, all_figures, curve_figures
from unmasked.auditing.matching import Audited
from unmasked.auditing.model import AuditTable, Learning
from unmasked.auditing.queries import Answers, Questions, ask, gather
from unmasked.auditing.result import AuditResult, Curve, Finding
from unmasked.auditing.settings import AuditSettings
from unmasked.auditing.store import Steps, Store
from unmasked.auditing.verdicts import examine
from unmasked.errors import InputError
from unmasked.evaluation.periods import blocks_of
from unmasked.io.tables import check_parts
from unmasked.training.progress import Show

if TYPE_CHECKING:
    from unmasked.evaluation.encoding import Encoding


@dataclass(frozen=True)
class Work:
    """An audit's pieces, each kept as it is finished."""

    table: AuditTable
    audited: list[Audited]
    options: AuditSettings
    seed: int
    learning: Learning | None
    store: Store
    model: Model | None
    notes: list[str]
    of_model: bool
    predicted: NDArray[np.int64] | None = None
    """The number of the model's likeliest class, (rows,), where there are labels as well."""

    @property
    def pieces(self) -> int:
        judging = 1 if self.learning is not None else self.options.folds
        each = 2 if self.predicted is None else 3
        return judging + each * len(self.audited) + 1

    def run(self, progress: Show = "auto") -> AuditResult:
        """Do the work; pieces that an earlier run had finished are read back."""
        with Steps(self.pieces, progress) as steps:
            return self._run(steps)

    def _run(self, steps: Steps) -> AuditResult:
        started = time.monotonic()
        table, options = self.table, self.options
        folds = folds_of(
            table.label, table.groups, options.folds, options.max_train, self.seed, table.times
        )
        questions = Questions.of(self.audited, options, self.seed)
        answers = self._answers(steps, questions, folds)
        encodings = [self._encoding(steps, i) for i in range(len(self.audited))]
        predictions, untested = self._predictions(steps)
        retrained = self._retrained(steps, folds)
        steps.now("intervals")
        masks = [one.masks for one in self.audited]
        posthoc = None if self.model is None else [self.model.predict(table.X, m) for m in masks]
        resample = Resampler(self._clusters, options.bootstrap_draws, self.seed)
        draws = options.random_draws
        references, metrics, compared = all_figures(
            answers, table.label, masks, retrained, posthoc, resample, draws
        )
        health = examine(answers, table.label, masks, questions.sizes, resample, draws, self.seed)
        findings = []
        for i, one in enumerate(self.audited):
            word, sentence = verdicts.fidelity(
                metrics[i], references, health, i, one.masks, encodings[i].verdict == "encodes"
            )
            judged = word not in (verdicts.NOT_JUDGED, verdicts.ALL, verdicts.NONE)
            findings.append(
                Finding(
                    name=one.name,
                    source=one.source,
                    cut=one.cut,
                    how=one.how,
                    masks=one.masks,
                    encoding=encodings[i],
                    prediction=predictions[i],
                    fidelity=word,
                    fidelity_reason=sentence,
                    room=verdicts.room(metrics[i], len(answers.sampled)) if judged else "",
                    metrics=metrics[i],
                    remarks=_together(verdicts.remarks(one.masks), encodings[i].remarks),
                )
            )
        curves = {
            source: Curve(
                questions.sizes,
                curve_figures(answers.curves[f"insertion/{source}"], answers.drawn, resample),
                curve_figures(answers.curves[f"deletion/{source}"], answers.drawn, resample),
            )
            for source in questions.orders
        }
        steps.done()
        names = [finding.name for finding in findings]
        comparable = [f.room != "" and f.verdict != "encodes" for f in findings]
        return AuditResult(
            explanations=findings,
            references=references,
            compared={(names[a], names[b]): value for (a, b), value in compared.items()},
            ranking=verdicts.ranking(names, compared, comparable),
            health=health,
            curves=curves,
            sampled=len(answers.sampled),
            assumptions=[*self.notes, *self._assumptions(), *untested],
            table=table,
            chances=self._chances(answers),
            has_model=self.model is not None,
            settings=options,
            random_state=self.seed,
            seconds=time.monotonic() - started,
        )

    def _encoding(self, steps: Steps, i: int) -> Encoding:
        table, one = self.table, self.audited[i]
        steps.now(f"encoding test: {one.name}")
        found = kept_encoding(
            self.store,
            f"encoding-{i}",
            lambda: encoding_of(
                table.frame, table.label, one.masks, table.groups, table.times, self.options,
                self.seed,
            ),
        )  # fmt: skip
        steps.done()
        return found

    def _predictions(self, steps: Steps) -> tuple[list[Encoding | None], list[str]]:
        """Test what each choice says of the model's likeliest class; note what was not tested."""
        nothing: list[Encoding | None] = [None] * len(self.audited)
        if self.predicted is None:
            return nothing, []
        rows = enough_predicted(self.predicted, self.options)
        found, why = [], "it hardly ever predicts more than one class of these rows."
        for i, one in enumerate(self.audited):
            steps.now(f"encoding test of the prediction: {one.name}")
            if rows is not None:
                try:
                    found.append(self._prediction(i, one.masks, rows))
                except InputError as error:  # labels were fine, predictions may lie in few groups
                    rows, why = None, str(error)
            steps.done()
        if rows is None:
            return nothing, [f"whether the model's prediction is given away was not tested: {why}"]
        left = len(self.predicted) - len(rows)
        told = f"{left:,} rows whose predicted class is too rare were left out of the test of the "
        return list(found), [f"{told}model's prediction."] if left else []

    def _prediction(self, i: int, masks: NDArray[np.bool_], rows: NDArray[np.int64]) -> Encoding:
        assert self.predicted is not None
        table = self.table.take(rows)
        label = self.predicted[rows]
        make = partial(
            encoding_of, table.frame, label, masks[rows], table.groups, table.times, self.options,
            self.seed,
        )  # fmt: skip
        return of_prediction(kept_encoding(self.store, f"prediction-{i}", make))

    @property
    def _clusters(self) -> NDArray[np.int64] | None:
        """(rows,) what is resampled together: groups, or stretches of time."""
        table = self.table
        if table.times is None:
            return table.groups
        return blocks_of(table.times, self.options.folds).stretch

    def _retrained(self, steps: Steps, folds: list[Fold]) -> list[NDArray[Any]]:
        """ROAR's predictions for each explanation, (rows, classes)."""
        table = self.table
        matrix, index = matrix_of(table.frame)

        def make(masks: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
            classes = len(table.classes)
            return {"p": roar(matrix, index, table.label, classes, masks, folds, self.seed)}

        found = []
        for i, one in enumerate(self.audited):
            steps.now(f"ROAR: {one.name}")
            found.append(self.store.arrays(f"roar-{i}", partial(make, one.masks))["p"])
            steps.done()
        return found

    def _chances(self, answers: Answers) -> dict[str, NDArray[Any]]:
        """The probability of each row's own class, with everything and with each mask shown."""
        asked = {"everything": "everything"}
        asked |= {one.name: f"shown/{i}" for i, one in enumerate(self.audited)}
        rows = np.arange(len(self.table))
        return {name: answers.p[key].mean(0)[rows, self.table.label] for name, key in asked.items()}

    def _answers(self, steps: Steps, questions: Questions, folds: list[Fold]) -> Answers:
        """Train the judges of each fold and ask them; a finished fold is read back."""
        table, options = self.table, self.options
        target = np.eye(len(table.classes))[table.label]
        prior = np.zeros_like(target)
        parts = []
        sizes = options.law.sizes(table.frame.shape[1])
        if self.learning is not None:
            X, label = self.learning.X, self.learning.label
            learn, stop = learn_and_stop(
                label, None, np.arange(len(label)), options.max_train, self.seed,
                self.learning.times,
            )  # fmt: skip
            divided = [(X, label, learn, stop, np.arange(len(table)))]
        else:
            divided = [
                (table.frame, table.label, fold.learn, fold.stop, fold.judge) for fold in folds
            ]
        for X, _, learn, stop, rows in divided:
            check_parts(take(X, learn), take(X, stop), table.frame.iloc[rows])
        for number, (X, label, learn, stop, rows) in enumerate(divided):
            steps.now(f"evaluators, fold {number + 1} of {len(divided)}")

            def make(
                number: int = number,
                X: Any = X,
                label: NDArray[np.int64] = label,
                learn: NDArray[np.int64] = learn,
                stop: NDArray[np.int64] = stop,
                rows: NDArray[np.int64] = rows,
            ) -> dict[str, NDArray[Any]]:
                with one_thread():
                    judge = train_judge(
                        (take(X, learn), label[learn]),
                        (take(X, stop), label[stop]),
                        take(table.frame, rows),
                        len(table.classes),
                        options,
                        seed=self.seed + number,
                        checkpoint=self.store.place(f"fold-{number}"),
                    )
                    return ask(judge, questions, rows, target[rows])

            parts.append((rows, self.store.arrays(f"judged-{number}", make)))
            counts = np.bincount(label[learn], minlength=len(table.classes)) + 0.5
            prior[rows] = counts / counts.sum()  # half a row more, so that none has no chance
            steps.done()
        return gather(parts, questions, prior, sizes)

    def _assumptions(self) -> list[str]:
        options = self.options
        found = [
            "assumed: neither the explainers nor the model they explain were trained on the "
            f"{len(self.table):,} audited rows; if one was, the verdicts mean nothing."
        ]
        if self.learning is not None:
            found.append(
                f"the evaluators learned from {len(self.learning.label):,} rows of their own and "
                "judged all audited rows."
            )
        else:
            found.append(
                f"the evaluators were cross-fitted among the audited rows: each of {options.folds} "
                "folds was judged by evaluators that learned from the others."
            )
        if self.table.groups is not None:
            found.append(
                f"rows of one of the {len(np.unique(self.table.groups)):,} groups were kept in one "
                "fold and resampled together."
            )
        if self.table.times is not None:
            stretches = len(set(blocks_of(self.table.times, options.folds).stretch.tolist()))
            found.append(
                "rows were kept apart by time: a fold is a period, judged by models of the periods "
                "before and after it; the encoding test gives a row other masks of about its own "
                "time only, so that a choice which merely changes over time is no code; and "
                f"{stretches:,} stretches of neighbouring rows were resampled whole."
            )
            found.append(
                "assumed: rows of different stretches are about independent; where a change lasts "
                f"longer than {len(self.table) / stretches:,.0f} rows, intervals are too narrow."
            )
        if self.predicted is not None:
            found.append(
                "the model's prediction is its likeliest class; an explanation encodes if its "
                "choice gives the labels or the prediction away."
            )
        if self.of_model:
            found.append("the labels are the model's likeliest classes, as no y was given.")
        return found


def _together(*remarks: list[str]) -> list[str]:
    """All remarks, each once."""
    return list(dict.fromkeys(remark for several in remarks for remark in several))
