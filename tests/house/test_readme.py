"""The README's measured answer is what the shipped data say."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from specbook.errors import ArtifactError
from tests.measure import frontiers
from tools import readme


@pytest.fixture(scope="module")
def shipped() -> readme.Answer:
    return readme.answer()


def test_picture_and_text_are_current(shipped, monkeypatch, capsys):
    monkeypatch.setattr(readme, "answer", lambda: shipped)
    assert readme.main([]) == 0, capsys.readouterr().out


def test_a_number_that_was_typed_is_found_and_made_again(
    shipped, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(readme, "answer", lambda: shipped)
    for name in ("README", "PICTURE"):
        path = getattr(readme, name)
        copy = tmp_path / path.relative_to(readme.ROOT)
        copy.parent.mkdir(exist_ok=True)
        text = path.read_text(encoding="utf-8")
        copy.write_text(re.sub(r"\d\.\d\d", "9.99", text), encoding="utf-8")
        monkeypatch.setattr(readme, name, copy)
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    assert readme.main([]) == 1
    said = capsys.readouterr().out
    assert "README.md" in said and "answer.svg" in said
    assert readme.main(["--write"]) == 0
    assert readme.main([]) == 0


def test_a_readme_without_its_marks_is_refused():
    with pytest.raises(ValueError, match="two marks"):
        readme.replaced("# specbook\n", "x")
    twice = f"{readme.BEGIN}{readme.END}" * 2
    with pytest.raises(ValueError, match="two marks"):
        readme.replaced(twice, "x")
    text = f"a\n{readme.BEGIN}\nold\n{readme.END}\nb\n"
    assert readme.replaced(text, r"new \1") == "a\nnew \\1\nb\n"


def test_the_picture_draws_each_number_with_its_interval(shipped):
    root = ElementTree.fromstring(readme.svg(shipped))
    words = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    for name, spans in shipped.groups.items():
        assert name in words
        for series, span in spans.items():
            assert series in words and readme.told(span) in words
            assert f"{series} {span[0]:.2f}" in readme.alt(shipped)
    assert root.find("{http://www.w3.org/2000/svg}desc").text == readme.alt(shipped)


def test_without_a_frontier_the_recordings_speak_and_a_damaged_one_is_told(monkeypatch):
    def raises(message):
        def load():
            raise ArtifactError(message)

        return load

    found = readme.Answer("u", {}, "c")
    monkeypatch.setattr(readme, "of_recordings", lambda: found)
    for message in ("no frontier is shipped", "no data file 'frontier' is shipped"):
        monkeypatch.setattr(readme.report, "load", raises(message))
        assert readme.answer() is found
    monkeypatch.setattr(readme.report, "load", raises("line 3 was changed"))
    with pytest.raises(ArtifactError, match="line 3"):
        readme.answer()


def test_a_frontier_tells_what_to_run_and_by_how_much():
    found = readme.of_frontier(frontiers.frontier())
    plain, peer = readme.SIDES.values()
    edit, chat = found.groups["edit"], found.groups[readme.WORDS["chat"]]
    assert edit[plain][0] == pytest.approx(1.6 / 0.6)
    assert edit[peer][0] == pytest.approx(1.4 / 0.6)
    assert chat[plain][0] == 1.0  # plain decoding is the fastest there, and said to be
    assert chat[peer][0] == pytest.approx(2.0 / 1.6)
    assert [row[1] for row in found.rows] == ["`prompt_lookup / greedy`", "`plain`"]
    assert frontiers.MACHINE["line"] in found.caption
    told = readme.block(found)
    assert "| edit | `prompt_lookup / greedy` | float32 |" in told
    ElementTree.fromstring(readme.svg(found))
