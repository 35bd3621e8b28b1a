"""Small corrections to the written pages, so that the accessibility audit is clean.

- Glyph icons are decoration: they get ``aria-hidden``.
- A summary's label must be what a reader sees, so myst-nb's extra one is dropped; the
  fold of the navigation, which shows only an arrow, gets one.
- A block of code can be wider than a small screen: the keyboard must be able to reach
  it, also before a script has run.
- Roles that docutils writes for citations are deprecated; the plain elements say more.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

REPAIRS = [
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (
        r'<summary>(?=<span class="toctree-toggle")',
        '<summary aria-label="Show the pages below">',
    ),
    (r'<i class="(fa[^"]*)"(?![^>]*aria-hidden)', r'<i aria-hidden="true" class="\1"'),
    (r"<pre>", '<pre tabindex="0">'),
    (r' role="(?:doc-biblioentry|doc-biblioref|doc-backlink)"', ""),
    (r'(<div class="citation-list[^"]*") role="list"', r"\1"),
    (r'(<div) role="list" (class="citation-list)', r"\1 \2"),
]


def tidy(html: str) -> str:
    """Return a page's HTML with the corrections above."""
    for pattern, replacement in REPAIRS:
        html = re.sub(pattern, replacement, html)
    return html


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
    app.connect("build-finished", tidy_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
