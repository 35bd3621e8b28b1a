"""The draft benchmark's machinery: counts, pools, ratios, a run on tiny models."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from specbook import prompts
from specbook.contract import Selection
from specbook.drafts.neural.draft_model import TUNED, TUNED_BY, DraftModel
from specbook.engine import Round, generate
from specbook.errors import ArtifactError, SpecbookError
from specbook.ledger import RoundLedger
from specbook.measure import bench_draft
from specbook.measure.decode_report import Sample
from specbook.measure.draft_report import (
    ALL,
    RATIOS,
    SYSTEMS,
    Depth,
    DraftReport,
    by_depth,
    pooled,
)
from specbook.models.table import TableTarget
from specbook.tree import CandidateTree


def a_round(drafted: int, accepted: int, ending: str | None = None) -> Round:
    if ending is None:
        ending = "bonus" if accepted == drafted else "correction"
    tree = CandidateTree.from_paths([list(range(drafted))] if drafted else [], 1)
    return Round(
        manifest_hash="",
        tree=tree,
        selection=Selection(tuple(range(accepted)), 0),
        committed=(0,) * (accepted + 1),
        accepted=accepted,
        ending=ending,
        ledger=RoundLedger(),
    )


def counts(rounds: list[Round]) -> list[tuple[int, int, int]]:
    found = by_depth(rounds, dtype="float32", workload="chat", temperature=0.0)
    assert [item.depth for item in found] == list(range(1, len(found) + 1))
    return [(item.offered, item.reached, item.accepted) for item in found]


def test_h13_depths_are_counted_up_to_the_first_refusal() -> None:
    assert counts([a_round(4, 1)]) == [(1, 1, 1), (1, 1, 0), (1, 0, 0), (1, 0, 0)]
    assert counts([a_round(2, 2), a_round(3, 0), a_round(1, 1), a_round(0, 0)]) == [
        (3, 3, 2),
        (2, 1, 1),
        (1, 0, 0),
    ]


def test_a_round_that_was_cut_says_nothing_and_a_tree_has_no_depths() -> None:
    assert counts([a_round(4, 4, "cut")]) == []
    wide = dataclasses.replace(
        a_round(1, 1), tree=CandidateTree.from_paths([[0], [1]], 1)
    )
    with pytest.raises(SpecbookError, match="chains"):
        counts([wide])
    with pytest.raises(SpecbookError, match="chains"):
        bench_draft.acceptance(
            None,
            DraftModel(table(), widths=(2,)),
            [],
            dtype="float32",
            max_new_tokens=1,
        )


def test_shares_are_of_what_was_reached_and_of_what_was_offered() -> None:
    item = Depth("float32", "chat", 0.0, 2, offered=8, reached=4, accepted=3)
    assert item.conditional == 3 / 4 and item.survival == 3 / 8
    none = Depth("float32", "chat", 0.0, 2, offered=0, reached=0, accepted=0)
    assert none.conditional is None and none.survival is None
    other = dataclasses.replace(item, workload="edit_code", accepted=1)
    warm = dataclasses.replace(item, temperature=0.7)
    assert pooled([item, other, warm]) == [
        Depth("float32", ALL, 0.0, 2, 16, 8, 4),
        Depth("float32", ALL, 0.7, 2, 8, 4, 3),
    ]


def table() -> TableTarget:
    rows = [[1, 2, 0], [0, 1, 1], [3, 1, 1]]
    return TableTarget(
        lambda prefix: [x / sum(rows[prefix[-1]]) for x in rows[prefix[-1]]],
        vocab_size=3,
    )


def test_acceptance_of_a_draft_that_is_the_target_is_one_at_every_depth() -> None:
    chat, code = (prompts.load(w, "development")[0] for w in ("chat", "edit_code"))
    found = bench_draft.acceptance(
        table(),
        DraftModel(table(), widths=(1, 1, 1)),
        [(chat, [0]), (code, [1, 2])],
        dtype="float32",
        max_new_tokens=8,
    )
    assert {(d.workload, d.temperature, d.depth) for d in found} == {
        (w, t, d) for w in ("chat", "edit_code") for t in (0.0, 0.7) for d in (1, 2, 3)
    }
    assert all(d.offered == d.reached == d.accepted == 2 for d in found)


def test_acceptance_at_a_temperature_uses_the_rule_for_one_draft() -> None:
    """A draft that is always token 0 is accepted as often as 0 is drawn."""
    half = TableTarget(lambda prefix: [0.5, 0.5], vocab_size=2)
    zero = TableTarget(lambda prefix: [1.0, 0.0], vocab_size=2)
    chat = prompts.load("chat", "development")[0]
    found = bench_draft.acceptance(
        half,
        DraftModel(zero, widths=(1,)),
        [(chat, [0])],
        dtype="float32",
        max_new_tokens=700,
        temperatures=(0.7,),
        seed=5,
    )
    # Half of 400 rounds or more, to within 0.15: fails with a chance below 1e-7.
    assert found[0].offered > 400 and abs(found[0].conditional - 0.5) < 0.15
    greedy = generate(half, [0], DraftModel(zero, widths=(1,)), max_new_tokens=9)
    assert all(r.accepted == len(r.tree) for r in greedy.rounds)


def test_a_sweep_ranks_options_by_their_speed() -> None:
    """Time is counted here: ten for a forward of the target, one for the draft's. A
    long draft gains most if it is right and loses most if it is wrong."""
    chat = prompts.load("chat", "development")[0]
    now = 0

    class Ticking(TableTarget):
        cost = 1

        def start(self, prompt_ids: Any) -> Any:
            session = super().start(prompt_ids)
            verify = session.verify

            def ticks(tree: CandidateTree) -> Any:
                nonlocal now
                now += self.cost
                return verify(tree)

            session.verify = ticks  # type: ignore[method-assign]
            return session

    rows = [[0.0, 1.0], [1.0, 0.0]]
    grid = [{"widths": (1,)}, {"widths": (1, 1, 1), "stop_below": 0.0}]
    for last, order in ((0, [1, 0]), (1, [0, 1])):
        target = Ticking(lambda prefix: rows[prefix[-1]], vocab_size=2)
        target.cost = 10
        draft = Ticking(lambda prefix, last=last: rows[prefix[-1] ^ last], vocab_size=2)
        found = bench_draft.sweep(
            target,
            draft,
            grid,
            [(chat, [0])],
            max_new_tokens=16,
            clock=lambda: now,
        )
        assert [grid.index(dict(options)) for options, _ in found] == order
        # 16 tokens plainly: 160. Four rounds of 13; or 15 of 11 and, as nothing can be
        # drafted for the last token, one of 10.
        expected = 160 / (15 * 11 + 10) if last else 160 / (4 * 13)
        assert found[0][1].value == pytest.approx(expected)
    for bad in (5, [5], [{"depth": 2}]):
        with pytest.raises(SpecbookError):
            bench_draft.sweep(table(), table(), bad, [(chat, [0])])


# --------------------------------------------------------------------------- report


def sample(system: str, prompt: str, seconds: float, **changes: Any) -> Sample:
    fields = {
        "workload": "chat",
        "dtype": "float32",
        "new_tokens": 10,
        "rounds": 5,
        "prompt_tokens": 4,
        "loop_tokens": 0,
        **changes,
    }
    return Sample(prompt_id=prompt, system=system, seconds=seconds, **fields)


def report() -> DraftReport:
    samples = []
    for place, system in enumerate(SYSTEMS):
        for number, workload in enumerate(("chat", "chat", "edit_code")):
            ours = {}
            if system.startswith("specbook") and system != "specbook plain":
                ours = {"drafted": 20, "accepted": 5, "cost_terms": {"proposal": 0.1}}
            samples.append(
                sample(
                    system,
                    f"p{number}",
                    (5 - place) * (1 + number),
                    workload=workload,
                    **ours,
                )
            )
    depths = by_depth(
        [a_round(3, 1), a_round(3, 3)],
        dtype="float32",
        workload="chat",
        temperature=0.7,
    )
    return DraftReport(
        tuple(samples),
        depths=tuple(depths),
        settings={
            "options": {"widths": "(1, 1)"},
            "chosen": "the caller's choice",
            "transformers_assisted": {"num_assistant_tokens": 20},
        },
        machine={"line": "a machine"},
    )


def test_ratios_are_sums_over_sums_for_each_workload_and_for_all() -> None:
    made = report()
    assert made.workloads == ("chat", "edit_code", ALL)
    ratio = made.ratio("specbook draft model", "transformers assisted", "float32")
    assert ratio is not None and ratio.prompts == 3
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2, 2))
    chat = made.ratio("specbook staged", "transformers greedy", "float32", "chat")
    assert chat is not None and chat.prompts == 2 and chat.value == pytest.approx(5)
    assert len(made.pair_rows()) == len(RATIOS) * 3
    # 60 drafted tokens took 0.3 seconds.
    spent = made.draft_seconds("float32", "specbook draft model")
    assert spent == pytest.approx(0.005)
    assert made.draft_seconds("float32", "specbook plain") is None
    for bad in (("specbook", "float32", ALL), (SYSTEMS[0], "float32", "poems")):
        with pytest.raises(SpecbookError):
            made.select(bad[1], bad[2], bad[0])


def test_the_report_reads_what_it_wrote_and_refuses_the_rest(tmp_path: Path) -> None:
    made = report()
    bench_draft.save(made, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "draft.json",
        "draft.md",
        "draft.png",
    ]
    assert DraftReport.load(tmp_path / "draft.json") == made
    text = (tmp_path / "draft.md").read_text(encoding="utf-8")
    assert "transformers assisted: its defaults (num_assistant_tokens 20)." in text
    assert "| float32 | chat | specbook draft model | transformers assisted | 2.00" in (
        text
    )
    assert "| float32 | all | 0.7 | 2 | 2 | 2 | 1 | 50% | 50% |" in text
    for broken in ("", "[]", '{"format": 0}', '{"format": 1, "samples": [{}]}'):
        path = tmp_path / "broken.json"
        path.write_text(broken, encoding="utf-8")
        with pytest.raises(ArtifactError):
            DraftReport.load(path)
    with pytest.raises(ArtifactError):
        DraftReport.load(tmp_path / "nothing.json")


def test_the_figure_says_what_it_draws() -> None:
    figure = report().figure()
    assert "float32, temperature 0.7: 1.00, 0.50, 0.50" in figure.alt
    assert "a machine" in figure.caption
    with pytest.raises(SpecbookError, match="not measured"):
        dataclasses.replace(report(), depths=()).figure()


# ------------------------------------------------------------------------------ run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workloads": ["poems"]}, "workload must be one of"),
        ({"workloads": []}, "at least one workload"),
        ({"dtypes": ["int8"]}, "dtype must be one of"),
        ({"dtypes": []}, "at least one workload and one dtype"),
        ({"half": "both"}, "half must be one of"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"repeats": True}, "repeats"),
        ({"depths": -1}, "depths"),
        ({"seed": -1}, "seed"),
        ({"clock": "sun"}, "clock must be one of"),
        ({"prompts_per_workload": 0}, "prompts_per_workload"),
        ({"quick": "no"}, "quick must be True or False"),
        ({"progress": 5}, "progress must be a function"),
        ({"target": 5}, "target must be a folder"),
        ({"draft": 5}, "draft must be a folder"),
        ({"options": 5}, "options must be a mapping"),
        ({"options": {"widths": (0,)}}, "widths"),
        ({"options": {"width": (1,)}}, "option of the draft model must be one of"),
        ({"options": {5: 3}}, "an option must be text"),
        ({"out": __file__}, "out: .* takes no files"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_bad_options_are_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(bench_draft, "load", lambda *given: loaded.append(given))
    with pytest.raises(SpecbookError, match=message):
        bench_draft.run(**{"draft": "draft", **options})
    assert loaded == []


def checkpoint(path: Path, seed: int, layers: int) -> Path:
    """A tiny checkpoint with a tokenizer of single letters and a chat template."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from specbook.models import tiny_llama

    letters = ["<unk>", *"abcdefghijklmnopqrstuvwxyz ()"]
    backend = Tokenizer(
        models.WordLevel({c: i for i, c in enumerate(letters)}, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(path)
    tiny_llama(seed, num_layers=layers, max_positions=4096).save_pretrained(path)
    return path


def test_a_run_on_tiny_checkpoints(tmp_path: Path) -> None:
    folders = [checkpoint(tmp_path / n, s, s + 1) for s, n in enumerate(("one", "two"))]
    told: list[str] = []
    made = bench_draft.run(
        *folders,
        workloads=("chat",),
        prompts_per_workload=1,
        max_new_tokens=12,
        depths=3,
        options={"stop_below": 0.0},
        out=tmp_path / "out",
        progress=told.append,
    )
    assert {s.system for s in made.samples} == set(SYSTEMS)
    assert all(s.new_tokens == 12 for s in made.samples)
    # Two libraries, one greedy text; only a tie to rounding may differ.
    assert all(d.gap is not None and d.gap < 1e-3 for d in made.differences)
    drafted = made.select("float32", ALL, "specbook draft model")[0]
    assert drafted.drafted and drafted.accepted is not None
    assert drafted.rounds == 12 - drafted.accepted
    staged = made.select("float32", ALL, "specbook staged")[0]
    assert (staged.rounds, staged.accepted) == (drafted.rounds, drafted.accepted)
    assert {(d.temperature, d.depth) for d in made.depths} == {
        (t, d) for t in (0.0, 0.7) for d in (1, 2, 3)
    }
    settings = made.settings
    assert settings["options"] == {"widths": str(TUNED["widths"]), "stop_below": "0.0"}
    assert settings["chosen"] == "the caller's choice"
    assert settings["transformers_assisted"]["num_assistant_tokens"] > 0
    assert settings["target"] != settings["draft"]
    written = json.loads((tmp_path / "out" / "draft.json").read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(made.as_dict()))
    assert any("acceptance" in line for line in told)


def test_who_chose_the_options_is_said() -> None:
    assert bench_draft._chosen_by({}, "evaluation") == TUNED_BY
    assert bench_draft._chosen_by(dict(TUNED), "development").startswith(TUNED_BY)
    assert bench_draft._chosen_by({"stop_below": 0.9}, "evaluation") == (
        "the caller's choice"
    )
