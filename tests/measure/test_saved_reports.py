"""Files that earlier versions wrote: they load, and say the same when written again.

The files in `saved` were written before the reports had a common base.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbook.errors import ArtifactError
from specbook.measure.decode_report import DecodeReport
from specbook.measure.draft_report import DraftReport
from specbook.measure.report import Report

SAVED = Path(__file__).parent / "saved"
KINDS = [(DecodeReport, "decode"), (DraftReport, "draft")]


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_file_of_an_earlier_version_is_read_and_written_again(
    kind: type[Report], name: str, tmp_path: Path
) -> None:
    path = SAVED / f"{name}.json"
    made = kind.load(path)
    again = made.save(tmp_path / path.name)
    before, after = (json.loads(p.read_text(encoding="utf-8")) for p in (path, again))
    assert before.keys() == after.keys()
    for key in before.keys() - {"ratios"}:
        assert before[key] == after[key]
    assert len(before["ratios"]) == len(after["ratios"]) > 0
    assert kind.load(again) == made


@pytest.mark.parametrize(("kind", "name"), KINDS)
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda v: v["samples"][2].pop("rounds"), "samples[2].rounds is missing"),
        (lambda v: v["samples"][0].update(seconds="1"), "samples[0].seconds must be"),
        (lambda v: v["samples"][0].update(rounds=1.5), "samples[0].rounds must be int"),
        (lambda v: v["samples"][1].update(seconds=9.0), "ratios["),
        (lambda v: v["samples"].pop(), "different prompts"),
        (lambda v: v["ratios"].pop(), "ratios is "),
        (lambda v: v.pop("ratios"), "ratios is missing"),
        (lambda v: v.update(samples={}), "samples must be list"),
        (lambda v: v.update(format="1"), "format is '1', this version reads 1"),
        (lambda v: v["machine"].update(line=3) or v.update(author=1), "author is no"),
    ],
)
def test_a_damaged_file_is_refused_and_the_place_named(
    kind: type[Report], name: str, spoil: Any, told: str, tmp_path: Path
) -> None:
    values = json.loads((SAVED / f"{name}.json").read_text(encoding="utf-8"))
    spoil(values)
    path = tmp_path / "spoilt.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ArtifactError) as caught:
        kind.load(path)
    assert told in str(caught.value) and str(path) in str(caught.value)
