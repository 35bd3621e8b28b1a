"""Small tools that the notebooks share, to keep their cells about the subject."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from . import checks, display
from .chance import Chance
from .chance import law as enumerate_law
from .contract import SourceContract
from .engine import generate
from .errors import SpecbookError
from .policy import SamplingPolicy
from .proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    SamplingRelation,
    Topology,
)
from .tree import CandidateTree


class Table:
    """A table that JupyterLab and the site both draw; elsewhere it is plain text."""

    def __init__(self, header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> None:
        self.header = [str(cell) for cell in header]
        self.rows = [[str(cell) for cell in row] for row in rows]
        for number, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise SpecbookError(
                    f"row {number} has {len(row)} cells under {len(self.header)} heads"
                )

    def _repr_markdown_(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)

    def __repr__(self) -> str:
        lines = [self.header, *self.rows]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(w) for cell, w in zip(line, wide, strict=True)
            ).rstrip()
            for line in lines
        )


def _cell(text: str) -> str:
    """A cell as markdown: a bar or a new line would end it, and with it the table."""
    return " ".join(text.splitlines()).replace("|", "\\|")


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of `rows` under `header`; cells are shown by `str`. Raises
    `SpecbookError` for a row of another length."""
    return Table(header, rows)


def refusal(action: Callable[[], Any]) -> str:
    """The message of the ValueError with which `action` is refused, "" if it is not."""
    try:
        action()
    except ValueError as error:
        return str(error)
    return ""


def call_order(
    action: Callable[[], Any], functions: Mapping[str, Callable[..., Any]]
) -> list[str]:
    """The names of `functions`, {name: function}, in the order in which `action` calls
    them, once for each call. What is not written in Python is not seen. Raises
    `SpecbookError` for a function that is none."""
    names = {}
    for name, function in functions.items():
        code = getattr(function, "__code__", None)
        if code is None:
            raise SpecbookError(f"{name!r} is no Python function: {function!r}")
        names[code] = name
    found: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in names:
            found.append(names[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return found


def distance(one: Mapping[Hashable, Any], other: Mapping[Hashable, Any]) -> Any:
    """Total variation between two laws {result: probability}: the most by which the
    probabilities of any event differ. Exact on Fractions."""
    return sum(abs(one.get(x, 0) - other.get(x, 0)) for x in {*one, *other}) / 2


def decoded_law(
    target: Any, prompt: Sequence[int], source: Any, verifier: Any, length: int
) -> tuple[dict[tuple[int, ...], Any], Any]:
    """What the engine puts out after `prompt`, on all branches of drafting, verifying
    and every round: ({tokens: probability}, expected rounds).

    `length` tokens are decoded at temperature 1, by an exact rule. Of the sources only
    those whose state is made anew for each request can be enumerated.
    """

    def program(chance: Chance) -> tuple[tuple[int, ...], int]:
        made = generate(
            target,
            prompt,
            source,
            verifier,
            max_new_tokens=length,
            temperature=1.0,
            chance=chance,
        )
        return tuple(made.tokens), len(made.rounds)

    tokens: dict[tuple[int, ...], Any] = {}
    rounds: Any = 0
    found: Any = enumerate_law(program)
    for (emitted, count), mass in found.items():
        tokens[emitted] = tokens.get(emitted, 0) + mass
        rounds += count * mass
    return tokens, rounds


class FixedPaths:
    """A draft source that offers the same token paths in every round.

    `paths`: token sequences; they are merged by full prefix and cut to the round's
    depth. Its proposals have no q and count as a deterministic lookup. `score`: a
    ranking number for every node (the contract then says "score_only"), or None.
    Nothing is learnt from a round, so the source can be enumerated. A budget of fewer
    nodes than the paths need raises `SpecbookError`.
    """

    contract = SourceContract(
        "fixed_paths",
        ProbabilitySemantics.ABSENT,
        SamplingRelation.DETERMINISTIC_LOOKUP,
        Topology.TREE,
    )

    def __init__(self, *paths: Sequence[int], score: float | None = None) -> None:
        self.paths = [
            checks.token_ids(path, f"paths[{i}]") for i, path in enumerate(paths)
        ]
        self.score = score
        if score is not None:
            self.contract = replace(
                self.contract, probability_semantics=ProbabilitySemantics.SCORE_ONLY
            )

    def identity(self) -> str:
        """The paths and their score, for the round manifest."""
        return f"fixed_paths {self.paths} score {self.score}"

    def start(
        self,
        prefix: Sequence[int],
        *,
        request: str,
        vocab_size: int,
        policy: SamplingPolicy | None = None,
    ) -> FixedPathsSession:
        """A session for one request; raises for a path outside the vocabulary."""
        for index, path in enumerate(self.paths):
            checks.token_ids(path, f"paths[{index}]", vocab_size=vocab_size)
        return FixedPathsSession(self, request)


class FixedPathsSession:
    """One request to a `FixedPaths` source."""

    def __init__(self, source: FixedPaths, request: str) -> None:
        self._source = source
        self._request = request
        self._commits = 0

    def propose(
        self, *, max_depth: int, max_nodes: int, chance: Any, manifest_hash: str
    ) -> Proposal:
        """The source's paths, cut to `max_depth`. `chance` is not asked."""
        contract = self._source.contract
        tree = CandidateTree.from_paths([p[:max_depth] for p in self._source.paths], 0)
        checks.integer(len(tree), "nodes of the paths", most=max_nodes)
        nodes = tuple(
            ProposalNode(
                token,
                parent,
                depth,
                score=self._source.score,
                source=contract.name,
                state_owner=contract.name,
                origin_request=self._request,
            )
            for token, parent, depth in zip(
                tree.token_ids, tree.parents, tree.depths, strict=True
            )
        )
        about = contract.proposed(self._request, self._commits, manifest_hash)
        return Proposal(nodes, **about)

    def commit(self, tokens: Sequence[int]) -> None:
        """Counts the round; nothing is learnt."""
        self._commits += 1


class Disguised:
    """A target under another identity: the same answers, and other claims about where
    they come from. `about`: fields of its `identity()`, with what is said instead."""

    def __init__(self, target: Any, **about: str) -> None:
        known = target.identity()
        for name, value in about.items():
            checks.one_of(name, "a field of the identity", list(known))
            checks.text(value, name)
        self._target, self._about = target, about

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def identity(self) -> dict[str, str]:
        """As `Target.identity`, with the changes."""
        return {**self._target.identity(), **self._about}


def interval(
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    seed: int = 0,
    resamples: int = 2000,
) -> tuple[float, float, float]:
    """A ratio of sums with its 95 % bootstrap interval: (value, low, high).

    Both lists hold one entry a prompt; prompts are drawn again with replacement, since
    they are what varies from one measurement to the next. Few prompts give a wide
    interval, as they should. Raises `SpecbookError` for what is no number, for lists of
    different lengths or of fewer than two prompts, and for a denominator of 0.
    """
    checks.integer(seed, "seed", least=0)
    checks.integer(resamples, "resamples", least=1)
    lists = [
        [checks.float64(v, f"{name}[{i}]") for i, v in enumerate(given)]
        for name, given in (
            ("numerators", checks.entries(numerators, "numerators", "numbers")),
            ("denominators", checks.entries(denominators, "denominators", "numbers")),
        )
    ]
    if len(lists[0]) != len(lists[1]):
        raise SpecbookError(
            f"{len(lists[0])} numerators do not go with {len(lists[1])} denominators"
        )
    pairs = np.array(lists, dtype=np.float64)
    if pairs.shape[1] < 2 or not (pairs[1] > 0).all():
        raise SpecbookError("an interval needs two prompts and denominators above 0")
    count = pairs.shape[1]
    drawn = np.random.default_rng(seed).integers(count, size=(resamples, count))
    sums = pairs[:, drawn].sum(axis=2)
    low, high = np.quantile(sums[0] / sums[1], (0.025, 0.975))
    value = pairs[0].sum() / pairs[1].sum()
    return float(value), float(min(low, value)), float(max(high, value))


class CopiedText:
    """Decoded text that shows which tokens were accepted candidates.

    `rounds`: as in `engine.Generation`. `decode`: ids to text. Accepted candidates are
    underlined on a tinted face; the target's own token, which ends every round, is
    plain. Outside a notebook accepted text stands in brackets.
    """

    def __init__(
        self, rounds: Iterable[Any], decode: Callable[[list[int]], str], caption: str
    ) -> None:
        self.caption = caption
        self.pieces: list[tuple[str, bool]] = []
        tokens: list[int] = []
        told = ""
        for item in rounds:
            committed = list(item.committed)
            for part, copied in (
                (committed[: item.accepted], True),
                (committed[item.accepted :], False),
            ):
                tokens += part
                text = decode(tokens)
                # A character that spans two parts is shown with the later one.
                text = text.rstrip("\N{REPLACEMENT CHARACTER}")
                if len(text) > len(told):
                    self.pieces.append((text[len(told) :], copied))
                    told = text

    def __repr__(self) -> str:
        shown = "".join(f"[{text}]" if copied else text for text, copied in self.pieces)
        return f"{shown}\n{self.caption}"

    def _repr_html_(self) -> str:
        tint = ";background:#d6ecfa;border-bottom:2px solid #0072B2"
        body = "".join(
            f'<span style="color:#1a1a1a{tint * copied}">{escape(text)}</span>'
            for text, copied in self.pieces
        )
        return (
            '<figure class="specbook-copied" style="margin:1em 0">'
            f'<div style="{display.LIGHT_BOX.format(edge="#0072B2")};'
            f'white-space:pre-wrap;font-family:monospace">{body}</div>'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )
