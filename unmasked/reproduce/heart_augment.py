"""Take the look of films away from what a segmenter is shown, and vary it while it learns.

Films with heart masks come from two sources, and the films to be segmented from a third; all three
differ far more in look (exposure, contrast, sharpening) than in anatomy. So looks are taken away
twice: what is shown of a film does not change with its brightness, contrast or gamma, and while
learning, each film is drawn with another look, place and size every time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, interpolate

from unmasked.masks.superpixels import Blur
from unmasked.shapes import Float

CHANNELS = 2
"""What a segmenter is shown: see `shown_of`."""

_NEAR = 1 / 16  # how far "here" reaches in the second channel, in sides of the film
_FLAT = 0.02  # local contrasts well below this, of 1 from black to white, are noise
_CUT = 3.0  # local contrast beyond this many standard deviations tells nothing more


def shown_of(films: Float[Tensor, "films 1 h w"]) -> Float[Tensor, "films 2 h w"]:
    """Turn films from 0 to 1 into what a segmenter sees: ranks of brightness, and local contrast.

    ::

        first   2 · (share of the film's pixels that are darker, ties half) − 1
        second  (r − mean near here) / √(variance near here + 0.02²)  of r = the first, cut at ±3

    The first is unchanged by any strictly increasing change of brightness (contrast, gamma), hence
    so is the second.
    """
    ranks = _ranks(films)
    near = Blur(_NEAR * films.shape[-1])
    mean = near.filled(ranks)
    variance = (near.filled(ranks**2) - mean**2).clamp_min(0)
    local = (ranks - mean) / (variance + (2 * _FLAT) ** 2).sqrt()
    both = torch.cat([ranks, local.clamp(-_CUT, _CUT)], dim=1)
    return both.contiguous(memory_format=torch.channels_last)  # a quarter faster on the CPU


def _ranks(films: Float[Tensor, "films 1 h w"]) -> Float[Tensor, "films 1 h w"]:
    """From −1 for the darkest pixel to 1 for the brightest; pixels that tie share their mean.

    >>> _ranks(torch.tensor([[[[0.0, 0.5], [0.5, 1.0]]]])).flatten().tolist()
    [-0.75, 0.0, 0.0, 0.75]
    """
    flat = films.flatten(1).contiguous()  # (films, pixels)
    ordered = flat.sort(dim=1).values
    below = torch.searchsorted(ordered, flat)
    up_to = torch.searchsorted(ordered, flat, right=True)
    return ((below + up_to).to(films.dtype) / flat.shape[1] - 1).reshape(films.shape)


def to_size(
    films: Float[Tensor, "films channels h w"], size: int
) -> Float[Tensor, "films channels size size"]:
    """Shrunk by means over areas, or enlarged with straight lines between pixels' middles."""
    height, width = films.shape[-2:]
    if height == width and height > size and height % size == 0:
        return avg_pool2d(films, height // size)
    shrinks = height > size or width > size
    return interpolate(
        films, size=(size, size), mode="bilinear", align_corners=False, antialias=shrinks
    )


def moved(
    films: Float[Tensor, "films 1 h w"],
    masks: Float[Tensor, "films masks h w"],
    noise: torch.Generator,
) -> tuple[Float[Tensor, "films 1 h w"], Float[Tensor, "films masks h w"]]:
    """Films and their masks, each shifted, turned, scaled and stretched a little.

    Shifts of up to 12% of a side, turns of up to 12°, sizes from 0.75 to 1.25, and up to 12% wider
    than high. The film's edge goes on where nothing is known; masks end there.
    """
    count = len(films)
    u = 2 * torch.rand(6, count, generator=noise, device=films.device, dtype=films.dtype) - 1
    turn, size, stretch = u[0] * math.radians(12), 1.25 ** u[1], 1.12 ** u[2]
    x, y = torch.cos(turn), torch.sin(turn)
    rows = [
        torch.stack([x * stretch / size, -y / size, 0.24 * u[3]], dim=1),
        torch.stack([y / size, x / (stretch * size), 0.24 * u[4]], dim=1),
    ]
    grid = affine_grid(torch.stack(rows, dim=1), list(films.shape), align_corners=False)
    film = grid_sample(films, grid, padding_mode="border", align_corners=False)
    mask = grid_sample(masks, grid, padding_mode="zeros", align_corners=False)
    return film, mask


def dressed(
    films: Float[Tensor, "films 1 h w"], noise: torch.Generator
) -> Float[Tensor, "films 1 h w"]:
    """Change each film's look at random, into values from 0 to 1.

    In this order: gamma from 0.4 to 2.5; a slanted exposure; more or less contrast between
    neighbourhoods; blurred or sharpened; stretched until up to a fifth of the range is cut at each
    end, as films are that somebody boosted; black or white bars over it, as wires and letters are;
    grain.
    """
    draw = _Draws(films, noise)
    x = films - films.amin((2, 3), keepdim=True)
    x = x / x.amax((2, 3), keepdim=True).clamp_min(1e-6)
    x = x.clamp_min(1e-6) ** torch.exp(draw.between(-math.log(2.5), math.log(2.5)))
    across, down = _places(films)
    x = x * (1 + draw.between(-0.25, 0.25) * across + draw.between(-0.25, 0.25) * down)
    side = films.shape[-1]
    for sigma, least, most in ((side / 8, -0.3, 2.0), (side / 64, -1.0, 2.0)):
        strength = torch.where(draw.happens(0.7), draw.between(least, most), 0.0)
        x = x + strength * (x - Blur(sigma).filled(x))
    x = _stretched(x, draw)
    for _ in range(2):
        x = torch.where(_bar(x, draw) & draw.happens(0.3), draw.happens(0.5).to(x.dtype), x)
    return (x + draw.between(0, 0.05) * draw.normal(x.shape)).clamp(0, 1)


class _Draws:
    """One number for each film, (films, 1, 1, 1)."""

    def __init__(self, films: Tensor, noise: torch.Generator) -> None:
        self.count, self.noise = len(films), noise
        self.device, self.dtype = films.device, films.dtype

    def between(self, low: float, high: float) -> Tensor:
        u = torch.rand(self.count, generator=self.noise, device=self.device, dtype=self.dtype)
        return (low + (high - low) * u).reshape(-1, 1, 1, 1)

    def happens(self, probability: float) -> Tensor:
        return self.between(0, 1) < probability

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.noise, device=self.device, dtype=self.dtype)


def _places(films: Tensor) -> tuple[Tensor, Tensor]:
    """Across and down, each from −1 to 1: (w,) and (h, 1)."""
    across, down = (
        torch.linspace(-1, 1, length, device=films.device, dtype=films.dtype)
        for length in (films.shape[-1], films.shape[-2])
    )
    return across, down[:, None]


def _stretched(x: Tensor, draw: _Draws) -> Tensor:
    """To the range from 0 to 1, beyond which it is cut; half of the films are cut much."""
    ends = torch.tensor([0.02, 0.98], device=x.device, dtype=x.dtype)
    low, high = x.flatten(1).quantile(ends, dim=1).reshape(2, -1, 1, 1, 1)
    span = (high - low).clamp_min(1e-3)
    boosted = draw.happens(0.5)
    below, above = (torch.where(boosted, draw.between(-0.05, 0.2), -0.02) for _ in range(2))
    return ((x - low - below * span) / (span * (1 - below - above))).clamp(0, 1)


def _bar(x: Tensor, draw: _Draws) -> Tensor:
    """A bar somewhere on each film, up to a third long and a tenth wide, (films, 1, h, w) bool."""
    across, down = _places(x)
    long, wide = draw.between(0.02, 0.33), draw.between(0.01, 0.1)
    upright = draw.happens(0.5)
    on = (across - draw.between(-1, 1)).abs() < torch.where(upright, wide, long)
    return on & ((down - draw.between(-1, 1)).abs() < torch.where(upright, long, wide))
