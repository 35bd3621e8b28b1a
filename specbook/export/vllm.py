"""vLLM: the JSON of `--speculative-config`, from measurements and from sources.

`with_rates` lets a real engine be timed with the acceptance that was measured here,
whatever drafts; the text that it then generates is none. `with_schedule` sets how many
drafts are made at which batch size. `ngram` and `suffix` set vLLM's own lookups, and
`custom` runs a source of ours in it (`vllm_proposer`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import checks
from ..drafts.prompt_lookup import PromptLookup
from ..drafts.suffix import Suffix
from ..errors import SpecbookError
from . import rates as converting
from . import schema
from .artifact import Export, made_from
from .schedule import BatchChoice, ranges
from .vllm_proposer import SOURCE_VARIABLE
from .vllm_proposer import Proposer as Proposer  # its path is what vLLM is told

PROPOSER = f"{__name__}.Proposer"
_COMMAND = 'vllm serve MODEL --speculative-config "$(cat <FILE>)"'
_PER_BATCH = "num_speculative_tokens_per_batch_size"


def check(settings: Any) -> dict[str, Any]:
    """`settings` as a speculative config that vLLM takes. Raises `SpecbookError` for
    what the schema refuses, and for what no schema can say: rates that rise or are of
    another number than the drafts, batch sizes that overlap, bounds that cross."""
    if not isinstance(settings, Mapping):
        raise SpecbookError(f"settings must be an object, got {settings!r:.80}")
    found = dict(settings)
    schema.check(found, "vllm")
    drafts = found["num_speculative_tokens"]
    if (told := found.get("synthetic_acceptance_rates")) is not None:
        converting.check_unconditional(told, "synthetic_acceptance_rates")
        if len(told) != drafts:
            raise SpecbookError(
                f"{len(told)} synthetic_acceptance_rates for {drafts} drafts"
            )
    if (told := found.get("synthetic_acceptance_length")) is not None:
        checks.real(told, "synthetic_acceptance_length", least=1, most=drafts + 1)
    least, most = found.get("prompt_lookup_min"), found.get("prompt_lookup_max")
    if least is not None and most is not None and least > most:
        raise SpecbookError(f"prompt_lookup_min {least} is above prompt_lookup_max")
    if (told := found.get(_PER_BATCH)) is not None:
        _check_schedule(told, drafts)
    if found.get("use_heterogeneous_vocab"):
        sampled = found.get("draft_sample_method", "greedy")
        if found["method"] != "draft_model" or sampled != "greedy":
            raise SpecbookError(
                "use_heterogeneous_vocab belongs to method 'draft_model' and to greedy "
                f"drafts, not to {found['method']!r} and {sampled!r}"
            )
    return found


def _check_schedule(told: Sequence[Sequence[int]], drafts: int) -> None:
    before = 0
    for place, (first, last, k) in enumerate(told):
        name = f"{_PER_BATCH}[{place}]"
        if last < first or first <= before:
            raise SpecbookError(
                f"{name} is from {first} to {last}: ranges go up and do not overlap"
            )
        if place == 0 and first != 1:
            raise SpecbookError(f"{name} begins at {first}, the first must begin at 1")
        if k > drafts:
            # vLLM would take the smaller of the two and say nothing.
            raise SpecbookError(
                f"{name} asks for {k} drafts, num_speculative_tokens is {drafts}"
            )
        before = last


def with_rates(
    base: Mapping[str, Any],
    rates: Iterable[Any],
    inputs: Mapping[str, str] | None = None,
) -> Export:
    """`base` with measured acceptance in place of the real one.

    `base`: a speculative config without the number of drafts, or with just as many as
    there are `rates` (unconditional, by position). Raises `SpecbookError`.
    """
    told = converting.floats(rates)
    made = _based(
        base,
        {
            "num_speculative_tokens": len(told),
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_rates": told,
        },
    )
    return Export(
        engine="vllm",
        what="rates",
        schema="vllm",
        body=json.dumps(made) + "\n",
        command=_COMMAND,
        inputs=made_from(inputs),
        notes=(
            "For timing only: drafts are accepted by lot, so the text is none of the "
            "model's.",
            "Rates are unconditional: the i-th is the chance that the first i drafts "
            "are all accepted, in rounds that draft. A drafter that proposes nothing "
            "has nothing to accept.",
        ),
    )


def with_schedule(
    base: Mapping[str, Any],
    choices: Sequence[BatchChoice],
    inputs: Mapping[str, str] | None = None,
) -> Export:
    """`base` with the number of drafts that each batch size pays for.

    A batch larger than the largest measured one takes the last number: vLLM goes on
    with it. Raises `SpecbookError` where no batch size pays for a draft: vLLM has no
    speculative config without one.
    """
    told = ranges(choices)
    most = max(k for _, _, k in told)
    if most == 0:
        raise SpecbookError(
            "at no batch size that was measured does a draft pay: run without a "
            "speculative config"
        )
    added: dict[str, Any] = {_PER_BATCH: [list(entry) for entry in told]}
    if not isinstance(base, Mapping) or "num_speculative_tokens" not in base:
        added["num_speculative_tokens"] = most
    made = _based(base, added)
    speeds = "; ".join(
        f"batch {one.batch}: K = {one.best}, {float(one.speedups[one.best]):.2f} times"
        for one in choices
    )
    return Export(
        engine="vllm",
        what="schedule",
        schema="vllm",
        body=json.dumps(made) + "\n",
        command=_COMMAND,
        inputs=made_from(inputs),
        notes=(f"Predicted speed over plain decoding: {speeds}.",),
    )


def ngram(source: PromptLookup, inputs: Mapping[str, str] | None = None) -> Export:
    """vLLM's own n-gram lookup, for a `PromptLookup` that does the same.

    vLLM takes the longest suffix within its bounds that stood before, and of several
    places the earliest, as the policy `transformers` does, and drafts the whole copy.
    Raises `SpecbookError` for another policy or length: `custom` runs those.
    """
    _is(source, PromptLookup)
    if source.policy != "transformers" or source.length != "fixed":
        raise SpecbookError(
            "vLLM's ngram looks up as policy 'transformers' with length 'fixed' does; "
            f"this source has policy {source.policy!r}, length {source.length!r}: "
            "export it as a custom class"
        )
    made = {
        "method": "ngram",
        "num_speculative_tokens": source.max_candidates,
        "prompt_lookup_max": source.max_ngram,
        "prompt_lookup_min": source.min_ngram,
    }
    return _lookup("ngram", check(made), inputs, ())


def suffix(
    source: Suffix,
    inputs: Mapping[str, str] | None = None,
    *,
    max_tree_depth: int = 24,
    max_cached_requests: int = 10000,
    max_spec_factor: float = 1.0,
    min_token_prob: float = 0.1,
) -> Export:
    """vLLM's own suffix decoding, with at most as many drafts as `source` copies.

    It counts what followed in all requests, which ours does not: these are settings of
    that method, not our source in another place. The options are its own, with its
    defaults. Raises `SpecbookError` for a corpus, a threshold or an adaptive length,
    which have no counterpart: `custom` runs those.
    """
    _is(source, Suffix)
    if source.corpus is not None or source.threshold != 1 or source.length != "fixed":
        raise SpecbookError(
            "vLLM's suffix decoding has no corpus, no threshold and no adaptive length "
            f"of ours, and this source has {source.identity()}: export it as a custom "
            "class"
        )
    made = {
        "method": "suffix",
        "num_speculative_tokens": source.max_candidates,
        "suffix_decoding_max_tree_depth": max_tree_depth,
        "suffix_decoding_max_cached_requests": max_cached_requests,
        "suffix_decoding_max_spec_factor": max_spec_factor,
        "suffix_decoding_min_token_prob": min_token_prob,
    }
    note = (
        "vLLM's suffix decoding (arctic-inference) ranks by counts over all requests; "
        "specbook's source suffix copies one continuation. Their drafts differ.",
    )
    return _lookup("suffix", check(made), inputs, note)


def custom(
    source_file: str, length: int, inputs: Mapping[str, str] | None = None
) -> Export:
    """A source of ours inside vLLM. `source_file`: the path of one that
    `sources.save` wrote; `length`: the most drafts."""
    checks.integer(length, "length", least=1)
    told = checks.text(source_file, "source_file")
    if not told:
        raise SpecbookError("source_file is empty")
    made = check(
        {"method": "custom_class", "model": PROPOSER, "num_speculative_tokens": length}
    )
    return Export(
        engine="vllm",
        what="custom",
        schema="vllm",
        body=json.dumps(made) + "\n",
        command=f"{SOURCE_VARIABLE}={shlex.quote(told)} {_COMMAND}",
        inputs=made_from(inputs),
        notes=(
            "specbook must be installed where vLLM runs.",
            "vLLM calls this interface experimental: see the version above.",
        ),
    )


def _based(base: Any, added: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(base, Mapping):
        raise SpecbookError(f"base must be a speculative config, got {base!r:.80}")
    for name, value in added.items():
        if name in base and base[name] != value:
            raise SpecbookError(
                f"base has {name} = {base[name]!r}, and the measurements give {value!r}"
            )
    return check({**base, **added})


def _lookup(
    what: str,
    made: dict[str, Any],
    inputs: Mapping[str, str] | None,
    notes: tuple[str, ...],
) -> Export:
    return Export(
        engine="vllm",
        what=what,
        schema="vllm",
        body=json.dumps(made) + "\n",
        command=_COMMAND,
        inputs=made_from(inputs),
        notes=notes,
    )


def _is(source: Any, kind: type) -> None:
    if not isinstance(source, kind):
        raise SpecbookError(
            f"source must be {kind.__name__}, got {type(source).__name__}"
        )
