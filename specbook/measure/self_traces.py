"""Self-drafting watched at work (section 0x05): rows counted, rounds written down, and
the faults that a runtime of this kind is prone to, planted one by one.

The faults are drafters and patches that do what the package refuses to do. They exist
so that a reader can see which check notices.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch

from .. import checks
from ..drafts.neural.draft_verify import DraftVerify, DraftVerifySession
from ..drafts.stop_threshold import StopThreshold, ThresholdPolicy
from ..engine import generate
from ..errors import SpecbookError
from ..models import TransformersTarget, tiny, trunk
from ..models.heads.parts import unit
from ..models.kangaroo import MOST, THRESHOLD, Adapter, KangarooDraft, draft_greedily
from ..models.kangaroo_storage import StoredAdapter
from ..models.layered import Layered
from ..models.protocol import checked_target
from ..models.skip_layers import SkippedPath, SkipVector
from ..models.state import Tag
from ..models.trunk import TrunkTarget
from ..training import kangaroo as training
from ..training.decoding import TaughtSequence
from ..training.heads import Teacher
from ..training.settings import KangarooSettings
from ..tree import CandidateTree
from .recording import RecordedOutput
from .self_vectors import FULL_DRAFTS

FAMILIES = ("llama", "qwen2", "qwen3", "gpt2")
"""Those that can be run layer by layer."""


def tiny_target(family: str, layers: int) -> TransformersTarget:
    """A tiny target of random numbers; `family`: one of `FAMILIES`."""
    checks.one_of(family, "family", FAMILIES)
    checks.integer(layers, "layers", least=1)
    name = "n_layer" if family == "gpt2" else "num_hidden_layers"
    changes: dict[str, Any] = {name: layers}
    return TransformersTarget(tiny.tiny_model(family, 1, **changes))


@dataclass(frozen=True)
class TwoRows:
    """One token behind the same tokens, twice: `skipped` and `full` are logits [V] of
    the skipped path and of the target; `tag` is the skipped row's. `session` is at that
    token."""

    skipped: np.ndarray
    full: np.ndarray
    tag: Tag
    session: Any

    @property
    def gap(self) -> float:
        """The largest difference of the logits."""
        return float(np.abs(self.skipped - self.full).max())


def shapes(target: Any) -> Any:
    """The transformers model of `target`'s config with shapes alone: no numbers, no
    memory. Raises `SpecbookError` for a target without a config."""
    from transformers import AutoModelForCausalLM, PretrainedConfig

    config = checked_target(target, "config").config
    checks.instance(config, "target.config", PretrainedConfig)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(target.config)


def two_rows(target: Any, text: Sequence[int], vector: SkipVector | str) -> TwoRows:
    """The last token of `text`, of two tokens at least, on the skipped path and in the
    target. The tokens before it are committed. Raises as `SkippedPath`, and
    `SpecbookError` for a shorter text."""
    checked_target(target)
    if isinstance(vector, str):
        vector = SkipVector.from_text(vector)
    ids = checks.token_ids(text, "text", vocab_size=target.vocab_size)
    if len(ids) < 2:
        raise SpecbookError(f"text must have two tokens or more, got {ids}")
    *before, last = ids
    session = target.start(before)
    session.verify(_chain([], len(before)))
    session.commit([], last)
    path = SkippedPath(session, vector)
    said = path.begin()
    full = session.verify(_chain([], len(before) + 1)).logits(-1)
    return TwoRows(said, full, path.tags[-1], session)


@contextlib.contextmanager
def layer_rows(target: Any) -> Iterator[list[int]]:
    """Counts, until the block ends, on how many rows each layer of `target` runs, by
    hooks on the layers themselves. `target`: one that holds a transformers model of the
    families of `models.layered`; raises `UnsupportedTargetError` for another family,
    `SpecbookError` for a target that holds none."""
    checked_target(target, "transformers_model")
    layers = Layered(target.transformers_model())._layers
    rows = [0] * len(layers)

    def count(index: int) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            found = output[0] if isinstance(output, tuple) else output
            rows[index] += found.shape[1]

        return hook

    hooks = [
        layer.register_forward_hook(count(index)) for index, layer in enumerate(layers)
    ]
    try:
        yield rows
    finally:
        for hook in hooks:
            hook.remove()


def kangaroo_work(family: str, text: Sequence[int]) -> tuple[list[int], int]:
    """Rows that each of four layers runs in five greedy rounds behind `text`, drafted
    at boundary 2 of a tiny target by an untrained adapter, and how many rows were
    verified."""
    from ..models.shared_trunk import sharing

    text = checks.token_ids(text, "text")
    form = sharing(tiny_target(family, 4), 2)
    adapter = Adapter.beginning_at(form, 4)
    with layer_rows(form) as rows:
        made = kangaroo_rounds(form, adapter, text, 5, most=3, threshold=0)
    return rows, len(text) - 1 + sum(1 + len(one.tokens) for one in made)


def skipping_work(
    family: str, vector: str, text: Sequence[int]
) -> tuple[list[int], int, int]:
    """The same for Draft & Verify, whose vector skips whole layers: rows of each layer,
    rows verified, rows drafted."""
    text = checks.token_ids(text, "text")
    target = tiny_target(family, len(checks.text(vector, "vector")))
    source = DraftVerify(vector, most=3, policy=FULL_DRAFTS)
    with layer_rows(target) as rows:
        made = generate(target, text, source, "greedy", max_new_tokens=12)
    drafted = sum(len(one.tree) for one in made.rounds)
    return rows, len(text) - 1 + len(made.rounds) + drafted, drafted


def chain_gaps(
    form: TrunkTarget, text: Sequence[int], tokens: Sequence[int]
) -> tuple[float, float]:
    """Drafts a chain token by token, verifies it, and compares with one plain forward
    over text and chain: the largest difference of shallow features and of logits, each
    over the largest number there. `form`: of a transformers model. Raises
    `SpecbookError` for another target, and for what are no ids of it."""
    checks.instance(form, "form", TrunkTarget)
    checked_target(form, "transformers_model", name="form")
    text = checks.token_ids(text, "text", vocab_size=form.vocab_size)
    tokens = checks.token_ids(tokens, "tokens", vocab_size=form.vocab_size)
    session = form.start(text)
    features = []
    for count in range(len(tokens) + 1):
        drafted = session.draft(_chain(tokens[:count], len(text)))
        features.append(drafted.tensor)
    said = session.verify(_chain(tokens, len(text)))
    whole: Any = form
    model = whole.transformers_model()
    ids = torch.tensor([[*text, *tokens]])
    with torch.inference_mode():
        full = model(ids, output_hidden_states=True)
    logits = [torch.as_tensor(said.logits(row)) for row in range(-1, len(tokens))]
    return (
        _off(torch.cat(features), full.hidden_states[form.boundary][0]),
        _off(torch.stack(logits), full.logits[0, len(text) - 1 :]),
    )


def _off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


def thresholds(
    policy: ThresholdPolicy, stream: Sequence[tuple[int, int]], most: int
) -> list[Any]:
    """Gamma after each round of `stream`, pairs (accepted, drafted). Raises
    `SpecbookError` for what is no pair, and as `StopThreshold`."""
    moved, found = StopThreshold(policy, most), []
    for number, pair in enumerate(checks.entries(stream, "stream", "pairs")):
        counts = checks.entries(pair, f"stream[{number}]", "two counts")
        if len(counts) != 2:
            raise SpecbookError(f"stream[{number}] must be (accepted, drafted)")
        moved.learn(number, *counts)
        found.append(moved.gamma)
    return found


@dataclass(frozen=True)
class ThresholdRound:
    """A round with a draft. `gamma`, `ema`: as the round left them; `drafted`,
    `accepted`: tokens."""

    drafted: int
    accepted: int
    gamma: float
    ema: float


def threshold_rounds(
    target: Any, source: DraftVerify, prompt: Sequence[int], max_new_tokens: int
) -> list[ThresholdRound]:
    """Decodes greedily with `source` and reads its threshold after every round that had
    a draft. Raises `SpecbookError` for another source, and what decoding raises."""
    checks.instance(source, "source", DraftVerify)
    found: list[ThresholdRound] = []
    sessions: list[DraftVerifySession] = []

    def start(*arguments: Any, **options: Any) -> DraftVerifySession:
        sessions.append(DraftVerify.start(source, *arguments, **options))
        return sessions[-1]

    def note(made: Any) -> None:
        moved = sessions[-1].threshold
        if made.tree:
            told = len(made.tree), made.accepted
            found.append(ThresholdRound(*told, float(moved.gamma), float(moved.ema)))

    with mock.patch.object(source, "start", start):
        generate(
            target,
            prompt,
            source,
            "greedy",
            max_new_tokens=max_new_tokens,
            on_round=note,
        )
    return found


@dataclass(frozen=True)
class KangarooRound:
    """One greedy round. `tokens`, `confidences`: of the draft. `accepted`: how many of
    them the target agreed with. `token`: the target's own, which ends the round.
    `behind`: by how many rows the adapter's cache is shorter than the target's when the
    round is over."""

    tokens: tuple[int, ...]
    confidences: tuple[float, ...]
    accepted: int
    token: int
    behind: int

    @property
    def whole(self) -> bool:
        """Whether the draft was accepted to its end."""
        return self.accepted == len(self.tokens)

    def ends_as_it_should(self, threshold: float, most: int) -> bool:
        """Whether the draft went on behind each sure token, and ended at the first
        unsure one or with `most` tokens."""
        unsure = [sure < threshold for sure in self.confidences]
        if not unsure or any(unsure[:-1]):
            return False
        return unsure[-1] or len(unsure) == most


def kangaroo_rounds(
    target: TrunkTarget,
    adapter: Adapter,
    prompt: Sequence[int],
    rounds: int,
    *,
    most: int = MOST,
    threshold: float = THRESHOLD,
) -> list[KangarooRound]:
    """The first `rounds` greedy rounds, by hand: draft, verify, commit. No end token
    ends them. Raises as `TrunkTarget.start` and `KangarooDraft` do."""
    checks.integer(rounds, "rounds", least=1)
    session = checked_target(target).start(prompt)
    draft = KangarooDraft(session, adapter)
    found = []
    for _ in range(rounds):
        tokens, sure = draft_greedily(draft, most, threshold)
        verified = session.verify(_chain(tokens, len(session.tokens)))
        said = [int(verified.logits(row).argmax()) for row in range(-1, len(tokens))]
        accepted = 0
        while accepted < len(tokens) and tokens[accepted] == said[accepted]:
            accepted += 1
        session.commit(range(accepted), said[accepted])
        draft.commit()
        found.append(
            KangarooRound(
                tuple(tokens), tuple(sure), accepted, said[accepted], draft.behind
            )
        )
    return found


def judged(
    rounds: Sequence[KangarooRound], threshold: float = THRESHOLD
) -> dict[bool, float]:
    """{unsure: share of such drafted tokens that was accepted}. A token is judged if
    all tokens before it in its draft were accepted. Raises `SpecbookError` for what are
    no rounds."""
    checks.float64(threshold, "threshold", least=0, most=1)
    found: Counter[tuple[bool, bool]] = Counter()
    for number, one in enumerate(checks.entries(rounds, "rounds", "rounds")):
        checks.instance(one, f"rounds[{number}]", KangarooRound)
        for place, sure in enumerate(one.confidences[: one.accepted + 1]):
            found[sure < threshold, place < one.accepted] += 1
    return {
        unsure: found[unsure, True] / max(1, found[unsure, True] + found[unsure, False])
        for unsure in (False, True)
    }


@torch.inference_mode()
def named_tokens(
    form: TrunkTarget, stored: StoredAdapter, answers: Sequence[Any], most: int
) -> dict[str, float]:
    """How often the target's next token is named, along the first `most` tokens of
    recorded answers: "bare", by its last norm and LM head on the shallow rows, and
    "adapted", by the adapter between. Only tokens that the adapter was taught are
    named. Raises `SpecbookError` for no answers, and for what is no answer, no such
    target or no artifact."""
    checks.instance(form, "form", TrunkTarget)
    checks.instance(stored, "stored", StoredAdapter)
    checks.integer(most, "most", least=1)
    listed = checks.entries(answers, "answers", "recorded answers")
    if not listed:
        raise SpecbookError("answers is empty: no token would be named")
    ids = torch.tensor(stored.vocabulary or range(form.vocab_size))
    right: Counter[str] = Counter()
    total = 0
    for number, answer in enumerate(listed):
        checks.instance(answer, f"answers[{number}]", RecordedOutput)
        said = torch.tensor(answer.tokens[:most])
        text = [*answer.prompt_ids, *said.tolist()]
        rows = form.start(text).draft(_chain([], len(text))).tensor
        at = slice(len(answer.prompt_ids) - 1, len(text) - 1)
        ways = {
            "bare": unit(rows[at]) * form.norm_weight,
            "adapted": stored.adapter(rows)[at],
        }
        for way, features in ways.items():
            right[way] += int(
                (ids[form.read_out(features)[:, ids].argmax(-1)] == said).sum()
            )
        total += len(said)
    return {way: right[way] / total for way in ("bare", "adapted")}


def learning_tensors(family: str = "llama") -> tuple[list[bool], list[bool]]:
    """For each tensor of an adapter, and for each of the tiny target below and above
    it, whether one backward pass of the distillation loss reached it."""
    model = tiny_target(family, 3).model
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(0, 64, (24,), generator=generator)
    with torch.inference_mode():
        laws = torch.log_softmax(model(text[None]).logits[0], -1)
    top = laws[:-1].topk(8, -1)
    lesson = TaughtSequence(text.numpy(), 0, 1, top.indices.numpy(), top.values.numpy())
    settings = KangarooSettings(1, attention_heads=4, temperature=2.0)
    below = training.Trunk(Teacher(model), 1)
    adapter = training.untrained(below, settings)
    with torch.no_grad():  # it begins at zero, and would pass nothing on
        adapter.output.weight.normal_(generator=generator)
    training.batch_loss(adapter, below, [lesson], settings).backward()
    moved, still = (
        [p.grad is not None and bool(p.grad.any()) for p in part.parameters()]
        for part in (adapter, model)
    )
    return moved, still


def _chain(tokens: Sequence[int], prefix_len: int) -> CandidateTree:
    return CandidateTree.from_rows(tokens, range(-1, len(tokens) - 1), prefix_len)


# ---------------------------------------------------------------------- planted faults


class PublishesSkippedRows(DraftVerify):
    """Planted fault: what the skipped path computed of an accepted token is published
    as the target's own row of it.

    The vector must keep every attention, so that there are keys and values to mistake:
    `SpecbookError` otherwise.
    """

    def __init__(self, vector: Any, **options: Any) -> None:
        super().__init__(vector, **options)
        if any(self.vector.attention):
            raise SpecbookError(
                "the skipped path must have keys and values of every layer: keep all "
                "attentions"
            )

    def start(self, prefix: Any, **options: Any) -> Any:
        """As `DraftVerify.start`."""
        made = super().start(prefix, **options)
        made.__class__ = _PublishingSession
        return made


class _PublishingSession(DraftVerifySession):
    @torch.inference_mode()
    def commit(self, tokens: Any) -> None:
        super().commit(tokens)
        path = self.path
        if path is None or not path.tags:
            return
        base, end = path.followed, path.session.committed
        count = min(len(path.tags), end - base)
        state: Any = path.session._state
        every = range(self._source.vector.layers)
        state.append_from(path._cache, every, base, base + count)
        state.keep(base, [*range(end, end + count), *range(base + count, end)])


@contextlib.contextmanager
def reuse_by_token_alone() -> Iterator[None]:
    """Planted fault, until the block ends: a shared trunk takes a drafted row for any
    row of the same token, whatever its position, its ancestry and its tag say."""
    with mock.patch.multiple(
        trunk,
        _name=lambda key: key.token_id,
        may_reuse=lambda candidate, need: True,
        check_reuse=lambda tag, need: None,
    ):
        yield
