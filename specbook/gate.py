"""The publish gate: what the book must have shown before it may be published.

The article's gate is a list of lines. `data/gate.toml` holds each in our own words,
bound to the claims that show it, so that a line is never ticked by hand: its state
follows from the records that `claims.check` left (article, section 0x12).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import __version__, checks, claims, tables
from .claims import Claim
from .errors import ArtifactError, SpecbookError
from .paths import chapters_path

STATES = ("green", "missing", "stale", "red")
"""From best to worst; a line has the worst state of its claims. `green`: shown by this
version and this code, and every record held. `missing`: no record. `stale`: recorded by
another version or other code, or for another wording. `red`: checked, and it did not
hold."""

_FIELDS = {"id", "title", "text", "claims", "sections"}
_LINE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_BOUND = ("section", "text", "class", "kind", "notebook")
"""What a record repeats of its claim. If one differs, something else was shown."""


class GateError(SpecbookError):
    """The gate's file is malformed, or names a claim that is not in the register."""


@dataclass(frozen=True)
class Line:
    """One line of the gate.

    `id`: words joined by hyphens. `title`: a few words. `text`: our own wording.
    `claims`: ids that show it, in the order of the register; those of whole sections
    are among them. `sections`: these sections (one may have no claims yet).
    """

    id: str
    title: str
    text: str
    claims: tuple[str, ...]
    sections: tuple[str, ...] = ()


def load(
    path: Path | None = None, register: Mapping[str, Claim] | None = None
) -> dict[str, Line]:
    """The gate as {line id: Line}, in the article's order.

    `path`: another file than the shipped one; `register`: other claims. Raises
    `GateError` naming the line for an unknown entry or claim, a wrong value, a repeated
    id, and a line that no claim shows.
    """
    register = claims.load() if register is None else register
    rows = tables.load(
        path,
        "gate.toml",
        "line",
        known=_FIELDS,
        needed={"id", "title", "text"},
        error=GateError,
    )
    found = [_line(row, where, register) for where, row in rows]
    tables.once([line.id for line in found], "line", GateError)
    return {line.id: line for line in found}


def _line(row: Mapping[str, Any], where: str, register: Mapping[str, Claim]) -> Line:
    told = {
        name: tables.text(row[name], f"{where}: {name}", GateError)
        for name in ("id", "title", "text")
    }
    if not _LINE_ID.fullmatch(told["id"]):
        raise GateError(f"{where}: an id looks like 'same-token', got {told['id']!r}")
    where = f"{where} ({told['id']})"
    names = tables.texts(row.get("claims", []), f"{where}: claims", GateError)
    sections = tables.texts(row.get("sections", []), f"{where}: sections", GateError)
    for name in names:
        if name not in register:
            raise GateError(f"{where}: no claim {name!r} is in the register")
    for section in sections:
        if not claims.SECTION.fullmatch(section):
            raise GateError(f"{where}: no section is called {section!r}")
    bound = tuple(
        claim.id
        for claim in register.values()
        if claim.id in names or claim.section in sections
    )
    if not bound:
        raise GateError(f"{where}: no claim shows it")
    return Line(**told, claims=bound, sections=tuple(sections))


def uncovered(
    lines: Iterable[Line], register: Mapping[str, Claim] | None = None
) -> list[str]:
    """The sections that make claims of which no line names one, in order."""
    register = claims.load() if register is None else register
    under = {register[name].section for line in lines for name in line.claims}
    sections = dict.fromkeys(claim.section for claim in register.values())
    return [section for section in sections if section not in under]


# --------------------------------------------------------------------------- states


def claim_state(
    claim: Claim, records: Iterable[Mapping[str, Any]], version: str = __version__
) -> str:
    """What the records of one claim say of it: one of `STATES`.

    One record that did not hold is enough for `red`, whatever was recorded after it.
    `version`: of the package that asks. Raises `ClaimError` for what is no record.
    """
    where = f"the records of claim {claim.id!r}"
    found = checks.entries(records, where, "records", claims.ClaimError)
    for record in found:
        _check_record(claim.id, record)
    current = [record for record in found if _is_current(claim, record, version)]
    if not found:
        return "missing"
    if not all(record["held"] for record in current):
        return "red"
    return "green" if len(current) == len(found) else "stale"


def _check_record(claim_id: str, record: Any) -> None:
    where = f"a record of claim {claim_id!r}"
    if not isinstance(record, Mapping) or record.get("id") != claim_id:
        raise claims.ClaimError(f"{where} is none: {record!r}")
    if not isinstance(record.get("held"), bool):
        held = record.get("held")
        raise claims.ClaimError(f"{where}: held must be a bool, got {held!r}")
    for name in ("evidence", "specbook", "code", *_BOUND):
        if not isinstance(record.get(name), str) or not record[name].strip():
            raise claims.ClaimError(f"{where} does not say its {name}")


def _is_current(claim: Claim, record: Mapping[str, Any], version: str) -> bool:
    now = claims.record(claim, True, "asked", version=version)
    return all(record[name] == now[name] for name in ("specbook", "code", *_BOUND))


def worst(states: Iterable[str]) -> str:
    """The worst of some states. Raises `SpecbookError` for none and for unknown ones:
    nothing at all is not green."""
    found = [checks.one_of(state, "state", STATES) for state in states]
    if not found:
        raise SpecbookError("no state was given")
    return max(found, key=STATES.index)


@dataclass(frozen=True)
class Verdict:
    """What a folder of records says of the whole book.

    `claims`: {claim id: state}, for the whole register. `lines`: {line id: state}.
    `unknown`: ids that were recorded and are in the register no more.
    """

    claims: dict[str, str]
    lines: dict[str, str]
    unknown: tuple[str, ...]

    @property
    def green(self) -> bool:
        """Whether the book may be published: there are claims and lines, every one of
        them is green, and nothing foreign lies among the records."""
        states = [set(self.claims.values()), set(self.lines.values())]
        return not self.unknown and states == [{"green"}, {"green"}]

    def faults(self) -> list[str]:
        """What stands in the way, worst first: "red: 0x07D-key", and so on."""
        order = sorted(
            (claim for claim, state in self.claims.items() if state != "green"),
            key=lambda claim: -STATES.index(self.claims[claim]),
        )
        return [f"{self.claims[claim]}: {claim}" for claim in order] + [
            f"stale: {claim} (not in the register any more)" for claim in self.unknown
        ]

    def counts(self, line: Line | None = None) -> dict[str, int]:
        """How many claims, of the whole register or of one line, are in each state, in
        the order of `STATES`."""
        names = self.claims if line is None else line.claims
        found = Counter(self.claims[name] for name in names)
        return {state: found[state] for state in STATES}


def judge(
    records: Mapping[str, Iterable[Mapping[str, Any]]] | Path | None,
    *,
    lines: Mapping[str, Line] | None = None,
    register: Mapping[str, Claim] | None = None,
    version: str = __version__,
) -> Verdict:
    """The verdict on a run's records.

    `records`: {claim id: records}, the folder that holds them, or None where there was
    no run (then everything is missing). `lines`, `register`: the shipped ones unless
    given. Raises `ClaimError` for a damaged record and a folder that is none, and
    `GateError` for a line that names a claim of another register, and where there is
    no line or no claim at all: no record could close such a gate.
    """
    register = claims.load() if register is None else register
    lines = load(register=register) if lines is None else lines
    if not lines or not register:
        raise GateError("a gate without lines, or without claims, cannot be closed")
    for line in lines.values():
        if unknown := [name for name in line.claims if name not in register]:
            raise GateError(f"line {line.id!r}: no claim {unknown[0]!r} is registered")
    found = _records(records)
    states = {
        claim.id: claim_state(claim, found.get(claim.id, ()), version)
        for claim in register.values()
    }
    return Verdict(
        states,
        {
            line.id: worst(states[name] for name in line.claims)
            for line in lines.values()
        },
        tuple(name for name in found if name not in register),
    )


def _records(records: Any) -> Mapping[str, Any]:
    if records is None:
        return {}
    return records if isinstance(records, Mapping) else claims.read_records(records)


def records_folder() -> Path | None:
    """Where the records of this run are, or of the last one: the folder that the
    environment variable SPECBOOK_RECORDS names, else `build/records` of the checkout.
    None where there is neither."""
    folder = os.environ.get(claims.RECORDS_VARIABLE)
    if folder:
        return Path(folder) if Path(folder).is_dir() else None
    try:
        left = chapters_path().parent / "build" / "records"
    except ArtifactError:
        return None
    return left if left.is_dir() else None
