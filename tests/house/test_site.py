"""The site's own gates, each with a planted fault."""

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from tools import build_site, execute, pages, webparts

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def load_extension(name: str):
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- pages -----------------------------------------------------------------------

GOOD = (
    "<link rel='canonical' href='https://example.org/x'>"
    "<script src='a.js'></script><article><h1>T</h1><h2>A</h2><h3>B</h3><h2>C</h2>"
    "<img src='a.png' alt='Two lines that cross'><a href='https://example.org'>x</a>"
    "</article>"
)


def test_a_good_page_has_no_fault():
    assert build_site.page_faults(GOOD) == []


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("<script src='https://cdn.example.org/x.js'></script>", "another machine"),
        ("<link rel='stylesheet' href='//fonts.example.org/x'>", "another machine"),
        ("<img src='https://example.org/x.png' alt='A tree'>", "another machine"),
        ("<iframe src='https://example.org'></iframe>", "another machine"),
        ("<img src='a.png'>", "image without words"),
        ("<img src='a.png' alt=''>", "image without words"),
        ("<img src='a.png' alt='../_images/a.png'>", "image without words"),
        ("<img src='a.png' alt='Image'>", "image without words"),
        ("<article><h1>T</h1><h3>A</h3></article>", "<h3> follows <h1>"),
        ("<article><h2>A</h2></article>", "0 first-level headings"),
        ("<article><h1>A</h1><h1>B</h1></article>", "2 first-level headings"),
    ],
)
def test_a_planted_fault_is_found(html, said):
    assert any(said in fault for fault in build_site.page_faults(html))


def test_style_sheets_that_fetch_are_found():
    assert build_site.style_faults("a{background:url(x.png)}") == []
    assert build_site.style_faults("@import 'https://fonts.example.org/x';")
    assert build_site.style_faults('a{src:url("//fonts.example.org/x.woff2")}')


def test_faults_of_a_whole_site_name_the_page(tmp_path):
    (tmp_path / "a.html").write_text(GOOD + "<img src='b.png'>", encoding="utf-8")
    (tmp_path / "a.css").write_text("a{src:url(https://x.org/f)}", encoding="utf-8")
    found = build_site.site_faults(tmp_path)
    assert [fault.split(":")[0] for fault in found] == ["a.html", "a.css"]


# ---- executions ------------------------------------------------------------------


@pytest.fixture
def executed(tmp_path: Path) -> Path:
    stamp = {
        "sources": execute.source_hash(),
        "complete": True,
        "notebooks": ["a.ipynb"],
    }
    record = {"passed": True, "seconds": 1.0, "peak_mb": 100}
    timings = {"notebooks": {"a": record}}
    (tmp_path / "stamp.json").write_text(json.dumps(stamp), encoding="utf-8")
    (tmp_path / "timings.json").write_text(json.dumps(timings), encoding="utf-8")
    return tmp_path


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")


def test_fresh_executions_are_taken(executed):
    notebooks, _ = build_site.executions(executed, stale=False)
    assert notebooks == [executed / "a.ipynb"]


def test_executions_older_than_the_code_are_refused(executed):
    edit(executed / "stamp.json", sources="0" * 64)
    with pytest.raises(build_site.NoSite, match="older than the sources"):
        build_site.executions(executed, stale=False)
    assert build_site.executions(executed, stale=True)


def test_failed_partial_and_missing_executions_are_refused(executed, tmp_path):
    failed = {"a": {"passed": False, "seconds": 1.0, "peak_mb": 1}}
    edit(executed / "timings.json", notebooks=failed)
    with pytest.raises(build_site.NoSite, match="executions failed: a"):
        build_site.executions(executed, stale=True)
    edit(executed / "timings.json", notebooks={})
    edit(executed / "stamp.json", complete=False)
    with pytest.raises(build_site.NoSite, match="only some notebooks"):
        build_site.executions(executed, stale=False)
    with pytest.raises(build_site.NoSite, match="no notebook has been executed"):
        build_site.executions(tmp_path / "nowhere", stale=False)


def test_a_claim_that_was_not_shown_is_named(monkeypatch):
    class Claim:
        id, notebook = "0x00-x", "a"

    monkeypatch.setattr(pages.claims, "load", lambda: {"0x00-x": Claim})
    assert pages.unshown({}, ["a"]) == ["0x00-x"]
    assert pages.unshown({"0x00-x": []}, ["a"]) == []
    assert pages.unshown({}, ["b"]) == []


def test_the_run_note_stands_below_the_title():
    machine = {
        "cpu": "A CPU",
        "cores": 2,
        "memory_gb": 8,
        "python": "3.11",
        "versions": {"numpy": "2"},
    }
    timings = {
        "date": "2026-01-01",
        "machine": machine,
        "notebooks": {"a": {"seconds": 12.4, "peak_mb": 900}},
    }
    notebook = {"cells": [{"cell_type": "markdown", "source": "# T\n\nWords."}]}
    pages.add_run_note(notebook, timings, "a")
    lines = notebook["cells"][0]["source"].splitlines()
    assert lines[0] == "# T" and lines[-1] == "Words."
    assert "12 s with 900 MB" in lines[3] and "A CPU, 2 cores" in lines[3]
    with pytest.raises(ValueError, match="not its title"):
        pages.add_run_note({"cells": [{"source": "Words"}]}, timings, "a")


def test_a_folded_solution_is_called_one():
    folded = {"cell_type": "code", "source": "1", "metadata": {"tags": ["hide-cell"]}}
    plain = {"cell_type": "code", "source": "1", "metadata": {"tags": ["hide-input"]}}
    pages.name_solutions({"cells": [folded, plain]})
    assert folded["metadata"]["mystnb"]["code_prompt_show"] == "Show the solution"
    assert "mystnb" not in plain["metadata"]


def test_the_build_executes_nothing():
    text = (DOCS / "conf.py").read_text(encoding="utf-8")
    assert re.search(r'^nb_execution_mode = "off"$', text, re.MULTILINE)
    command = (ROOT / "tools" / "build_site.py").read_text(encoding="utf-8")
    for word in ('"-n"', '"-W"', '"--keep-going"'):
        assert word in command


# ---- what npm brings -------------------------------------------------------------


def test_without_npm_the_message_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(webparts, "FOLDER", tmp_path)
    monkeypatch.setattr(webparts.shutil, "which", lambda name: None)
    with pytest.raises(webparts.MissingPart, match="npm is not installed"):
        webparts.node_modules()


def test_the_lock_file_holds_what_is_copied_and_names_no_registry():
    lock = json.loads((webparts.SOURCE / "package-lock.json").read_text("utf-8"))
    have = {name.removeprefix("node_modules/") for name in lock["packages"]}
    wanted = json.loads((webparts.SOURCE / "package.json").read_text("utf-8"))
    asked = {**wanted["dependencies"], **wanted["devDependencies"]}
    assert set(asked) <= have
    for source, _ in webparts.MATHJAX_PARTS:
        assert any(source.startswith(name) for name in asked)
    assert "resolved" not in json.dumps(lock)


def test_mathml_takes_over_and_fails_loudly():
    from latex2mathml.converter import convert

    assert load_extension("mathml").convert is convert
    markup = convert(r"C_{round} = \sum_i c_i \mid x_{\le t}")
    assert markup.startswith("<math") and "C" in markup


# ---- corrections and docstrings --------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('<summary aria-label="Toggle hidden content">', "<summary>"),
        (
            '<summary><span class="toctree-toggle">',
            '<summary aria-label="Show the pages below"><span class="toctree-toggle">',
        ),
        ('<i class="fa-x"></i>', '<i aria-hidden="true" class="fa-x"></i>'),
        ('<div class="c" role="doc-biblioentry">', '<div class="c">'),
        ('<th class="head"><p></p></th>', "<td></td>"),
        ('<a href="0x0A_b.ipynb#claim-x">', '<a href="0x0A_b.html#claim-x">'),
        ('<a href="0x0A_b.ipynb">', '<a href="0x0A_b.ipynb">'),
        ("<b>specbook.a.b</b>", "<b>specbook.<wbr>a.<wbr>b</b>"),
        ("<pre>\n<b>specbook.a</b></pre>", "<pre>\n<b>specbook.a</b></pre>"),
        ("<summary>Words</summary>", "<summary>Words</summary>"),
    ],
)
def test_tidy(before, after):
    house = load_extension("house")
    assert house.tidy(before) == after
    assert house.tidy(after) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["One line."], ["One line.", ""]),
        (
            ["`a`: first", "    goes on.", "`b`: second"],
            ["* `a`: first", "  goes on.", "", "* `b`: second", ""],
        ),
        (
            ["Use it:", "", "    x = 1", "", "Then more."],
            ["Use it:", "", "::", "", "    x = 1", "", "Then more.", ""],
        ),
        (
            ["It is:", "", "    sum over y of f(y) = p"],
            [
                "It is:",
                "",
                ".. code-block:: text",
                "",
                "    sum over y of f(y) = p",
                "",
            ],
        ),
        (
            ["It is::", "", "    1 < x < y z"],
            ["It is:", "", ".. code-block:: text", "", "    1 < x < y z", ""],
        ),
        (["All are `Error`s."], ["All are `Error`\\ s.", ""]),
        (["Two ``plain`` names."], ["Two ``plain`` names.", ""]),
    ],
)
def test_docstrings_are_read_as_their_author_meant(before, after):
    assert load_extension("house").readable(before) == after


def signature_of(value: str):
    from sphinx import addnodes

    note = addnodes.desc_annotation("", f" = {value}")
    return addnodes.desc_signature("", "", addnodes.desc_name("", "N"), note)


def test_only_short_literals_are_shown_as_values():
    from docutils.utils import new_document

    house = load_extension("house")
    values = ["1e-06", "<function select at 0x1>", "(" + "1, " * 40 + ")"]
    tree = new_document("page")
    tree += [signature_of(value) for value in values]
    house.drop_long_values(None, tree)
    assert [part.astext() for part in tree] == ["N = 1e-06", "N", "N"]


def test_a_default_that_is_no_python_is_left_out_of_a_signature():
    tidied = load_extension("house").parseable
    for shown, meant in (
        ("(a: int = <factory>, b: str = 'x')", "(a: int = ..., b: str = 'x')"),
        ("(a=<Kind.ONE: 'one'>)", "(a=...)"),
        ("(a: bool = 1 < 2)", "(a: bool = 1 < 2)"),
    ):
        assert tidied(None, "", "", None, None, shown, "int") == (meant, "int")
    assert tidied(None, "", "", None, None, None, None) is None


# ---- bibliography ----------------------------------------------------------------


def test_an_entry_is_labelled_as_the_text_cites_it():
    from pybtex.database import Entry, Person

    def entry(*names: str):
        return Entry("misc", {"year": "2023"}, {"author": [Person(n) for n in names]})

    labels = load_extension("references").labels
    assert list(labels([entry("Doe, A."), entry("Doe, A.", "Roe, B.")])) == [
        "Doe, 2023",
        "Doe and Roe, 2023",
    ]
    three = entry("Doe, A.", "Roe, B.", "Poe, C.")
    assert list(labels([three, three])) == ["Doe et al., 2023a", "Doe et al., 2023b"]
    bare = Entry("misc", {})
    bare.key = "some-code"
    assert list(labels([bare])) == ["some-code"]


# ---- API pages -------------------------------------------------------------------


def test_a_package_page_leads_to_what_is_in_it():
    names = list(pages.modules())
    lines = "\n".join(pages.contents("specbook.drafts.rest", names))
    assert (
        "[specbook.drafts.rest.datastore](specbook.drafts.rest.datastore.md)" in lines
    )
    assert "[`Datastore`](specbook.drafts.rest.datastore.md)" in lines
    assert pages.contents("specbook.tree", names) == []


def test_the_list_of_training_modules_is_complete():
    text = importlib.import_module("specbook.training").__doc__
    inside = [n for n in pages.modules() if n.rpartition(".")[0] == "specbook.training"]
    assert len(inside) > 10
    named = set(re.findall(r"`(\w+)`", text))
    assert named == {name.rpartition(".")[2] for name in inside}


# ---- texts -----------------------------------------------------------------------


def resolve(name: str) -> object:
    """Import a dotted name; a field of a dataclass counts as one of its class."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            known = (
                getattr(found, "__dataclass_fields__", {}),
                getattr(found, "__annotations__", {}),
            )
            if not hasattr(found, part) and any(part in names for names in known):
                return found
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def glossary_names() -> list[str]:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    return re.findall(r"^\|.*?\| `(specbook\.[\w.]+)` \|", text, re.MULTILINE)


def test_every_name_of_the_glossary_exists():
    names = glossary_names()
    assert len(names) >= 20
    for name in names:
        resolve(name)


@pytest.mark.parametrize("name", ["specbook.tree.Nothing", "specbook.nothing.X"])
def test_a_name_that_does_not_exist_is_found(name):
    with pytest.raises(AttributeError):
        resolve(name)


def rows_of(text: str, heading: str) -> dict[str, list[str]]:
    """The table below a heading as {first cell without backquotes: other cells}."""
    part = re.split(r"^## ", text, flags=re.MULTILINE)
    (part,) = [p for p in part if p.startswith(heading)]
    lines = re.findall(r"^\| `(\w+)` \|(.*)\|$", part, re.MULTILINE)
    return {name: [c.strip() for c in rest.split("|")] for name, rest in lines}


def test_the_page_of_choices_lists_what_is_registered():
    from specbook import registry, verifiers

    text = (DOCS / "choosing.md").read_text(encoding="utf-8")
    assert set(rows_of(text, "Draft sources")) == {"none", *registry.DRAFTS}
    told = rows_of(text, "Verifiers")
    assert list(told) and set(told) == set(registry.VERIFIERS)
    words = {True: "yes", False: "no"}
    for name, (reads_q, exact, use) in told.items():
        contract = verifiers.get(name).contract
        assert (reads_q, exact) == (words[contract.reads_q], words[contract.exact]), (
            name
        )
        assert use
    assert rows_of("## A\n| `x` | 1 | 2 |\n## B\n| `y` | 3 |", "A") == {"x": ["1", "2"]}


def titles_told(text: str) -> dict[str, str]:
    """{notebook: title} that a page gives, in a table of links or on cards."""
    links = re.findall(r"\[([^\]]+)\]\(notebooks/(\w+)\.md\)", text)
    cards = re.findall(r"\{grid-item-card\} (.+)\n:link: notebooks/(\w+)\n", text)
    return {name: title for title, name in links + cards}


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_a_chapter_has_one_title_everywhere(page):
    told = titles_told((ROOT / page).read_text(encoding="utf-8"))
    have = {}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        have[path.stem] = pages.title_of(path)
    assert told.items() >= have.items()
    assert titles_told("[0x02 A](notebooks/0x02_a.md)") == {"0x02_a": "0x02 A"}


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")
GENERATED = {"claims.md", "run.md"}


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda p: p.name)
def test_links_of_a_page_lead_somewhere_in_the_repository_and_on_the_site(path):
    text = path.read_text(encoding="utf-8")
    for target in set(LINK.findall(text)) - GENERATED:
        assert (DOCS / target).exists(), target
    for target in LINK.findall(pages.in_the_site(text)):
        assert not target.startswith(".."), target


def test_a_page_is_moved_beside_its_notebooks():
    moved = pages.in_the_site("[a](../notebooks/0x00_a.ipynb), [b](c.md)")
    assert moved == "[a](notebooks/0x00_a.ipynb), [b](c.md)"
    assert LINK.findall("[a](b.md#c) [x](https://y.z) [d](#e)") == ["b.md"]


def test_no_two_chapters_begin_with_one_number():
    titles = [pages.title_of(p) for p in (ROOT / "notebooks").glob("*.ipynb")]
    numbers = [title.split()[0] for title in titles]
    assert sorted(set(numbers)) == sorted(numbers)


def strings_of(folder: Path) -> str:
    """All string literals of a folder's code, adjacent ones joined, values as {}."""
    import ast

    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else "{}"
                    for part in node.values
                )
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_every_message_of_the_troubleshooting_page_is_one_of_ours():
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^### `(.+)`$", text, re.MULTILINE)
    assert len(messages) >= 15
    said = strings_of(ROOT / "specbook") + strings_of(ROOT / "tools")
    # The one message whose numbers come from constants.
    said = said.replace("specbook needs Python {}.{} to {}.{}", messages[0])
    assert [message for message in messages if message not in said] == []
    assert "a message that nothing prints" not in said


def bib_keys() -> list[str]:
    text = (ROOT / "data" / "references.bib").read_text(encoding="utf-8")
    return re.findall(r"^@\w+\{([^,]+),$", text, re.MULTILINE)


def cited(text: str) -> set[str]:
    found = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text)
    return {key.strip() for group in found for key in group.split(",")}


def test_every_citation_has_its_entry_and_no_key_stands_twice():
    keys = bib_keys()
    assert len(keys) == len(set(keys)) >= 15
    assert cited("{cite}`a, b` and {cite:t}`c`") == {"a", "b", "c"}
    for path in [*(ROOT / "notebooks").glob("*.md"), *DOCS.glob("*.md")]:
        assert cited(path.read_text(encoding="utf-8")) <= set(keys), path.name


def test_the_bibliography_names_the_papers_own_authors():
    text = (ROOT / "data" / "references.bib").read_text(encoding="utf-8")
    first = dict(re.findall(r"@\w+\{([^,]+),.*?author = \{\{?(\w+)", text, re.DOTALL))
    assert {
        "zhang2024draftverify": "Zhang",
        "liu2024kangaroo": "Liu",
        "he2024rest": "He",
        "xiao2024clover": "Xiao",
        "sun2023spectr": "Sun",
    }.items() <= first.items()


def test_every_public_module_says_what_it_is_for():
    names = list(pages.modules())
    assert "specbook.tree" in names
    assert not [n for n in names if n.startswith("specbook.exercises.")]
    for name in names:
        assert pages.summary(name)


def test_a_module_without_a_docstring_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "empty_module", type(sys)("empty_module"))
    with pytest.raises(ValueError, match="empty_module has no docstring"):
        pages.summary("empty_module")
