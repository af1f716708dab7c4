"""Test encoding with a network, for images and rows of many numbers; draw several tests.

The same test as `encoding_test`: one model h(y | x_v, v, |v|, c), told by c whether a mask is the
row's own. A network spends its attention where its training pairs lie, so c = 0 must lie where
c = 1 does, or honest masks look like codes. Each shuffled pair therefore has the weight
ρ / (1 − ρ), cut at 20 and scaled to a mean of 1, where ρ(x_v, v) is the probability that a pair is
real, by a network that never saw that row::

    training rows = half A + half B + some to stop on
    ρ_A learns real against shuffled on A and weights the pairs of B; ρ_B the other way round
    h learns from real pairs and weighted shuffled pairs of A and B, shuffled anew in every epoch

Weights are functions of (x_v, v) alone, so p(y | x_v), what c = 0 learns, is not changed by them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from unmasked.errors import InputError
from unmasked.evaluation.encoding.result import (
    CANNOT_TELL,
    ENCODES,
    NO_SIGN,
    Encoding,
    judge,
    nothing_chosen,
)
from unmasked.evaluation.encoding.rows import (
    Judged,
    check_settings,
    copies_remark,
    read_judged,
    sample,
    shuffled,
    split,
)
from unmasked.evaluation.encoding.tables import LEAST_PROBABILITY, odds, share
from unmasked.explanation.explanation import Explanation
from unmasked.inputs.images import is_images, read_images
from unmasked.inputs.targets import as_array
from unmasked.networks.tables import MLP, Factory, build
from unmasked.plots.figures import ACCENT, MUTED, SHOWN, axes, literal
from unmasked.training.device import choose_device

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {ENCODES: ACCENT, NO_SIGN: SHOWN, CANNOT_TELL: MUTED}


def forest(found: Mapping[str, Encoding], *, ax: Axes | None = None) -> Axes:
    """Each explanation's nats with their interval; grey lies between the two marks of the rule."""
    if not found:
        raise InputError("there must be at least one Encoding to draw but none came.")
    ax = axes(ax, 7.2, 1.2 + 0.42 * len(found))
    threshold = next(iter(found.values())).threshold
    ax.axvspan(threshold / 4, threshold, color=MUTED, alpha=0.25, linewidth=0)
    for place, one in enumerate(found.values()):
        colour = _COLOURS[one.verdict]
        ax.hlines(place, one.low, one.high, color=colour, linewidth=2.5)
        ax.plot([one.nats], [place], "o", color=colour)
        ax.annotate(
            one.verdict, (one.high, place), xytext=(8, 0), textcoords="offset points",
            va="center", fontsize=8, color=colour if one.verdict != CANNOT_TELL else "#444",
        )  # fmt: skip
    ax.set_yticks(range(len(found)), [literal(name) for name in found])
    ax.set_ylim(len(found) - 0.5, -0.5)
    least, most = min(e.low for e in found.values()), max(e.high for e in found.values())
    ax.set_xlim(
        min(-0.01, least * 1.1), max(most, 2 * threshold) * 3.5
    )  # with room for the verdicts
    ax.set_xscale("symlog", linthresh=2 * threshold)
    ticks = [t for t in (0, threshold, 0.1, 0.5, 2) if t <= max(most, 0.1)]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel("nats in the choice of features, with 95% intervals")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


_STOP_SHARE = 0.15  # of the training rows, to stop on
_SEEDS = 1_000_003
_ASKED_AT_ONCE = 4096
_PATIENCE = 8
_LEAST_TO_CLEAR = (
    1_000  # cases; with 500, codes of 0.05 to 0.07 nats were found by none of 17 tests
)
_LEAST_STEPS, _LEAST_BATCH = 15, 16  # few rows: smaller batches, so that an epoch has some steps


def network_encoding_test(
    X: Any,
    y: Any,
    masks: Explanation | ArrayLike,
    *,
    groups: ArrayLike | None = None,
    folds: int = 5,
    threshold: float = 0.02,
    network: Factory | None = None,
    epochs: int = 40,
    batch_size: int = 128,
    learning_rate: float = 3e-3,
    max_rows: int | None = 20_000,
    random_state: int = 0,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Encoding:
    """Does the choice of features give y away? For images, or rows of numbers.

    Parameters
    ----------
    X : images (rows, channels, height, width), or (rows, numbers), none missing. **Only rows that
        neither the explainer nor the explained model was trained on.**
    y : (rows,) labels.
    masks : an `Explanation`, or (rows, features), 1 = shown. A feature of images is a pixel with
        all its channels, or the superpixel that the explanation puts it in. Masks of pixels may be
        (rows, height, width).
    groups, folds, threshold, max_rows, progress : as for `encoding_test`. With fewer than 1,000
        rows (or groups) there is no `no sign of encoding`.
    network : a factory (inputs, outputs) of networks from what is shown, flat, to logits. It must
        be able to tell places apart, as a code may lie in where a pixel is. `MLP` by default.
    epochs : at most so many, 40 by default; the best of them on held-out training rows is kept.
    batch_size : at most so many rows in a step, 128 by default; fewer where there are few.
    learning_rate : the highest rate of AdamW's one-cycle schedule; 0.003 by default.
    random_state : seed of folds, shuffles, networks and resamples; 0 by default.
    device : where the networks are trained: "auto" (default), the first CUDA device or else the
        CPU; or "cpu", "cuda", …
    """
    check_settings(folds, 1, threshold, random_state, max_rows)
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number above 0 but is {value!r}.")
    values, flat_masks, index = _read(X, masks)
    features = int(index.max()) + 1
    judged = read_judged(flat_masks, y, groups, (len(values), features), None, folds)
    chosen = sample(judged, max_rows, folds, random_state)
    remarks = []
    if len(chosen) < len(judged):
        remarks.append(f"a random {len(chosen):,} of {len(judged):,} rows were tested.")
        values, judged = values[chosen], judged.take(chosen)
    if (judged.masks == judged.masks[0]).all():
        return nothing_chosen(judged.masks[0], len(judged), judged.classes, threshold, remarks)
    remarks += copies_remark(values, judged)
    where = choose_device(device)
    pairs = _Pairs(
        torch.from_numpy(values).to(where),
        torch.from_numpy(judged.masks.astype(np.float32)).to(where),
        torch.from_numpy(judged.label).to(where),
        torch.from_numpy(index).to(where),
    )
    trainer = _Trainer(network or MLP((200, 200)), epochs, batch_size, learning_rate)
    gains = np.zeros(len(judged))
    shares = []
    for number, (fit, held) in enumerate(split(judged, folds, random_state)):
        seed = random_state * _SEEDS + number
        model, found = _fit(trainer, pairs, judged, fit, seed)
        gains[held] = _gains(model, pairs, held)
        shares.append(found)
        if progress is not None:
            progress(number + 1, folds)
    overlap = float(np.mean(shares))
    return judge(
        gains,
        judged.groups,
        overlap,
        judged.classes,
        threshold,
        random_state,
        remarks,
        least_to_clear=_LEAST_TO_CLEAR,
    )


def _read(
    X: Any, masks: Explanation | ArrayLike
) -> tuple[NDArray[np.float32], ArrayLike, NDArray[np.int64]]:
    """Standardised rows (rows, numbers), masks (rows, features), each number's feature."""
    explained = isinstance(masks, Explanation)
    if is_images(X):
        images = read_images(X)
        rows, channels, height, width = images.shape
        pixels = np.arange(height * width).reshape(height, width)
        if isinstance(masks, Explanation) and masks.pixels is not None:
            pixels = masks.pixels
            if pixels.shape != (height, width):
                raise InputError(
                    f"the explanation is of images of {pixels.shape} pixels but X's have "
                    f"{(height, width)}; give the explained images."
                )
        index = np.tile(pixels.ravel(), channels)
        mean, scale = images.mean(axis=(0, 2, 3)), images.std(axis=(0, 2, 3))
        scale = np.where(scale > 0, scale, 1).reshape(1, -1, 1, 1)
        values = ((images - mean.reshape(1, -1, 1, 1)) / scale).reshape(rows, -1)
    else:
        values = np.asarray(as_array(X), dtype=np.float32)
        if values.ndim != 2 or 0 in values.shape or not np.isfinite(values).all():
            raise InputError(
                "X must be images (rows, channels, height, width) or finite numbers (rows, "
                f"numbers) but came with shape {values.shape}; encoding_test takes tables as they "
                "are."
            )
        index = np.arange(values.shape[1])
        scale = values.std(0)
        values = (values - values.mean(0)) / np.where(scale > 0, scale, 1)
    flat: ArrayLike = masks.masks if isinstance(masks, Explanation) else as_array(masks)
    if not explained and np.ndim(flat) > 2:
        flat = np.asarray(flat).reshape(len(np.asarray(flat)), -1)
    return values.astype(np.float32), flat, index.astype(np.int64)


@dataclass(frozen=True)
class _Pairs:
    """Rows x (rows, numbers), masks (rows, features), labels (rows,), each number's feature."""

    x: Tensor
    masks: Tensor
    label: Tensor
    index: Tensor

    def inputs(self, rows: Tensor, givers: Tensor, c: float | None) -> Tensor:
        """[x_v, v, |v| as a share, c] of rows with the givers' masks, (batch, inputs)."""
        mask = self.masks[givers]
        parts = [self.x[rows] * mask[:, self.index], mask, mask.mean(1, keepdim=True)]
        if c is not None:
            parts.append(torch.full_like(parts[2], c))
        return torch.cat(parts, dim=1)

    def width(self, *, c: bool) -> int:
        return self.x.shape[1] + self.masks.shape[1] + 1 + int(c)


Loss = Callable[[nn.Module, Tensor], Tensor]
"""(network, positions in this epoch's list of pairs) -> mean loss."""


@dataclass(frozen=True)
class _Trainer:
    """Adam with decoupled weight decay over one cycle; the best epoch on other rows is kept."""

    network: Factory
    epochs: int
    batch_size: int
    learning_rate: float

    def fit(
        self,
        inputs: int,
        outputs: int,
        seed: int,
        count: int,
        epoch: Callable[[np.random.Generator], Loss],
        stop: Callable[[nn.Module], float],
        device: torch.device,
    ) -> nn.Module:
        """``epoch`` shuffles anew and gives the loss of that epoch's ``count`` pairs."""
        model = build(self.network, inputs, outputs, seed).to(device)
        random = np.random.default_rng((seed, 5))
        size = min(self.batch_size, max(_LEAST_BATCH, count // _LEAST_STEPS))
        size = min(size, count)
        steps = count // size
        optimiser = torch.optim.AdamW(model.parameters(), self.learning_rate, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, self.learning_rate, total_steps=self.epochs * steps + 1
        )
        best, waited = float("inf"), 0
        kept = copy.deepcopy(model.state_dict())
        for _ in range(self.epochs):
            model.train()
            loss = epoch(random)
            order = torch.from_numpy(random.permutation(count)).to(device)
            for step in range(steps):
                optimiser.zero_grad(set_to_none=True)
                found = loss(model, order[step * size : (step + 1) * size])
                found.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
            model.eval()
            with torch.no_grad():
                judged = stop(model)
            if judged < best:
                best, waited, kept = judged, 0, copy.deepcopy(model.state_dict())
            else:
                waited += 1
                if waited >= _PATIENCE:
                    break
        model.load_state_dict(kept)
        return model.eval()


def _fit(
    trainer: _Trainer, pairs: _Pairs, judged: Judged, fit: NDArray[Any], seed: int
) -> tuple[nn.Module, float]:
    """h on the rows ``fit``, and how well shuffled pairs cover the real ones."""
    random = np.random.default_rng((seed, 4))
    parts = _parts(judged.groups[fit], random)
    stop, *halves = (fit[parts == number] for number in (2, 0, 1))
    device = pairs.x.device

    def place(rows: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(device)

    def givers(rows: NDArray[Any], noise: np.random.Generator) -> NDArray[Any]:
        return rows[shuffled(judged.groups[rows], noise)]

    stop_rows, stop_givers = place(stop), place(givers(stop, random))
    raters = [
        _real_or_not(trainer, pairs, half, givers, place, (stop_rows, stop_givers), seed + i + 1)
        for i, half in enumerate(halves)
    ]

    def weights(rater: nn.Module, rows: Tensor, others: Tensor) -> Tensor:
        rho = _probabilities(rater, pairs, rows, others, None)
        return torch.from_numpy(odds(rho[:, 1].double().cpu().numpy())).float().to(device)

    stop_weight = torch.stack([weights(r, stop_rows, stop_givers) for r in raters]).mean(0)
    seen: list[Tensor] = []

    def epoch(noise: np.random.Generator) -> Loss:
        rows, others, weight = [], [], []
        for half, rater in zip(halves, raters[::-1], strict=True):  # the other half's judge
            rows.append(place(half))
            others.append(place(givers(half, noise)))
            weight.append(weights(rater, rows[-1], others[-1]))
        row, other, w = torch.cat(rows), torch.cat(others), torch.cat(weight)
        seen[:] = [w]
        return lambda model, at: _both(model, pairs, row[at], other[at], w[at])

    def stopping(model: nn.Module) -> float:
        return float(_both(model, pairs, stop_rows, stop_givers, stop_weight))

    count = len(fit) - len(stop)
    model = trainer.fit(pairs.width(c=True), judged.classes, seed, count, epoch, stopping, device)
    return model, share(seen[0].double().cpu().numpy())


def _both(model: nn.Module, pairs: _Pairs, rows: Tensor, givers: Tensor, w: Tensor) -> Tensor:
    """Mean log loss of real pairs and of weighted shuffled pairs, half each."""
    label = pairs.label[rows]
    real = cross_entropy(model(pairs.inputs(rows, rows, 1)), label)
    other = cross_entropy(model(pairs.inputs(rows, givers, 0)), label, reduction="none")
    return (real + (w * other).mean()) / 2


def _real_or_not(
    trainer: _Trainer,
    pairs: _Pairs,
    half: NDArray[Any],
    givers: Callable[[NDArray[Any], np.random.Generator], NDArray[Any]],
    place: Callable[[NDArray[Any]], Tensor],
    stop: tuple[Tensor, Tensor],
    seed: int,
) -> nn.Module:
    """ρ: logits of a pair being shuffled (0) or real (1)."""
    own = place(half)

    def loss(model: nn.Module, rows: Tensor, others: Tensor) -> Tensor:
        asked = torch.cat([pairs.inputs(rows, rows, None), pairs.inputs(rows, others, None)])
        answer = torch.arange(2, device=asked.device).flip(0).repeat_interleave(len(rows))
        return cross_entropy(model(asked), answer)

    def epoch(noise: np.random.Generator) -> Loss:
        others = place(givers(half, noise))
        return lambda model, at: loss(model, own[at], others[at])

    return trainer.fit(
        pairs.width(c=False),
        2,
        seed,
        len(half),
        epoch,
        lambda model: float(loss(model, *stop)),
        pairs.x.device,
    )


def _probabilities(
    model: nn.Module, pairs: _Pairs, rows: Tensor, givers: Tensor, c: float | None
) -> Tensor:
    """Return a network's probabilities (rows, outputs) for rows with givers' masks, in parts."""
    with torch.no_grad():
        parts = [
            model(pairs.inputs(rows[start:end], givers[start:end], c)).softmax(1)
            for start in range(0, len(rows), _ASKED_AT_ONCE)
            for end in [start + _ASKED_AT_ONCE]
        ]
    return torch.cat(parts)


def _gains(model: nn.Module, pairs: _Pairs, held: NDArray[Any]) -> NDArray[np.float64]:
    """log h(y | c = 1) − log h(y | c = 0) of held-out real pairs, (rows,)."""
    rows = torch.from_numpy(held).to(pairs.x.device)
    logs = []
    for c in (1, 0):
        p = _probabilities(model, pairs, rows, rows, c)
        own = p.gather(1, pairs.label[rows][:, None]).squeeze(1).double().cpu().numpy()
        logs.append(np.log(np.maximum(own, LEAST_PROBABILITY)))
    result: NDArray[np.float64] = logs[0] - logs[1]
    return result


def _parts(groups: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """0 or 1 (the halves) or 2 (to stop on) for each row, whole groups."""
    values, which = np.unique(groups, return_inverse=True)
    order = random.permutation(len(values))
    part = order % 2
    part[order < max(1, round(_STOP_SHARE * len(values)))] = 2
    result: NDArray[np.int64] = part[which]
    return result
