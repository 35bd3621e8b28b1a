"""llama.cpp: options of `llama-server`.

`rates` has the server accept drafts by lot with measured rates, to time a chain without
a trained drafter; `ngram` sets `ngram-simple`, whose rule is our policy `llama_cpp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import checks
from ..drafts.prompt_lookup import PromptLookup
from ..errors import SpecbookError
from . import arguments, schema
from . import rates as converting
from .artifact import Export, made_from

_COMMAND = "llama-server -m MODEL.gguf"


def check(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` ({name without dashes: value}) as ones that llama-server takes. Raises
    `SpecbookError`, also for rates that rise, or that are not one for each draft."""
    if not isinstance(options, Mapping):
        raise SpecbookError(f"options must be a mapping, got {options!r:.80}")
    found = dict(options)
    schema.check(found, "llama_cpp")
    if (told := found.get("spec-synth-rates")) is not None:
        converting.check_unconditional(told, "spec-synth-rates")
        if len(told) != found["spec-draft-n-max"]:
            raise SpecbookError(
                f"{len(told)} rates for {found['spec-draft-n-max']} drafts: "
                "llama.cpp wants one for each"
            )
    return found


def rates(
    values: Iterable[Any],
    *,
    spec_type: str,
    draft_model: str | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Export:
    """Measured acceptance for a server that drafts by `spec_type`, one of its drafting
    models; `draft_model` is the GGUF file of it, where that type needs one. `values`:
    unconditional, by position. Raises `SpecbookError`.
    """
    told = converting.floats(values)
    checks.text(spec_type, "spec_type")
    if not spec_type.startswith("draft-"):
        raise SpecbookError(
            f"spec_type must be a drafting model's (draft-...), got {spec_type!r}: a "
            "lookup that proposes nothing has nothing to accept"
        )
    options: dict[str, Any] = {"spec-type": spec_type}
    if draft_model is not None:
        options["spec-draft-model"] = checks.text(draft_model, "draft_model")
    options |= {"spec-draft-n-max": len(told), "spec-synth-rates": told}
    return _export(
        "rates",
        options,
        inputs,
        (
            "For timing only: drafts are accepted by lot, so the text is none of the "
            "model's.",
            "Rates are unconditional, one for each draft.",
        ),
    )


def ngram(source: PromptLookup, inputs: Mapping[str, str] | None = None) -> Export:
    """`ngram-simple` for a `PromptLookup` of policy `llama_cpp` and fixed length.

    Raises `SpecbookError` for another one, and for sizes that llama.cpp refuses.
    """
    if not isinstance(source, PromptLookup):
        raise SpecbookError(
            f"source must be a PromptLookup, got {type(source).__name__}"
        )
    if source.policy != "llama_cpp" or source.length != "fixed":
        raise SpecbookError(
            "ngram-simple looks up as policy 'llama_cpp' with length 'fixed' does; "
            f"this source has policy {source.policy!r}, length {source.length!r}"
        )
    options = {
        "spec-type": "ngram-simple",
        "spec-ngram-simple-size-n": source.max_ngram,
        "spec-ngram-simple-size-m": source.max_candidates,
    }
    return _export("ngram", options, inputs, ())


def read(text: str) -> dict[str, Any]:
    """The options in an exported line."""
    return check(arguments.parse(text, "llama_cpp"))


def _export(
    what: str,
    options: dict[str, Any],
    inputs: Mapping[str, str] | None,
    notes: tuple[str, ...],
) -> Export:
    told = arguments.line(check(options))
    return Export(
        engine="llama-cpp",
        what=what,
        schema="llama_cpp",
        body=told + "\n",
        command=f"{_COMMAND} {told}",
        inputs=made_from(inputs),
        notes=notes,
    )
