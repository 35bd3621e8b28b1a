"""Estimates from decoded prompts, from counts and times, and what an advice cost."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction as F
from pathlib import Path

import numpy as np
import pytest

from specbook import paths, reading
from specbook.advice import (
    Constraints,
    Estimate,
    advise,
    answer,
    measured,
    nearest_flips,
)
from specbook.advice import predicted as predicting
from specbook.advice.guide import CONDITIONS, Situation, answers, tally
from specbook.advice.red_flags import FLAGS
from specbook.advice.regret import crossed, halves, regret, screened
from specbook.claims import load as claims
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import recording
from specbook.measure.acceptance import AcceptanceProfile
from specbook.measure.frontier_data import PLAIN, Cost
from specbook.measure.verify_report import VerifyProfile, shipped
from specbook.topologies.progress import expected_progress, shape_of
from tests.advice.making import INDEPENDENT, LOOKUP, REST, TREE, plain, several
from tests.measure.frontiers import CHAIN as FILE_CHAIN
from tests.measure.frontiers import LOOKUP as FILE_LOOKUP
from tests.measure.frontiers import frontier, row


def _named(estimates):
    return {one.configuration: one for one in estimates}


def test_a_frontier_gives_sums_over_sums():
    found = _named(measured.from_frontier(frontier(), "edit", "float32"))
    # Two prompts of 8 tokens: 0.6 s in 6 rounds.
    one = found[FILE_LOOKUP]
    assert one.per_token == pytest.approx(0.6 / 16)
    assert one.tokens == pytest.approx(16 / 6)
    assert one.how == "measured"
    assert found[FILE_CHAIN].extra_bytes == 5_000_000
    assert all(e.configuration.family != "peer" for e in found.values())
    made = advise(list(found.values()))
    assert made.best.configuration == FILE_LOOKUP
    # Worlds draw the same prompts for all: lookup wins on both, so in every world.
    assert made.wins == 1.0
    chat = advise(measured.from_frontier(frontier(), "chat", "float32"))
    assert chat.best.configuration == PLAIN


def test_worlds_are_paired_by_prompt():
    runs = {
        PLAIN: [measured.Run("a", 8, 8, 1.0, 0, 1.0), measured.Run("b", 8, 8, 9, 0, 9)],
        LOOKUP: [
            measured.Run("b", 8, 4, 8.9, 0, 8.9),
            measured.Run("a", 8, 4, 0.9, 0, 0.9),
        ],
    }
    made = advise(measured.estimates_of(runs))
    assert made.best.configuration == LOOKUP
    assert made.wins == 1.0 and made.ties == ()
    # Drawn apart, the hard prompt would decide: this is what pairing is for.
    shuffled = replace(made.best, worlds=np.random.default_rng(1).permutation(
        np.asarray(made.best.worlds)))  # fmt: skip
    assert advise([made.plain, shuffled]).wins < 0.9


def test_other_prompts_are_refused():
    runs = {
        PLAIN: [measured.Run("a", 8, 8, 1.0, 0, 1.0)],
        LOOKUP: [measured.Run("b", 8, 4, 0.9, 0, 0.9)],
    }
    with pytest.raises(SpecbookError, match="other prompts"):
        measured.estimates_of(runs)
    with pytest.raises(SpecbookError, match="twice"):
        measured.estimates_of({PLAIN: runs[PLAIN] * 2})
    with pytest.raises(SpecbookError):
        measured.estimates_of({})
    with pytest.raises(SpecbookError, match="drafting"):
        measured.Run("a", 8, 4, 1.0, 0.6, 0.6)


def test_a_batch_pays_by_its_own_times():
    file = frontier()
    file.add([Cost("float32", 4, n, s) for n, s in ((1, 0.2), (2, 0.6), (8, 2.0))])
    found = _named(measured.from_frontier(file, "edit", "float32", batch=4))
    # A step of four costs 0.2 s, a quarter of it each: 0.05 s a token.
    assert found[PLAIN].verify == pytest.approx(0.05)
    # A round of five rows is priced as eight, the other three and five of one row.
    first, second = 0.5 + 3 * 0.05, 0.5 + 1 * 0.05
    assert found[FILE_LOOKUP].verify == pytest.approx((first + second) / 6)
    assert advise(list(found.values())).best.configuration == PLAIN
    with pytest.raises(SpecbookError, match="batch of 3"):
        measured.from_frontier(file, "edit", "float32", batch=3)


@pytest.mark.parametrize(
    ("workload", "dtype", "temperature", "told"),
    [
        ("poems", "float32", 0.0, "workload"),
        ("edit", "float64", 0.0, "dtype"),
        ("edit", "float32", 0.7, "temperature"),
    ],
)
def test_what_was_not_measured_is_refused(workload, dtype, temperature, told):
    with pytest.raises(SpecbookError, match=told):
        measured.from_frontier(frontier(), workload, dtype, temperature)


def test_what_was_priced_again_was_not_measured():
    file = frontier()
    file.add([Cost("float32", 4, n, 0.1 * n) for n in (1, 8)])
    alone, shared = (
        measured.from_frontier(file, "edit", "float32", batch=n) for n in (1, 4)
    )
    assert {e.how for e in alone} == {"measured"}
    assert {e.how for e in shared} == {"predicted"}
    assert all("priced for 4 requests" in e.basis for e in shared)


def test_prompts_are_names_and_none_is_passed_over():
    def of(prompts):
        return measured.from_frontier(frontier(), None, "float32", prompts=prompts)

    assert _named(of({"edit-1"}))[PLAIN].basis.startswith("1 decoded")
    assert len(of(["edit-1", "chat-2"])) == len(of({"chat-2": 1}.keys()))
    with pytest.raises(SpecbookError, match="no prompt 'edit-9'"):
        of(["edit-1", "edit-9"])
    # Text would be looked through for parts of itself.
    for bad in ("edit-1, edit-2", 3, [None]):
        with pytest.raises(SpecbookError, match="prompts"):
            of(bad)


def test_a_regret_needs_one_measurement_of_each():
    with pytest.raises(SpecbookError, match="measured twice"):
        regret("a", PLAIN, [*several(), several()[1]])
    with pytest.raises(SpecbookError, match="temperature 0.7, 0 is asked for"):
        crossed(frontier(), "float32", 0.0, Constraints(temperature=0.7))
    # Worlds of unlike evidence are no pairs.
    odd = [
        plain(worlds=np.ones(3)),
        replace(several()[1], worlds=np.ones(2)),
    ]
    assert regret("a", PLAIN, odd).low is None


def test_what_a_file_says_of_a_rule_does_not_let_it_judge():
    """`typical` is a heuristic, whether its row says exact or not."""
    file = frontier()
    lying = replace(FILE_LOOKUP, verifier="typical", exact=True)
    for workload in ("edit", "chat"):
        file.add([row(lying, f"{workload}-{n}", 0.01, 8) for n in (1, 2)])
    assert screened(file, "float32")["edit"].best.configuration == FILE_LOOKUP


def test_regret_by_hand():
    found = measured.from_frontier(frontier(), "edit", "float32")
    mine = regret("edit", PLAIN, found)
    assert mine.best.configuration == FILE_LOOKUP
    assert mine.value == pytest.approx(1.6 / 0.6)
    assert mine.low <= mine.value <= mine.high
    assert regret("edit", FILE_LOOKUP, found).value == 1
    assert regret("edit", FILE_LOOKUP, found).low == 1
    with pytest.raises(SpecbookError, match="not measured"):
        regret("edit", REST, found)


def test_an_advice_is_judged_by_prompts_that_it_did_not_see():
    file = frontier()
    first, second = halves(file, "edit")
    assert first == {"edit-1"} and second == {"edit-2"}
    found = {one.workload: one for one in crossed(file, "float32")}
    assert set(found) == {
        f"{name}, half {n}" for name in ("edit", "chat", "all") for n in (1, 2)
    }
    assert found["edit, half 1"].value == 1
    # Of all together the second half is 0.2 + 1.0 s by lookup, 1.6 s plain.
    assert found["all, half 1"].best.per_token == pytest.approx(1.2 / 16)
    wrong = frontier()
    wrong.rows = [r for r in wrong.rows if getattr(r, "prompt", "") != "edit-2"]
    with pytest.raises(SpecbookError, match="two are needed"):
        halves(wrong, "edit")


def test_screening_is_judged_by_what_was_decoded():
    found = screened(frontier(), "float32")
    # It promises 0.05 s a token by lookup, and a plain step is 0.08 s.
    assert found["edit"].advised.configuration == FILE_LOOKUP
    assert found["edit"].value == 1
    assert found["chat"].value == pytest.approx(1.9 / 1.6)
    assert found["chat"].speedup < 1


# --------------------------------------------------------------------------- predicted


@pytest.fixture(scope="module")
def rows() -> predicting.Rows:
    return predicting.Rows(shipped()["xeon-2-threads-float32"], worlds=200)


@pytest.fixture(scope="module")
def counts() -> AcceptanceProfile:
    return AcceptanceProfile.load(paths.data_path("acceptance", "smollm2.json"))


def test_replayed_is_replay_priced_by_the_profile(rows):
    recorded = recording.load(0.0, workload="edit_code", half="development")
    source = PromptLookup.tuned()
    one = predicting.replayed("prompt_lookup", source, recorded, rows, most=8)
    runs = [
        predicting.decode_again(source, o, recorded, max_nodes=8)
        for o in recorded.outputs
    ]
    tokens = sum(len(r.tokens) for r in runs)
    played = [x for r in runs for x in r.rounds]
    assert one.tokens == pytest.approx(tokens / len(played))
    spent = sum(rows.now(1 + len(x.tree)) for x in played)
    assert one.verify == pytest.approx(spent / len(played))
    assert one.configuration.verifier == "greedy"
    assert advise([predicting.plain(rows), one]).best is one


def test_a_limit_that_was_played_is_part_of_the_configuration(rows):
    recorded = recording.load(0.0, workload="edit_code", half="development")
    few, many = (
        predicting.replayed(
            "prompt_lookup", PromptLookup.tuned(), recorded, rows, most=n
        )
        for n in (2, 16)
    )
    assert (few.configuration.most, many.configuration.most) == (2, 16)
    assert few.tokens < many.tokens


def test_answers_of_another_target_price_nothing(rows):
    recorded = recording.load(0.0, workload="chat", half="development")
    about = {**recorded.about, "target": {"checkpoint": "another"}}
    other = replace(recorded, about=about)
    with pytest.raises(SpecbookError, match="of another, the times of"):
        predicting.replayed("prompt_lookup", PromptLookup.tuned(), other, rows)
    by_hand = recording.Recording.of([([1, 2, 1], [2, 1, 2])])
    assert (
        predicting.replayed("prompt_lookup", PromptLookup(), by_hand, rows).tokens >= 1
    )


def test_rows_say_what_they_are_of():
    profile = shipped()["epyc-2-threads-float32"]
    made = predicting.Rows(profile, batch=8, worlds=1)
    assert (made.prefix, made.shape) == (256, "sequoia")
    assert "256 tokens" in predicting.plain(made).basis
    with pytest.raises(SpecbookError, match="prefix 9"):
        predicting.Rows(profile, prefix=9)


def test_one_timed_row_prices_no_candidate():
    profile = shipped()["epyc-2-threads-float32"]
    only = replace(profile, cells=tuple(c for c in profile.cells if c.nodes == 1))
    recorded = recording.load(0.0, workload="chat", half="development")
    with pytest.raises(SpecbookError, match="only one row was timed"):
        predicting.replayed(
            "prompt_lookup", PromptLookup(), recorded, predicting.Rows(only, worlds=1)
        )


def test_planned_promises_what_the_slots_say(rows, counts):
    found = predicting.planned(counts, rows, [0.004, 0.005, 0.006], workload="chat")
    slots = counts.observed("chat").pooled().acceptance()
    assert {e.configuration.topology.split()[0] for e in found} == {"chain", "planned"}
    for one in found:
        shape = shape_of(one.configuration.parents, one.configuration.ranks)
        assert one.tokens == pytest.approx(float(expected_progress(shape, slots)))
        assert one.draft == pytest.approx(0.005 * shape.max_depth)
        assert one.verify == rows.now(1 + len(shape))
        assert one.configuration.source == "draft_model"
        low, high = one.interval
        assert low < one.per_token < high


def test_a_free_draft_wants_a_larger_tree(rows, counts):
    def nodes(level):
        found = predicting.planned(counts, rows, [level], workload="edit_code")
        return max(len(e.configuration.parents) for e in found)

    assert nodes(1e-6) >= nodes(0.05)
    deep = predicting.planned(counts, rows, [1e-6], max_depth=2)
    assert all(shape_of(e.configuration.parents, e.configuration.ranks).max_depth <= 2
               for e in deep)  # fmt: skip


def test_a_size_that_was_not_measured_costs_the_next_one(rows):
    assert rows.now(5) == rows.now(min(s for s in rows.sizes if s >= 5))
    assert rows.now(1) <= rows.now(2)
    with pytest.raises(SpecbookError, match="were not measured"):
        rows.now(rows.sizes[-1] + 1)
    with pytest.raises(SpecbookError):
        rows.now(0)


def test_a_batch_shares_its_forward():
    profile = shipped()["epyc-2-threads-float32"]
    alone, many = (predicting.Rows(profile, batch=b, worlds=50) for b in (1, 8))
    assert many.now(1) < alone.now(1)
    assert many.now(16) / many.now(1) > alone.now(16) / alone.now(1)
    with pytest.raises(SpecbookError, match="batch 3"):
        predicting.Rows(profile, batch=3)


def test_counts_of_another_target_are_refused(rows, counts):
    for field in ("target", "dtype"):
        other = replace(counts, settings={**counts.settings, field: "another"})
        with pytest.raises(SpecbookError, match=f"of {field} another"):
            predicting.planned(other, rows, [0.01])
    copied = replace(counts, settings={**counts.settings, "source": "suffix x=1"})
    with pytest.raises(SpecbookError, match="follows no plans"):
        predicting.planned(copied, rows, [0.01])
    with pytest.raises(SpecbookError, match="must be measured"):
        predicting.planned(counts, rows, [])
    with pytest.raises(SpecbookError):
        predicting.planned(counts, "profile", [0.01])


# ----------------------------------------------------------------- the guide, the file


def test_the_guide_has_three_conditions_a_kind_and_answers_all():
    kinds = [one.use for one in CONDITIONS]
    assert len(CONDITIONS) == 21 and all(kinds.count(k) == 3 for k in kinds)
    here = Situation(several(), Constraints(), {1: 1, 2: 1, 4: 2})
    found = answers(here)
    assert len(found) == 21 and all(seen for _, _, seen in found)
    told = {(c.use, c.when): holds for c, holds, _ in found}
    assert told["prompt lookup", "the answer repeats its prompt"] is True
    assert told["retrieval", "a governed datastore is allowed"] is False
    assert told["independent heads", "a small tree is enough"] is None
    assert tally(found)["retrieval"] == "1 of 3"


@pytest.mark.parametrize(
    ("change", "use", "when", "before", "after"),
    [
        ({"constraints": Constraints(datastore=True)}, "retrieval",
         "a governed datastore is allowed", False, True),
        ({"constraints": Constraints(extra_bytes=1)}, "prompt lookup",
         "no memory for a model is left", False, True),
        ({"constraints": Constraints(extra_bytes=1)}, "self-speculation",
         "a second model does not fit", False, True),
        ({"constraints": Constraints(extra_bytes=1)}, "draft model",
         "its memory fits", True, False),
        ({"constraints": Constraints(temperature=1.0)}, "draft model",
         "a native q serves exact rules", False, True),
        ({"constraints": Constraints(fixed_rows=True)}, "planned trees",
         "several shapes can run", True, True),
        ({"times": {1: 1, 2: 2, 3: 3}}, "planned trees",
         "time is not linear in rows", True, False),
    ],
)  # fmt: skip
def test_answers_follow_what_is_asked(change, use, when, before, after):
    here = Situation(several(), Constraints(), {1: 1, 2: 1, 4: 2})
    for situation, wanted in ((here, before), (replace(here, **change), after)):
        told = {(c.use, c.when): holds for c, holds, _ in answers(situation)}
        assert told[use, when] is wanted


def test_the_guide_looks_at_rules_that_are_asked_for():
    """A heuristic that wins is no reason to copy where exact rules are asked for."""
    losing = [
        replace(e, tokens=1) if e.configuration == LOOKUP else e for e in several()
    ]
    times = {1: 1}
    for exact in (True, False):
        here = Situation(losing, Constraints(exact=exact), times)
        told = {(c.use, c.when): holds for c, holds, _ in answers(here)}
        assert told["prompt lookup", "the answer repeats its prompt"] is not exact


def test_an_index_is_no_weight():
    """The memory of a datastore does not say how much a model would need."""
    some = [e for e in several() if e.configuration not in (TREE,)]
    here = Situation(some, Constraints(extra_bytes=30_000_000), {1: 1})
    told = {(c.use, c.when): holds for c, holds, _ in answers(here)}
    assert told["prompt lookup", "no memory for a model is left"] is True


def test_whether_it_agrees_is_asked_of_the_best_verification():
    """With its drafting the short chain is faster; without, the long one pays."""
    chain = next(e for e in several() if e.configuration.family == "model")
    short = replace(chain, tokens=1.2, draft=0.1, verify=1.3)
    long = replace(
        chain,
        configuration=replace(
            chain.configuration, topology="chain 3", parents=(-1, 0, 1), ranks=(0, 0, 0)
        ),
        tokens=2.0,
        draft=5.0,
        verify=1.5,
    )
    here = Situation([plain(), short, long], Constraints(), {1: 1})
    told = {(c.use, c.when): holds for c, holds, _ in answers(here)}
    assert told["draft model", "it agrees with the target"] is True


def test_heads_are_compared_with_heads():
    alone = replace(
        several()[3], configuration=INDEPENDENT, draft=several()[3].draft / 2
    )
    here = Situation([*several(), alone], Constraints(), {1: 1})
    told = {(c.use, c.when): holds for c, holds, _ in answers(here)}
    assert told["independent heads", "their drafts are the quicker ones"] is True
    assert told["dependent heads", "later depths limit the path"] is False
    assert told["dependent heads", "they need no larger tree"] is True
    with pytest.raises(SpecbookError, match="plain decoding"):
        Situation([alone], Constraints(), {})


def test_every_flag_is_refuted_by_claims_that_exist():
    known = claims()
    assert len(FLAGS) == 9
    for flag in FLAGS:
        assert flag.claims
        assert set(flag.claims) <= set(known), flag.said


def _manifest(tmp_path: Path):
    made = advise(several(), Constraints(fixed_rows=True))
    flips = nearest_flips(several(), made)
    source = tmp_path / "input.json"
    source.write_text("{}", encoding="utf-8")
    return answer.manifest(
        made, flips, settings={"workload": "chat"}, machine={"processor": "x"},
        inputs=reading.digests([source]),
    ), source  # fmt: skip


def test_a_manifest_is_read_back_and_bound_to_its_inputs(tmp_path):
    values, source = _manifest(tmp_path)
    path = answer.save(values, tmp_path / "advice.json")
    again = answer.load(path)
    assert again == values
    assert again["advised"].startswith(TREE.source)
    answer.check_inputs(again, [source])
    source.write_text("{ }", encoding="utf-8")
    with pytest.raises(ArtifactError, match="does not rest on"):
        answer.check_inputs(again, [source])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"advised": "plain"}, "was changed"),
        ({"kind": "something"}, "is no"),
        ({"format": 9}, "format"),
        ({"sha256": "0"}, "was changed"),
    ],
)
def test_a_changed_manifest_is_refused(tmp_path, change, told):
    values, _ = _manifest(tmp_path)
    path = tmp_path / "advice.json"
    path.write_text(json.dumps({**values, **change}), encoding="utf-8")
    with pytest.raises(ArtifactError, match=told):
        answer.load(path)


def test_an_answer_that_its_estimates_do_not_give_is_refused(tmp_path):
    """Even with a digest that is right."""
    values, _ = _manifest(tmp_path)
    values.pop("sha256")
    values["advised"] = "plain"
    forged = {**values, "sha256": answer._digest(values)}
    path = answer.save(forged, tmp_path / "advice.json")
    with pytest.raises(ArtifactError, match="its estimates"):
        answer.load(path)


def test_an_advice_from_fractions_is_read_back(tmp_path):
    """In float64 two that are level may differ by a rounding, and a speed that is just
    reached may be missed by one."""
    third = Estimate(LOOKUP, F(7), F(0), F(7, 3))
    assert float(third.verify) / 7 > 1 / 3
    other = replace(
        third,
        configuration=replace(LOOKUP, source="suffix"),
        tokens=F(3),
        verify=F(1),
        extra_bytes=1,
    )
    for speed in (F(0), F(3)):
        made = advise([plain(), other, third], Constraints(speedup=speed))
        assert made.best is third and made.ties == (other,)
        values = answer.manifest(made, settings={}, machine={}, inputs={})
        path = answer.save(values, tmp_path / "advice.json")
        assert answer.load(path)["advised"] == third.name


def test_shapes_of_one_name_are_told_apart(tmp_path):
    """Their names are alike; the manifest holds the shape that is advised."""
    other = replace(TREE, parents=(-1, 0), ranks=(0, 0))
    assert other.name == TREE.name
    both = [Estimate(TREE, F(3), F(0), F(1)), Estimate(other, F(2), F(0), F(1))]
    values = answer.manifest(
        advise([plain(), *both]), settings={}, machine={}, inputs={}
    )
    assert values["configuration"]["parents"] == [-1, -1]
    forged = {n: v for n, v in values.items() if n != "sha256"}
    forged["configuration"] = {
        **values["configuration"],
        "parents": [-1, 0],
        "ranks": [0, 0],
    }
    forged["sha256"] = answer._digest(forged)
    with pytest.raises(ArtifactError, match="its estimates"):
        answer.load(answer.save(forged, tmp_path / "advice.json"))


@pytest.mark.parametrize(
    "change",
    [
        {"estimates": None},
        {"estimates": [3]},
        {"estimates": []},
        {"constraints": {"exact": 1}},
        {"constraints": {"nonsense": 1}},
        {"constraints": []},
        {"configuration": {}},
        {"configuration": None},
        {"machine": None},
        {"inputs": 3},
        {"settings": []},
    ],
)
def test_a_manifest_that_holds_something_else_is_refused(tmp_path, change):
    """Each with a digest that is right."""
    values, _ = _manifest(tmp_path)
    forged = {n: v for n, v in {**values, **change}.items() if n != "sha256"}
    forged["sha256"] = answer._digest(forged)
    path = answer.save(forged, tmp_path / "advice.json")
    with pytest.raises(ArtifactError, match=r"advice\.json"):
        answer.load(path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"a": NaN}', b"[" * 9999])
def test_what_is_no_manifest_is_refused(tmp_path, content):
    path = tmp_path / "advice.json"
    path.write_bytes(content)
    for bad in (path, tmp_path, tmp_path / "none", "/dev/zero"):
        with pytest.raises(ArtifactError):
            answer.load(bad)


def test_a_speed_without_worlds_is_told_without_an_interval():
    told = "\n".join(answer.lines(advise(several())))
    assert "1.33 times as fast as plain decoding" in told and "decoding [" not in told


def test_lines_say_the_answer_its_doubts_and_what_is_kept_out():
    made = advise(several(), Constraints(fixed_rows=True))
    told = "\n".join(answer.lines(made, nearest_flips(several(), made)))
    assert "advised: hydra, star 2, top k / greedy" in told
    assert "how sure: not known" in told
    assert "runner-up: draft_model" in told
    assert "faster, and kept out: prompt_lookup / greedy (a round has" in told
    assert "would change it: with fixed rows False" in told
    nothing = "\n".join(answer.lines(advise([plain()])))
    assert "advised: plain decoding; nothing that may run pays" in nothing


def test_two_inputs_of_one_name_are_told_apart(tmp_path):
    (tmp_path / "a").mkdir()
    both = [tmp_path / "x.json", tmp_path / "a" / "x.json"]
    for number, path in enumerate(both):
        path.write_text(str(number), encoding="utf-8")
    told = reading.digests([*both, both[0]])
    assert list(told) == [str(path) for path in both]
    values = {"inputs": told}
    answer.check_inputs(values, both)
    both[1].write_text("0", encoding="utf-8")
    with pytest.raises(ArtifactError, match="does not rest on"):
        answer.check_inputs(values, both)
    with pytest.raises(ArtifactError):
        reading.digests([tmp_path / "missing"])


def test_rows_and_files_of_the_wrong_kind_are_refused():
    with pytest.raises(SpecbookError):
        predicting.Rows("profile")
    with pytest.raises(SpecbookError):
        measured.from_frontier("file", None, "float32")
    assert isinstance(row(PLAIN, "edit-9", 0.8, 8).seconds, float)
    assert VerifyProfile.KIND
