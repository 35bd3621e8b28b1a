"""The projection of an embedding that loses least."""

from __future__ import annotations

import torch

from .. import checks
from ..errors import SpecbookError


def projection(
    embedding: torch.Tensor, width: int, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """The orthonormal [d, width] through which `embedding` [V, d] loses least.

    P are the first right singular vectors, so E P P' is the rank-`width` matrix that
    is nearest to E. `weights` [V]: how much the error of each row counts (default:
    all alike). Raises `SpecbookError` for a width that is not in 1 .. d, and for
    weights that are negative, not finite or all 0.
    """
    if embedding.dim() != 2:
        raise SpecbookError(f"embedding must be a matrix, got {embedding.dim()} axes")
    size = embedding.shape[1]
    checks.integer(width, "width", least=1, most=size)
    rows = embedding.detach().double()
    if weights is not None:
        if weights.shape != embedding.shape[:1]:
            raise SpecbookError(
                f"weights {tuple(weights.shape)}: one for each of the "
                f"{len(embedding)} rows is needed"
            )
        given = weights.detach().double()
        usable = bool(torch.isfinite(given).all()) and float(given.min()) >= 0
        if not usable or float(given.sum()) == 0:
            raise SpecbookError("weights must be finite, not negative and not all 0")
        rows = rows * given.sqrt()[:, None]
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    best = vectors[:, values.argsort(descending=True)[:width]]
    # The sign of a singular vector is free; fixed, so that a build is repeatable.
    signs = best.gather(0, best.abs().argmax(0, keepdim=True)).sign()
    return best * signs
