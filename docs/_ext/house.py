"""Read the package's docstrings, and correct small things in the written pages.

Docstrings are plain text with names in single backquotes. Three of their habits mean
something else in reStructuredText, so they are translated: arguments listed one to a
line with indented continuations, indented code after a colon, and a plural s behind a
closing backquote.

The corrections keep the accessibility audit clean:

- Glyph icons are decoration: they get ``aria-hidden``.
- A summary's label must be what a reader sees, so myst-nb's extra one is dropped; the
  fold of the navigation, which shows only an arrow, gets one.
- An empty heading of a table's first column is no heading.
- A dotted name breaks at its dots, where the page is too narrow for it. Listings stay
  as they are: they scroll.
- A link to the place where a claim is shown names the notebook, as it must in one; here
  that is a page.
- Roles that docutils writes for citations are deprecated; the plain elements say more.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

LONGEST_VALUE = 60
REPAIRS = [
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (
        r'<summary>(?=<span class="toctree-toggle")',
        '<summary aria-label="Show the pages below">',
    ),
    (r'<i class="(fa[^"]*)"(?![^>]*aria-hidden)', r'<i aria-hidden="true" class="\1"'),
    (r'<th class="head"><p></p></th>', "<td></td>"),
    (r'(<a href="0x\w+)\.ipynb(?=#claim-)', r"\1.html"),
    (r' role="(?:doc-biblioentry|doc-biblioref|doc-backlink)"', ""),
    (r'(<div class="citation-list[^"]*") role="list"', r"\1"),
    (r'(<div) role="list" (class="citation-list)', r"\1 \2"),
]


def paragraphs(lines: list[str]) -> list[list[str]]:
    """Split lines at blank ones."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def indent(line: str) -> int:
    """Count a line's leading blanks."""
    return len(line) - len(line.lstrip())


def listed(block: list[str]) -> list[str]:
    """Turn "`name`: text" lines with indented continuations into a list."""
    base = indent(block[0])
    deeper = any(indent(line) > base for line in block[1:])
    if not deeper or re.match(r"\s*([-*+]|\d+[.)]|\.\.)\s", block[0]):
        return block
    pad = " " * base
    out: list[str] = []
    for line in block:
        if indent(line) > base:
            out.append(f"{pad}  {line.strip()}")
            continue
        if out and line.lstrip().startswith("`"):
            out.append("")
        starts = not out or line.lstrip().startswith("`")
        out.append(f"{pad}{'* ' if starts else '  '}{line.strip()}")
    return out


def is_python(block: list[str]) -> bool:
    """Say whether an indented block is code: a formula would be coloured as one."""
    try:
        ast.parse(textwrap.dedent("\n".join(block)))
    except SyntaxError:
        return False
    return True


def readable(lines: list[str]) -> list[str]:
    """Return a docstring's lines as the reStructuredText that their author meant."""
    out: list[str] = []
    base = 0
    for number, block in enumerate(paragraphs(lines)):
        code = number and min(map(indent, block)) > base
        if code and not out[-2].lstrip().startswith(("* ", "..")):
            opened = out[-2].rstrip().endswith("::")
            if not is_python(block):
                out[-2] = out[-2].rstrip().removesuffix(":") if opened else out[-2]
                out += [".. code-block:: text", ""]
            elif not opened:
                out += ["::", ""]
            out += [*block, ""]
            continue
        base = indent(block[0])
        text = [re.sub(r"(?<!`)`([^`]+)`(?=\w)", r"`\1`\\ ", line) for line in block]
        out += [*listed(text), ""]
    return out


def process_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Translate a docstring in place, for autodoc."""
    lines[:] = readable(lines)


def parseable(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None] | None:
    """Put ``...`` in the place of a default that is no Python, such as ``<factory>``.

    One such default, and Sphinx would show the whole signature as raw text.
    """
    if signature is None:
        return None
    return re.sub(r"(?<==)( ?)<[^<>]+>", r"\1...", signature), returned


def drop_long_values(app: Sphinx, tree: nodes.document) -> None:
    """Drop the value of a documented constant where it is no short literal."""
    for signature in tree.findall(addnodes.desc_signature):
        for note in list(signature.findall(addnodes.desc_annotation)):
            told = note.astext().lstrip()
            if told.startswith("=") and (len(told) > LONGEST_VALUE or "<" in told):
                note.parent.remove(note)


def tidy(html: str) -> str:
    """Return a page's HTML with the corrections above."""
    for pattern, replacement in REPAIRS:
        html = re.sub(pattern, replacement, html)
    # The odd parts are listings.
    parts = re.split(r"(<pre\b.*?</pre>)", html, flags=re.DOTALL)
    parts[::2] = [
        re.sub(
            r"(?<=>)specbook(?:\.\w+)+(?=<)",
            lambda match: match.group().replace(".", ".<wbr>"),
            part,
        )
        for part in parts[::2]
    ]
    return "".join(parts)


def tidy_pages(app: Sphinx, exception: Exception | None) -> None:
    """Correct every written page."""
    if exception is not None or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).rglob("*.html")):
        old = path.read_text(encoding="utf-8")
        new = tidy(old)
        if new != old:
            path.write_text(new, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", parseable)
    app.connect("doctree-read", drop_long_values)
    app.connect("build-finished", tidy_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
