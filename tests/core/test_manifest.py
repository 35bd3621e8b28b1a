"""The round manifest: whatever changes, changes its hash (section 0x02B)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from specbook.errors import ManifestError
from specbook.manifest import MODES, RoundManifest

from .helpers import must_fail, named
from .helpers.manifests import FIELDS, manifest

ALL = dataclasses.fields(RoundManifest)


def changed(name: str) -> Any:
    value = FIELDS[name]
    if name == "mode":
        return "heuristic"
    return value + "!" if isinstance(value, str) else value + 1


def check_hash_covers(name: str, hash_of: Any) -> None:
    base = manifest()
    other = base.replace(**{name: changed(name)})
    assert other.differences(base) == {name: (changed(name), FIELDS[name])}
    assert hash_of(other) != hash_of(base)
    assert hash_of(manifest()) == hash_of(base)


@pytest.mark.parametrize("name", [f.name for f in ALL])
def test_every_field_changes_the_hash(name: str) -> None:
    check_hash_covers(name, lambda m: m.hash)

    def leaves_it_out(m: RoundManifest) -> str:
        fields = {**dataclasses.asdict(m), name: None}
        return hashlib.sha256(repr(fields).encode()).hexdigest()

    must_fail(check_hash_covers, name, leaves_it_out)


def test_the_articles_nine_lines_are_all_frozen() -> None:
    """Section 0x02B, line by line: which field holds it."""
    lines = [
        ["target_checkpoint", "tokenizer", "output_head"],
        ["sampling_policy", "temperature", "truncation", "rng_policy"],
        ["proposal_artifact"],
        ["probability_semantics", "sampling_relation"],
        ["topology_compiler", "max_nodes", "max_depth"],
        ["verifier", "mode"],
        ["target_cache_generation", "proposal_cache_generation"],
        ["backend", "dtype", "batch_regime", "hardware_profile"],
        ["temporary_state_bytes"],
    ]
    assert sorted(sum(lines, [])) == sorted(f.name for f in ALL)
    assert all(f.default is dataclasses.MISSING for f in ALL)


class Verifiers(StrEnum):
    MEMBERSHIP = "membership"


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 1},
        {"temperature": Fraction(1)},
        {"temperature": np.float32(1)},
        {"max_nodes": np.int64(64)},
        {"verifier": Verifiers.MEMBERSHIP},
    ],
    ids=named,
)
def test_equal_manifests_have_one_hash(changes: Any) -> None:
    other = manifest(**changes)
    assert other == manifest() and other.hash == manifest().hash
    assert other.to_json() == manifest().to_json()
    assert other.differences(manifest()) == {}


def test_zero_has_no_sign() -> None:
    assert manifest(temperature=-0.0).hash == manifest(temperature=0).hash


def test_nearby_temperatures_are_told_apart() -> None:
    hashes = {
        manifest(temperature=t).hash for t in (0.1, math.nextafter(0.1, 1), 5e-324, 0)
    }
    assert len(hashes) == 4


def test_fields_do_not_run_into_each_other() -> None:
    one = manifest(dtype='a","x":"b', backend="c")
    two = manifest(dtype="a", backend='x":"b","c')
    assert one.hash != two.hash
    assert manifest(dtype="1").to_json() != manifest(dtype="1 ").to_json()


def test_json_round_trip() -> None:
    odd = manifest(tokenizer='Ä 😀 "quoted"\n\\ \ud800', temperature=0.1)
    again = RoundManifest.from_json(odd.to_json())
    assert again == odd and again.hash == odd.hash
    assert odd.to_json().isascii()
    shuffled = json.dumps(dict(reversed(json.loads(odd.to_json()).items())), indent=3)
    assert RoundManifest.from_json(shuffled).hash == odd.hash


@pytest.mark.parametrize(
    "text, told",
    [
        ("", "not a manifest"),
        ("{", "not a manifest"),
        ("[]", "object"),
        ("3", "object"),
        (None, "not a manifest"),
        (b"\xff", "not a manifest"),
        ("[" * 100_000, "not a manifest"),
        ("{}", "tokenizer"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_manifest_is_refused(text: Any, told: str) -> None:
    with pytest.raises(ManifestError, match=told):
        RoundManifest.from_json(text)


@pytest.mark.parametrize("name", [f.name for f in ALL])
def test_a_missing_an_unknown_or_a_wrong_field_is_named(name: str) -> None:
    values = json.loads(manifest().to_json())
    without = {k: v for k, v in values.items() if k != name}
    with pytest.raises(ManifestError, match=name):
        RoundManifest.from_json(json.dumps(without))
    with pytest.raises(ManifestError, match="colour"):
        RoundManifest.from_json(json.dumps({**values, "colour": "red"}))
    with pytest.raises(TypeError, match=name):
        RoundManifest(**without)
    kind = next(f.type for f in ALL if f.name == name)
    bad = {
        "str": ["", None, 3, b"x", ["x"]],
        "int": [-1, 1.5, True, "3", None, math.nan],
        "float": [-1, math.nan, math.inf, True, "1", None, 10**400],
    }[kind]
    for value in bad:
        with pytest.raises(ManifestError, match=name):
            manifest(**{name: value})
        with pytest.raises(ManifestError, match=name):
            manifest().replace(**{name: value})


def test_replace_refuses_an_unknown_field() -> None:
    with pytest.raises(ManifestError, match="colour"):
        manifest().replace(colour="red")
    assert manifest().replace() == manifest()


def test_there_are_two_modes() -> None:
    assert MODES == ("exact", "heuristic")
    with pytest.raises(ManifestError, match="mode"):
        manifest(mode="fast")


def test_a_manifest_is_frozen_and_can_be_a_key() -> None:
    made = manifest()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.temperature = 2.0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        made.hash = "0"  # type: ignore[misc]
    assert {made: 1}[manifest()] == 1
    assert len(made.hash) == 64 and int(made.hash, 16) >= 0


def test_the_hash_is_the_same_on_every_machine() -> None:
    """Written down once, so that a change of the canonical form is noticed."""
    assert manifest().to_json().startswith('{"backend":"table","batch_regime":')
    assert (
        manifest().hash
        == hashlib.sha256(
            json.dumps(FIELDS, sort_keys=True, separators=(",", ":")).encode("ascii")
        ).hexdigest()
    )


def test_differences_lists_mine_and_theirs() -> None:
    other = manifest(dtype="bfloat16", max_depth=2)
    assert manifest().differences(other) == {
        "max_depth": (8, 2),
        "dtype": ("float32", "bfloat16"),
    }
    for thing in (None, {}, "hash"):
        with pytest.raises(ManifestError, match="not a manifest"):
            manifest().differences(thing)  # type: ignore[arg-type]
