"""The main job for people with a table: train, explain, evaluate, report; or explain new rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from unmasked.cli.workflows.advice import (
    advice,
    advice_for_new_rows,
    doubts,
    edge_sentences,
    interchangeable_sentences,
    over_random,
    said_when_trained,
    savable,
    sets_results,
    sets_sentences,
    write_tested,
)
from unmasked.cli.workflows.rows import (
    EXPLANATIONS,
    PREDICTIONS,
    Predictions,
    choose_examples,
    predict,
    row_cards,
    rule_text,
    write_explanations,
    write_predictions,
)
from unmasked.cli.workflows.saved import (
    fitted_whole,
    model_folders,
    new_rows,
    said_path,
    said_price,
    tell_of_other_training,
    tell_of_replacing,
)
from unmasked.errors import DataWarning, InputError, MissingExtra, OutputError
from unmasked.evaluation import EvalX, Scores
from unmasked.evaluation.evaluator import METRICS, ROWS
from unmasked.explainers import RealX, stability
from unmasked.explainers.base import check_restarts
from unmasked.explainers.novelty import OUTSIDE
from unmasked.explainers.path import check_sparsity
from unmasked.explanation.explanation import Explanation
from unmasked.explanation.features import names_text, same_for_all
from unmasked.inputs.table import Columns, nearest
from unmasked.inputs.wording import some
from unmasked.io.output_folder import (
    MODELS,
    all_or_nothing,
    checkpoint_folder,
    prepare_folder,
    provenance,
    remove_checkpoints,
    to_json,
)
from unmasked.io.page import Section, TableBlock, footer, picture, png, render
from unmasked.io.tables import (
    Roles,
    TableSplit,
    check_columns,
    check_parts,
    check_present,
    read_table,
    split_table,
)
from unmasked.plots import figures as plots
from unmasked.training import Training
from unmasked.training.device import choose_device
from unmasked.training.progress import Show

_CHOICES = {
    "context": "Which features a row shows follows from those that it shows, so the choice gives "
    "nothing away.",
    "row": "The features were looked for in each row, so the choice may tell more than they do; "
    "`unmasked audit` tests that.",
}
"""What is said of a search."""
_PATHS = (
    "Each point is a trained setting, judged by its own predictor.",
    "Each point is what one half of the held-out rows finds at a price, judged by the other half.",
)
_SAID = (
    "how probable it is to be shown",
    "how clearly it pays to show it, above ½ where it does",
)
"""Of a trained selector, and of a search."""
_FEW_ROWS = 100  # are spoken of
_RARE = 0.1  # a class with a smaller share of the rows is spoken of


_CHANCES = "chances.csv"
_EARLIER_CHANCES = "probabilities.csv"  # what chances.csv was called before
_TABLES = (EXPLANATIONS, PREDICTIONS, "rows.csv", "masks.csv", _CHANCES, "explanation.npz")
_WRITES = (*_TABLES, "selections.png", "path.png", "report.html", "results.json")


@dataclass(frozen=True)
class TableResult:
    """Findings on a table and their folder; ``results`` is the content of ``results.json``."""

    results: dict[str, Any]
    summary: list[str]
    scores: Scores | None
    folder: Path


def explain_table(
    path: Path,
    target: str,
    folder: Path,
    *,
    sparsity: float | Sequence[float] | str = "auto",
    seed: int = 0,
    device: str = "auto",
    show: Show = "auto",
    training: Training | None = None,
    roles: Roles | None = None,
    seeds: int = 0,
    restarts: int = 1,
    search: bool | Literal["auto"] = "auto",
    command: str = "unmasked explain",
) -> TableResult:
    """Split a table, train REAL-X and EVAL-X, explain and evaluate the test rows, report.

    seeds : so many more explainers are trained, alike but for their seed, to tell which rows'
        selections hold.
    restarts, search : as in `RealX`.
    """
    started = time.monotonic()
    check_sparsity(sparsity)
    choose_device(device)
    if seeds < 0 or seeds == 1:
        raise InputError(f"--stability must be 0 or at least 2 seeds but is {seeds}.")
    check_restarts(restarts)
    roles = roles or Roles()
    table = read_table(path, text=[] if roles.id is None else [roles.id])
    split = split_table(table, target, seed=seed, roles=roles)
    check_columns(roles.features(table, target))
    check_parts(*(part[0] for part in (split.train, split.valid, split.test)))
    _check_apart(path, folder)
    prepare_folder(folder, MODELS, _WRITES)
    checkpoint = checkpoint_folder(
        folder,
        path.read_bytes(),
        target=target,
        sparsity=sparsity,
        seed=seed,
        training=training,
        device=device,
        roles=roles,
        restarts=restarts,
        search=search,
    )
    tell_of_other_training(folder, checkpoint)
    tell_of_replacing(folder, command)
    options: dict[str, Any] = {
        "training": training,
        "device": device,
        "progress": show,
        "random_state": seed,
        "checkpoint": checkpoint,
    }
    picks = savable()
    explainer = RealX(sparsity, restarts=restarts, search=search, **options)
    explainer.fit(*split.train, validation=split.valid)
    judge = EvalX(estimator=picks, **options)
    evaluator = fitted_whole(judge, *split.train, validation=split.valid)
    explanation = explainer.explain(split.test[0])
    scores = evaluator.evaluate(explanation, *split.test)
    predictions = predict(explainer, evaluator, explanation, *split.test)
    trust = _trust(explainer, explanation, split.test[0])
    summary = doubts(predictions, evaluator.classes_, split.train[1], target)
    summary += _summary(explanation, scores, target, explainer) + _about_rows(split, roles)
    summary.append(f"EVAL-X is {evaluator.reason_}.")
    summary.append(_about_outside(trust, "test rows"))
    if seeds:
        again = stability(
            explainer, *split.train, rows=split.test[0], validation=split.valid, seeds=seeds
        )
        trust = trust.assign(agreement=again.agreement, holds=again.holds)
        summary.append(again.summary())
    results = {
        **provenance(command),
        "table": path.name,
        "target": target,
        "classes": [str(label) for label in explainer.classes_],
        "split": {name: len(getattr(split, name)[0]) for name in ("train", "valid", "test")},
        "balance": split.balance,
        "roles": {name: value for name, value in asdict(roles).items() if value},
        "summary": summary,
        "path": explainer.path_.to_dict("records"),
        "choice": explainer.reason_,
        **_about_search(explainer),
        "rows": _rows(path, explainer, evaluator, explanation, scores, split, seed),
        "remarks": scores.remarks,
        "evaluator": {"picked": evaluator.picked_, "reason": evaluator.reason_},
        "sets": sets_results(explanation),
        "predictor": predictions.predictor,
        "outside": int((trust["familiarity"] < OUTSIDE).sum()),
        **({"stability": float(trust["holds"].mean())} if seeds else {}),
        "seconds": time.monotonic() - started,
    }
    heat, path_plot = _pictures(explanation, explainer, split)
    with all_or_nothing(folder, replaces=_earlier_names(folder)) as part:
        _write_explanation(part, explanation, trust, predictions)
        explainer.save(part / "model")
        write_tested(part / "model", scores.count, "test rows", _verdict(scores))
        evaluator.save(part / "evaluator")
        (part / "selections.png").write_bytes(png(heat))
        (part / "path.png").write_bytes(png(path_plot))
        page = _page(
            path, folder, target, summary, scores, explainer, split, results,
            picture(heat), picture(path_plot), explanation,
            _rows_section(explanation, predictions, target, seed),
        )  # fmt: skip
        (part / "report.html").write_text(page, encoding="utf-8")
        (part / "results.json").write_text(to_json(results), encoding="utf-8")
    remove_checkpoints(folder)
    return TableResult(results, summary, scores, folder)


def explain_new_rows(
    path: Path,
    model: Path,
    folder: Path,
    *,
    target: str | None = None,
    sparsity: float | None = None,
    device: str = "auto",
    roles: Roles | None = None,
    command: str = "unmasked explain",
) -> TableResult:
    """Explain the rows of a table with a saved explainer; with a target, evaluate them too.

    sparsity : another λ of those that it was trained with, instead of the chosen one.
    """
    choose_device(device)
    model, beside = model_folders(model, folder)
    explainer = RealX.load(model, device=device)
    if not isinstance(explainer.columns_, Columns):
        raise InputError(
            f"{model} was trained on pictures, not on a table; name another model, or explain "
            "pictures with `unmasked explain-images`."
        )
    price = explainer.trained_sparsity(sparsity)
    text = [column.name for column in explainer.columns_.columns if column.as_text]
    roles = roles or Roles()
    table = read_table(path, text=[*text, *([] if roles.id is None else [roles.id])])
    known = [column.name for column in explainer.columns_.columns]
    missing = [name for name in known if name not in table.columns]
    if missing:
        which = "column" if len(missing) == 1 else f"{len(missing):,} columns"
        raise InputError(
            f"the table {path} lacks the {which} {some(missing, 200)} that the model was trained "
            f"on; {nearest(missing[0], list(table.columns))}"
        )
    roles.check(table, target)
    X = roles.features(table, target)[known] if roles.id is not None else table[known]
    if target is not None:
        check_present(table, target)
        if target in known:
            raise InputError(
                f"the column {target!r} is one of the model's features, not its target."
            )
    if target is not None and beside is None:
        raise InputError(
            f"{model} has no saved evaluator beside it, so the rows cannot be evaluated; "
            "leave out --target."
        )
    _check_apart(path, folder)
    prepare_folder(folder, writes=_WRITES)
    tell_of_replacing(folder, command)
    explanation = explainer.explain(X, sparsity=price)
    evaluator = None if beside is None else _evaluator(beside, device, needed=target is not None)
    y = None if target is None else table[target]
    scores = None if evaluator is None or y is None else evaluator.evaluate(explanation, X, y)
    predictions = predict(explainer, evaluator, explanation, X, y, sparsity=price)
    trust = _trust(explainer, explanation, X)
    summary = _new_summary(explanation, scores, explainer, price, model)
    if explainer.reach_ is not None:
        summary.append(_about_outside(trust, "rows"))
    results: dict[str, Any] = {
        **provenance(command),
        "table": path.name,
        "model": said_path(model),
        "summary": summary,
        "rows": new_rows(path.name, explainer, price, explanation, scores),
        "sets": sets_results(explanation),
        "predictor": predictions.predictor,
    }
    heat = plots.heat_map(
        explanation.masks, explanation.feature_names, title="Features shown in each row"
    )
    sections = [
        _rows_section(explanation, predictions, target or "class", 0),
        _sets_section(
            explanation, "What is shown?", [(picture(heat), "Each line is a row of the table.")]
        ),
    ]
    if scores is not None:
        sections.insert(0, Section("How good is it?", table=_score_table(scores)))
    with all_or_nothing(folder, replaces=_earlier_names(folder)) as part:
        _write_explanation(part, explanation, trust, predictions)
        (part / "selections.png").write_bytes(png(heat))
        title = f"Explanations of {path.name}"
        (part / "report.html").write_text(
            render(title, summary, sections, footer(results)), encoding="utf-8"
        )
        (part / "results.json").write_text(to_json(results), encoding="utf-8")
    return TableResult(results, summary, scores, folder)


def _evaluator(folder: Path, device: str, *, needed: bool) -> EvalX | None:
    """The saved evaluator; where it only predicts, nobody has to install what it was saved with."""
    try:
        return EvalX.load(folder, device=device)
    except MissingExtra as error:
        if needed:
            raise
        warnings.warn(
            DataWarning(f"{error} Until then the explainer's own predictor predicts."),
            stacklevel=2,
        )
        return None


def _check_apart(path: Path, folder: Path) -> None:
    """The table itself must not be replaced by one of the results."""
    results = [folder / name for name in _WRITES]
    if any(own.exists() and path.samefile(own) for own in results):
        raise OutputError(
            f"the table {path} has the name of a result that is written to {folder}; choose "
            "another folder with --out."
        )


def _trust(explainer: RealX, explanation: Explanation, X: pd.DataFrame) -> pd.DataFrame:
    """Return a table of each row's familiarity; NaN where an older program saved the model."""
    known = explainer.reach_ is not None
    familiarity = explainer.familiarity(X) if known else np.full(len(X), np.nan)
    return pd.DataFrame({"familiarity": familiarity}, index=explanation.index)


def _about_search(explainer: RealX) -> dict[str, Any]:
    """Return what ``results.json`` says of a search; nothing where none was made."""
    if explainer.choice_ is None:
        return {}
    rounds = [asdict(own) for own in explainer.rounds_]
    return {
        "search": explainer.choice_,
        "dropped": explainer.dropped_,
        "rounds": rounds,
        "per_row": None if explainer.per_row_ is None else asdict(explainer.per_row_),
        "interchangeable": explainer.interchangeable_,
    }


def _about_outside(trust: pd.DataFrame, what: str) -> str:
    outside = int((trust["familiarity"] < OUTSIDE).sum())
    return (
        f"{outside:,} of {len(trust):,} {what} lie outside the rows learned from (a familiarity "
        f"below {OUTSIDE:g}, as {OUTSIDE:.0%} of rows like them have): explanations there are "
        "guesses. rows.csv names them."
    )


def _write_explanation(
    folder: Path, explanation: Explanation, trust: pd.DataFrame, predictions: Predictions
) -> None:
    write_explanations(folder, explanation, predictions)
    write_predictions(folder, explanation, predictions)
    trust.round(4).to_csv(folder / "rows.csv", index_label="row")
    masks = explanation.to_frame().astype(int)
    masks.to_csv(folder / "masks.csv", index_label="row")
    chances = explanation.to_frame("probabilities")
    chances.round(4).to_csv(folder / _CHANCES, index_label="row")
    explanation.save(folder / "explanation.npz")


def _earlier_names(folder: Path) -> list[str]:
    """Name the file that held the chances in earlier versions, if it is here and surely ours."""
    try:
        same = _first_line(folder / _EARLIER_CHANCES) == _first_line(folder / "masks.csv")
    except (OSError, ValueError):
        return []
    return [_EARLIER_CHANCES] if same else []


def _first_line(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        return file.readline()


def _rows(
    path: Path,
    explainer: RealX,
    evaluator: EvalX,
    explanation: Explanation,
    scores: Scores,
    split: TableSplit,
    seed: int,
) -> list[dict[str, Any]]:
    X, y = split.test
    own = {"acc": float(explainer.score(X, y)), "fraction": explanation.fraction}
    rows = [
        {
            "method": "REAL-X",
            "setting": {"sparsity": explainer.sparsity_},
            "metrics": {**own, **scores.figures("explanation")},
            "seconds": {"fit": explainer.seconds_, "fit_evaluator": evaluator.seconds_},
        },
        {
            "method": "random masks",
            "setting": {},
            "metrics": {"fraction": explanation.fraction, **scores.figures("random")},
        },
        {
            "method": "everything shown",
            "setting": {},
            "metrics": {"fraction": 1.0, **scores.figures("everything")},
        },
        {
            "method": "nothing shown",
            "setting": {},
            "metrics": {"fraction": 0.0, **scores.figures("nothing")},
        },
    ]
    return [{"dataset": path.name, "seed": seed, "chosen": True, **row} for row in rows]


def _about_rows(split: TableSplit, roles: Roles) -> list[str]:
    """Say how the rows were divided if that was asked for, and whether rows or a class are few."""
    found = []
    if roles.group is not None:
        found.append(f"Rows with the same {roles.group} are in one part, train or test.")
    if roles.time is not None:
        found.append(f"The rows tested on are the latest by {roles.time}.")
    rows = sum(len(part[0]) for part in (split.train, split.valid, split.test))
    if rows < _FEW_ROWS:
        found.append(
            f"The table has {rows} rows, of which {len(split.test[0])} were tested: with so few, "
            "nothing here is more than a hint."
        )
    (most, largest), *_, (least, smallest) = split.balance.items()
    if smallest < _RARE:
        found.append(
            f"{split.target} = {least} is rare, {smallest:.1%} of the rows: always saying {most} "
            f"would be right in {largest:.1%}, so read AUROC and log-likelihood before ACC."
        )
    return found


def _summary(explanation: Explanation, scores: Scores, target: str, explainer: RealX) -> list[str]:
    """Say what was found, in plain words: what is shown, what it predicts, and what to try next."""
    sizes, features = explanation.sizes, explanation.masks.shape[1]
    everything = scores.rows["everything"]["eacc"].value
    random = scores.rows["random"]["eacc"].value
    rates = explanation.masks.mean(0)
    often = [i for i in np.argsort(-rates, kind="stable")[:3] if rates[i] > 0]
    often = [] if same_for_all(explanation.masks) else often
    names = ", ".join(f"{explanation.feature_names[i]} ({rates[i]:.0%})" for i in often)
    text = [
        f"For each test row REAL-X shows {sizes.mean():.1f} of the {features} features on average "
        f"({explanation.fraction:.0%})" + (f", most often {names}." if names else "."),
        f"From those alone EVAL-X, a model of its own that never saw these selections, predicts "
        f"{target} with accuracy {scores['eacc']}; with everything shown it reaches "
        f"{everything:.3f}, with random features of the same number {random:.3f}.",
        _verdict(scores),
        *sets_sentences(explanation, "test row"),
    ]
    if explainer.choice_ is not None:
        text.append(f"{explainer.decided_} {_CHOICES[explainer.choice_]}")
    if explainer.dropped_:
        text.append(
            f"{len(explainer.dropped_):,} features were dropped before the search, screened out or "
            f"because networks know more without them: {some(explainer.dropped_, 200)}."
        )
    text += interchangeable_sentences(explainer)
    if not explanation.masks.any():
        text.append("Nothing is shown in any row: the price λ is too high for this table.")
    text += edge_sentences(explainer, explanation)
    text += advice(explanation, scores, explainer, target)
    if explainer.interrupted_:
        text.append("Training was interrupted, so these are the results of a shorter run.")
    return text + scores.remarks


def _verdict(scores: Scores) -> str:
    """Is what is shown informative, and does it lose anything? By log-likelihood, paired."""
    lost = scores.rows["everything"]["eloglik"].value - scores["eloglik"].value
    text = over_random(scores, "row", "outcome")
    if lost > 0:
        text += f" What is hidden would have added {lost:.3f} nats a row."
    return text


def _new_summary(
    explanation: Explanation, scores: Scores | None, explainer: RealX, price: float, model: Path
) -> list[str]:
    rows, features = explanation.masks.shape
    text = [
        f"{rows:,} rows explained at λ = {said_price(explainer, price)}; each shows "
        f"{explanation.sizes.mean():.1f} of the {features} features on average.",
        *sets_sentences(explanation, "row"),
        *([] if explainer.choice_ is None else [_CHOICES[explainer.choice_]]),
    ]
    if scores is None:
        text.append("They were not evaluated: that needs the true outcomes (--target).")
        return [*text, *said_when_trained(model, explainer, price)]
    everything = scores.rows["everything"]["eacc"].value
    text.append(
        f"EVAL-X predicts the outcome from what is shown with accuracy {scores['eacc']}; with "
        f"everything shown it reaches {everything:.3f}."
    )
    text += [_verdict(scores), *advice_for_new_rows(scores, explainer, price)]
    return [*text, *scores.remarks]


def _score_table(scores: Scores) -> TableBlock:
    names = list(scores.rows["explanation"])
    header = ["", *(METRICS[name] for name in names)]
    rows = [
        [ROWS[row], *(str(figures[name]) for name in names)] for row, figures in scores.rows.items()
    ]
    return TableBlock(header, rows, frozenset({0}))


def _rows_section(
    explanation: Explanation, predictions: Predictions, target: str, seed: int
) -> Section:
    """Some rows for a person to read, with their values."""
    chosen = choose_examples(predictions, seed)
    return Section(
        "Rows one by one",
        [
            f"What is shown of a row, the most probable first, and how probable each class is from "
            f"that and from everything, by {predictions.predictor}. {rule_text(predictions)}",
        ],
        cards=row_cards(explanation, predictions, chosen, target),
        after=[f"All rows are in {EXPLANATIONS}, all probabilities in {PREDICTIONS}."],
    )


def _sets_section(explanation: Explanation, title: str, pictures: list[tuple[str, str]]) -> Section:
    """Build the report's section on what is shown: the commonest sets of features, and pictures."""
    sets = sets_results(explanation)
    rows = [
        [names_text(found["features"]), f"{found['rows']:,}", f"{found['share']:.0%}"]
        for found in sets["commonest"]
    ]
    more = sets["different"] - len(rows)
    return Section(
        title,
        table=TableBlock(["features shown together", "rows", "share"], rows, long=True),
        pictures=pictures,
        after=[f"{more:,} more sets are shown less often."] if more else [],
    )


def _pictures(explanation: Explanation, explainer: RealX, split: TableSplit) -> tuple[Any, Any]:
    heat = plots.heat_map(
        explanation.masks,
        explanation.feature_names,
        groups=split.test[1].astype(str).to_numpy(),
        title=f"Features shown, test rows sorted by {split.target}",
    )
    points = explainer.path_
    path = plots.sparsity_path(
        points["fraction"].tolist(),
        points["loglik"].tolist(),
        [f"λ = {value:g}" for value in points["sparsity"]],
        explainer.chosen_,
        score_name="log-likelihood on validation rows",
    )
    return heat, path


def _page(
    path: Path,
    folder: Path,
    target: str,
    summary: list[str],
    scores: Scores,
    explainer: RealX,
    split: TableSplit,
    results: dict[str, Any],
    heat: str,
    path_plot: str,
    explanation: Explanation,
    rows_one_by_one: Section,
) -> str:
    counts = pd.concat([split.train[1], split.valid[1], split.test[1]]).value_counts()
    balance = ", ".join(f"{label}: {count:,}" for label, count in counts.items())
    rows = results["split"]
    searched = explainer.choice_ is not None
    micro = " AUROC is the micro AUROC over all classes." if scores.micro else ""
    sections = [
        Section(
            "How good is it?",
            table=_score_table(scores),
            after=[
                f"{scores.count:,} test rows that nothing was trained on; 95% bootstrap intervals; "
                f"log-likelihood in nats.{micro}",
            ],
        ),
        rows_one_by_one,
        _sets_section(
            explanation, "What is shown, and when?", [(heat, "Each line is a test row.")]
        ),
        Section(
            "How much is enough?",
            [f"λ = {explainer.sparsity_:g} was chosen: {explainer.reason_}."],
            pictures=[(path_plot, _PATHS[searched])],
        ),
        Section(
            "How it was done",
            [
                f"{path.name}: {rows['train']:,} rows to train on, {rows['valid']:,} to validate, "
                f"{rows['test']:,} to test. Classes of {target}: {balance}.",
                f"masks.csv holds 1 where a feature is shown, chances.csv {_SAID[searched]}; the "
                "first column of each table is the row's number in yours, from 0, or its id. To "
                "explain new rows with the fitted explainer:",
            ],
            code=f"unmasked explain --model {folder} new_rows.csv\n\n# to repeat this report\n"
            f"{results['command']}",
        ),
    ]
    return render(f"What {target} rests on in {path.name}", summary, sections, footer(results))
