"""REST as a draft source: what followed the longest matching suffix in a datastore.

Its contract stands in `nodes`. A verifier that draws from the target and asks whether a
candidate carries the draw keeps the target's law, whatever the corpus says (section
0x04B).
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

from ... import checks
from ...errors import ContractError, SpecbookError
from ...policy import SamplingPolicy
from ...proposal import Proposal
from .datastore import Datastore
from .nodes import CONTRACT, proposal_of
from .release import UNDECLARED

NODE_BUDGET = 64


def rest_propose(
    prefix: Iterable[int],
    datastore: Datastore,
    max_suffix: int,
    node_budget: int,
    *,
    max_depth: int | None = None,
    request: str = "request-0",
    generation: int = 0,
    manifest_hash: str = "",
) -> Proposal:
    """The article's function: look up the longest suffix, merge and count, prune.

    `prefix`: token ids. `max_suffix`: the longest suffix to look up, in tokens; shorter
    ones are tried down to one. `node_budget`: the most nodes of the tree. `max_depth`:
    in edges, at most the datastore's continuation length. The proposal is empty where
    nothing matches. Raises `ValueError` for bad input. Section 0x04B.
    """
    nodes = _checked(datastore)._asked(prefix, max_suffix, node_budget, max_depth)
    return proposal_of(
        nodes, request=request, generation=generation, manifest_hash=manifest_hash
    )


def _checked(datastore: Any) -> Datastore:
    if isinstance(datastore, Datastore):
        return datastore
    if datastore is None:
        raise SpecbookError(
            "REST needs a datastore. Make one from documents of token ids, "
            "`Datastore.build(documents)`, or from the installed packages' sources for "
            "a loaded target, `build_for_target(path, target)`; both are in "
            "specbook.drafts.rest. Then give it, or its path, to `Rest(...)`"
        )
    raise SpecbookError(f"not a datastore: {datastore!r}")


class Rest:
    """The draft source. It has no weights and keeps no state between requests.

    `datastore`: a `Datastore` or the path of a saved one. `max_suffix`: the longest
    suffix to look up, by default the datastore's context length. `node_budget`: the
    most nodes of a tree. Raises `ValueError` for bad options and without a datastore.
    """

    contract = CONTRACT

    def __init__(
        self,
        datastore: Datastore | str | os.PathLike[str] | None = None,
        max_suffix: int | None = None,
        node_budget: int = NODE_BUDGET,
    ) -> None:
        if isinstance(datastore, (str, os.PathLike)):
            datastore = Datastore.load(datastore)
        self.datastore = _checked(datastore)
        if max_suffix is None:
            max_suffix = self.datastore.release.context_length
        self.max_suffix = checks.integer(max_suffix, "max_suffix", least=0)
        self.node_budget = checks.integer(node_budget, "node_budget", least=0)

    def identity(self) -> str:
        """The options and the hash of the datastore's release, for the manifest."""
        return (
            f"rest max_suffix={self.max_suffix} node_budget={self.node_budget} "
            f"datastore={self.datastore.hash}"
        )

    def check_target(self, target: Any) -> None:
        """Raises `ContractError` if the datastore's ids are not this target's: it was
        bound to another tokenizer, or holds an id that the target has not."""
        ours = self.datastore.release.tokenizer
        theirs = target.identity()["tokenizer"]
        if ours not in (UNDECLARED, theirs):
            raise ContractError(
                f"the datastore was made with tokenizer {ours!r}, the target's is "
                f"{theirs!r}"
            )
        self._check_ids(target.vocab_size)

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> RestSession:
        """A session for one request whose prompt is `prefix` (token ids). A lookup
        does not sample, so `policy` is not asked."""
        tokens = checks.token_ids(prefix, "prefix", vocab_size=vocab_size)
        if vocab_size is not None:
            self._check_ids(vocab_size)
        return RestSession(self, tokens, request, vocab_size, manifest_hash)

    def _check_ids(self, vocab_size: int) -> None:
        if self.datastore.largest_id >= vocab_size:
            raise ContractError(
                f"the datastore holds token id {self.datastore.largest_id}, the "
                f"target's vocabulary is 0 .. {vocab_size - 1}"
            )


class RestSession:
    """One request: the last tokens of its prefix, and nothing else."""

    def __init__(
        self,
        source: Rest,
        prefix: list[int],
        request: str,
        vocab_size: int | None,
        manifest_hash: str,
    ) -> None:
        self._source = source
        self._request = checks.text(request, "request")
        self._vocab_size = vocab_size
        self._manifest_hash = checks.text(manifest_hash, "manifest_hash")
        # No prefix is longer than that, whatever length may be looked up.
        self._tail = deque(prefix, maxlen=min(source.max_suffix, sys.maxsize))
        self._commits = 0

    def propose(
        self,
        *,
        max_depth: int,
        max_nodes: int,
        chance: Any = None,
        manifest_hash: str | None = None,
    ) -> Proposal:
        """The best nodes after the last tokens, within both the round's limits and the
        source's budget. `chance` is not asked: a lookup is deterministic."""
        checks.integer(max_depth, "max_depth", least=0)
        checks.integer(max_nodes, "max_nodes", least=0)
        store = self._source.datastore
        nodes = store._ranked(
            list(self._tail),
            min(self._source.node_budget, max_nodes),
            min(store.release.continuation_length, max_depth),
        )
        return proposal_of(
            nodes,
            request=self._request,
            generation=self._commits,
            manifest_hash=(
                self._manifest_hash if manifest_hash is None else manifest_hash
            ),
        )

    def commit(self, tokens: Iterable[int]) -> None:
        """The tokens that the round published, in order."""
        self._tail.extend(checks.token_ids(tokens, vocab_size=self._vocab_size))
        self._commits += 1
