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
from specbook.measure.retrieval_report import RetrievalReport

SAVED = Path(__file__).parent / "saved"
PROMPTS = [(DecodeReport, "decode"), (DraftReport, "draft")]
KINDS = [*PROMPTS, (RetrievalReport, "retrieval")]


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_file_of_an_earlier_version_is_read_and_written_again(
    kind: type[Report], name: str, tmp_path: Path
) -> None:
    path = SAVED / f"{name}.json"
    made = kind.load(path)
    again = made.save(tmp_path / path.name)
    before, after = (json.loads(p.read_text(encoding="utf-8")) for p in (path, again))
    assert before.keys() == after.keys()
    derived = made.derived().keys()
    for key in before.keys() - derived:
        assert before[key] == after[key]
    for key in derived:
        assert len(before[key]) == len(after[key]) > 0
    assert kind.load(again) == made


@pytest.mark.parametrize(("kind", "name"), PROMPTS)
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


def test_a_verdict_that_does_not_follow_is_named() -> None:
    values = json.loads((SAVED / "retrieval.json").read_text(encoding="utf-8"))
    values["aims"][2]["kept"] = True
    with pytest.raises(ArtifactError, match=r"aims\[2\].kept is True, and by the data"):
        RetrievalReport.from_dict(values)
    values["measured"][0]["queries"]["one"] = 3e-6
    with pytest.raises(ArtifactError, match="damaged retrieval report"):
        RetrievalReport.from_dict(values)
