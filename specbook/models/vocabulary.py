"""Do two models mean the same by the same ids? (case H23)

A draft model's ids are verified as the target's, so the two vocabularies must be equal
token by token. Equal sizes prove nothing, and neither do equal file hashes disprove
anything: tokenizers are compared by content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import TargetError

_SPECIAL = ("bos_token_id", "eos_token_id", "unk_token_id")
"""Ids with a meaning of their own. Not padding: one request at a time has none."""

_PIPELINE = ("normalizer", "pre_tokenizer", "model", "post_processor", "decoder")


def first_difference(target: Any, draft: Any) -> str | None:
    """What first tells the vocabularies of two targets apart, None if nothing does.

    Without tokenizers (a table, a model in memory) an id is just an id, and the sizes
    decide. Where one of the two has a tokenizer, so must the other.
    """
    if target.vocab_size != draft.vocab_size:
        return (
            f"the target's head has {target.vocab_size} rows, the draft's "
            f"{draft.vocab_size}"
        )
    one, other = _tokenizer(target), _tokenizer(draft)
    if one is None and other is None:
        return None
    if one is None or other is None:
        with_one = "target" if other is None else "draft"
        return f"only the {with_one} has a tokenizer, so nothing can be compared"
    return tokenizer_difference(one, other)


def tokenizer_difference(target: Any, draft: Any) -> str | None:
    """What first tells two tokenizers of transformers apart, None if nothing does:
    the token of an id, the role of an added token, the begin, end and unknown tokens,
    then the steps from text to ids (fast tokenizers only)."""
    tokens = [_tokens(tokenizer) for tokenizer in (target, draft)]
    for token_id in sorted({*tokens[0], *tokens[1]}):
        one, other = (found.get(token_id) for found in tokens)
        if one != other:
            return f"id {token_id} is {one!r} in the target and {other!r} in the draft"
    added = [tokenizer.added_tokens_decoder for tokenizer in (target, draft)]
    for token_id in sorted({*added[0], *added[1]}):
        one, other = (_role(found.get(token_id)) for found in added)
        if one != other:
            return (
                f"id {token_id}, {tokens[0][token_id]!r}, is {one} in the target and "
                f"{other} in the draft"
            )
    for name in _SPECIAL:
        one, other = (getattr(found, name, None) for found in (target, draft))
        if one != other:
            return f"{name} is {one} in the target and {other} in the draft"
    steps, others = _pipeline(target), _pipeline(draft)
    for name in _PIPELINE if steps and others else ():
        if steps[name] != others[name]:
            return (
                f"the tokenizers' {name} differ: {_told(steps[name], others[name])} "
                "(target and draft)"
            )
    return None


def _tokenizer(target: Any) -> Any:
    try:
        return getattr(target, "tokenizer", None)
    except TargetError:  # in memory, or a folder that holds none
        return None


def _tokens(tokenizer: Any) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}


def _role(added: Any) -> str:
    if added is None:
        return "no added token"
    flags = [
        name
        for name in ("special", "single_word", "lstrip", "rstrip", "normalized")
        if getattr(added, name, False)
    ]
    return f"an added token ({', '.join(flags) or 'plain'})"


def _pipeline(tokenizer: Any) -> dict[str, Any]:
    """The steps of a fast tokenizer, {} for another. A plain vocabulary has been
    compared; one with scores (a list) belongs to the steps."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {}
    steps = json.loads(backend.to_str())
    if isinstance(steps["model"].get("vocab"), Mapping):
        del steps["model"]["vocab"]
    return {name: steps.get(name) for name in _PIPELINE}


def _told(one: Any, other: Any) -> str:
    """The first part in which they differ, short enough for a message."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            if one.get(key) != other.get(key):
                return f"{key}: {_told(one.get(key), other.get(key))}"
    if isinstance(one, list) and isinstance(other, list):
        for index, (left, right) in enumerate(zip(one, other, strict=False)):
            if left != right:
                return f"[{index}]: {_told(left, right)}"
        return f"{len(one)} and {len(other)} entries"
    return f"{one!r:.80} and {other!r:.80}"
