"""A draft source and a rule that a reader might add: each one file and one line."""

from __future__ import annotations

from dataclasses import replace

from specbook.contract import Verifier
from specbook.drafts.suffix import CONTRACT, Suffix
from specbook.verifiers import membership


class Echo(Suffix):
    """Suffix lookup under another name."""

    contract = replace(CONTRACT, name="echo")


RULE = Verifier(
    replace(membership.VERIFIER.contract, name="membership_too"),
    membership.VERIFIER.select,
)
