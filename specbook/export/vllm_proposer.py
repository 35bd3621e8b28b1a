"""A source of ours as a proposer of vLLM (`method: custom_class`).

vLLM hands over the batch as arrays, row by row, and no request ids: rows move when
requests finish, and a row that is still reading its prompt has sampled nothing. So a
session is found again by its tokens, which must be the beginning of a row's; a row that
no session fits gets a new one. A session that was lost costs time and never a token,
since drafts are verified. vLLM itself is not imported.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any

import numpy as np

from .. import checks
from ..errors import SpecbookError
from . import sources
from .chains import chain, check_free

SOURCE_VARIABLE = "SPECBOOK_VLLM_SOURCE"
"""The environment variable with the path of the source file (`sources.save`)."""

IDLE = 256
"""How many sessions are kept whose requests are not in the batch now."""


class Proposer:
    """What vLLM makes from `model: specbook.export.vllm.Proposer`.

    `vllm_config`: its config; read are `speculative_config.num_speculative_tokens` and
    `model_config.max_model_len`, and the vocabulary where the config tells it.
    `source`: a source of ours; by default the one of the file that `SOURCE_VARIABLE`
    names. Raises `ValueError` for a source that draws.
    """

    def __init__(self, vllm_config: Any, source: Any = None) -> None:
        if source is None:
            if not (path := os.environ.get(SOURCE_VARIABLE)):
                raise SpecbookError(
                    f"{SOURCE_VARIABLE} must hold the path of a source file; specbook "
                    "export vllm custom writes one"
                )
            source = sources.load(path)
        check_free(source)
        self.source = source
        try:
            length = vllm_config.speculative_config.num_speculative_tokens
            limit = vllm_config.model_config.max_model_len
        except AttributeError as problem:
            raise SpecbookError(f"not the config of this version: {problem}") from None
        self.length = checks.integer(length, "num_speculative_tokens", least=1)
        self.limit = checks.integer(limit, "max_model_len", least=1)
        self._vocab_size = _vocab_size(vllm_config)
        self._sessions: OrderedDict[int, _Request] = OrderedDict()
        self._places: dict[int, int] = {}
        self._made = 0

    def load_model(self, *arguments: Any, **options: Any) -> None:
        """vLLM calls it for proposers with weights; there are none."""

    def propose(
        self,
        sampled_token_ids: Any,
        num_tokens_no_spec: Any,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Drafts for every request, in the order of the batch.

        `sampled_token_ids`: what each request has just sampled, empty for one that
        still reads its prompt: it gets no drafts. `num_tokens_no_spec` [rows]: how many
        tokens of a row count; `token_ids_cpu` [rows, any]: the tokens, padded.
        `slot_mappings` is not read. Raises `ValueError` where these contradict one
        another: the interface must have changed.
        """
        rows = [
            checks.token_ids(sampled, f"sampled_token_ids[{place}]")
            for place, sampled in enumerate(
                checks.entries(sampled_token_ids, "sampled_token_ids", "token lists")
            )
        ]
        try:
            lengths, table = np.asarray(num_tokens_no_spec), np.asarray(token_ids_cpu)
        except ValueError as problem:
            raise SpecbookError(f"not arrays of this version: {problem}") from None
        self._check(rows, lengths, table)
        found: list[list[int]] = []
        busy: set[int] = set()
        for place, recent in enumerate(rows):
            count = int(lengths[place])
            if not recent or count >= self.limit:
                found.append([])
                continue
            row = table[place, :count]
            if row[max(0, count - len(recent)) :].tolist() != recent:
                raise SpecbookError(
                    f"row {place} ends in {row[-len(recent) :].tolist()}, and its "
                    f"request sampled {recent}: not the interface of this version"
                )
            request = self._request(place, row, busy)
            # The engine adds one token of its own to what it accepts.
            found.append(
                chain(request.session, min(self.length, self.limit - count - 1))
            )
        while len(self._sessions) - len(busy) > IDLE:
            oldest = next(key for key in self._sessions if key not in busy)
            del self._sessions[oldest]
        return found

    def _check(self, rows: list[Any], lengths: np.ndarray, table: np.ndarray) -> None:
        if lengths.ndim != 1 or table.ndim != 2:
            raise SpecbookError(
                f"num_tokens_no_spec has shape {lengths.shape}, token_ids_cpu "
                f"{table.shape}; expected [rows] and [rows, tokens]"
            )
        if lengths.dtype.kind not in "iu" or table.dtype.kind not in "iu":
            raise SpecbookError("num_tokens_no_spec and token_ids_cpu must be integers")
        if len(rows) > min(len(lengths), len(table)):
            raise SpecbookError(
                f"{len(rows)} requests sampled, and the arrays have {len(lengths)} and "
                f"{len(table)} rows"
            )
        used = lengths[: len(rows)]
        if len(rows) and not (0 <= used.min() and used.max() <= table.shape[1]):
            raise SpecbookError(
                f"num_tokens_no_spec is {used.tolist()}, rows have {table.shape[1]} "
                "places"
            )

    def _request(self, place: int, row: np.ndarray, busy: set[int]) -> _Request:
        """The session that `row` goes on from, taken note of what is new: the one that
        was in its place before, or the one with the longest text; a new one where none
        fits."""
        free = [key for key in self._sessions if key not in busy]
        last = self._places.get(place)
        best = last if last in free and self._sessions[last].begins(row) else None
        if best is None:
            fitting = [key for key in free if self._sessions[key].begins(row)]
            best = max(fitting, key=lambda k: self._sessions[k].size, default=None)
        if best is None:
            self._made += 1
            best = self._made
            session = self.source.start(
                row.tolist(), request=f"request-{best}", vocab_size=self._vocab_size
            )
            self._sessions[best] = _Request(session, row)
        else:
            self._sessions[best].extend(row)
            self._sessions.move_to_end(best)
        busy.add(best)
        self._places[place] = best
        return self._sessions[best]


class _Request:
    """A session and the tokens that it knows: the first `size` of `tokens`."""

    def __init__(self, session: Any, row: np.ndarray) -> None:
        self.session = session
        self.size = len(row)
        self.tokens = np.array(row)

    def begins(self, row: np.ndarray) -> bool:
        """Whether `row` goes on from this text, or is it."""
        size = self.size
        if size > len(row) or self.tokens[size - 1] != row[size - 1]:
            return False  # most others end otherwise: no need to compare it all
        return bool(np.array_equal(self.tokens[:size], row[:size]))

    def extend(self, row: np.ndarray) -> None:
        if new := row[self.size :].tolist():
            self.session.commit(new)
        if len(row) > len(self.tokens):
            # Room for as much again: a token a step would copy the text every time.
            grown = np.empty(2 * len(row), dtype=self.tokens.dtype)
            grown[: self.size] = self.tokens[: self.size]
            self.tokens = grown
        self.tokens[self.size : len(row)] = row[self.size :]
        self.size = len(row)


def _vocab_size(vllm_config: Any) -> int | None:
    """The model's vocabulary, if its config tells it: a source made for another one is
    then refused at its first request."""
    told = getattr(vllm_config.model_config, "get_vocab_size", None)
    size = told() if callable(told) else None
    return None if size is None else checks.integer(size, "vocab_size", least=1)
