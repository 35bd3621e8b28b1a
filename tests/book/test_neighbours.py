"""What the book leaves to its neighbours."""

import pytest

from specbook import claims, neighbours, registry
from specbook.contract import admitted
from specbook.neighbours import NeighbourError

GOOD = """
[[neighbour]]
id = "M1"
owns = "a proof"
claims = ["0x00-x"]

[[neighbour]]
id = "M2"
owns = "a drafter"

[[neighbour.source]]
name = "a lookup"
semantics = "absent"
relation = "deterministic_lookup"
topology = "tree"
"""


def loaded(tmp_path, text):
    path = tmp_path / "neighbours.toml"
    path.write_text(text, encoding="utf-8")
    return neighbours.load(path)


def test_the_shipped_neighbours_are_the_articles_and_build_on_claims_that_exist():
    found = neighbours.load()
    assert list(found) == ["M7.1", "M7.2", "M7.3", "M7.5", "M7.6", "M7.8"]
    register = claims.load()
    for one in found.values():
        assert set(one.claims) <= set(register), one.id
        for source in one.sources:
            assert admitted([source]), source.name
            assert source.name not in registry.DRAFTS


def test_a_file_of_neighbours_is_read(tmp_path):
    found = loaded(tmp_path, GOOD)
    assert found["M1"].claims == ("0x00-x",) and found["M1"].sources == ()
    (source,) = found["M2"].sources
    assert (source.name, source.sampling_relation) == (
        "a lookup",
        "deterministic_lookup",
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('id = "M2"', 'id = "M1"', "'M1' stands twice"),
        ('id = "M2"\n', "", r"neighbour 2: no \['id'\]"),
        ('id = "M2"', "id = 2", "id must be text"),
        ('owns = "a proof"', 'owns = " "', "owns is empty"),
        ('claims = ["0x00-x"]', "", "nothing ties it"),
        ('claims = ["0x00-x"]', "claims = 3", "must be a list"),
        ('claims = ["0x00-x"]', "claims = [3]", r"claims\[0\] must be text"),
        ('relation = "deterministic_lookup"\n', "", r"source 1: no \['relation'\]"),
        ('"deterministic_lookup"', '"guess"', "source 1: sampling_relation must be"),
        ('name = "a lookup"', "name = 3", "name must be text"),
        ('topology = "tree"', 'topology = "tree"\nq = 1', r"unknown \['q'\]"),
        ('owns = "a proof"', 'owns = "a proof"\nq = 1', r"unknown \['q'\]"),
        (GOOD, "neighbour = [3]", "is no table"),
        (GOOD, "neighbour = 3", "nothing else"),
        (GOOD, "neighbour = []", "nothing else"),
        (GOOD, "other = 3", "nothing else"),
        ('["0x00-x"]', '["0x00-x", "0x00-x"]', "'0x00-x' stands twice"),
        ("[[neighbour]]", "[[neighbour", "no TOML file"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, old, new, told):
    assert old in GOOD
    with pytest.raises(NeighbourError, match=told):
        loaded(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize("path", [5, "nowhere/neighbours.toml"])
def test_what_is_no_file_is_refused(path):
    with pytest.raises(NeighbourError, match="path|cannot be read"):
        neighbours.load(path)
