"""Records of the whole register, as a run of the book would leave them."""

import json
from pathlib import Path

from specbook import claims


def write_records(folder: Path, **held: bool | None) -> None:
    """`held`: by claim id, True unless given; None leaves a claim out."""
    for claim in claims.load().values():
        found = held.get(claim.id, True)
        if found is not None:
            path = folder / f"{claim.id}.json"
            row = claims.record(claim, found, "seen")
            path.write_text(json.dumps([row]), encoding="utf-8")
