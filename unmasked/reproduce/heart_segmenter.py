"""A small network that finds hearts and lungs on chest X-rays, and how well it does.

It learns from films with masks and is used on films of another source, so its scores on held-out
films of its own sources are an upper bound. Trained on one source and tested on another, it shows
what to expect: see results/hearts.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, interpolate

from unmasked.datasets import HeartMasks
from unmasked.errors import InputError
from unmasked.explainers.saving import load_weights, read_folder, weights_of, write_folder
from unmasked.networks.images import UNet
from unmasked.networks.tables import build
from unmasked.reproduce.heart_augment import CHANNELS, dressed, moved, shown_of, to_size
from unmasked.reproduce.heart_measures import largest_pieces, overlap
from unmasked.shapes import Float
from unmasked.training import checkpoint
from unmasked.training.device import choose_device, fast_products
from unmasked.training.noise import generator
from unmasked.training.progress import Bar, Show

ORGANS = ("heart", "lungs")
"""The masks that a segmenter learns, in this order."""

_AT_ONCE = 64  # films segmented at the same time


@dataclass(frozen=True)
class Schooling:
    """Settings for the training of a segmenter.

    size : films are shrunk to size × size pixels, and probabilities enlarged again.
    """

    epochs: int = 30
    batch: int = 16
    rate: float = 4e-3
    decay: float = 0.02
    size: int = 64
    widths: tuple[int, ...] = (8, 16, 32, 64)


class Anatomy(NamedTuple):
    """Outlines on films: heart, lungs (films, height, width) bool.

    The heart is one piece without holes, the lungs at most two; a film may have none.
    """

    heart: NDArray[np.bool_]
    lungs: NDArray[np.bool_]


class Segmenter:
    """Finds hearts and lungs; made by `fit_segmenter` or `load`.

    scores : on held-out films of each source, see `scores_on`. about : how many films of which
    sources it learned from, its seed, and how long that took.
    """

    def __init__(
        self,
        network: nn.Module,
        schooling: Schooling,
        scores: dict[str, dict[str, float]],
        about: dict[str, Any],
    ) -> None:
        self.network, self.schooling = network.eval(), schooling
        self.scores, self.about = scores, about

    def probabilities(self, x: ArrayLike, *, device: str = "auto") -> NDArray[np.float32]:
        """P(heart) and P(lung) for each pixel: films (n, 1, h, w) from 0 to 1 -> (n, 2, h, w)."""
        films = check_films(x)
        where = choose_device(device)
        network = self.network.to(where)
        found = np.empty((len(films), len(ORGANS), *films.shape[2:]), np.float32)
        with torch.inference_mode(), fast_products(where):
            for start in range(0, len(films), _AT_ONCE):
                here = slice(start, start + _AT_ONCE)
                small = to_size(torch.from_numpy(films[here]).to(where), self.schooling.size)
                logits = interpolate(
                    network(shown_of(small)), size=films.shape[2:], mode="bilinear"
                )
                found[here] = torch.sigmoid(logits).cpu().numpy()
        return found

    def hearts(self, x: ArrayLike, *, device: str = "auto") -> NDArray[np.float32]:
        """P(heart) for each pixel: films (n, 1, h, w) from 0 to 1 -> (n, h, w)."""
        return self.probabilities(x, device=device)[:, 0]

    def anatomy(self, x: ArrayLike, *, device: str = "auto") -> Anatomy:
        """Outlines on films (n, 1, h, w) from 0 to 1: where P > ½, without specks and holes."""
        found = self.probabilities(x, device=device) > 0.5
        return Anatomy(largest_pieces(found[:, 0], 1), largest_pieces(found[:, 1], 2))

    def save(self, folder: str | Path) -> None:
        """Write config.json and weights.safetensors."""
        config = {
            "kind": type(self).__name__,
            "schooling": asdict(self.schooling),
            "scores": self.scores,
            "about": self.about,
        }
        write_folder(Path(folder), config, weights_of(self.network, "network"))

    @classmethod
    def load(cls, folder: str | Path) -> Segmenter:
        """Read what `save` wrote."""
        config, tensors = read_folder(Path(folder), cls.__name__)
        values = config["schooling"]
        schooling = Schooling(**{**values, "widths": tuple(values["widths"])})
        network = load_weights(_network(schooling, 0), tensors, "network")
        return cls(network, schooling, config["scores"], config["about"])


def fit_segmenter(
    films: HeartMasks,
    *,
    seed: int = 0,
    epochs: int | None = None,
    held_out: float = 0.2,
    schooling: Schooling | None = None,
    device: str = "auto",
    show: Show = "auto",
    folder: Path | None = None,
) -> Segmenter:
    """Train a segmenter on films with masks; score it on films that it did not see.

    AdamW with a one-cycle rate; the loss is the cross-entropy of each pixel plus 1 − soft Dice of
    each mask. Every film is drawn with another look, place and size each time (see heartlooks).

    held_out : share of the films of each source to score on, at least one of each; 0: none.
    epochs : instead of the schooling's.
    folder : where the training is kept after each epoch, to go on with if it is stopped.
    """
    schooling = schooling or Schooling()
    if epochs is not None:
        schooling = replace(schooling, epochs=epochs)
    _check(films, schooling, held_out)
    started = time.monotonic()
    where = choose_device(device)
    learn, test = _split(films.source, held_out, seed)
    x = to_size(torch.from_numpy(films.x[learn]).to(where), schooling.size)
    masks = torch.from_numpy(np.stack([films.heart[learn], films.lungs[learn]], 1)).to(where)
    masks = to_size(masks.to(x.dtype), schooling.size)  # (films, organs, size, size)
    network = _network(schooling, seed).to(where).train()
    kept = None
    if folder is not None:
        run = checkpoint.fingerprint(f"{schooling} {seed} {where.type}", [x, masks])
        kept = _Kept(folder / f"heart segmenter {run[:12]}.safetensors", run)
    before = _train(network, x, masks, schooling, seed, show, kept)
    about = {
        "films": len(learn),
        "sources": sorted(set(films.source[learn].tolist())),
        "seed": seed,
        "seconds": before + time.monotonic() - started,
    }
    segmenter = Segmenter(network, schooling, {}, about)
    for source in sorted(set(films.source[test].tolist())):
        rows = test[films.source[test] == source]
        segmenter.scores[source] = scores_on(segmenter, films, rows, device=device)
    return segmenter


def scores_on(
    segmenter: Segmenter, films: HeartMasks, rows: NDArray[np.int64], *, device: str = "auto"
) -> dict[str, float]:
    """Means of `overlap` over some of the films, for the heart and, as "lungs_…", the lungs.

    missed : on how many no heart was found; these have Dice 0 and no distance.
    """
    found = segmenter.anatomy(films.x[rows], device=device)
    result: dict[str, float] = {"films": len(rows)}
    for start, region, true in (
        ("", found.heart, films.heart[rows]),
        ("lungs_", found.lungs, films.lungs[rows]),
    ):
        for name, values in overlap(region, true).items():
            known = values[np.isfinite(values)]
            if len(known):
                result[start + name] = float(known.mean())
    result["missed"] = int((~found.heart.any((1, 2))).sum())
    return result


def _split(
    source: NDArray[np.str_], held_out: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Films to learn from and films to score on, the same share of each source."""
    random, learn, test = np.random.default_rng(seed), [], []
    for name in sorted(set(source.tolist())):
        rows = random.permutation(np.flatnonzero(source == name))
        cut = max(1, round(held_out * len(rows))) if held_out else 0
        test.append(rows[:cut])
        learn.append(rows[cut:])
    return np.sort(np.concatenate(learn)), np.sort(np.concatenate(test))


def check_films(x: ArrayLike) -> NDArray[np.float32]:
    """Films (n, 1, h, w) from 0 to 1, or one sentence."""
    films = np.asarray(x)
    if films.ndim != 4 or films.shape[1] != 1 or not films.size or films.dtype.kind not in "fiub":
        raise InputError(
            "films must be an array (films, 1, height, width) of numbers but have shape "
            f"{films.shape} and type {films.dtype}; give grey films, one channel each."
        )
    films = np.ascontiguousarray(films, np.float32)
    low, high = float(films.min()), float(films.max())
    if not (low >= 0 and high <= 1):  # NaN fails too
        raise InputError(
            f"films must be from 0 (black) to 1 (white) but are from {low:g} to {high:g}; scale "
            "them first."
        )
    return films


def _check(films: HeartMasks, schooling: Schooling, held_out: float) -> None:
    check_films(films.x)
    if not 0 <= held_out < 1:
        raise InputError(f"held_out must be a share from 0 to below 1 but is {held_out!r}.")
    learn, _ = _split(films.source, held_out, 0)
    if len(learn) < 2:
        raise InputError(
            f"at least 2 films must be left to learn from but of {len(films.x)} there are "
            f"{len(learn)}; give more films or hold out less."
        )
    if schooling.epochs < 1 or schooling.batch < 1 or schooling.size < 8:
        raise InputError(
            "a segmenter needs at least 1 epoch, batches of at least 1 film and films of at least "
            f"8 × 8 pixels, but came {schooling}."
        )


def _network(schooling: Schooling, seed: int) -> nn.Module:
    """A UNet with one logit for each pixel and organ."""

    def made(inputs: int, outputs: int) -> nn.Module:
        module = UNet(schooling.widths)((inputs, schooling.size, schooling.size), 1)
        module.last = nn.Conv2d(schooling.widths[0], outputs, 1)
        return module

    network = build(made, CHANNELS, len(ORGANS), seed)
    for weights in network.parameters():
        if weights.ndim == 4:  # as heartlooks.shown_of has it
            weights.data = weights.data.contiguous(memory_format=torch.channels_last)
    return network


class _Kept(NamedTuple):
    """A training on disk; a training that goes on from it ends with the same segmenter."""

    path: Path
    run: str

    def write(
        self,
        epoch: int,
        seconds: float,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        cycle: torch.optim.lr_scheduler.LRScheduler,
    ) -> None:
        """Keep what ``epoch`` epochs have made."""
        state = optimiser.state_dict()
        tensors = dict(network.state_dict(prefix="network."))
        for number, moments in state["state"].items():
            tensors |= {f"moments.{number}.{name}": value for name, value in moments.items()}
        values = {
            "epoch": epoch,
            "seconds": seconds,
            "groups": state["param_groups"],
            "cycle": cycle.state_dict(),
        }
        checkpoint.write(self.path, self.run, values, tensors)

    def read(
        self,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        cycle: torch.optim.lr_scheduler.LRScheduler,
    ) -> tuple[int, float]:
        """Put back what was kept; how many epochs and seconds that were, none where nothing was."""
        found = checkpoint.read(self.path, self.run)
        if found is None:
            return 0, 0.0
        values, tensors = found
        load_weights(network, tensors, "network").train()
        state: dict[int, dict[str, Tensor]] = {}
        for number, weights in enumerate(network.parameters()):
            start = f"moments.{number}."
            for name in (name for name in tensors if name.startswith(start)):
                value = tensors[name]
                if value.ndim:  # laid out as the weights are, so that sums are rounded alike
                    value = torch.empty_like(weights.detach()).copy_(value)
                state.setdefault(number, {})[name.removeprefix(start)] = value
        optimiser.load_state_dict({"state": state, "param_groups": values["groups"]})
        cycle.load_state_dict(values["cycle"])
        return values["epoch"], values["seconds"]


def _train(
    network: nn.Module,
    x: Tensor,
    masks: Tensor,
    schooling: Schooling,
    seed: int,
    show: Show,
    kept: _Kept | None,
) -> float:
    """All epochs; x (films, 1, s, s), masks (films, organs, s, s). Seconds of an earlier run."""
    count, batch = len(x), min(schooling.batch, len(x))
    steps = count // batch  # films left over have their turn in another epoch
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=schooling.rate, weight_decay=schooling.decay
    )
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, schooling.rate, total_steps=schooling.epochs * steps, pct_start=0.2
    )
    title, started = "heart segmenter", time.monotonic()
    first, before = (0, 0.0) if kept is None else kept.read(network, optimiser, cycle)
    with Bar(title, schooling.epochs, show) as bar, fast_products(x.device):
        bar.update(first)
        for epoch in range(first, schooling.epochs):
            noise = generator(x.device, seed, title, epoch)
            order = torch.randperm(count, generator=noise, device=x.device)
            total = x.new_zeros(())
            for step in range(steps):
                rows = order[step * batch : (step + 1) * batch]
                film, mask = moved(x[rows], masks[rows], noise)
                loss = _loss(
                    network(
                        shown_of(dressed(film, noise)).contiguous(memory_format=torch.channels_last)
                    ),
                    mask,
                )
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimiser.step()
                cycle.step()
                total += loss.detach()
            if kept is not None:
                seconds = before + time.monotonic() - started
                kept.write(epoch + 1, seconds, network, optimiser, cycle)
            bar.update(epoch + 1, float(total) / steps)
    return before


def _loss(
    logits: Float[Tensor, "films organs h w"], masks: Float[Tensor, "films organs h w"]
) -> Tensor:
    """Cross-entropy of each pixel plus 1 − soft Dice of each mask, 2 Σ p m / Σ (p + m)."""
    p = torch.sigmoid(logits)
    dice = (2 * (p * masks).sum((2, 3)) + 1) / ((p + masks).sum((2, 3)) + 1)
    return binary_cross_entropy_with_logits(logits, masks) + (1 - dice).mean()
