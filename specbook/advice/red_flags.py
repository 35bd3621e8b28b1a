"""The nine sentences of section 0x11, each with the claims of this book that refute it.

A flag is refuted by measurement or by an exact counter-example, and these stand in the
chapters: here is which. A test holds the ids to the register.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import lab


@dataclass(frozen=True)
class RedFlag:
    """`said`: the sentence, in our words; `instead`: what is true; `claims`: ids of the
    register that show it."""

    said: str
    instead: str
    claims: tuple[str, ...]


FLAGS: tuple[RedFlag, ...] = (
    RedFlag(
        "Any source goes with any verifier.",
        "What a proposal says of its numbers and its draws decides which rules may "
        "meet it.",
        ("0x11-any-pair", "0x02A-refused-before-target", "0x02A-wrong-pair"),
    ),
    RedFlag(
        "Dependent heads are Medusa, only more accurate.",
        "They know the path, and so they wait for it: a step for each level.",
        ("0x11-heads-wait", "0x0BA-independent-marginal", "0x0BA-hard-conditional"),
    ),
    RedFlag(
        "Retrieval runs no model, so it is free.",
        "It pays with an index, a search, and rows of the target.",
        ("0x11-retrieval-pays", "0x04B-offline-work", "0x04A-miss-costs"),
    ),
    RedFlag(
        "With tree attention every shape costs the same.",
        "Rows have a price, and depth is paid by who drafts.",
        ("0x11-rows-have-a-price", "0x0AD-staircase", "0x0AD-batches-want-less"),
    ),
    RedFlag(
        "Take what has the longest accepted path.",
        "Take what has the least time a token.",
        ("0x10-longest-is-not-fastest", "0x02C-acceptance-can-lose"),
    ),
    RedFlag(
        "A tree is calibrated once and for all.",
        "It rests on target, drafter, rule, temperature, text and machine.",
        ("0x11-times-move-the-tree", "0x0AE-names-what-changed"),
    ),
    RedFlag(
        "The same token at the same depth is the same node.",
        "A node is its whole path: the target's state there is another.",
        ("0x11-same-token-two-rows",),
    ),
    RedFlag(
        "A score will do for q.",
        "Only the law that drew the candidates will.",
        ("0x11-score-is-no-q", "0x02-q-is-not-score", "0x04B-frequency-not-q"),
    ),
    RedFlag(
        "The optimal transport of SpecTr settles trees.",
        "It settles one position. A tree needs a plan at each node, and the best plans "
        "of the nodes are not the best of the tree.",
        ("0x08C-tree-needs-histories", "0x08C-tree-optimum"),
    ),
)


def table() -> lab.Table:
    """The flags, what is true instead, and where it is shown."""
    rows = [[one.said, one.instead, ", ".join(one.claims)] for one in FLAGS]
    return lab.table(["said", "instead", "shown by"], rows)
