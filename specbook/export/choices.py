"""Trees as lists of paths: Medusa's choices and TensorRT-LLM's `eagle_choices`.

A path is a list of *ranks*, not of tokens: `[0, 2]` is the third most probable child of
the most probable first candidate. The root is no path, and every path has its parent in
the list. Our own shapes say the same as rows, so both directions are exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..errors import TreeError
from ..topologies.progress import shape_of
from ..tree import CandidateTree
from . import schema
from .artifact import Export, made_from

MEDUSA_TOPK = 10
"""`TOPK` of Medusa's `medusa/model/utils.py`: it drafts so many tokens a head."""


def choices_of(shape: CandidateTree) -> list[list[int]]:
    """The paths of a shape (its token ids are ranks), by length, then by ranks.

    Raises `TreeError` for an empty shape and for one that is not sibling-closed: a
    child of rank r without its siblings of smaller rank is a mistake in a plan, since
    the better draft costs the same.
    """
    if not isinstance(shape, CandidateTree):
        raise TreeError(f"not a CandidateTree: {type(shape).__name__}")
    if not len(shape):
        raise TreeError("the shape is empty: plain decoding has no tree to export")
    paths = sorted(map(list, shape.full_prefixes), key=lambda path: (len(path), path))
    _check_siblings(paths)
    return paths


def shape_from_choices(paths: Any) -> CandidateTree:
    """The shape with these paths, in breadth order. Raises `TreeError` for what is no
    list of paths, a path that stands twice, one whose parent is missing, and siblings
    with a gap."""
    listed = []
    for place, path in enumerate(checks.entries(paths, "paths", "paths", TreeError)):
        ranks = checks.token_ids(path, f"paths[{place}]", error=TreeError)
        if not ranks:
            raise TreeError(f"paths[{place}] is empty: the root is no path")
        listed.append(tuple(ranks))
    if not listed:
        raise TreeError("paths is empty")
    ordered = sorted(listed, key=lambda path: (len(path), path))
    rows: dict[tuple[int, ...], int] = {(): -1}
    parents = []
    for path in ordered:
        if path in rows:
            raise TreeError(f"path {list(path)} stands twice")
        if path[:-1] not in rows:
            raise TreeError(
                f"path {list(path)} has no parent: {list(path[:-1])} is missing"
            )
        parents.append(rows[path[:-1]])
        rows[path] = len(rows) - 1
    _check_siblings([list(path) for path in ordered])
    return shape_of(parents, [path[-1] for path in ordered])


def _check_siblings(paths: Iterable[list[int]]) -> None:
    known = {tuple(path) for path in paths}
    for path in sorted(known):
        if path[-1] and (*path[:-1], path[-1] - 1) not in known:
            raise TreeError(
                f"path {list(path)} is there and its sibling "
                f"{[*path[:-1], path[-1] - 1]} is not: ranks have a gap"
            )


def export_tree(
    shape: CandidateTree,
    kind: str = "paths",
    *,
    heads: int | None = None,
    speculative_model: str | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Export:
    """A shape as `kind` of list.

    `paths`: the bare list. `medusa`: the same within what Medusa drafts; `heads` is how
    many heads it has, the deepest path. `eagle_choices`: TensorRT-LLM's settings with
    the list in them, which name a `speculative_model`. `token_tree`: the string that
    vLLM took from July 2025 to May 2026 and takes no more. Raises `TreeError` for a
    tree beyond the engine's limits.
    """
    checks.one_of(kind, "kind", KINDS)
    paths = choices_of(shape)
    if kind == "medusa":
        _check_medusa(paths, heads)
    elif heads is not None:
        raise TreeError(f"heads belong to kind 'medusa', not to {kind!r}")
    if kind == "eagle_choices" and not speculative_model:
        raise TreeError("eagle_choices needs a speculative_model, the drafter's folder")
    if kind != "eagle_choices" and speculative_model is not None:
        raise TreeError(
            f"a speculative_model belongs to kind 'eagle_choices', not to {kind!r}"
        )
    form = _FORMS[kind]
    settings = form.settings(paths, speculative_model)
    schema.check(settings, form.schema)
    return Export(
        engine=form.engine,
        what=kind,
        schema=form.schema,
        body=json.dumps(settings) + "\n",
        command=form.command,
        inputs=made_from(inputs),
        notes=form.notes,
    )


@dataclass(frozen=True)
class _Form:
    """What one kind of list is for, and how its file is made of the paths."""

    engine: str
    schema: str
    command: str
    settings: Callable[[list[list[int]], str | None], Any]
    notes: tuple[str, ...] = ()


def _bare(paths: list[list[int]], model: str | None) -> Any:
    return paths


def _eagle(paths: list[list[int]], model: str | None) -> Any:
    return {
        "speculative_config": {
            "decoding_type": "Eagle3",
            "speculative_model": checks.text(model, "speculative_model"),
            "max_draft_len": max(map(len, paths)),
            "eagle_choices": paths,
        }
    }


def _token(paths: list[list[int]], model: str | None) -> Any:
    return {
        "speculative_token_tree": str([tuple(path) for path in paths]),
        "num_speculative_tokens": len(paths),
    }


_READ = "choices = json.load(open(<PYFILE>, encoding='utf-8'))"
_FORMS = {
    "paths": _Form("paths", "paths", _READ, _bare),
    "medusa": _Form("medusa", "medusa", f"medusa_{_READ}", _bare),
    "eagle_choices": _Form(
        "tensorrt-llm",
        "tensorrt_llm",
        "trtllm-serve MODEL --extra_llm_api_options <FILE>",
        _eagle,
        ("The option takes YAML, and JSON is YAML.",),
    ),
    "token_tree": _Form(
        "vllm-2025",
        "vllm_token_tree",
        'vllm serve MODEL --speculative-config "$(cat <FILE>)"',
        _token,
        (
            "Removed from vLLM by pull request 42121 (May 2026): later versions refuse "
            "it.",
            "Add the drafter's method and model.",
        ),
    ),
}
KINDS = tuple(_FORMS)


def _check_medusa(paths: list[list[int]], heads: int | None) -> None:
    if heads is None:
        raise TreeError("medusa needs heads: how many heads the model has")
    checks.integer(heads, "heads", least=1, error=TreeError)
    for path in paths:
        if len(path) > heads:
            raise TreeError(f"path {path} is deeper than {heads} heads")
        if max(path) >= MEDUSA_TOPK:
            raise TreeError(
                f"path {path} has rank {max(path)}; Medusa drafts {MEDUSA_TOPK} tokens "
                f"a head, ranks 0 to {MEDUSA_TOPK - 1}"
            )


def import_tree(text: str) -> CandidateTree:
    """The shape in an exported text of any kind. Raises `TreeError`."""
    try:
        found = json.loads(checks.text(text, "text", error=TreeError))
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, TreeError):
            raise
        raise TreeError(f"not a list of paths: {problem}") from None
    if isinstance(found, dict):
        if isinstance(inside := found.get("speculative_config"), dict):
            found = inside.get("eagle_choices")
        else:
            found = _token_tree(found)
    return shape_from_choices(found)


_PATHS = re.compile(
    r"\[\(([0-9]{1,9}, ?)+([0-9]{1,9})?\)(, ?\(([0-9]{1,9}, ?)+([0-9]{1,9})?\))*\]"
)


def _token_tree(settings: dict[str, Any]) -> list[list[int]]:
    """A string of tuples, without evaluating it."""
    told = settings.get("speculative_token_tree")
    if not isinstance(told, str) or not _PATHS.fullmatch(told):
        raise TreeError(f"not a token tree: {told!r:.80}")
    tuples = re.findall(r"\(([^)]*)\)", told)
    paths = [[int(rank) for rank in re.findall(r"[0-9]+", part)] for part in tuples]
    if settings.get("num_speculative_tokens") != len(paths):
        raise TreeError(
            f"num_speculative_tokens is {settings.get('num_speculative_tokens')!r} for "
            f"{len(paths)} paths"
        )
    return paths
