"""The main job for people with pictures: train, explain, evaluate, draw; or explain new ones."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unmasked.cli.workflows.advice import said_when_trained, write_tested
from unmasked.cli.workflows.image_checks import (
    CACHE,
    WRITES,
    check_apart,
    check_no_columns,
    checked_networks,
    default_superpixels,
    default_training,
)
from unmasked.cli.workflows.image_files import (
    STUDY_CASES,
    Explained,
    write_all,
    write_page,
    write_study,
)
from unmasked.cli.workflows.image_text import (
    DEFAULT_FIT,
    blind_sentences,
    class_sentences,
    dark_sentences,
    learned_sentences,
    read_notes,
    remarks_on,
    result_rows,
    skipped_sentences,
    summary_of,
    summary_of_new,
    undecided,
    verdict_on,
    write_notes,
)
from unmasked.cli.workflows.saved import (
    fitted_whole,
    model_folders,
    new_rows,
    said_path,
    tell_of_other_training,
)
from unmasked.errors import InputError, OutputError
from unmasked.evaluation import EvalX, Scores
from unmasked.explainers import RealX
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.images import Pixels
from unmasked.io.image_files import Fit
from unmasked.io.image_folder import (
    FoundPictures,
    PictureFolder,
    find_pictures,
    read_pictures,
    split_pictures,
)
from unmasked.io.image_lists import Skipped, readable
from unmasked.io.output_folder import (
    MODELS,
    all_or_nothing,
    checkpoint_folder,
    prepare_folder,
    provenance,
    remove_checkpoints,
    to_json,
)
from unmasked.io.page import footer
from unmasked.masks.superpixels import Superpixels
from unmasked.training.device import choose_device
from unmasked.training.progress import Show

PRICES = (0.1, 0.3, 1.0)
"""λ that ``--sparsity auto`` tries. The price is of a whole picture, so it needs no scaling."""
_AT_ONCE = 64  # pictures that networks are run on; bounds memory
_KEPT = re.compile(r"pictures-\d+-[0-9a-f]{16}\.(npy|json|lock|part|part\.json)(\.\d+)?")


@dataclass(frozen=True)
class Reading:
    """Options for reading pictures and labels; see `find_pictures`.

    fit : None is "pad", beside a saved model what the model's pictures were read with.
    """

    size: int = 128
    fit: Fit | None = None
    grey: bool = False
    image_column: str | None = None
    label_column: str | None = None
    group: str | None = None
    cache: Path | None = None

    def find(
        self,
        folder: Path,
        labels: Path | None,
        show: Show,
        *,
        channels: Literal[1, 3] | None = None,
        training: bool = True,
    ) -> FoundPictures:
        return find_pictures(
            folder,
            labels,
            size=self.size,
            fit=DEFAULT_FIT if self.fit is None else self.fit,
            channels=channels or (1 if self.grey else None),
            image_column=self.image_column,
            label_column=self.label_column,
            group=self.group,
            training=training,
            progress=show,
        )


@dataclass(frozen=True)
class ImagesResult:
    """Findings on pictures and their folder; ``results`` is the content of ``results.json``."""

    results: dict[str, Any]
    summary: list[str]
    scores: Scores | None
    folder: Path


def explain_folder(
    folder: Path,
    labels: Path,
    out: Path,
    *,
    reading: Reading | None = None,
    superpixels: int | None = None,
    sparsity: float | Sequence[float] | str = "auto",
    network: str = "auto",
    epochs: int | None = None,
    seed: int = 0,
    device: str = "auto",
    show: Show = "auto",
    command: str = "unmasked explain-images",
) -> ImagesResult:
    """Split a folder of labelled pictures, train REAL-X and EVAL-X, explain the test pictures.

    superpixels : cells along a side; by default as many as suit the networks.
    """
    started = time.monotonic()
    name = readable(folder.resolve().name)
    reading = reading or Reading()
    gpu = choose_device(device).type != "cpu"
    if superpixels is None:
        superpixels = default_superpixels(network)
    fit = DEFAULT_FIT if reading.fit is None else reading.fit
    parts = checked_networks(reading.size, fit, superpixels, sparsity, network, gpu=gpu)
    check_apart(folder, out, labels, reading.cache)
    found = reading.find(folder, labels, show)
    listing = found.listing
    assert listing.labels is not None
    groups = None if listing.groups is None else np.array(listing.groups)
    split_pictures(np.array(listing.labels), groups, seed=seed)  # refused before anything is done
    pictures = _read(found, out, reading, show)
    assert pictures.labels is not None
    split = split_pictures(pictures.labels, pictures.groups, seed=seed)
    train, valid, test = (
        (pictures.images.take(split[part]), pictures.labels[split[part]])
        for part in ("train", "valid", "test")
    )
    training = default_training(len(split["train"]), epochs, parts, reading.size)
    checkpoint = checkpoint_folder(
        out,
        pictures.file.name,
        _said(pictures),
        sparsity=sparsity,
        superpixels=superpixels,
        network=network,
        seed=seed,
        training=training,
        device=device,
    )
    tell_of_other_training(out, checkpoint)
    options: dict[str, Any] = {
        "predictor": parts.predictor,
        "masker": Superpixels(superpixels),
        "training": training,
        "batch_size": _AT_ONCE,
        "device": device,
        "progress": show,
        "random_state": seed,
        "checkpoint": checkpoint,
    }
    prices = list(PRICES) if isinstance(sparsity, str) else sparsity
    explainer = RealX(
        prices, choose="balanced", selector=parts.selector, predictor_first=True, **options
    )
    explainer.fit(*train, validation=valid)
    judges = replace(  # EVAL-X has every mask to learn, as the predictor
        training,
        epochs=training.predictor_epochs,
        validate_every=parts.practice * training.validate_every,
    )
    evaluator = EvalX(**{**options, "training": judges})
    fitted_whole(evaluator, *train, validation=valid)
    explanation = explainer.explain(test[0])
    together = None if pictures.groups is None else pictures.groups[split["test"]]
    scores = evaluator.evaluate(explanation, *test, groups=together)
    explained = _explained(pictures, split["test"], explanation, evaluator)
    verdict = verdict_on(scores, together)
    summary = summary_of(explanation, scores, explainer, verdict)
    remarks = remarks_on(pictures, reading.group)
    results = {
        **provenance(command),
        "folder": name,
        "labels": readable(labels.name),
        "classes": [str(label) for label in explainer.classes_],
        **_about(pictures, reading),
        "split": {part: len(rows) for part, rows in split.items()},
        "network": parts.name,
        "passes": {"selector": training.epochs, "predictor": training.predictor_epochs},
        "summary": summary,
        "path": explainer.path_.to_dict("records"),
        "choice": explainer.reason_,
        "rows": result_rows(name, explainer, evaluator, explanation, scores, test, seed),
        "over_random": _gains(scores),
        "remarks": [*remarks, *scores.remarks],
        "skipped": [asdict(one) for one in pictures.skipped],
        "seconds": time.monotonic() - started,
    }
    with all_or_nothing(out) as part:
        _write(
            part,
            explained,
            results,
            f"What the labels of {name} rest on",
            summary + remarks,
            seed,
            show,
        )
        explainer.save(part / "model")
        learned = np.concatenate([split["train"], split["valid"]])
        write_notes(part / "model", pictures.plan.fit, superpixels, pictures.images.take(learned))
        found_then = " ".join([*blind_sentences(scores, explainer), verdict])
        write_tested(part / "model", len(explanation), "test pictures", found_then)
        evaluator.save(part / "evaluator")
    remove_checkpoints(out)
    _forget_others(pictures, reading)
    return ImagesResult(results, summary + remarks, scores, out)


def explain_new_pictures(
    folder: Path,
    model: Path,
    out: Path,
    *,
    labels: Path | None = None,
    sparsity: float | None = None,
    reading: Reading | None = None,
    seed: int = 0,
    device: str = "auto",
    show: Show = "auto",
    command: str = "unmasked explain-images",
) -> ImagesResult:
    """Explain a folder with a saved explainer; with labels, evaluate too.

    sparsity : another λ of those that it was trained with, instead of the chosen one.
    """
    started = time.monotonic()
    name = readable(folder.resolve().name)
    reading = reading or Reading()
    choose_device(device)
    if labels is None:
        check_no_columns(
            image_column=reading.image_column,
            label_column=reading.label_column,
            group=reading.group,
        )
    model, beside = model_folders(model, out)
    check_apart(folder, out, labels, reading.cache)
    explainer = RealX.load(model, device=device)
    if not isinstance(explainer.columns_, Pixels):
        raise InputError(f"{model} was trained on a table, not on pictures; name another model.")
    price = explainer.trained_sparsity(sparsity)
    channels, size, _ = explainer.columns_.shape
    assert channels in (1, 3)
    notes = read_notes(model, reading.fit)
    reading = replace(reading, size=size, fit=notes.fit, grey=False)
    if labels is not None and beside is None:
        raise InputError(
            f"{model} has no saved evaluator beside it, so the pictures cannot be evaluated; "
            "leave out --labels."
        )
    evaluator = None if beside is None else EvalX.load(beside, device=device)
    found = reading.find(folder, labels, show, channels=3 if channels == 3 else 1, training=False)
    if labels is not None:
        found = _of_known_classes(found, [str(label) for label in explainer.classes_], labels)
    pictures = _read(found, out, reading, show, training=False)
    explanation = explainer.explain(pictures.images, sparsity=price)
    seen = notes.seen(pictures.images)
    scores, verdict = None, ""
    judged = np.flatnonzero(~seen)
    if evaluator is not None and pictures.labels is not None and len(judged):
        together = None if pictures.groups is None else pictures.groups[judged]
        scores = evaluator.evaluate(
            explanation[judged],
            pictures.images.take(judged),
            pictures.labels[judged],
            groups=together,
        )
        verdict = verdict_on(scores, together)
    rows = np.arange(len(pictures.names))
    explained = _explained(pictures, rows, explanation, evaluator, list(explainer.classes_))
    explained = replace(explained, learned=None if notes.learned is None else seen)
    summary = [
        *summary_of_new(
            explanation, scores, explainer, price, verdict, labelled=labels is not None
        ),
        *(said_when_trained(model, explainer, price) if undecided(scores, verdict) else []),
    ]
    remarks = [
        *learned_sentences(seen, scores, known=notes.learned is not None),
        *class_sentences(pictures.labels),
        *skipped_sentences(pictures.skipped),
        *dark_sentences(pictures),
        *notes.unsaid,
    ]
    results: dict[str, Any] = {
        **provenance(command),
        "folder": name,
        "model": said_path(model),
        "classes": [str(label) for label in explainer.classes_],
        **_about(pictures, reading),
        "summary": summary,
        "rows": new_rows(
            name, explainer, price, explanation if scores is None else explanation[judged], scores
        ),
        **({} if scores is None else {"over_random": _gains(scores)}),
        "learned_from": None if notes.learned is None else int(seen.sum()),
        "remarks": remarks + ([] if scores is None else scores.remarks),
        "skipped": [asdict(one) for one in pictures.skipped],
        "seconds": time.monotonic() - started,
    }
    with all_or_nothing(out) as part:
        title = f"Explanations of {name}"
        _write(part, explained, results, title, summary + remarks, seed, show)
    _forget_others(pictures, reading)
    return ImagesResult(results, summary + remarks, scores, out)


# ---------------------------------------------------------------------- before the work


def _of_known_classes(found: FoundPictures, classes: Sequence[str], labels: Path) -> FoundPictures:
    """The pictures whose labels a model knows; the others are skipped, unless all are."""
    known = ", ".join(sorted(classes))
    listing = found.listing
    assert listing.labels is not None
    good = [row for row, own in enumerate(listing.labels) if own in classes]
    if not good:
        raise InputError(
            f"labels must be the classes that the model knows, {known}, but {labels} has "
            f"{listing.labels[0]!r}; correct it or leave out --labels."
        )
    kept = listing.keep(good)
    kept.skipped += [
        Skipped(name, f"has the label {own!r}, which the model does not know (it knows {known})")
        for name, own in zip(listing.names, listing.labels, strict=True)
        if own not in classes
    ]
    return replace(found, listing=kept, looks=[found.looks[row] for row in good])


def _read(
    found: FoundPictures, out: Path, reading: Reading, show: Show, *, training: bool = True
) -> PictureFolder:
    """Read the pictures into the cache; where they are refused after all, nothing is left."""
    fresh = not out.exists()
    prepare_folder(out, MODELS if training else None, WRITES)
    cache = out / CACHE if reading.cache is None else reading.cache
    try:
        return read_pictures(found, cache, training=training, progress=show)
    except InputError:
        if fresh:
            shutil.rmtree(out, ignore_errors=True)
        raise
    except OutputError:
        if fresh:
            with suppress(OSError):  # what was read stays: the next run goes on behind it
                out.rmdir()
        raise


def _forget_others(pictures: PictureFolder, reading: Reading) -> None:
    """Remove what earlier runs left in the output folder's cache; one of the user's own stays."""
    if reading.cache is None:
        for path in pictures.file.parent.glob("pictures-*"):
            if _KEPT.fullmatch(path.name) and path.stem != pictures.file.stem:
                path.unlink(missing_ok=True)


def _said(pictures: PictureFolder) -> bytes:
    """Everything that the table says about the pictures, for a digest."""
    said = [pictures.names.tolist(), pictures.labels, pictures.groups]
    plain = [None if part is None else list(map(str, part)) for part in said]
    return hashlib.sha256(json.dumps(plain).encode()).digest()


# ---------------------------------------------------------------------- what is said and written


def _explained(
    pictures: PictureFolder,
    rows: NDArray[np.int64],
    explanation: Explanation,
    evaluator: EvalX | None,
    classes: Sequence[Any] = (),
) -> Explained:
    if evaluator is None:
        return Explained(pictures, rows, explanation, np.array(classes), None, None)
    images = pictures.images.take(rows)
    return Explained(
        pictures,
        rows,
        explanation,
        evaluator.classes_,
        evaluator.predict_proba(images, explanation.masks),
        evaluator.predict_proba(images),
    )


def _write(
    part: Path,
    explained: Explained,
    results: dict[str, Any],
    title: str,
    lead: list[str],
    seed: int,
    show: Show,
) -> None:
    write_all(part, explained, show)
    results["study_cases"] = write_study(part, explained, most=STUDY_CASES, seed=seed)
    write_page(part, explained, title, [*lead, "Orange marks what is shown."], footer(results))
    (part / "results.json").write_text(to_json(results), encoding="utf-8")


def _gains(scores: Scores) -> dict[str, Any]:
    return {name: value.to_json() for name, value in scores.over_random.items()}


def _about(pictures: PictureFolder, reading: Reading) -> dict[str, Any]:
    plan = pictures.plan
    return {
        "pictures": {
            "used": len(pictures.names),
            "skipped": len(pictures.skipped),
            "size": plan.size,
            "channels": plan.channels,
            "bits": 16 if plan.deep else 8,
            "fit": plan.fit,
            "group": reading.group,
        }
    }
