"""A source of ours inside `generate` of transformers (assisted generation).

transformers verifies what a `CandidateGenerator` proposes. Which one it asks is decided
in a method of the model; here the model is handed over as a view that answers that one
question differently, through `generate(custom_generate=...)`. The model, its class and
the library stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.generation.candidate_generator import CandidateGenerator

from .. import checks
from ..errors import SpecbookError, TargetError
from .chains import chain, check_free

LENGTH = 16
"""The most drafts a round, if nothing else is said."""


class Candidates(CandidateGenerator):
    """Proposes what `source` would propose, for one request.

    `length`: the most drafts a round. `limit`: the most tokens of the text, prompt
    included; None for no limit. `vocab_size`: of the target. `ends`: end tokens; a
    draft stops before one, so that no token after the end can be accepted.
    """

    def __init__(
        self,
        source: Any,
        *,
        length: int = LENGTH,
        limit: int | None = None,
        vocab_size: int | None = None,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        check_free(source)
        self._source = source
        self._length = checks.integer(length, "length", least=1)
        self._limit = limit
        self._vocab_size = vocab_size
        self._ends = ends
        self._session: Any = None
        self._known: list[int] = []
        self.proposed = 0
        self.rounds = 0

    def get_candidates(  # type: ignore[override]
        self, input_ids: torch.Tensor, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        """`input_ids` [1, tokens] with the drafts behind them, and no logits: a copy
        has none. Raises `SpecbookError` for a batch and for another text than the
        one that was begun."""
        if input_ids.ndim != 2 or input_ids.shape[0] != 1:
            raise SpecbookError(
                f"one request at a time: input_ids has shape {tuple(input_ids.shape)}"
            )
        text = input_ids[0].tolist()
        if self._session is None:
            self._session = self._source.start(text, vocab_size=self._vocab_size)
        else:
            known = len(self._known)
            if text[:known] != self._known:
                raise SpecbookError("the text is not a continuation of the one before")
            self._session.commit(text[known:])
        self._known = text
        most = self._length
        if self._limit is not None:
            # The target adds one token to whatever is accepted.
            most = min(most, self._limit - len(text) - 1)
        drafts = chain(self._session, most)
        for place, token in enumerate(drafts):
            if token in self._ends:
                drafts = drafts[:place]
                break
        self.rounds += 1
        self.proposed += len(drafts)
        added = torch.tensor([drafts], dtype=input_ids.dtype, device=input_ids.device)
        return torch.cat((input_ids, added), dim=1), None

    def update_candidate_strategy(  # type: ignore[override]
        self, input_ids: torch.Tensor, scores: torch.Tensor, num_matches: int
    ) -> None:
        """Nothing: the session learns from the text itself."""


class _View:
    """The model, but for the candidate generator that it is asked for."""

    def __init__(self, model: Any, candidates: Candidates) -> None:
        self._model = model
        self._candidates = candidates

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._model(*arguments, **options)

    def _get_candidate_generator(self, **options: Any) -> Candidates:
        return self._candidates


def assisted(
    source: Any, *, length: int = LENGTH, streamer: Any = None
) -> Callable[..., Any]:
    """What to give to `model.generate(..., custom_generate=...)` so that it decodes
    with the drafts of `source`.

    `length`: the most drafts a round. `streamer`: give it here, not to `generate`,
    which does not pass it on. The output is what `generate` gives without it, greedy
    or sampled (a copy is accepted if it is the target's own choice). Raises
    `ContractError` for a source that draws; the call raises `SpecbookError` for more
    than one request and for beams, `TargetError` for a model that cannot take steps
    back.
    """
    check_free(source)
    checks.integer(length, "length", least=1)

    def decode(
        model: Any,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        inputs_tensor: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        _check(model, input_ids, generation_config)
        ends = generation_config._eos_token_tensor
        candidates = Candidates(
            source,
            length=length,
            limit=generation_config.max_length,
            vocab_size=model.config.get_text_config().vocab_size,
            ends=frozenset() if ends is None else frozenset(ends.flatten().tolist()),
        )
        if streamer is not None:
            streamer.put(input_ids.cpu())
        return type(model)._assisted_decoding(
            _View(model, candidates),
            input_ids,
            logits_processor=logits_processor,
            stopping_criteria=stopping_criteria,
            generation_config=generation_config,
            inputs_tensor=inputs_tensor,
            streamer=streamer,
            **model_kwargs,
        )

    return decode


def _check(model: Any, input_ids: torch.Tensor, generation_config: Any) -> None:
    if not hasattr(type(model), "_assisted_decoding"):
        raise TargetError(
            f"{type(model).__name__} has no assisted generation of transformers 5.20 "
            "to 5.24"
        )
    if (generation_config.num_beams or 1) > 1:
        raise SpecbookError("drafts are verified for one text, not for beams")
    if input_ids.shape[0] != 1:
        raise SpecbookError(
            f"one request at a time: {input_ids.shape[0]} texts are to be generated"
        )
    if input_ids.shape[1] == 0:
        raise SpecbookError("a source copies from ids, and the prompt has none")
    if model.config.is_encoder_decoder:
        raise TargetError("an encoder-decoder's prompt is not the text that goes on")
    if model._is_stateful:
        raise TargetError(
            f"{type(model).__name__} keeps a state that cannot go back before a draft"
        )


def generate(model: Any, input_ids: torch.Tensor, source: Any, **options: Any) -> Any:
    """`model.generate(input_ids, ...)` with the drafts of `source`. `length` and
    `streamer` as for `assisted`; all other options go to `generate`."""
    ours = {
        name: options.pop(name) for name in ("length", "streamer") if name in options
    }
    for taken in ("custom_generate", "assistant_model", "prompt_lookup_num_tokens"):
        if options.get(taken) is not None:
            raise SpecbookError(f"{taken} names another drafter")
    return model.generate(
        input_ids, custom_generate=assisted(source, **ours), **options
    )
