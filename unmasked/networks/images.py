"""Networks for pictures: factories ((channels, height, width), outputs) -> Module.

`CNN` and `UNet` are small and need nothing but torch. `DenseNet121` and `MonaiUNet` are MONAI's, in
the extra ``images``. A selector may return one logit for each pixel, (batch, 1, height, width):
where superpixels are selected, the mean over each becomes its logit.

None of the small ones has BatchNorm: GroupNorm looks at one image at a time, so that what a
predictor says does not depend on which other masks are in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate, pad, pixel_unshuffle

from unmasked.errors import InputError, MissingExtra
from unmasked.shapes import Float, ImageShape

_GROUPS = 8


def _block(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3 × 3 convolutions, each with GroupNorm and SiLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1),
            nn.GroupNorm(min(_GROUPS, outputs), outputs),
            nn.SiLU(),
        ]
    return nn.Sequential(*layers)


def _check_widths(widths: Any) -> tuple[int, ...]:
    if (
        not isinstance(widths, tuple | list)
        or not widths
        or not all(isinstance(w, int) and w > 0 and w % min(_GROUPS, w) == 0 for w in widths)
    ):
        raise InputError(
            f"widths must list whole numbers, multiples of {_GROUPS} or at most {_GROUPS}, but is "
            f"{widths!r}."
        )
    return tuple(widths)


def _check_fold(fold: Any) -> None:
    if not isinstance(fold, int) or isinstance(fold, bool) or fold < 1:
        raise InputError(f"fold must be a whole number of pixels above 0 but is {fold!r}.")


def _folded(x: Tensor, fold: int) -> Tensor:
    """fold × fold pixels as one place with fold² times the channels: nothing is lost.

    (batch, c, h, w) -> (batch, c · fold², ⌈h / fold⌉, ⌈w / fold⌉); zeros fill what is missing.
    """
    if fold == 1:
        return x
    height, width = x.shape[2:]
    return pixel_unshuffle(pad(x, (0, -width % fold, 0, -height % fold)), fold)


@dataclass(frozen=True)
class CNN:
    """A small predictor: at each width a block of convolutions, then half the size. At the end come
    the mean over all places and a linear layer.

    Parameters
    ----------
    widths : channels of each block, (16, 32, 64) by default; multiples of 8, or at most 8.
    fold : ``fold`` × ``fold`` pixels are seen as one place, which is as many times cheaper; 1 by
        default.

    Examples
    --------
    >>> CNN((8, 16))((1, 28, 28), 10)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """

    widths: tuple[int, ...] = (16, 32, 64)
    fold: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", _check_widths(self.widths))
        _check_fold(self.fold)

    def __call__(self, shape: ImageShape, outputs: int) -> nn.Module:
        return _Predictor(shape[0] * self.fold**2, self.widths, outputs, self.fold)


class _Predictor(nn.Module):
    """See `CNN`."""

    def __init__(self, channels: int, widths: tuple[int, ...], outputs: int, fold: int) -> None:
        super().__init__()
        self.fold = fold
        pairs = zip((channels, *widths[:-1]), widths, strict=True)
        self.blocks = nn.ModuleList(_block(a, b) for a, b in pairs)
        self.last = nn.Linear(widths[-1], outputs)

    def forward(self, x: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch outputs"]:
        x = _folded(x, self.fold)
        for i, block in enumerate(self.blocks):
            x = block(_halved(x) if i else x)
        result: Tensor = self.last(x.mean((2, 3)))
        return result


def _halved(x: Tensor) -> Tensor:
    """Half the size; an odd line or column at the end counts too."""
    return avg_pool2d(x, 2, ceil_mode=True) if min(x.shape[2:]) > 1 else x


@dataclass(frozen=True)
class UNet:
    """A small selector: down through blocks of the widths and up again beside what was seen on the
    way, to one logit for each pixel. Any image size.

    Parameters
    ----------
    widths : channels of each block, (16, 32, 64) by default; multiples of 8, or at most 8.
    fold : ``fold`` × ``fold`` pixels are seen as one place, and then have one logit; 1 by default.

    Examples
    --------
    >>> UNet((8, 16))((1, 28, 27), 784)(torch.zeros(5, 1, 28, 27)).shape
    torch.Size([5, 1, 28, 27])
    """

    widths: tuple[int, ...] = (16, 32, 64)
    fold: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", _check_widths(self.widths))
        _check_fold(self.fold)

    def __call__(self, shape: ImageShape, outputs: int) -> nn.Module:
        return _UNet(shape[0] * self.fold**2, self.widths, self.fold)


class _UNet(nn.Module):
    """See `UNet`."""

    def __init__(self, channels: int, widths: tuple[int, ...], fold: int) -> None:
        super().__init__()
        self.fold = fold
        pairs = zip((channels, *widths[:-1]), widths, strict=True)
        self.down = nn.ModuleList(_block(a, b) for a, b in pairs)
        above = list(zip(widths[1:], widths[:-1], strict=True))[::-1]
        self.up = nn.ModuleList(_block(a + b, b) for a, b in above)
        self.last = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch 1 h w"]:
        height, width = x.shape[2:]
        x = _folded(x, self.fold)
        seen: list[Tensor] = []
        for i, block in enumerate(self.down):
            x = block(_halved(x) if i else x)
            seen.append(x)
        for block, beside in zip(self.up, seen[-2::-1], strict=True):
            x = block(torch.cat([interpolate(x, size=beside.shape[2:]), beside], dim=1))
        result: Tensor = self.last(x)
        if self.fold == 1:
            return result
        spread = result.repeat_interleave(self.fold, 2).repeat_interleave(self.fold, 3)
        return spread[:, :, :height, :width]


@dataclass(frozen=True)
class DenseNet121:
    """MONAI's DenseNet121, as the paper's predictor for X-rays.

    Parameters
    ----------
    dropout : rate of dropout after each dense layer; 0 (default) for none.
    norm : "batch" (default) as it was published, or "group", which looks at one image at a time.
        That is for predictors that are trained on masks other than those they are judged on.
    """

    dropout: float = 0.0
    norm: Literal["batch", "group"] = "batch"

    def __post_init__(self) -> None:
        if self.norm not in ("batch", "group"):
            raise InputError(f"norm must be 'batch' or 'group' but is {self.norm!r}.")

    def __call__(self, shape: ImageShape, outputs: int) -> nn.Module:
        nets = _monai("DenseNet121")
        module: nn.Module = nets.DenseNet121(
            spatial_dims=2,
            in_channels=shape[0],
            out_channels=outputs,
            dropout_prob=self.dropout,
            norm="batch" if self.norm == "batch" else ("group", {"num_groups": _GROUPS}),
        )
        return module


@dataclass(frozen=True)
class MonaiUNet:
    """MONAI's UNet, as the paper's selector for X-rays: one logit for each pixel.

    Height and width must be multiples of 2 to the number of strides.

    Parameters
    ----------
    channels : of each level, (16, 32, 64, 128) by default; from one to the next is a stride, which
        halves the image.
    residual_units : MONAI's ``num_res_units``, convolutions in the block of a level; 2 by default.
    """

    channels: tuple[int, ...] = (16, 32, 64, 128)
    residual_units: int = 2

    def __call__(self, shape: ImageShape, outputs: int) -> nn.Module:
        step = 2 ** (len(self.channels) - 1)
        if shape[1] % step or shape[2] % step:
            height, width = (max(step, n // step * step) for n in shape[1:])
            raise InputError(
                f"MonaiUNet halves the image {len(self.channels) - 1} times, so height and width "
                f"must be multiples of {step} but are {shape[1]} × {shape[2]}; use images of "
                f"{height} × {width}{f' (--size {height})' if height == width else ''}, or UNet() "
                "(where there is --network: small or medium)."
            )
        nets = _monai("MonaiUNet")
        module: nn.Module = nets.UNet(
            spatial_dims=2,
            in_channels=shape[0],
            out_channels=1,
            channels=self.channels,
            strides=(2,) * (len(self.channels) - 1),
            num_res_units=self.residual_units,
        )
        return module


def _monai(what: str) -> Any:
    try:
        return import_module("monai.networks.nets")
    except ImportError as error:
        raise MissingExtra("monai", "images", what) from error
