"""Draft & Verify as a source: the output's law, when it stops, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specbook.chance import Sampler, law
from specbook.drafts import get
from specbook.drafts.neural import draft_verify as module
from specbook.drafts.neural.draft_verify import DraftVerify
from specbook.drafts.stop_threshold import RULES, StopThreshold, ThresholdPolicy
from specbook.engine import generate
from specbook.errors import ArtifactError, SpecbookError
from specbook.models import skip_storage
from specbook.models.skip_layers import SkipVector
from specbook.models.table import TableTarget
from specbook.models.target import TransformersTarget, UnsupportedTargetError
from specbook.models.tiny import tiny_llama
from specbook.policy import SamplingPolicy
from specbook.training import artifact
from specbook.tree import CandidateTree
from tests.drafts.neural.drafting import GREEDY

from .models import KINDS, chain, expected, plain_model, target_of

PROMPT = [1, 2, 3, 4, 5]
NEVER = ThresholdPolicy(start=0)


# --------------------------------------------------------------- the output's law


def exact_target(vocab: int) -> TransformersTarget:
    model = tiny_llama(2, vocab_size=vocab, hidden_size=8, num_heads=2, num_kv_heads=1)
    return TransformersTarget(model.double(), self_test=False)


def plain_law(target: TransformersTarget, prompt: list[int], count: int) -> Any:
    """Token by token, from plain forwards alone."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(count):
        longer = {}
        for tokens, mass in found.items():
            logits = target.plain_logits([*prompt, *tokens])[-1]
            row = np.exp(logits - logits.max())
            for token, p in enumerate(row / row.sum()):
                longer[(*tokens, token)] = mass * p
        found = longer
    return found


def check_output(vocab: int, made: Any, rule: str, count: int) -> None:
    target = exact_target(vocab)
    lengths = set()

    def program(chance: Any) -> tuple[int, ...]:
        result = generate(
            target, [0, 1], made, rule, max_new_tokens=count, temperature=1.0,
            chance=chance,
        )  # fmt: skip
        lengths.update(len(r.tree) for r in result.rounds)
        return tuple(result.tokens)

    found, wanted = law(program), plain_law(target, [0, 1], count)
    assert set(found) == set(wanted)
    assert max(abs(found[key] - wanted[key]) for key in wanted) <= 1e-12
    # Budgets allow 0 to count - 2, so some drafts were stopped where there are others.
    assert lengths >= set(range(count - 1))


@pytest.mark.parametrize("rule", ["single", "block"])
def test_four_tokens_and_a_drafted_round_have_the_targets_law(rule: str) -> None:
    check_output(4, DraftVerify("-x"), rule, 3)


@pytest.mark.parametrize("policy", RULES)
def test_two_drafted_rounds_have_the_targets_law(policy: str) -> None:
    """The threshold that the first leaves behind decides how long the second is."""
    quick = ThresholdPolicy(policy, epsilon=1, beta2=0.5)
    check_output(2, DraftVerify("am", policy=quick), "single", 4)


def test_dropping_an_unsure_draw_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: the token that fell short is thrown away. What is left is not
    drawn from the law that it carries."""
    right = module.DraftVerifySession.propose

    def careless(self: Any, **options: Any) -> Any:
        from dataclasses import replace

        made = right(self, **options)
        nodes = list(made.nodes)
        if nodes and self.threshold.stops(float(nodes[-1].q)):
            nodes.pop()
        self._drafted = [node.token_id for node in nodes]
        return replace(made, nodes=tuple(nodes))

    source = DraftVerify("-x", policy=ThresholdPolicy(start=0.5))
    monkeypatch.setattr(module.DraftVerifySession, "propose", careless)
    with pytest.raises(AssertionError):
        check_output(3, source, "single", 3)


# ------------------------------------------------------------------------- greedy


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_output_is_plain_greedy(kind: str) -> None:
    target = target_of(kind)
    plain = generate(target, PROMPT, max_new_tokens=20)
    for text, options in (
        ("---", {}),
        ("-x-", {"policy": NEVER}),
        ("am-", {"most": 3}),
    ):
        made = DraftVerify(text, **options)
        found = generate(target, PROMPT, made, max_new_tokens=20)
        assert found.tokens == plain.tokens
        assert not found.rounds[0].tree
        assert all(r.tree for r in found.rounds[1:-1])


def test_a_path_that_skips_nothing_is_accepted_whole() -> None:
    for kind in ("gpt2", "lean"):
        made = DraftVerify("---", most=4, policy=NEVER)
        found = generate(target_of(kind), PROMPT, made, max_new_tokens=21)
        assert [len(r.committed) for r in found.rounds] == [1, 5, 5, 5, 5]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_it_merges_with_another_source(temperature: float) -> None:
    """The other's tokens are committed where they are right; the path follows them."""
    target = target_of("lean")
    prompt = [3, 4, 5, 3, 4, 5, 3, 4]
    sources = [DraftVerify("-x-", most=3), "prompt_lookup"]
    rule = "membership" if temperature else "greedy"
    found = generate(
        target, prompt, sources, rule, max_new_tokens=24, temperature=temperature
    )
    marks = {m.source for r in found.rounds for s in r.tree.sources for m in s}
    assert marks == {"draft_verify", "prompt_lookup"}
    if not temperature:
        assert found.tokens == generate(target, prompt, max_new_tokens=24).tokens


# ------------------------------------------------- sessions, driven by hand


def begun(
    target: Any, made: DraftVerify, policy: SamplingPolicy = GREEDY
) -> tuple[Any, Any]:
    """A target's session and the draft's, after the round that reads the prompt."""
    made.check_target(target)
    session = target.start(PROMPT)
    draft = made.start(PROMPT, vocab_size=target.vocab_size, policy=policy)
    draft.join(session)
    assert not draft.propose(max_depth=9, max_nodes=9, chance=Sampler(0)).nodes
    session.verify(chain([], len(PROMPT)))
    session.commit([], 9)
    draft.commit([9])
    return session, draft


@pytest.mark.parametrize("kind", ["qwen2", "lean"])
def test_every_node_carries_the_law_it_was_drawn_from(kind: str) -> None:
    target, model = target_of(kind), plain_model(kind)
    vector = SkipVector.from_text("-x-")
    policy = SamplingPolicy(0.8, top_k=20)
    session, draft = begun(target, DraftVerify(vector, most=3, policy=NEVER), policy)
    for number, kept in enumerate((2, 0, 3), start=1):
        made = draft.propose(max_depth=9, max_nodes=9, chance=Sampler(number))
        assert made.state_handle.generation == number
        tokens = [node.token_id for node in made.nodes]
        assert len(tokens) == 3 and [n.parent for n in made.nodes] == [-1, 0, 1]
        for depth, node in enumerate(made.nodes):
            rest = [session.tokens[-1], *tokens[:depth]]
            logits = expected(model, vector, session.tokens[:-1], rest)
            wanted = policy.law_from_logits(logits)
            assert np.abs(node.law - wanted).max() <= 1e-5
            assert node.q == node.law[node.token_id] > 0
        session.verify(chain(tokens, len(session.tokens)))
        session.commit(list(range(kept)), 11)
        draft.commit([*tokens[:kept], 11])


def confidences(session: Any, tokens: list[int], vector: SkipVector, model: Any):
    """The untempered probability of each drafted token on the path."""
    found = []
    for depth, token in enumerate(tokens):
        rest = [session.tokens[-1], *tokens[:depth]]
        logits = expected(model, vector, session.tokens[:-1], rest)
        found.append(float(SamplingPolicy().law_from_logits(logits)[token]))
    return found


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_it_stops_behind_the_first_unsure_token_and_keeps_it(
    temperature: float,
) -> None:
    """The confidence is that of temperature 1, whatever the token was drawn at."""
    target, model = target_of("lean"), plain_model("lean")
    vector = SkipVector.from_text("--m")
    lengths = set()
    for start in (0.2, 0.6, 0.9):
        policy = ThresholdPolicy(start=start, epsilon=0)
        made = DraftVerify(vector, most=5, policy=policy)
        session, draft = begun(target, made, SamplingPolicy(temperature))
        for number in range(4):
            tokens = [
                node.token_id
                for node in draft.propose(
                    max_depth=9, max_nodes=9, chance=Sampler(number)
                ).nodes
            ]
            sure = confidences(session, tokens, vector, model)
            assert all(c >= start for c in sure[:-1])
            assert len(tokens) == 5 or sure[-1] < start
            lengths.add(len(tokens))
            session.verify(chain([], len(session.tokens)))
            session.commit([], 2 + number)
            draft.commit([2 + number])
    assert len(lengths) > 1


def test_the_threshold_moves_once_a_round_by_what_was_committed(
    monkeypatch: Any,
) -> None:
    told: list[tuple[int, int, int]] = []
    right = StopThreshold.learn

    def listen(self: Any, number: int, accepted: int, drafted: int) -> None:
        told.append((number, accepted, drafted))
        right(self, number, accepted, drafted)

    monkeypatch.setattr(StopThreshold, "learn", listen)
    target = target_of("lean")
    found = generate(target, PROMPT, DraftVerify("--m", most=4), max_new_tokens=20)
    assert told == [
        (number, record.accepted, len(record.tree))
        for number, record in enumerate(found.rounds)
    ]


def test_a_session_that_learns_twice_a_round_is_refused(monkeypatch: Any) -> None:
    """The planted fault: gamma is moved when a draft ends, and again at the commit."""
    right = module.DraftVerifySession.propose

    def eager(self: Any, **options: Any) -> Any:
        made = right(self, **options)
        self.threshold.learn(self._commits, 0, len(made.nodes))
        return made

    monkeypatch.setattr(module.DraftVerifySession, "propose", eager)
    with pytest.raises(SpecbookError, match="moves once a round"):
        generate(target_of("lean"), PROMPT, DraftVerify("--m"), max_new_tokens=9)


def test_a_request_begins_with_its_own_threshold() -> None:
    made = DraftVerify("--m")
    target = target_of("lean")
    runs = [generate(target, PROMPT, made, max_new_tokens=16) for _ in range(2)]
    assert runs[0].tokens == runs[1].tokens
    assert [len(r.tree) for r in runs[0].rounds] == [
        len(r.tree) for r in runs[1].rounds
    ]
    for policy, gamma in ((GREEDY, 0.8), (SamplingPolicy(), 0.5)):
        assert made.start([1], policy=policy).threshold.gamma == gamma


def test_a_round_that_is_asked_twice_says_the_same() -> None:
    _, draft = begun(target_of("lean"), DraftVerify("-x-"), SamplingPolicy())
    one, other = (
        draft.propose(max_depth=4, max_nodes=9, chance=Sampler(3)) for _ in range(2)
    )
    assert one == other and one.nodes


# ---------------------------------------------------------------- limits


def test_budgets_are_kept() -> None:
    _, draft = begun(target_of("lean"), DraftVerify("---", policy=NEVER))
    for depth, nodes, count in (
        (0, 9, 0),
        (9, 0, 0),
        (2, 9, 2),
        (9, 3, 3),
        (99, 99, 8),
    ):
        made = draft.propose(max_depth=depth, max_nodes=nodes, chance=Sampler(0))
        assert len(made.nodes) == count


def test_an_end_token_inside_a_draft_ends_the_answer() -> None:
    target = target_of("lean")
    plain = generate(target, PROMPT, max_new_tokens=12).tokens
    end = plain[5]
    made = DraftVerify("---", policy=NEVER)
    found = generate(target, PROMPT, made, max_new_tokens=12, eos_token_id=end)
    assert found.tokens == plain[: plain.index(end) + 1]
    assert found.stop_reason == "eos"


@pytest.mark.parametrize("kind", ["gpt2", "lean"])
def test_it_drafts_up_to_the_context_limit(kind: str, monkeypatch: Any) -> None:
    target = target_of(kind)
    monkeypatch.setattr(target, "context_limit", 16)
    plain = generate(target, PROMPT, max_new_tokens=99)
    made = DraftVerify("---", most=5, policy=NEVER)
    found = generate(target, PROMPT, made, max_new_tokens=99)
    assert found.tokens == plain.tokens and found.stop_reason == "context"
    # Driven by hand past what an engine asks: no row beyond the last position.
    session, draft = begun(target, DraftVerify("---", most=99, policy=NEVER))
    made = draft.propose(max_depth=99, max_nodes=99, chance=Sampler(0))
    assert len(made.nodes) == 16 + 1 - len(session.tokens)


def test_a_prompt_of_one_token_and_an_answer_of_one() -> None:
    target = target_of("lean")
    made = DraftVerify("-x-")
    for count in (0, 1, 2):
        found = generate(target, [7], made, max_new_tokens=count)
        assert found.tokens == generate(target, [7], max_new_tokens=count).tokens


# ---------------------------------------------------- artifacts and refusals


def stored(folder: Path, target: Any, text: str = "-x-", **changes: Any) -> Path:
    made = folder / "made"
    made.mkdir(parents=True)
    vector = SkipVector.from_text(text)
    skip_storage.write(made, vector, {"objective": "none"}, [{"vector": text}])
    facts = {
        "kind": skip_storage.KIND,
        "name": "tiny",
        "target": target.identity(),
        **changes,
    }
    artifact.publish(made, folder / "tiny", facts)
    return folder / "tiny"


def test_a_vector_on_disk_serves_its_target_alone(tmp_path: Path) -> None:
    target, other = target_of("llama"), target_of("gpt2")
    folder = stored(tmp_path, target)
    for given in (folder, str(folder), skip_storage.read(folder)):
        made = DraftVerify(given)
        assert made.vector == SkipVector.from_text("-x-")
        assert "files=sha256:" in made.identity()
        generate(target, PROMPT, made, max_new_tokens=4)
        with pytest.raises(ArtifactError, match="searched for the checkpoint"):
            generate(other, PROMPT, made, max_new_tokens=4)


def broken(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """`change` made behind the manifest's back, and the manifest made to fit."""

    def spoil(folder: Path) -> None:
        change(folder)
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest["files"] = {
            name: artifact.file_sha256(folder / name) for name in manifest["files"]
        }
        path.write_text(json.dumps(manifest), encoding="utf-8")

    return spoil


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda f: (f / "skip.json").write_text("{}", "utf-8"), "was changed"),
        (lambda f: (f / "history.json").unlink(), "history.json"),
        (
            broken(lambda f: (f / "skip.json").write_text("{}", "utf-8")),
            "holds no vector",
        ),
        (
            broken(lambda f: (f / "skip.json").write_text("[]", "utf-8")),
            r"holds no vector.*must be a dict, got \[\]",
        ),
        (
            broken(
                lambda f: (f / "skip.json").write_text(
                    '{"vector": {"layers": 1000000000, "attention": [], "mlp": []}}',
                    "utf-8",
                )
            ),
            "holds no vector.*layers must be at most",
        ),
        (
            broken(lambda f: (f / "history.json").write_text("[]", "utf-8")),
            "no trial of",
        ),
        (
            broken(lambda f: (f / "history.json").write_text("[1]", "utf-8")),
            "is no history",
        ),
    ],
)
def test_a_damaged_artifact_is_refused(spoil: Any, told: str, tmp_path: Path) -> None:
    folder = stored(tmp_path, target_of("llama"))
    spoil(folder)
    with pytest.raises(ArtifactError, match=told):
        DraftVerify(folder)


def test_another_artifact_is_refused(tmp_path: Path) -> None:
    folder = stored(tmp_path, target_of("llama"), kind="draft heads")
    with pytest.raises(ArtifactError, match="holds a draft heads, not a skip vector"):
        DraftVerify(folder)
    with pytest.raises(ArtifactError, match="history has no trial"):
        skip_storage.write(tmp_path, SkipVector.nothing(1), {}, [])
    with pytest.raises(ArtifactError, match="does not say what target"):
        skip_storage.check_target({"name": "x"}, {})


def test_a_vector_that_is_not_shipped_is_said_to_be_so(monkeypatch: Any) -> None:
    def missing(*parts: str) -> Any:
        assert parts == module.SHIPPED
        raise ArtifactError("no such file")

    monkeypatch.setattr(module.paths, "data_path", missing)
    with pytest.raises(ArtifactError, match="no skip vector is shipped"):
        DraftVerify()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"vector": 5}, "vector must be"),
        ({"vector": "-b"}, "no manifest"),
        ({"vector": "-", "most": 0}, "most must be at least 1"),
        ({"vector": "-", "policy": "best"}, "rule must be one of"),
        ({"vector": "-", "policy": 0.5}, "policy must be"),
    ],
)
def test_bad_options_are_refused(options: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        DraftVerify(**options)


def test_targets_that_do_not_fit_are_refused_before_they_are_asked() -> None:
    with pytest.raises(SpecbookError, match="for 2 layers, the target has 3"):
        generate(target_of("lean"), PROMPT, DraftVerify("-x"), max_new_tokens=3)
    table = TableTarget({(0,): [1, 0]})
    with pytest.raises(UnsupportedTargetError, match="TableTarget has no sublayers"):
        generate(table, [0], DraftVerify("-x"), max_new_tokens=3)


def test_whoever_drives_it_must_join_the_session() -> None:
    draft = DraftVerify("-x-").start([1])
    with pytest.raises(SpecbookError, match="call join"):
        draft.propose(max_depth=3, max_nodes=3, chance=Sampler(0))
    for options in ({"prefix": [4], "vocab_size": 4}, {"prefix": [0], "policy": 1}):
        with pytest.raises(SpecbookError):
            DraftVerify("-x-").start(**options)  # type: ignore[arg-type]


def test_the_identity_tells_everything_apart() -> None:
    variants = [
        DraftVerify("-x"),
        DraftVerify("-a"),
        DraftVerify("-x", most=4),
        DraftVerify("-x", policy="article"),
        DraftVerify("-x", policy=ThresholdPolicy(start=0.7)),
    ]
    told = [made.identity() for made in variants]
    assert len(set(told)) == len(told)
    assert DraftVerify(SkipVector.from_text("-x")).identity() == told[0]
    assert get("draft_verify") is DraftVerify


def test_a_bfloat16_target_drafts_in_its_own_type() -> None:
    target = target_of("lean", torch.bfloat16)
    made = DraftVerify("---", most=4, policy=NEVER)
    found = generate(target, PROMPT, made, "single", max_new_tokens=9, temperature=1.0)
    assert len(found.tokens) == 9
    assert isinstance(found.rounds[1].tree, CandidateTree)
