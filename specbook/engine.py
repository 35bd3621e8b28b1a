"""The decoding loop: propose, bind, compile, verify, select, publish.

One request at a time; scheduling many requests is the article's neighbour's subject.
The loop owns no rule of its own: what is exact is the verifier, and the whole loop
can be enumerated through `chance`, state from round to round included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import checks, registry
from .chance import Chance, Sampler
from .contract import (
    Selection,
    SourceContract,
    Verifier,
    VerifierContract,
    bind,
    contract_of,
    negotiate,
)
from .errors import (
    ContractError,
    LawError,
    ManifestError,
    ProposalError,
    SpecbookError,
    TargetError,
)
from .ledger import RoundLedger, Stopwatch
from .manifest import RoundManifest
from .policy import SamplingPolicy
from .proposal import Proposal, ProposalNode, ProposalStateHandle
from .tree import ORDERS, CandidateTree

MAX_NODES = 64
MAX_DEPTH = 64
TEMPORARY_STATE_BYTES = 1 << 30
REQUEST = "request-0"
"""The name of the one request that `generate` runs; every proposal must be for it."""

_IDENTITY = ("checkpoint", "tokenizer", "output_head", "dtype", "backend")
_TARGET = ("vocab_size", "context_limit", "identity", "start")


@dataclass(frozen=True)
class Round:
    """What one round did.

    `accepted` counts published tokens that were candidates; `committed` is every
    token published, so it holds the correction or bonus token too, unless the
    output ended inside the accepted block. `ending` is "correction" (a candidate was
    refused), "bonus" (the path reached a leaf), "ordinary" (there was no candidate)
    or "cut" (end of sequence, length or context came first).
    """

    manifest_hash: str
    tree: CandidateTree
    selection: Selection
    committed: tuple[int, ...]
    accepted: int
    ending: str
    ledger: RoundLedger


@dataclass(frozen=True)
class Generation:
    """The new tokens (the prompt is not repeated), and how they came about.

    `stop_reason`: "eos", "length" (max_new_tokens) or "context" (the target's own
    limit). `ledger` is the sum over the rounds.
    """

    tokens: list[int]
    rounds: list[Round]
    stop_reason: str
    manifest: RoundManifest

    @property
    def ledger(self) -> RoundLedger:
        """The six cost terms and the committed tokens, added up over the rounds."""
        return RoundLedger.total(r.ledger for r in self.rounds)

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens a round: the correction or bonus token counts."""
        return len(self.tokens) / len(self.rounds) if self.rounds else 0.0


def generate(
    target: Any,
    prompt_ids: Sequence[int],
    source: Any = None,
    verifier: Any = "greedy",
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    eos_token_id: int | Iterable[int] | None = None,
    chance: Chance | None = None,
    manifest: RoundManifest | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    exact: bool = True,
    max_nodes: int = MAX_NODES,
    max_depth: int = MAX_DEPTH,
    temporary_state_bytes: int = TEMPORARY_STATE_BYTES,
    order: str = "breadth",
    on_round: Callable[[Round], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Generation:
    """Decodes up to `max_new_tokens` tokens after `prompt_ids`.

    `source`: None (ordinary decoding), a name of the registry, a draft source, or a
    list of those, whose proposals are merged by full prefix; earlier ones have first
    call on the node budget. A source that drafts with the target's own layers may ask
    for a form of it in which they can be reached (`fitted_target`). `verifier`: a name
    or a `Verifier`. `temperature` 0 is greedy; `seed` feeds a sampler of this call's
    own; `chance` replaces it, for example by the enumerator of `chance.law`.
    `eos_token_id`: one id, several, or None for no end token. `manifest`: one frozen
    beforehand (see `round_manifest`); it then sets the limits and the mode, and every
    other field must describe what is running. `on_round` is called after each round.

    Raises `ContractError` before any target call when source and verifier do not fit,
    and another `ValueError` for bad input. A part that breaks its word in mid-run is
    refused in the round where it does, and that round publishes nothing: a source
    whose proposal is for another request or of another generation (`ProposalError`),
    a target whose session is out of step (`TargetError`), an exact rule, or its
    `chance`, that takes a token of probability 0 (`ContractError`).
    """
    checks.integer(max_new_tokens, "max_new_tokens", least=0)
    checks.one_of(order, "order", ORDERS)
    _check_part(target, "target", *_TARGET)
    _check_part(clock, "clock", "__call__")
    if chance is not None:
        _check_part(chance, "chance", "flip", "draw")
    if on_round is not None:
        _check_part(on_round, "callback", "__call__")
    policy = SamplingPolicy(temperature, top_k, top_p)
    sources = _sources(source)
    target = fitted_target(target, sources)
    verifier = _verifier(verifier, policy)
    ends = _end_tokens(eos_token_id, target.vocab_size)
    prompt = checks.token_ids(prompt_ids, "prompt_ids", vocab_size=target.vocab_size)
    if target.context_limit is not None:
        checks.integer(
            target.context_limit, "target.context_limit", least=1, error=TargetError
        )
    limits: dict[str, Any] = {
        "max_nodes": max_nodes,
        "max_depth": max_depth,
        "temporary_state_bytes": temporary_state_bytes,
        "mode": "exact" if checks.boolean(exact, "exact") else "heuristic",
    }
    if manifest is not None:
        if not isinstance(manifest, RoundManifest):
            raise ManifestError(f"not a manifest: {manifest!r}")
        limits = {name: getattr(manifest, name) for name in limits}
    running = round_manifest(
        target,
        sources,
        verifier,
        policy,
        rng_policy=_rng_policy(seed, chance),
        topology_compiler=f"merge by full prefix, {order} order",
        hardware_profile=manifest.hardware_profile if manifest else "unprofiled",
        **limits,
    )
    if manifest is not None:
        _check_manifest(manifest, running)
    # Every clash that contracts alone can show is found here; a merge of two sources
    # that happen to miss in turn would otherwise be refused in mid-sentence.
    negotiate(
        [item.contract for item in sources], verifier, exact=running.mode == "exact"
    )
    for item in sources:
        if hasattr(item, "check_target"):
            item.check_target(target)
    chance = Sampler(seed) if chance is None else chance

    session = target.start(prompt)
    _check_part(
        session,
        "target session",
        *("tokens", "generation", "verify", "commit", "bytes_per_row"),
    )
    drafters = [
        item.start(prompt, request=REQUEST, vocab_size=target.vocab_size, policy=policy)
        for item in sources
    ]
    for item, drafter in zip(sources, drafters, strict=True):
        _check_part(drafter, f"session of {item.contract.name!r}", "propose", "commit")
        if hasattr(drafter, "join"):
            drafter.join(session)
    if any(hasattr(drafter, "observe") for drafter in drafters):
        _check_part(
            session,
            "target session with hidden states",
            *("watch_hidden", "committed_hidden"),
        )
        session.watch_hidden()
    rounds: list[Round] = []
    tokens: list[int] = []
    while True:
        _check_session(session, [*prompt, *tokens], len(rounds))
        room = max_new_tokens - len(tokens)
        stop_reason = "length"
        if target.context_limit is not None:
            left = target.context_limit - len(session.tokens)
            if left < room:
                room, stop_reason = left, "context"
        if room <= 0:
            break
        current = running.replace(
            target_cache_generation=session.generation,
            proposal_cache_generation=len(rounds),
        )
        record = _round(
            session,
            list(zip(sources, drafters, strict=True)),
            verifier,
            policy,
            chance,
            current,
            room,
            ends,
            target.vocab_size,
            order,
            Stopwatch(clock),
        )
        rounds.append(record)
        tokens.extend(record.committed)
        if on_round is not None:
            on_round(record)
        if record.committed[-1] in ends:
            stop_reason = "eos"
            break
    return Generation(tokens, rounds, stop_reason, running)


def _round(
    session: Any,
    drafters: list[tuple[Any, Any]],
    verifier: Verifier,
    policy: SamplingPolicy,
    chance: Chance,
    manifest: RoundManifest,
    room: int,
    ends: frozenset[int],
    vocab_size: int,
    order: str,
    watch: Stopwatch,
) -> Round:
    # The last of `room` tokens can always be the correction or bonus token, so a
    # candidate deeper than room - 1 could never be published.
    depth = min(manifest.max_depth, room - 1)
    nodes = manifest.max_nodes
    # What the state budget cannot hold is not asked for, rather than refused later.
    row_bytes = checks.integer(
        session.bytes_per_row(), "bytes_per_row()", least=0, error=TargetError
    )
    if row_bytes > 0:
        nodes = min(nodes, manifest.temporary_state_bytes // row_bytes)
    proposals: list[Proposal] = []
    for source, drafter in drafters:
        with watch.bill(source.contract.cost_term):
            proposal = drafter.propose(
                max_depth=depth,
                max_nodes=nodes,
                chance=chance,
                manifest_hash=manifest.hash,
            )
        proposal = _checked(
            proposal, source.contract, manifest.proposal_cache_generation
        )
        _check_budget(proposal, source.contract, depth, nodes)
        _check_laws(proposal, source.contract.name, verifier.contract, vocab_size)
        nodes -= len(proposal.nodes)
        proposals.append(proposal)
    with watch.bill("packing"):
        bind(
            proposals,
            verifier,
            manifest=manifest,
            bytes_per_node=row_bytes,
        )
        tree = CandidateTree.from_proposals(proposals, len(session.tokens), order)
    with watch.bill("target_verify"):
        verified = session.verify(tree)
    _check_part(verified, "target answer", "prepare", "law")
    asked: dict[int, np.ndarray] = {}

    def law(row: int) -> np.ndarray:
        with watch.bill("target_verify"):
            verified.prepare(row)
        answer = verified.law(row, policy)
        if not isinstance(answer, np.ndarray) or answer.shape != (vocab_size,):
            raise LawError(f"the law of row {row} is no array [{vocab_size}]")
        asked[row] = answer
        return answer

    with watch.bill("selection"):
        selection = verifier.select(tree, law, chance)
        if not isinstance(selection, Selection):
            name = verifier.contract.name
            raise ContractError(f"{name}: not a Selection: {selection!r}")
        block = [tree.token_ids[r] for r in tree.check_path(selection.rows)]
        block += checks.token_ids(
            [selection.token], "the token after the path", vocab_size=vocab_size
        )
        if verifier.contract.exact:
            _check_mass(verifier.contract.name, selection.rows, block, asked)
        published = _cut(block, room, ends)
    with watch.bill("temporary_state"):
        session.commit(selection.rows[: len(published) - 1], published[-1])
        for _, drafter in drafters:
            drafter.commit(published)
        _show_hidden(session, drafters, tree.prefix_len)
    if len(published) < len(block):
        ending = "cut"
    elif not tree:
        ending = "ordinary"
    else:
        last = selection.rows[-1] if selection.rows else -1
        ending = "correction" if tree.children(last) else "bonus"
    return Round(
        manifest_hash=manifest.hash,
        # A record of many rounds must not keep a vocabulary for each candidate.
        tree=tree.without_laws(),
        selection=selection,
        committed=tuple(published),
        accepted=min(len(selection.rows), len(published)),
        ending=ending,
        ledger=watch.close(len(published)),
    )


def _show_hidden(session: Any, drafters: list[tuple[Any, Any]], before: int) -> None:
    """Give the states of the rows that were just committed to every source that reads
    them. The cache held all but the last of the `before` tokens that there were; before
    the first commit it was empty."""
    readers = [drafter for _, drafter in drafters if hasattr(drafter, "observe")]
    if not readers:
        return
    hidden = session.committed_hidden()
    first = 0 if session.generation == 1 else before - 1
    if len(hidden) != len(session.tokens) - 1 - first:
        raise TargetError(
            f"the target gave {len(hidden)} hidden states for the "
            f"{len(session.tokens) - 1 - first} rows that were committed"
        )
    for drafter in readers:
        drafter.observe(hidden)


def _check_mass(
    name: str, rows: Sequence[int], block: Sequence[int], asked: Mapping[int, Any]
) -> None:
    """Every token is possible under the law that the rule asked for at its place.

    It costs one look a token, and it holds for every exact rule: one that publishes
    what the target cannot say has a mistake, or was given a chance that has one. A
    place whose law the rule did not ask for is left to the rule's own proof.
    """
    for row, token in zip((-1, *rows), block, strict=True):
        # A NaN is not above 0 either.
        if row in asked and not asked[row][token] > 0:
            raise ContractError(
                f"{name}: token {token} after row {row} has probability "
                f"{asked[row][token]} there; the rule or its chance is wrong"
            )


def _check_session(session: Any, tokens: list[int], commits: int) -> None:
    """A session that is out of step would answer for another prefix."""
    held = checks.entries(session.tokens, "session.tokens", "token ids", TargetError)
    if held != tokens:
        raise TargetError(
            f"the target's session holds {len(held)} tokens that are not the "
            f"{len(tokens)} of the prompt and the output"
        )
    counted = checks.integer(session.generation, "session.generation")
    if counted != commits:
        raise TargetError(f"session.generation is {counted} after {commits} commits")


def _cut(block: list[int], room: int, ends: frozenset[int]) -> list[int]:
    """The part of an accepted block that may be published: up to the first end token,
    wherever in the block it stands, and never more than `room` tokens."""
    for index, token in enumerate(block[:room]):
        if token in ends:
            return block[: index + 1]
    return block[:room]


def fitted_target(target: Any, sources: Any) -> Any:
    """`target` in the form that `sources` need.

    A source that drafts with the target's own lowest layers has a method `target_for`:
    it returns the same target with those layers reachable. Only the backend may be
    another; `TargetError` if it is another model.
    """
    for item in _sources(sources):
        if not hasattr(item, "target_for"):
            continue
        before, name = _identity(target), item.contract.name
        target = item.target_for(target)
        _check_part(target, f"target of {name!r}", *_TARGET)
        after = _identity(target)
        for field in _IDENTITY:
            if field != "backend" and before[field] != after[field]:
                raise TargetError(
                    f"{name}: its form of the target has another {field}: "
                    f"{after[field]}, not {before[field]}"
                )
    return target


def _identity(target: Any) -> Mapping[str, str]:
    """What a manifest binds of a target, all of it."""
    about = target.identity()
    if not isinstance(about, Mapping):
        raise TargetError(f"target.identity() must be a mapping, got {about!r}")
    if missing := sorted(set(_IDENTITY) - set(about)):
        raise TargetError(f"target.identity() lacks {missing}")
    return about


def round_manifest(
    target: Any,
    source: Any,
    verifier: Any,
    policy: SamplingPolicy,
    *,
    rng_policy: str = "numpy PCG64, seed 0",
    topology_compiler: str = "merge by full prefix, breadth order",
    hardware_profile: str = "unprofiled",
    max_nodes: int = MAX_NODES,
    max_depth: int = MAX_DEPTH,
    temporary_state_bytes: int = TEMPORARY_STATE_BYTES,
    mode: str = "exact",
) -> RoundManifest:
    """The manifest that binds this target, source, verifier and policy at the start of
    a request (both cache generations 0). Pass it to `generate` to be sure that what
    runs later is still what was frozen here."""
    _check_part(target, "target", "identity")
    if not isinstance(policy, SamplingPolicy):
        raise SpecbookError(f"not a SamplingPolicy: {policy!r}")
    sources = _sources(source)
    target = fitted_target(target, sources)
    contracts = [item.contract for item in sources]

    def joined(values: Iterable[str]) -> str:
        return " + ".join(values) or "none"

    truncation = [
        f"{name} {value}"
        for name, value in (("top-k", policy.top_k), ("top-p", policy.top_p))
        if value is not None
    ]
    about = _identity(target)
    artifacts = [
        checks.text(item.identity(), f"identity() of source {item.contract.name!r}")
        for item in sources
    ]
    return RoundManifest(
        target_checkpoint=about["checkpoint"],
        tokenizer=about["tokenizer"],
        output_head=about["output_head"],
        sampling_policy="argmax" if policy.greedy else "categorical",
        temperature=policy.temperature,
        truncation=joined(truncation),
        rng_policy=rng_policy,
        proposal_artifact=joined(artifacts),
        probability_semantics=joined(c.probability_semantics for c in contracts),
        sampling_relation=joined(c.sampling_relation for c in contracts),
        topology_compiler=topology_compiler,
        max_nodes=max_nodes,
        max_depth=max_depth,
        verifier=contract_of(verifier).name,
        mode=mode,
        target_cache_generation=0,
        proposal_cache_generation=0,
        backend=about["backend"],
        dtype=about["dtype"],
        batch_regime="one request",
        hardware_profile=hardware_profile,
        temporary_state_bytes=temporary_state_bytes,
    )


def _check_part(thing: Any, what: str, *names: str) -> None:
    """`thing` answers to `names` and is no class: a class was meant to be called."""
    missing = [name for name in names if not hasattr(thing, name)]
    if missing or isinstance(thing, type):
        raise SpecbookError(f"not a {what}: {thing!r} (lacks {missing})")


def _sources(source: Any) -> list[Any]:
    items = source if isinstance(source, (list, tuple)) else [source]
    found = []
    for item in items:
        if item is None:
            continue
        if isinstance(item, str):
            if item not in registry.DRAFTS:
                raise SpecbookError(
                    f"no draft source is called {item!r}; there are "
                    f"{sorted(registry.DRAFTS)}, and None decodes plainly, without one"
                )
            item = registry.resolve(registry.DRAFTS, "draft source", item)()
        _check_part(item, "draft source", "contract", "identity", "start")
        if not isinstance(item.contract, SourceContract):
            raise SpecbookError(f"not a draft source: {item!r}")
        found.append(item)
    return found


def _verifier(verifier: Any, policy: SamplingPolicy) -> Verifier:
    if isinstance(verifier, str):
        verifier = registry.resolve(registry.VERIFIERS, "verifier", verifier)
    if not isinstance(verifier, Verifier):
        raise ContractError(f"not a verifier: {verifier!r}")
    if verifier.contract.greedy_only and not policy.greedy:
        raise ContractError(
            f"verifier {verifier.contract.name!r} selects by argmax, so it needs "
            f"temperature 0, got {policy.temperature}"
        )
    return verifier


def _end_tokens(ids: Any, vocab_size: int) -> frozenset[int]:
    if ids is None:
        return frozenset()
    if hasattr(ids, "tolist"):
        ids = ids.tolist()
    if isinstance(ids, Set) or not isinstance(ids, Iterable):
        ids = list(ids) if isinstance(ids, Set) else [ids]
    return frozenset(checks.token_ids(ids, "eos_token_id", vocab_size=vocab_size))


def _rng_policy(seed: int, chance: Chance | None) -> str:
    if chance is None:
        return f"numpy PCG64, seed {checks.integer(seed, 'seed', least=0)}"
    return f"the caller's {type(chance).__name__}"


def _check_manifest(frozen: RoundManifest, running: RoundManifest) -> None:
    """The start of a request is generation 0, so every field must agree."""
    if different := frozen.differences(running):
        told = "; ".join(
            f"{name} is {now!r}, frozen as {was!r}"
            for name, (was, now) in different.items()
        )
        raise ManifestError(f"the manifest does not describe this run: {told}")


def _checked(proposal: Any, contract: SourceContract, generation: int) -> Proposal:
    """The proposal, if it is this source's, for this request and of this round.

    It is checked anew, since what was forced into a frozen object never was. A
    candidate or a state of another request must not get in, however well its tokens
    fit (section 0x0F gives each row its `origin_request` for that).
    """
    if not isinstance(proposal, Proposal):
        raise ProposalError(f"{contract.name}: not a Proposal: {proposal!r}")
    # The handle and the nodes first: the proposal's own checks read them.
    nodes = checks.entries(proposal.nodes, "nodes", "ProposalNodes", ProposalError)
    parts: list[tuple[Any, Any]] = [(node, ProposalNode) for node in nodes]
    parts.append((proposal.state_handle, ProposalStateHandle))
    for part, kind in parts:
        if not isinstance(part, kind):
            raise ProposalError(f"{contract.name}: not a {kind.__name__}: {part!r}")
        part.__post_init__()
    proposal.__post_init__()
    handle = proposal.state_handle
    for name, expected in (
        ("owner", contract.name),
        ("request", REQUEST),
        ("generation", generation),
    ):
        if (found := getattr(handle, name)) != expected:
            raise ProposalError(
                f"{contract.name}: the state handle's {name} is {found!r}, "
                f"this round's is {expected!r}"
            )
    for index, node in enumerate(proposal.nodes):
        if node.origin_request not in ("", REQUEST):
            raise ProposalError(
                f"{contract.name}: nodes[{index}] has origin_request "
                f"{node.origin_request!r}, this request is {REQUEST!r}"
            )
        if node.state_owner not in ("", contract.name, node.source):
            raise ProposalError(
                f"{contract.name}: nodes[{index}] has state_owner "
                f"{node.state_owner!r}, which is neither the source nor the node's own"
            )
    return proposal


def _check_budget(
    proposal: Proposal, contract: SourceContract, depth: int, nodes: int
) -> None:
    """A source that overruns its budget, or breaks its own contract, is a bug to be
    reported; trimming its proposal here would hide it."""
    if len(proposal.nodes) > nodes:
        raise ProposalError(
            f"{contract.name}: {len(proposal.nodes)} nodes, the budget is {nodes}"
        )
    deepest = max((node.depth for node in proposal.nodes), default=0)
    if deepest > depth:
        raise ProposalError(f"{contract.name}: depth {deepest}, the limit is {depth}")
    for name in ("probability_semantics", "sampling_relation", "topology"):
        promised, made = getattr(contract, name), getattr(proposal, name)
        if promised != made:
            raise ProposalError(
                f"{contract.name}: its contract says {name} {promised.value!r}, "
                f"its proposal {made.value!r}"
            )


def _check_laws(
    proposal: Proposal, source: str, rule: VerifierContract, vocab_size: int
) -> None:
    """A rule that reads q needs all of it, over this target's vocabulary: what is left
    of p after a refusal depends on what q gives to every token."""
    for index, node in enumerate(proposal.nodes):
        if node.law is None:
            if rule.reads_q:
                raise ContractError(
                    f"verifier {rule.name!r} reads q, and {source}'s nodes[{index}] "
                    "comes without the law that it was drawn from"
                )
        elif len(node.law) != vocab_size:
            raise ProposalError(
                f"{source}: nodes[{index}] was drawn from a law [{len(node.law)}], "
                f"the target's vocabulary has {vocab_size}"
            )
