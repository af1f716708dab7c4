"""What is maximised, for one setting.

* A predictor minimises −log q(y | x_m) on masks m from its own source. On masks drawn without
  looking at the row its optimum is p(y | x_r) for every subset r (REAL-X's predictor, EVAL-X).
* A selector maximises E_s[log q(y | x_s)] less what showing costs.

Targets are always class probabilities (…, classes); labels are one-hot rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmasked.shapes import Float


def log_likelihood(
    logits: Float[Tensor, "*batch classes"], target: Float[Tensor, "*batch classes"]
) -> Float[Tensor, "*batch"]:
    """Σ_c target_c · log softmax(logits)_c for each row."""
    return (target * torch.log_softmax(logits, dim=-1)).sum(-1)
