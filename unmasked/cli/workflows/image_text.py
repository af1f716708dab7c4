"""Say what ``explain-images`` found, and note how its pictures were read."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmasked.cli.workflows.advice import FEW, over_random
from unmasked.cli.workflows.saved import new_rows, said_path, said_price
from unmasked.errors import InputError
from unmasked.evaluation import EvalX, Scores
from unmasked.explainers import RealX
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.stored import StoredImages
from unmasked.io.image_files import FITS, Fit
from unmasked.io.image_folder import PictureFolder
from unmasked.io.image_lists import Skipped
from unmasked.io.output_folder import to_json
from unmasked.metrics import Interval

DEFAULT_FIT: Fit = "pad"
_FILE = "pictures.json"
_DIGITS = 16  # of a digest: among a million pictures two meet with a chance of 3 in 10⁸


@dataclass(frozen=True)
class PictureNotes:
    """Notes beside a model of pictures: how these were made square, and which it learned from.

    learned : digests of the pictures that it was trained and validated with; None where an older
        program saved it. unsaid : remarks on what it does not say.
    """

    fit: Fit
    learned: frozenset[str] | None
    unsaid: list[str]

    def seen(self, images: StoredImages) -> NDArray[np.bool_]:
        """Mark the pictures the model learned from, (pictures,); none where that is not known."""
        if self.learned is None:
            return np.zeros(len(images), dtype=bool)
        return np.array([own in self.learned for own in digests(images)])


def write_notes(model: Path, fit: Fit, superpixels: int, learned: StoredImages) -> None:
    notes = {"fit": fit, "superpixels": superpixels, "learned": sorted(set(digests(learned)))}
    (model / _FILE).write_text(to_json(notes), encoding="utf-8")


def read_notes(model: Path, asked: Fit | None) -> PictureNotes:
    """Read what a model says of its pictures; ``asked`` is how new ones are to be made square."""
    path = model / _FILE
    if not path.is_file():
        taken = DEFAULT_FIT if asked is None else asked
        remark = (
            f"{said_path(model)} does not say how its pictures were made square, so --fit {taken} "
            "was taken."
        )
        return PictureNotes(taken, None, [remark])
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fit = content["fit"]
        learned = frozenset(map(str, content["learned"])) if "learned" in content else None
    except (OSError, ValueError, KeyError, TypeError):
        fit, learned = None, None
    if fit not in FITS:
        raise InputError(
            f"{path} must say how the model's pictures were made square but is damaged; train the "
            "model again."
        )
    if asked not in (fit, None):
        raise InputError(
            f"the model's pictures were read with --fit {fit}, so new ones cannot be read with "
            f"--fit {asked}; leave it out."
        )
    return PictureNotes(fit, learned, [])


def digests(images: StoredImages) -> list[str]:
    """A digest of each picture's pixels, the same whether they are stored in 8 bits or in 16."""
    scale = 65535 // images.white  # as `Plan` spreads 8 bits over 16
    return [
        hashlib.sha256((one.astype("<u2") * np.uint16(scale)).tobytes()).hexdigest()[:_DIGITS]
        for block in images.blocks()
        for one in images.whole_numbers(block)
    ]


_MOST_NAMED = 10  # skipped pictures that are printed
_MOST_CLASSES = 6  # that are printed with their counts
_LOOKED_AT = 100  # pictures whose brightest value is looked for
_DARK = 0.25  # of white
_SOME_DARK = 0.1  # of those: more are no accident
_BEYOND_CHANCE = 3.0  # standard errors
_MUCH = 0.2  # of the pictures that are not of the largest class
_COIN = 0.5  # the AUROC of one
_ROUNDING = 1e-9
_TOO_FEW = "are too few to tell the selections from random ones."


def remarks_on(pictures: PictureFolder, group: str | None) -> list[str]:
    text = [*class_sentences(pictures.labels), *skipped_sentences(pictures.skipped)]
    sizes = np.unique(pictures.sizes, axis=0)
    plan = pictures.plan
    if len(sizes) > 1 or sizes[0].tolist() != [plan.size, plan.size]:
        how = (
            "with their proportions kept and black around them"
            if plan.fit == "pad"
            else "cut to squares from the middle"
        )
        text.append(f"Pictures were brought to {plan.size} × {plan.size} pixels, {how}.")
    text += dark_sentences(pictures)
    if pictures.labels is not None:
        text += shape_sentences(pictures.labels, pictures.sizes)
    if group is None:
        text.append(
            "Nothing says whose pictures these are: if somebody has several, they may be in "
            "training and in testing, and the figures are too good; name the column with --group."
        )
    return text


def class_sentences(labels: NDArray[np.str_] | None) -> list[str]:
    """Say how many pictures each class has, and which classes may be one written in two ways."""
    if labels is None:
        return []
    counts = Counter(sorted(map(str, labels))).most_common()
    shown = [f"{count:,} of {name!r}" for name, count in counts[:_MOST_CLASSES]]
    rest = counts[_MOST_CLASSES:]
    if rest:
        others = "another class" if len(rest) == 1 else f"{len(rest):,} other classes"
        shown.append(f"{sum(count for _, count in rest):,} of {others}")
    total = f"{len(labels):,} {'picture' if len(labels) == 1 else 'pictures'}"
    same: dict[Decimal | str, list[str]] = {}
    for name, _ in sorted(counts):
        key: Decimal | str = name.casefold()
        with suppress(InvalidOperation):  # a text
            number = Decimal(name)
            key = key if number.is_nan() else number
        same.setdefault(key, []).append(name)
    return [f"{total}: {', '.join(shown)}."] + [
        f"The labels {', '.join(map(repr, names[:-1]))} and {names[-1]!r} "
        + ("differ in capitals only" if isinstance(key, str) else "are the same number")
        + f" but count as {'two' if len(names) == 2 else len(names)} classes."
        for key, names in same.items()
        if len(names) > 1
    ]


def dark_sentences(pictures: PictureFolder) -> list[str]:
    """A remark where files of 16 bits use the lowest values only, as 12 bits in 16 do.

    8-bit files beside them are spread over the whole range, and say nothing about them.
    """
    images, deep = pictures.images, np.flatnonzero(pictures.deep)
    if not len(deep):
        return []
    looked = deep[np.unique(np.linspace(0, len(deep) - 1, _LOOKED_AT).astype(int))]
    brightest = np.array([images.whole_numbers(np.array([row])).max() for row in looked])
    dark = brightest < _DARK * images.white
    if dark.mean() <= _SOME_DARK:
        return []
    return [
        f"In {dark.sum():,} of {len(looked):,} pictures of 16 bits that were looked at no value is "
        f"above {brightest[dark].max():,} of the {images.white:,} that 16 bits can hold, so that "
        "the networks see them nearly black; if the files hold fewer bits, such as 12, scale them."
    ]


def shape_sentences(labels: NDArray[np.str_], sizes: NDArray[np.int64]) -> list[str]:
    """A remark where the files' height and width name the class, (pictures,) and (pictures, 2).

    Each picture's class is guessed from the others of its size (then: of its proportions), so that
    sizes that come once say nothing. What that gains over always naming the largest class must be
    more than chance would, and a fifth of what there is to gain.
    """
    _, own = np.unique(labels, return_inverse=True)
    largest = int(np.bincount(own).argmax())
    plain = own == largest
    proportions = np.round(np.log2(sizes[:, :1] / sizes[:, 1:]), 2)
    best = max((_guessed(own, shapes) for shapes in (sizes, proportions)), key=np.sum)
    gained, lost = int((best & ~plain).sum()), int((plain & ~best).sum())
    more = gained - lost
    if more <= _BEYOND_CHANCE * np.sqrt(gained + lost) or more < _MUCH * (~plain).sum():
        return []
    return [
        f"The height and width of a file alone name the class of {best.sum():,} of {len(own):,} "
        f"pictures, where the largest class has {plain.sum():,}: the networks may learn borders, "
        "cuts or sharpness that come from it rather than what is to be seen; bring all files to "
        "one shape."
    ]


def _guessed(own: NDArray[np.int64], shapes: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the pictures of whose class most others of their shape are, (pictures,) bool."""
    _, shape = np.unique(shapes, axis=0, return_inverse=True)
    overall = np.bincount(own)
    counts = np.zeros((shape.max() + 1, len(overall)), np.int64)
    np.add.at(counts, (shape.ravel(), own), 1)
    others = counts[shape.ravel()]
    others[np.arange(len(own)), own] -= 1
    # ties, and shapes that come once, go to the class that is larger in all
    rank = others.astype(np.float64) + (overall / (len(own) + 1.0)) * 0.5
    found: NDArray[np.bool_] = rank.argmax(1) == own
    return found


def skipped_sentences(skipped: Sequence[Skipped]) -> list[str]:
    text = [str(one) for one in skipped[:_MOST_NAMED]]
    more = len(skipped) - _MOST_NAMED
    if more > 0:
        what = "picture was" if more == 1 else "pictures were"
        text.append(f"{more:,} more {what} skipped; results.json lists them all.")
    return text


def summary_of(
    explanation: Explanation, scores: Scores, explainer: RealX, verdict: str
) -> list[str]:
    """Say what was found, in plain words: what is shown, what it tells, what each price buys."""
    features = explanation.masks.shape[1]
    rows = scores.rows
    blind = blind_sentences(scores, explainer)
    text = [
        *blind,
        f"For each test picture REAL-X shows {explanation.sizes.mean():.1f} of the {features} "
        f"superpixels on average ({explanation.fraction:.0%}), at λ = {explainer.sparsity_:g}.",
        "From those alone EVAL-X, a model of its own that never saw these selections, tells the "
        f"classes with AUROC {scores['eauroc']} and accuracy {scores['eacc']}; from everything "
        f"with {_figures(rows['everything'])}, from random superpixels of the same number with "
        f"{_figures(rows['random'])}.",
        verdict,
    ]
    if len(explainer.path_) > 1:
        text.append(_path(explainer))
    if not explanation.masks.any():
        why = "" if blind else ": the price λ is too high for these"
        text.append(f"Nothing is shown in any picture{why}.")
    if explainer.interrupted_:
        text.append("Training was interrupted, so these are the results of a shorter run.")
    return text + scores.remarks


def blind_sentences(scores: Scores, explainer: RealX) -> list[str]:
    """A sentence where not even whole pictures tell the classes: selections then cannot either."""
    chance = 1 / len(explainer.classes_)
    full = explainer.full_accuracy_
    reasons = _blind_evaluator(scores) if scores.count >= FEW else []
    at_chance = full is not None and full <= chance + _ROUNDING
    if at_chance:
        reasons.append(
            f"the balanced accuracy of the full model on validation pictures is {full:.3f}, chance "
            f"being {chance:.3f}"
        )
    if not reasons:
        return []
    if at_chance:
        so = ", so there is nothing yet that selections could be right about"
    else:  # the model that sees everything learned something, but these pictures do not show it
        so = ", so figures of selections mean little here"
    return [
        f"The classes could not be told even from whole pictures ({'; '.join(reasons)}){so}: give "
        "more pictures, train longer (--epochs), or check the labels."
    ]


def _blind_evaluator(scores: Scores) -> list[str]:
    """Say what shows that EVAL-X learned nothing; the micro AUROC of several classes is no measure.

    It is above a half for whoever knows how frequent they are.
    """
    everything, nothing = scores.rows["everything"], scores.rows["nothing"]
    area, told = everything["eauroc"], everything["eloglik"].value
    if scores.micro and told <= nothing["eloglik"].value:
        return [
            f"EVAL-X's log-likelihood from everything is {told:.3f}, from nothing "
            f"{nothing['eloglik'].value:.3f}"
        ]
    if not scores.micro and area.low <= _COIN:
        return [f"EVAL-X's AUROC from everything is {area}, which does not exclude 0.5"]
    return []


def _path(explainer: RealX) -> str:
    """Say what each price buys on validation pictures, so that nobody need train again to know."""
    bought = "; ".join(
        f"λ = {one.sparsity:g} shows {one.fraction:.1%} of a picture with "
        f"{one.balanced_accuracy:.3f}"
        for one in explainer.path_.itertuples()
    )
    return (
        f"λ = {explainer.sparsity_:g} was chosen: {explainer.reason_}. (The full model always sees "
        "everything; balanced accuracy is the mean over the classes.) On validation pictures "
        f"{bought}. To see another: --model and --sparsity."
    )


def _figures(row: dict[str, Interval]) -> str:
    """AUROC, which needs pictures of two classes, and accuracy."""
    area, accuracy = row["eauroc"].value, row["eacc"].value
    return f"{'–' if np.isnan(area) else f'{area:.3f}'} and {accuracy:.3f}"


def verdict_on(scores: Scores, groups: NDArray[np.str_] | None) -> str:
    """Say whether selections beat random ones, unless pictures or ``groups`` are too few."""
    own = scores.count if groups is None else len(np.unique(groups))
    if own < FEW:
        return (
            f"Fewer than {FEW} {'pictures' if groups is None else 'groups'} with labels {_TOO_FEW}"
        )
    return over_random(scores, "picture", "label")


def undecided(scores: Scores | None, verdict: str) -> bool:
    """Return True if these pictures say nothing of the selections, so that the model's own must."""
    return scores is None or verdict.endswith(_TOO_FEW)


def summary_of_new(
    explanation: Explanation,
    scores: Scores | None,
    explainer: RealX,
    price: float,
    verdict: str,
    *,
    labelled: bool,
) -> list[str]:
    """Say what was found in new pictures; no scores if all ``labelled`` ones were learned from."""
    rows, features = explanation.masks.shape
    text = [
        f"{rows:,} {'picture' if rows == 1 else 'pictures'} explained at λ = "
        f"{said_price(explainer, price)}; each shows {explanation.sizes.mean():.1f} of the "
        f"{features} superpixels on average."
    ]
    if scores is None:
        why = (
            "the model learned from all of them, so figures would flatter it"
            if labelled
            else "that needs their true labels (--labels)"
        )
        return [*text, f"They were not evaluated: {why}."]
    text.append(
        f"EVAL-X tells the classes from what is shown with AUROC {scores['eauroc']} and accuracy "
        f"{scores['eacc']}; from everything with {_figures(scores.rows['everything'])}."
    )
    if scores.count >= FEW and (reasons := _blind_evaluator(scores)):
        text.append(
            f"The classes could not be told even from whole pictures ({'; '.join(reasons)}): these "
            "may differ from what the model learned from, or their labels may be wrong."
        )
    return [*text, verdict, *scores.remarks]


def learned_sentences(seen: NDArray[np.bool_], scores: Scores | None, *, known: bool) -> list[str]:
    """Say how many of the pictures the model learned from: figures on those would flatter it."""
    if not known:
        return [
            "This model does not say which pictures it learned from: if these are among them, the "
            "figures are too good."
        ] * (scores is not None)
    count, total = int(seen.sum()), len(seen)
    if not count:
        return []
    which = f"{count:,} of {total:,} pictures" if count < total else f"All {total:,} pictures"
    left_out = "" if scores is None else " and are left out of the figures"
    return [f"{which} are among those that the model learned from{left_out}."]


def result_rows(
    dataset: str,
    explainer: RealX,
    evaluator: EvalX,
    explanation: Explanation,
    scores: Scores,
    test: tuple[Any, Any],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of ``results.json`` after training, of REAL-X and what it is compared with."""
    rows = new_rows(dataset, explainer, explainer.sparsity_, explanation, scores)
    rows = [{**row, "seed": seed} for row in rows]
    rows[0]["metrics"]["acc"] = float(explainer.score(*test))
    rows[0]["seconds"] = {"fit": explainer.seconds_, "fit_evaluator": evaluator.seconds_}
    return rows
