"""One model for each subset of the features: running many networks on rows of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unmasked.engine.stack import Stack
from unmasked.masking import Masker

_NUMBERS = 2**26  # inputs held at once


def subset_numbers(masks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of the subset that each mask (…, features) shows: bit j is feature j.

    >>> subset_numbers(np.array([[True, False, True]])).tolist()
    [5]
    """
    numbers: NDArray[np.int64] = masks.astype(np.int64) @ (1 << np.arange(masks.shape[-1]))
    return numbers


@torch.no_grad()
def run_each(
    stack: Stack,
    networks: NDArray[np.int64],
    masker: Masker,
    x: NDArray[Any],
    masks: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Class probabilities (rows, classes), each row by the network ``networks[row]`` of a stack.

    Rows of one network are brought together and padded to equal length, so that all networks run
    as one batch.
    """
    device = stack.flat.device
    used, place, counts = np.unique(networks, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    within = np.arange(len(order)) - np.repeat(starts, counts)  # position among its network's rows
    result = np.empty((len(networks), 0))
    whole = {**stack.weights(), **stack.buffers}
    size = max(1, _NUMBERS // max(1, int(counts.max()) * x.shape[1]))
    for first in range(0, len(used), size):
        group = slice(first, min(first + size, len(used)))
        inside = (place[order] >= group.start) & (place[order] < group.stop)
        rows, slot = order[inside], within[inside]
        number = place[rows] - group.start
        shape = (group.stop - group.start, int(counts[group].max()))
        part = torch.as_tensor(x[rows], dtype=stack.flat.dtype, device=device)
        mask = torch.as_tensor(masks[rows], dtype=stack.flat.dtype, device=device)
        shown = masker(part, mask)
        where = torch.from_numpy(number * shape[1] + slot).to(device)
        padded = shown.new_zeros(shape[0] * shape[1], shown.shape[1])
        padded[where] = shown
        own = torch.from_numpy(used[group]).to(device)
        weights = {name: value[own] for name, value in whole.items()}
        logits = stack.forward_with(weights, padded.reshape(*shape, -1))
        probabilities = torch.softmax(logits.reshape(len(padded), -1)[where].double(), -1)
        if not result.shape[1]:
            result = np.empty((len(networks), probabilities.shape[1]))
        result[rows] = probabilities.cpu().numpy()
        stack.forget()  # each group has a shape of its own
    return result
