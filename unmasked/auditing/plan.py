"""`audit`: do explanations show what a prediction rests on, or do they give the answer away?"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from unmasked.auditing.cuts import Audited, Cut, cut
from unmasked.auditing.matching import Matched, match
from unmasked.auditing.others import Model
from unmasked.auditing.reading import read_all
from unmasked.auditing.result import AuditResult
from unmasked.auditing.settings import AuditSettings
from unmasked.auditing.store import Store
from unmasked.auditing.table import AuditTable, check_classes, read_rows, read_training
from unmasked.auditing.work import Work
from unmasked.engine.progress import Show
from unmasked.errors import InputError


def audit(
    explanations: Any,
    X: Any,
    y: Any = None,
    *,
    top: Any = None,
    fraction: Any = None,
    of_class: Any = None,
    signed: bool = False,
    model: Any = None,
    groups: Any = None,
    ids: Any = None,
    train: Any = None,
    rest: Literal["train", "drop"] | None = None,
    settings: AuditSettings | None = None,
    checkpoint: str | Path | None = None,
    progress: Show = "auto",
    random_state: int = 0,
    id_column: str | None = None,
) -> AuditResult:
    """Audit explanations of the rows of X, whoever made them.

    **Only rows count that neither the explainer nor the model it explains was trained on.**
    Evaluators are trained on the audited rows themselves, by cross-fitting, or on ``train``.

    Parameters
    ----------
    explanations : one explanation, a list, or a dictionary of names. Each is 0/1 masks or
        attributions (rows, features): an array, a tensor, a DataFrame, a file (.csv, .tsv,
        .parquet, .npy, .npz), an `Explanation`, a ``shap.Explanation``, a list of LIME's, or what
        Captum returns. Rows match by label where both sides have labels, else by order; columns
        by name where both have names, else by position.
    X, y : the table and the labels. Without y, the model's likeliest classes are the labels.
    top, fraction : where attributions are cut: the k largest of each row, or that fraction of the
        features; several make a sweep. signed : rank by value instead of by absolute value.
    of_class : which class's attributions, where they came for each class.
    model : the explained model (``predict_proba`` or callable), for post-hoc figures.
    groups : (rows,) what belongs together, such as a patient's rows; kept in one fold.
    ids : (rows,) labels of the rows, by default the index of a DataFrame.
    train : (X, y) rows for the evaluators to learn from, instead of cross-fitting.
    rest : what to do with rows of X that an explanation lacks: "train" lets the evaluators learn
        from them, "drop" leaves them out; by default they are an error.
    settings : everything else, see `AuditSettings`.
    checkpoint : a folder where finished pieces are kept, so that a stopped audit goes on.
    random_state : everything random follows from it.
    id_column : the column that labels rows in files and DataFrames of masks.

    >>> import numpy as np
    >>> from unmasked.auditing import AuditSettings
    >>> random = np.random.default_rng(0)
    >>> x = random.normal(size=(300, 4))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> quick = AuditSettings(learner="boosting", bootstrap_draws=50, sample=20)
    >>> found = audit({"code": np.eye(4, dtype=bool)[1 + y]}, x, y, settings=quick)
    >>> found["code"].verdict
    'encodes'
    """
    work = plan(
        explanations, X, y, top=top, fraction=fraction, of_class=of_class, signed=signed,
        model=model, groups=groups, ids=ids, train=train, rest=rest, settings=settings,
        checkpoint=checkpoint, random_state=random_state, id_column=id_column,
    )  # fmt: skip
    return work.run(progress)


def plan(
    explanations: Any,
    X: Any,
    y: Any,
    *,
    top: Any,
    fraction: Any,
    of_class: Any,
    signed: bool,
    model: Any,
    groups: Any,
    ids: Any,
    train: Any,
    rest: str | None,
    settings: AuditSettings | None,
    checkpoint: str | Path | None,
    random_state: Any,
    id_column: str | None,
) -> Work:
    """Read and check everything that `audit` is given, before any long work."""
    options = AuditSettings() if settings is None else settings
    if not isinstance(options, AuditSettings):
        raise InputError(f"settings must be AuditSettings but is {type(options).__name__}.")
    if rest not in (None, "train", "drop"):
        raise InputError(f"rest must be 'train', 'drop' or None but is {rest!r}.")
    seed = _seed(random_state)
    table = read_rows(X, y, model=model, ids=ids, groups=groups)
    columns = list(table.frame.columns)
    given = read_all(explanations, columns, id_column=id_column)
    some = rest is not None
    matched = [match(one, columns, table.named, table.ids, some=some) for one in given]
    where = Cut.read(top, fraction, len(columns))
    table, spare, matched, notes = _audited_rows(table, matched, rest, options, seed)
    learning = None if train is None else read_training(train, table)
    if learning is None and rest == "train" and spare is not None:
        learning = spare.frame, spare.label
    audited = [
        one for m in matched for one in cut(m, where, table.classes, of_class, signed=signed)
    ]
    check_classes(table, max(options.folds, options.encoding_folds))
    store = _store(checkpoint, table, audited, options, seed, learning)
    asked = None if model is None else Model(model, table.X, table.classes)
    return Work(table, audited, options, seed, learning, store, asked, notes, y is None)


def _audited_rows(
    table: AuditTable,
    matched: list[Matched],
    rest: str | None,
    options: AuditSettings,
    seed: int,
) -> tuple[AuditTable, AuditTable | None, list[Matched], list[str]]:
    """The rows that have masks, those that have not, and a sample where there are too many."""
    notes = []
    rows, spare = matched[0].rows, None
    for other in matched[1:]:
        if not np.array_equal(other.rows, rows):
            raise InputError(
                f"explanations {matched[0].name!r} and {other.name!r} explain different rows "
                f"({len(rows):,} and {len(other.rows):,}); give masks of the same rows."
            )
    if len(rows) < len(table):
        left = np.setdiff1d(np.arange(len(table)), rows)
        spare = table.take(left)
        notes.append(
            f"{len(rows):,} of the table's {len(table):,} rows have masks and were audited; the "
            f"evaluators {'learned from' if rest == 'train' else 'never saw'} the other "
            f"{len(left):,}."
        )
        table = table.take(rows)
    if len(table) > options.max_rows:
        keep = np.random.default_rng((seed, 3)).permutation(len(table))[: options.max_rows]
        keep = np.sort(keep)
        notes.append(f"a random {len(keep):,} of {len(table):,} rows were audited.")
        table = table.take(keep)
        matched = [
            replace(
                m,
                values=m.values[keep],
                ranks=None if m.ranks is None else m.ranks[keep],
                rows=keep,
            )
            for m in matched
        ]
    notes.append("matched: " + "; ".join(f"{m.name}, {m.how}" for m in matched) + ".")
    return table, spare, matched, notes


def _store(
    checkpoint: str | Path | None,
    table: AuditTable,
    audited: list[Audited],
    options: AuditSettings,
    seed: int,
    learning: tuple[pd.DataFrame, NDArray[np.int64]] | None,
) -> Store:
    """A place that belongs to exactly these rows, masks and settings."""
    if checkpoint is None:
        return Store(None)
    digest = hashlib.sha256(f"{options!r} {seed}".encode())
    for frame, label in ((table.frame, table.label), *([learning] if learning else [])):
        digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
        digest.update(label.tobytes())
    if table.groups is not None:
        digest.update(table.groups.tobytes())
    for one in audited:
        digest.update(one.source.encode() + one.masks.tobytes())
        digest.update(b"" if one.order is None else one.order.tobytes())
    return Store(Path(checkpoint) / digest.hexdigest()[:16])


def _seed(random_state: Any) -> int:
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if not whole or random_state < 0:
        raise InputError(f"random_state must be a whole number from 0 up but is {random_state!r}.")
    return int(random_state)
