"""Kangaroo's second half: an adapter that reads shallow features (section 0x05B).

The shallow trunk is the target's own (`shared_trunk`), and so is the LM head, frozen.
Between them lies the adapter: a norm, one attention, a norm, and no feed-forward
network. What it puts out has the width of a hidden state of the target and is read by
the same matrix; it is not one, and its tag says so.

The adapter has a cache of its own, one row for each token that it has read. Of the last
drafted token it reads nothing, for there is no further token to predict, while the
trunk computes its row, which verification needs. So after a round that was accepted
whole the adapter's cache is one row behind the target's, and the next round begins by
reading two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .. import checks
from ..errors import SpecbookError
from ..policy import SamplingPolicy
from ..tree import CandidateTree
from .heads.parts import LayerCache, projected, unit
from .state import StateError, Tag, TaggedRows
from .trunk import TrunkSession, TrunkTarget

ADAPTER = "adapter"
"""The owner of an adapter's rows, and the one step of their path."""

THRESHOLD = 0.6
"""Below this confidence of a drafted token nothing is drafted behind it: the number of
the official recipe."""

MOST = 6
"""Tokens of one draft, in the same."""

_BLOCK = 512
"""Rows that the adapter reads at once, so that scores over a long prompt stay small."""


class Adapter(nn.Module):
    """A = norm2 . (1 + attention . norm1) on rows [n, width] of shallow features.

    Causal attention with `attention_heads` heads; queries and keys are rotated by the
    place in the text. Parameters: 4 width^2 + 2 width. Its attention starts at zero, so
    an untrained adapter is its second norm.
    """

    def __init__(self, width: int, attention_heads: int) -> None:
        super().__init__()
        checks.integer(width, "width", least=2)
        self.heads = checks.integer(attention_heads, "attention_heads", least=1)
        if width % (2 * attention_heads):
            raise SpecbookError(
                f"width {width} does not fall into {attention_heads} heads of an even "
                "width"
            )
        self.norm1 = nn.Parameter(torch.ones(width))
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.norm2 = nn.Parameter(torch.ones(width))
        nn.init.zeros_(self.output.weight)

    @classmethod
    def beginning_at(cls, target: TrunkTarget, attention_heads: int) -> Adapter:
        """An adapter for `target` whose second norm begins as the target's last."""
        checks.instance(target, "target", TrunkTarget)
        adapter = cls(target.hidden_width, attention_heads).to(target.device)
        with torch.no_grad():
            adapter.norm2.copy_(target.norm_weight.float())
        return adapter.to(target.dtype)

    @property
    def width(self) -> int:
        """Of the features, and of what comes out."""
        return len(self.norm1)

    def project(
        self, features: torch.Tensor, first: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values [heads, n, head_dim] of features [n, width] at the
        places from `first` on."""
        normed = unit(features) * self.norm1
        return projected(normed, self.query_key_value, self.heads, first)

    def finish(self, features: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Rows [n, width] from the features and what attention read of them,
        [heads, n, head_dim]."""
        joined = seen.transpose(0, 1).reshape(features.shape)
        return unit(features + self.output(joined)) * self.norm2

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Rows [n, width] of a whole text at once, as training reads it."""
        query, key, value = self.project(features, 0)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.finish(features, seen)


class AdapterCache:
    """Keys and values of the tokens that an adapter has read, of one request."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = checks.instance(adapter, "adapter", Adapter)
        self._held = LayerCache()
        self._length = 0

    def __len__(self) -> int:
        """Rows held."""
        return self._length

    def extend(self, features: torch.Tensor) -> torch.Tensor:
        """Read features [n, width], n at least 1, behind the rows held; the adapter's
        rows of them."""
        found = [self._read(block) for block in features.split(_BLOCK)]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _read(self, features: torch.Tensor) -> torch.Tensor:
        first, n = self._length, len(features)
        query, key, value = self._adapter.project(features, first)
        keys, values = self._held.put(first, key, value)
        self._length += n
        visible = None
        if n > 1:
            visible = torch.ones(n, first + n, dtype=torch.bool, device=features.device)
            visible = visible.tril(first)
        seen = F.scaled_dot_product_attention(query, keys, values, attn_mask=visible)
        return self._adapter.finish(features, seen)

    def keep(self, rows: int) -> None:
        """Keep the first `rows` rows."""
        self._length = checks.integer(rows, "rows", least=0, most=len(self))


class KangarooDraft:
    """The drafting side of one request: `session` and an adapter beside it.

    In a round: `begin`, then `grow` with each token but the last, `stop` with the last.
    After each commit of the session: `commit`. Each of the first two gives logits [V],
    or [n] if `read_out`, in the place of the target's own, gives those of n tokens.
    """

    def __init__(
        self,
        session: TrunkSession,
        adapter: Adapter,
        read_out: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        if not isinstance(session, TrunkSession):
            raise StateError(
                "Kangaroo drafts with the target's own trunk: it needs a session of a "
                f"target that shares its trunk, got {type(session).__name__}"
            )
        checks.instance(adapter, "adapter", Adapter)
        if read_out is not None:
            checks.function(read_out, "read_out")
        width = session.target.hidden_width
        if adapter.width != width:
            raise SpecbookError(
                f"the adapter reads rows of {adapter.width}, the target's have {width}"
            )
        self.session = session
        self._read_out = session.target.read_out if read_out is None else read_out
        norm = adapter.norm1
        self._form = {"device": norm.device, "dtype": norm.dtype}
        self._cache = AdapterCache(adapter)
        self._tags: list[Tag] = []
        """Of the rows of the adapter's cache."""
        self._waiting: TaggedRows | None = None
        """Shallow rows of committed tokens that the adapter has not read."""
        self._chain: list[int] = []

    @property
    def behind(self) -> int:
        """By how many rows the adapter's cache is shorter than the target's."""
        return self.session.cached - len(self._cache)

    @property
    def tags(self) -> tuple[Tag, ...]:
        """Of the adapter's rows. None of them can be published."""
        return tuple(self._tags)

    @torch.inference_mode()
    def begin(self) -> torch.Tensor:
        """The adapter's logits after the pending token. Whatever it has not read is
        read now, in one go."""
        self._chain = []
        # Begun twice in one round, the first draft's rows go; those of committed tokens
        # that it had waiting were read, and stay.
        self.session.forget_draft()
        self._keep(min(len(self._cache), self.session.committed))
        pending = self.session.draft(self._tree())
        waiting = self._waiting
        if waiting is not None:
            tensor = torch.cat([waiting.tensor, pending.tensor])
            pending = TaggedRows(tensor, [*waiting.tags, *pending.tags])
            self._waiting = None
        return self._read(pending)

    @torch.inference_mode()
    def grow(self, token: int) -> torch.Tensor:
        """The adapter's logits after one more token of the chain."""
        return self._read(self._drafted(token))

    @torch.inference_mode()
    def stop(self, token: int) -> None:
        """`token` is the last of the chain: its shallow row is computed and kept for
        verification, and the adapter does not read it."""
        self._drafted(token)

    def commit(self) -> None:
        """After a commit of the session: the adapter's rows of refused tokens go, and
        the shallow rows that it has yet to read are laid by."""
        new = self.session.committed_shallow()
        unread = len(new)
        for row, tag in enumerate(new.tags):
            place = tag.key.position
            if place >= len(self._tags) or not _same_token(self._tags[place], tag):
                unread = row
                break
        if unread < len(new):
            self._keep(min(new.tags[unread].key.position, len(self._tags)))
        elif new.tags:
            self._keep(new.tags[-1].key.position + 1)
        rest = new.take(range(unread, len(new)))
        if len(rest):
            waiting = self._waiting or TaggedRows.none(rest)
            tensor = torch.cat([waiting.tensor, rest.tensor])
            self._waiting = TaggedRows(tensor, [*waiting.tags, *rest.tags])
        self._chain = []

    def _drafted(self, token: int) -> TaggedRows:
        vocab = self.session.target.vocab_size
        self._chain += checks.token_ids([token], "token", vocab_size=vocab)
        return self.session.draft(self._tree())

    def _tree(self) -> CandidateTree:
        return chain(self._chain, len(self.session.tokens))

    def _read(self, rows: TaggedRows) -> torch.Tensor:
        target = self.session.target
        for place, tag in enumerate(rows.tags, start=len(self._cache)):
            if tag.key.position != place or tag.key.layer_boundary != target.boundary:
                raise StateError(
                    f"the adapter's row {place} would be that of position "
                    f"{tag.key.position} at layer boundary {tag.key.layer_boundary}"
                )
        out = self._cache.extend(rows.tensor.to(**self._form))
        layers = target.layer_count
        self._tags += [tag.through((ADAPTER,), layers, ADAPTER) for tag in rows.tags]
        return self._read_out(out[-1:])[0]

    def _keep(self, rows: int) -> None:
        self._cache.keep(rows)
        del self._tags[rows:]


def _same_token(read: Tag, committed: Tag) -> bool:
    """Whether the adapter's row is of this token behind these tokens."""
    return (read.key.token_id, read.key.ancestry_hash) == (
        committed.key.token_id,
        committed.key.ancestry_hash,
    )


Choose = Callable[[np.ndarray, np.ndarray], int]
"""A token from the adapter's logits [V] and its untempered law [V]."""


def draft_chain(
    draft: KangarooDraft,
    choose: Choose,
    most: int = MOST,
    threshold: float = THRESHOLD,
) -> tuple[list[int], list[float]]:
    """Up to `most` tokens, each as `choose` says, and the adapter's confidence at each:
    the untempered probability of the token that it holds most probable there.

    The second exit: behind a place of a confidence below `threshold` nothing is
    drafted. The token that was chosen there is kept and verified, its shallow row with
    it; so the first token is always drafted, and a token that was drawn is never
    dropped for what it is, which would bend q. At a confidence of exactly `threshold`
    the official code goes on, the article's formula stops.
    """
    checks.function(choose, "choose")
    checks.integer(most, "most", least=0)
    threshold = checks.float64(threshold, "threshold", least=0, most=1)
    if not all(hasattr(draft, name) for name in ("begin", "grow", "stop")):
        raise SpecbookError(f"draft must be a KangarooDraft, got {draft!r}")
    tokens: list[int] = []
    confidences: list[float] = []
    if not most:
        return tokens, confidences
    logits: Any = draft.begin()
    while True:
        if logits.dtype not in (torch.float32, torch.float64):
            logits = logits.float()
        row = logits.cpu().numpy()
        law = SamplingPolicy().law_from_logits(row, "the draft")
        tokens.append(choose(row, law))
        confidences.append(float(law.max()))
        if len(tokens) == most or confidences[-1] < threshold:
            draft.stop(tokens[-1])
            return tokens, confidences
        logits = draft.grow(tokens[-1])


def draft_greedily(
    draft: KangarooDraft, most: int = MOST, threshold: float = THRESHOLD
) -> tuple[list[int], list[float]]:
    """As `draft_chain`, each token the adapter's most probable one. For an adapter that
    is asked about all tokens."""
    return draft_chain(draft, lambda row, _: int(row.argmax()), most, threshold)


def chain(tokens: Sequence[int], prefix_len: int) -> CandidateTree:
    """The tree that is one path of `tokens`."""
    tokens = checks.token_ids(tokens)
    return CandidateTree.from_rows(tokens, range(-1, len(tokens) - 1), prefix_len)
