"""Which proposal may meet which verifier (section 0x02A, bug case H17 b-d)."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import verifiers
from specbook.contract import (
    TARGET_ROWS,
    BoundRound,
    Selection,
    SourceContract,
    Verifier,
    VerifierContract,
    admitted,
    bind,
    contract_of,
    negotiate,
)
from specbook.drafts.samplers import mixture
from specbook.errors import ContractError, LawError, SpecbookError
from specbook.proposal import ProbabilitySemantics, SamplingRelation, Topology

from .helpers import must_fail, named
from .helpers.manifests import manifest
from .helpers.rules import contract, verifier
from .helpers.sources import proposal_of

NORMAL = ProbabilitySemantics.NORMALIZED_CONDITIONAL
IID_RULE = contract(
    "iid residual",
    reads_q=True,
    probability=frozenset({NORMAL}),
    sampling=frozenset({SamplingRelation.IID}),
)


def q_proposal(paths: Any = ((1, 2),), **options: Any) -> Any:
    return proposal_of(
        paths, **{"semantics": "normalized_conditional", "relation": "iid", **options}
    )


def check_refused(bound: Any, *told: str) -> None:
    """The pair is refused, and the message names everything in `told`."""
    try:
        bound()
    except ContractError as error:
        for part in told:
            assert part in str(error), f"{part!r} is missing from {error}"
    else:
        raise AssertionError("an incompatible pair was bound")


# --------------------------------------------------------------------- clashes


def test_a_fitting_pair_is_bound() -> None:
    proposal = q_proposal()
    bound = bind(proposal, IID_RULE)
    assert isinstance(bound, BoundRound)
    assert bound.proposals == (proposal,) and bound.node_count == 2
    assert bound.verifier is IID_RULE


def test_a_verifier_may_be_a_name_an_object_or_a_contract() -> None:
    proposal = proposal_of([[1]])
    membership = verifiers.get("membership")
    for given_as in ("membership", membership, membership.contract):
        assert contract_of(given_as) is membership.contract
        bound = bind(proposal, given_as)
        assert contract_of(bound.verifier) is membership.contract


@pytest.mark.parametrize("semantics", ["score_only", "frequency", "absent"])
def test_h17b_what_is_no_q_never_meets_a_rule_that_reads_q(semantics: str) -> None:
    bad = proposal_of([[1]], semantics=semantics, relation="iid")
    check_refused(lambda: bind(bad, IID_RULE), "probability", semantics, "fixed")
    must_fail(check_refused, lambda: bind(q_proposal(), IID_RULE))
    must_fail(check_refused, lambda: bind(bad, contract("reads nothing")))


@pytest.mark.parametrize(
    "relation",
    [
        "beam",
        "deterministic_lookup",
        "without_replacement",
        "independent",
        "greedy_plus_one",
        "hub",
    ],
)
def test_h17c_another_sampling_relation_never_meets_the_iid_rule(relation: str) -> None:
    check_refused(
        lambda: bind(q_proposal(relation=relation), IID_RULE), "sampling", relation
    )


def test_h17d_hydra_rows_and_rest_rows_never_share_a_rule_that_reads_q() -> None:
    hydra = q_proposal([[1, 2]], owner="hydra")
    rest = proposal_of([[1, 3]], semantics="frequency", owner="rest")
    check_refused(
        lambda: bind([hydra, rest], IID_RULE),
        "rest: probability 'frequency'",
        "rest: sampling 'deterministic_lookup'",
        "merged",
        "hydra",
    )
    assert bind([hydra, rest], "membership").node_count == 4


def test_every_clash_is_named_at_once() -> None:
    rule = contract(
        "narrow",
        exact=False,
        reads_q=True,
        probability=frozenset({NORMAL}),
        sampling=frozenset({SamplingRelation.IID}),
        topology=frozenset({Topology.SEQUENCE}),
    )
    frozen = manifest(verifier="greedy", max_nodes=1, max_depth=1)
    bad = [
        proposal_of([[1, 2]], semantics="score_only", relation="beam", owner="a"),
        proposal_of([[1, 2], [3]], semantics="frequency", owner="b"),
    ]
    check_refused(
        lambda: bind(bad, rule, manifest=frozen, bytes_per_node=10**9),
        "'narrow'",
        "a: probability 'score_only', needs ['normalized_conditional']",
        "b: probability 'frequency'",
        "a: sampling 'beam', needs ['iid']",
        "b: sampling 'deterministic_lookup'",
        "a: topology 'tree', needs ['sequence']",
        "merged",
        "a: made under manifest 'm'",
        "b: made under manifest 'm'",
        "names verifier 'greedy'",
        "5 candidate nodes, the manifest allows 1",
        "2 depth, the manifest allows 1",
        "temporary state bytes",
        "heuristic",
    )


def test_the_article_asks_three_questions_of_every_pair() -> None:
    """All proposals against all single-entry contracts: bound exactly when
    the three entries agree, the graph is no metadata graph, and a rule that reads q
    gets q."""
    kinds = list(
        itertools.product(ProbabilitySemantics, SamplingRelation, list(Topology))
    )
    for reads_q in (False, True):
        for p, s, t in kinds:
            if (reads_q and p is not NORMAL) or t not in TARGET_ROWS:
                continue
            rule = VerifierContract(
                "rule", reads_q, True, frozenset({p}), frozenset({s}), frozenset({t})
            )
            for semantics, relation, topology in kinds:
                made = proposal_of(
                    [[1]], semantics=semantics, relation=relation, topology=topology
                )
                fits = (semantics, relation, topology) == (p, s, t)
                assert rule.supports_probability(semantics) is (semantics is p)
                assert rule.supports_sampling_relation(relation) is (relation is s)
                assert rule.supports_topology(topology) is (topology is t)
                if fits:
                    bind(made, rule)
                else:
                    check_refused(lambda m=made, r=rule: bind(m, r))


def test_a_metadata_graph_becomes_no_target_rows() -> None:
    graph = proposal_of([[1, 2]], topology="metadata_graph")
    for name in verifiers.names():
        check_refused(lambda name=name: bind(graph, name), "metadata_graph")
    with pytest.raises(ContractError, match="metadata graph"):
        contract("unfolds nothing", topology=frozenset(Topology))


# ---------------------------------------- no way round "reads q needs a real q"


@settings(max_examples=100, deadline=None)
@given(
    st.sets(st.sampled_from(list(ProbabilitySemantics))),
    st.sampled_from([s for s in ProbabilitySemantics if s is not NORMAL]),
    st.sampled_from([frozenset, set, list, tuple]),
    st.booleans(),
)
def test_no_contract_lets_a_score_reach_a_rule_that_reads_q(
    listed: Any, semantics: Any, container: Any, as_text: bool
) -> None:
    names = container(str(m) if as_text else m for m in listed)
    bad = proposal_of([[1]], semantics=semantics, relation="iid")
    try:
        rule = contract("any", reads_q=True, probability=names)
    except ContractError as error:
        assert listed - {NORMAL} and "reads q" in str(error)
        rule = contract("any", reads_q=True, probability=frozenset({NORMAL}))
        # As if the constructor had been got round.
        object.__setattr__(rule, "probability", frozenset(listed))
    check_refused(lambda: bind(bad, rule), semantics.value)
    offered = SourceContract("source", semantics, SamplingRelation.IID, Topology.TREE)
    check_refused(lambda: negotiate([offered], rule), semantics.value)


@pytest.mark.parametrize("semantics", ["score_only", "frequency", "absent"])
def test_a_contract_that_reads_q_cannot_list_anything_else(semantics: str) -> None:
    for listed in ({semantics}, {semantics, str(NORMAL)}):
        with pytest.raises(ContractError, match=f"reads q.*{semantics}"):
            contract("any", reads_q=True, probability=listed)


def test_contracts_verifiers_and_bound_rounds_are_frozen() -> None:
    offered = SourceContract("a", NORMAL, SamplingRelation.IID, Topology.TREE)
    rule = verifiers.get("membership")
    for thing in (offered, IID_RULE, rule, bind([], rule)):
        for field in dataclasses.fields(thing):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(thing, field.name, getattr(thing, field.name))


@pytest.mark.parametrize("refuses", ["probability", "sampling_relation", "topology"])
def test_a_contract_that_refuses_more_than_it_lists_is_asked(refuses: str) -> None:
    """`bind` and `negotiate` put the question to the contract, not to its lists."""

    class Narrow(VerifierContract):
        pass

    setattr(Narrow, f"supports_{refuses}", lambda self, value: False)
    fields = dataclasses.asdict(contract("narrow"))
    made = proposal_of([[1]])
    bind(made, VerifierContract(**fields))
    check_refused(lambda: bind(made, Narrow(**fields)), "needs []")
    offered = SourceContract("s", "absent", "iid", "tree")  # type: ignore[arg-type]
    check_refused(lambda: negotiate([offered], Narrow(**fields)), "needs []")


def test_proposals_for_different_requests_are_not_merged() -> None:
    one, other = proposal_of([[1]], request="a"), proposal_of([[2]], request="b")
    bind([one, one], "membership")
    check_refused(lambda: bind([one, other], "membership"), "different requests")


@pytest.mark.parametrize(
    "rows, token, told",
    [
        (5, 1, "rows"),
        ("01", 1, "rows"),
        ({0}, 1, "rows"),
        ([0, 1.0], 1, r"rows\[1\]"),
        ([-1], 1, r"rows\[0\]"),
        ([True], 1, r"rows\[0\]"),
        ([], [1], "token"),
        ([], 1.0, "token"),
        ([], -1, "token"),
        ([], None, "token"),
    ],
    ids=named,
)
def test_a_selection_is_row_numbers_and_a_token(
    rows: Any, token: Any, told: str
) -> None:
    with pytest.raises(ContractError, match=told):
        Selection(rows, token)


def test_a_selection_holds_plain_ints() -> None:
    for rows in ([0, 2], iter([0, 2]), np.array([0, 2])):
        made = Selection(rows, np.int64(3))  # type: ignore[arg-type]
        assert made == Selection((0, 2), 3)
        assert [type(x) for x in (*made.rows, made.token)] == [int] * 3


def test_a_contract_that_overrides_its_answers_gets_nowhere() -> None:
    class Obliging(VerifierContract):
        def supports_probability(self, semantics: Any) -> bool:
            return True

    rule = Obliging(
        "obliging",
        reads_q=True,
        exact=True,
        probability=frozenset({NORMAL}),
        sampling=frozenset(SamplingRelation),
    )
    check_refused(lambda: bind(proposal_of([[1]]), rule), "absent")


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"reads_q": 1}, "reads_q"),
        ({"reads_q": None}, "reads_q"),
        ({"exact": "yes"}, "exact"),
        ({"merges_q": 0}, "merges_q"),
        ({"greedy_only": None}, "greedy_only"),
        ({"probability": None}, "probability"),
        ({"probability": "absent"}, "probability"),
        ({"probability": {"likelihood"}}, "probability"),
        ({"sampling": {"argmax"}}, "sampling"),
        ({"sampling": 3}, "sampling"),
        ({"topology": {"graph"}}, "topology"),
    ],
    ids=named,
)
def test_a_verifier_contract_names_its_bad_field(changes: Any, told: str) -> None:
    with pytest.raises(ContractError, match=told):
        contract("bad", **changes)


def test_contracts_keep_their_lists_as_tuples() -> None:
    changes = ["another tokenizer", "a longer text"]
    made = SourceContract(
        "s",
        NORMAL,
        SamplingRelation.IID,
        Topology.TREE,
        invalidated_by=changes,  # type: ignore[arg-type]
    )
    assert made.invalidated_by == tuple(changes)
    part = verifiers.get("membership").contract
    whole = dataclasses.replace(part, parts=[part])  # type: ignore[arg-type]
    assert whole.parts == (part,)


@pytest.mark.parametrize(
    "arguments, told",
    [
        ((None, "absent", "iid", "tree"), "name"),
        (("s", "none", "iid", "tree"), "probability_semantics"),
        (("s", "absent", "random", "tree"), "sampling_relation"),
        (("s", "absent", "iid", None), "topology"),
        (("s", "absent", "iid", "tree", "lunch"), "cost_term"),
    ],
    ids=named,
)
def test_a_source_contract_names_its_bad_field(arguments: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told) as refused:
        SourceContract(*arguments)
    # Whoever catches the errors of contracts catches these.
    assert isinstance(refused.value, ContractError) or told == "cost_term"


@pytest.mark.parametrize("thing", [None, 3, object(), ["membership"], b"greedy"])
def test_what_is_no_verifier_is_refused(thing: Any) -> None:
    with pytest.raises(ContractError, match="not a verifier"):
        bind(proposal_of([[1]]), thing)
    with pytest.raises(ContractError):
        Verifier(thing, lambda *_: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ContractError, match="callable"):
        Verifier(IID_RULE, "select")  # type: ignore[arg-type]


def test_an_unknown_verifier_lists_the_known_ones() -> None:
    with pytest.raises(SpecbookError, match="membership"):
        bind(proposal_of([[1]]), "nope")


@pytest.mark.parametrize("thing", [None, 3, [None], ["x"], [[]], "ab"])
def test_what_is_no_proposal_is_refused(thing: Any) -> None:
    with pytest.raises(ContractError, match="Proposal"):
        bind(thing, "membership")


# ------------------------------------- the matrix: who may meet whom, and why not

SAMPLED = {
    # What was drafted, and the rules that read q and may meet it, by shape.
    ("iid", "sequence"): {"single", "specinfer", "kseq", "block", "traversal"},
    ("iid", "tree"): {"specinfer", "kseq", "traversal"},
    ("iid", "set"): {"specinfer", "kseq", "traversal", "optimal"},
    ("independent", "sequence"): {"specinfer"},
    ("independent", "tree"): {"specinfer"},
    ("independent", "set"): {"specinfer"},
    ("without_replacement", "sequence"): {"sequoia", "traversal"},
    ("without_replacement", "tree"): {"sequoia", "traversal"},
    ("without_replacement", "set"): {"sequoia", "traversal", "optimal"},
    ("greedy_plus_one", "sequence"): {"greedy_draft"},
    ("greedy_plus_one", "tree"): {"greedy_draft"},
    ("greedy_plus_one", "set"): {"greedy_draft"},
    ("hub", "sequence"): set(),
    ("hub", "tree"): {"spechub"},
    ("hub", "set"): {"spechub"},
    ("beam", "sequence"): set(),
    ("beam", "tree"): set(),
    ("beam", "set"): set(),
    ("deterministic_lookup", "sequence"): set(),
    ("deterministic_lookup", "tree"): set(),
    ("deterministic_lookup", "set"): set(),
}
READS_NO_Q = {"greedy", "membership", "one_hot", "typical"}
HEURISTICS = {"typical", "ensemble"}


def expected_rules(semantics: str, relation: str, shape: str) -> set[str]:
    if semantics != "normalized_conditional":
        return READS_NO_Q
    ensemble = {"ensemble"} if (relation, shape) == ("iid", "sequence") else set()
    return READS_NO_Q | SAMPLED[relation, shape] | ensemble


def check_matrix(rules: Any) -> int:
    """Every proposal against every rule, `bind` and `negotiate` alike, in the mode that
    the rule belongs to; a refusal says what clashes. Returns the pairs compared."""
    pairs = 0
    for semantics in ProbabilitySemantics:
        for relation, shape in SAMPLED:
            fits = expected_rules(semantics, relation, shape)
            made = proposal_of(
                [[1]], semantics=semantics, relation=relation, topology=shape
            )
            offered = SourceContract("fixed", semantics, relation, shape)  # type: ignore[arg-type]
            for name, rule in rules.items():
                exact = name not in HEURISTICS
                pairs += 1
                for attempt in (
                    lambda m=made, r=rule, e=exact: bind(m, r, exact=e),
                    lambda o=offered, r=rule, e=exact: negotiate([o], r, exact=e),
                ):
                    if name in fits:
                        attempt()
                        continue
                    reasons = []
                    if semantics is not NORMAL:
                        reasons.append(f"probability '{semantics}'")
                    if not rule.contract.supports_sampling_relation(relation):
                        reasons.append(f"sampling '{relation}'")
                    if not rule.contract.supports_topology(shape):
                        reasons.append(f"topology '{shape}'")
                    assert reasons
                    check_refused(attempt, f"verifier {name!r} refuses", *reasons)
    return pairs


def all_rules() -> dict[str, Verifier]:
    return {name: verifiers.get(name) for name in verifiers.names()}


def test_every_rule_meets_what_its_proof_covers_and_nothing_else() -> None:
    rules = all_rules()
    assert set(SAMPLED) == {
        (str(r), str(t)) for r in SamplingRelation for t in TARGET_ROWS
    }
    assert READS_NO_Q | {"ensemble"} | set().union(*SAMPLED.values()) == set(rules)
    assert check_matrix(rules) == 4 * len(SAMPLED) * len(rules)


def source_of(
    relation: str, shape: str, semantics: str = "normalized_conditional"
) -> SourceContract:
    return SourceContract(relation, semantics, relation, shape)  # type: ignore[arg-type]


Q_FREE = {"membership", "one_hot"}
FIELD: dict[str, tuple[list[SourceContract], set[str]]] = {
    # What the field's papers prove, a row each; "greedy" belongs to temperature 0.
    "independent draws of one q": (
        [source_of("iid", "set")],
        {"specinfer", "kseq", "optimal", "traversal"},
    ),
    "independent draws of several q": (
        [source_of("independent", "set")],
        {"specinfer"},
    ),
    "draws without replacement": (
        [source_of("without_replacement", "set")],
        {"sequoia", "optimal", "traversal"},
    ),
    "greedy plus one": ([source_of("greedy_plus_one", "set")], {"greedy_draft"}),
    "hub pairs": ([source_of("hub", "set")], {"spechub"}),
    "top-k, beam, argmax": ([source_of("beam", "set", "score_only")], set()),
    "top-k with its q beside it": ([source_of("beam", "set")], set()),
    "lookup, suffix, REST": (
        [source_of("deterministic_lookup", "tree", "frequency")],
        set(),
    ),
    "two drafters with q": ([source_of("iid", "tree")] * 2, {"specinfer"}),
    "a drafter with q and REST": (
        [
            source_of("iid", "tree"),
            source_of("deterministic_lookup", "tree", "frequency"),
        ],
        set(),
    ),
    "a chain drawn from q": (
        [source_of("iid", "sequence")],
        {"single", "specinfer", "kseq", "block", "traversal"},
    ),
    "a tree drawn from q": (
        [source_of("iid", "tree")],
        {"specinfer", "kseq", "traversal"},
    ),
    "a tree drawn without replacement": (
        [source_of("without_replacement", "tree")],
        {"sequoia", "traversal"},
    ),
}


@pytest.mark.parametrize("drafted", FIELD)
def test_the_matrix_is_the_fields(drafted: str) -> None:
    sources, reads_q = FIELD[drafted]
    assert set(admitted(sources)) == reads_q | Q_FREE | {"greedy"}
    heuristics = {"typical"}
    if drafted == "a chain drawn from q":
        heuristics.add("ensemble")
    assert set(admitted(sources, exact=False)) - set(admitted(sources)) == heuristics


def test_a_row_of_the_matrix_is_asked_about_sources() -> None:
    with pytest.raises(ContractError, match="metadata_graph"):
        admitted([source_of("iid", "metadata_graph")])
    for bad in (3, "iid", [3], None):
        with pytest.raises(ContractError, match="source"):
            admitted(bad)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="exact"):
        admitted([], exact="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "field", "more"),
    [
        ("specinfer", "sampling", "without_replacement"),
        ("sequoia", "sampling", "iid"),
        ("kseq", "sampling", "independent"),
        ("block", "topology", "tree"),
        ("optimal", "topology", "tree"),
        ("single", "sampling", "beam"),
    ],
)
def test_a_contract_that_admits_too_much_fails_the_matrix(
    name: str, field: str, more: str
) -> None:
    rules = all_rules()
    rule = rules[name]
    wider = dataclasses.replace(
        rule.contract, **{field: getattr(rule.contract, field) | {more}}
    )
    rules[name] = Verifier(wider, rule.select)
    # Either the pair is bound that must not be, or its refusal lacks the reason.
    must_fail(check_matrix, rules)


def test_only_the_heuristics_are_refused_by_the_exact_mode() -> None:
    for name in verifiers.names():
        rule = verifiers.get(name).contract
        assert rule.exact is (name not in HEURISTICS)
        assert rule.reads_q is (name not in READS_NO_Q)
        made = proposal_of(
            [[1]],
            semantics="normalized_conditional",
            relation="iid",
            topology="sequence",
        )
        if name in HEURISTICS:
            check_refused(lambda n=name, m=made: bind(m, n), "heuristic")


@pytest.mark.parametrize("name", verifiers.names())
def test_merged_sources_meet_only_a_rule_whose_proof_covers_several_q(
    name: str,
) -> None:
    rule = verifiers.get(name).contract
    relation = min(rule.sampling)
    shape = max(rule.topology)
    merge = [
        proposal_of(
            [[1]],
            semantics="normalized_conditional",
            relation=relation,
            topology=shape,
            owner=owner,
        )
        for owner in ("one", "two")
    ]
    exact = name not in HEURISTICS
    bind(merge[:1], name, exact=exact)
    if name in READS_NO_Q | {"specinfer"}:
        bind(merge, name, exact=exact)
    else:
        check_refused(lambda: bind(merge, name, exact=exact), "merged", "one q")


def test_the_three_ways_out_of_a_merge_with_a_source_that_has_no_q() -> None:
    """A draft model, whose numbers are q, and REST, whose numbers are counts."""
    draft = q_proposal([[1, 2]], owner="draft_model")
    rest = proposal_of([[1, 3]], semantics="frequency", owner="rest")
    merge = [draft, rest]
    for name in set(verifiers.names()) - READS_NO_Q:
        check_refused(
            lambda n=name: bind(merge, n, exact=False), "rest: probability 'frequency'"
        )
    # 1. A normalised mixture is a law again; counts have no share in one.
    mixed = mixture([[0.5, 0.5], [0.25, 0.75]], [0.5, 0.5])
    assert mixed.tolist() == [0.375, 0.625]
    bind(q_proposal([[1], [2]], owner="the mixture"), "kseq")
    with pytest.raises(LawError, match=r"laws\[1\]"):
        mixture([[0.5, 0.5], [3, 1]], [0.5, 0.5])
    # 2. A rule that reads no q takes the merge as it is.
    assert bind(merge, "membership").node_count == bind(merge, "one_hot").node_count
    # 3. Apart, each has a rule of its own.
    bind(draft, "specinfer")
    bind(rest, "membership")


# --------------------------------------------------------------------- merging


def test_merged_sources_need_a_proof_for_several_q() -> None:
    two = [q_proposal(owner="a"), q_proposal(owner="b")]
    check_refused(lambda: bind(two, IID_RULE), "merged", "['a', 'b']", "mixture")
    proved = contract("proved", reads_q=True, probability={NORMAL}, merges_q=True)
    assert bind(two, proved).node_count == 4
    same = [q_proposal(owner="a"), q_proposal(owner="a")]
    check_refused(lambda: bind(same, IID_RULE), "merged")


def test_one_proposal_whose_nodes_name_two_sources_is_merged_too() -> None:
    from specbook.proposal import ProposalNode

    two = q_proposal()
    nodes = (ProposalNode(1, q=0.5, source="a"), ProposalNode(2, q=0.5, source="b"))
    object.__setattr__(two, "nodes", nodes)
    check_refused(lambda: bind(two, IID_RULE), "merged")


def test_a_miss_beside_a_hit_is_no_merge() -> None:
    bind([q_proposal(owner="a"), q_proposal([], owner="b")], IID_RULE)


def test_negotiate_finds_before_the_first_round_what_bind_would_find_later() -> None:
    sampled = SourceContract("a", NORMAL, SamplingRelation.IID, Topology.TREE)
    other = SourceContract("b", NORMAL, SamplingRelation.IID, Topology.TREE)
    negotiate([sampled], IID_RULE)
    negotiate([], IID_RULE)
    check_refused(lambda: negotiate([sampled, other], IID_RULE), "merged", "'a', 'b'")
    heuristic = contract("typical", exact=False)
    check_refused(lambda: negotiate([sampled], heuristic), "heuristic")
    negotiate([sampled], heuristic, exact=False)
    with pytest.raises(ContractError, match="not a source contract"):
        negotiate([None], IID_RULE)  # type: ignore[list-item]


# ----------------------------------------------------------- modes and budgets


def test_exact_mode_refuses_heuristics_however_it_is_asked_for() -> None:
    heuristic = verifier(lambda *_: None, exact=False)
    name = heuristic.contract.name
    exact = manifest(verifier=name, mode="exact")
    loose = manifest(verifier=name, mode="heuristic")

    def under(item: Any) -> Any:
        return proposal_of([[1]], manifest_hash=item.hash)

    for attempt in (
        lambda: bind(under(exact), heuristic),
        lambda: bind(under(exact), heuristic, exact=True),
        lambda: bind(under(exact), heuristic, manifest=exact),
        lambda: bind(under(exact), heuristic, manifest=exact, exact=False),
        lambda: bind(under(loose), heuristic, manifest=loose, exact=True),
        lambda: bind([], heuristic),
        lambda: negotiate([], heuristic),
    ):
        check_refused(attempt, "heuristic")
    for allowed in (
        lambda: bind(under(loose), heuristic, manifest=loose),
        lambda: bind(under(loose), heuristic, exact=False),
        lambda: negotiate([], heuristic, exact=False),
    ):
        must_fail(check_refused, allowed)


@pytest.mark.parametrize(
    "limits, told",
    [
        ({"max_nodes": 4}, "5 candidate nodes, the manifest allows 4"),
        ({"max_depth": 2}, "3 depth, the manifest allows 2"),
        ({"temporary_state_bytes": 499}, "500 temporary state bytes"),
    ],
    ids=named,
)
def test_budgets_are_limits_that_are_met_exactly(limits: Any, told: str) -> None:
    paths = [[1, 2, 3], [1, 4], [5]]
    fits = {"max_nodes": 5, "max_depth": 3, "temporary_state_bytes": 500}

    def attempt(**values: Any) -> Any:
        frozen = manifest(verifier="membership", **values)
        made = [
            proposal_of(paths[:1], manifest_hash=frozen.hash),
            proposal_of(paths[2:], manifest_hash=frozen.hash),
            proposal_of([[4]], manifest_hash=frozen.hash),
        ]
        return bind(made, "membership", manifest=frozen, bytes_per_node=100)

    assert attempt(**fits).node_count == 5
    check_refused(lambda: attempt(**{**fits, **limits}), told)
    must_fail(check_refused, lambda: attempt(**fits))


def test_a_stale_manifest_hash_is_refused() -> None:
    frozen = manifest(verifier="membership")
    later = frozen.replace(target_cache_generation=1)
    old = proposal_of([[1]], manifest_hash=frozen.hash)
    bind(old, "membership", manifest=frozen)
    check_refused(
        lambda: bind(old, "membership", manifest=later),
        frozen.hash[:12],
        later.hash[:12],
    )
    empty = proposal_of([], manifest_hash=frozen.hash)
    check_refused(lambda: bind([empty], "membership", manifest=later), "made under")


def test_the_manifest_names_the_verifier() -> None:
    frozen = manifest(verifier="greedy")
    made = proposal_of([[1]], manifest_hash=frozen.hash)
    check_refused(lambda: bind(made, "membership", manifest=frozen), "'greedy'")


def test_empty_proposals_bind_when_their_kind_does() -> None:
    assert bind([], "membership").proposals == ()
    assert bind(proposal_of([]), "membership").node_count == 0
    check_refused(
        lambda: bind(proposal_of([]), IID_RULE), "fixed: probability 'absent'"
    )


@pytest.mark.parametrize("size", [-1, 1.5, True, None, "8"])
def test_bytes_per_node_is_a_count(size: Any) -> None:
    for frozen in (None, manifest(verifier="membership")):
        with pytest.raises(ContractError, match="bytes_per_node"):
            bind([], "membership", manifest=frozen, bytes_per_node=size)


@pytest.mark.parametrize("thing", [{}, "hash", 3])
def test_what_is_no_manifest_is_refused(thing: Any) -> None:
    with pytest.raises(ContractError, match="not a manifest"):
        bind([], "membership", manifest=thing)


def test_every_registered_verifier_keeps_the_rule_about_q() -> None:
    for name in verifiers.names():
        rule = contract_of(name)
        if rule.reads_q:
            assert rule.probability <= {NORMAL}
        else:
            assert not rule.merges_q
