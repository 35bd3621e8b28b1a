"""Small corrections to the theme's pages, so that the accessibility audit is clean.

- Glyph icons are decoration: they get ``aria-hidden``.
- A summary's label must be what a reader sees, so myst-nb's extra one is dropped.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

SUMMARY = re.compile(r'(<summary\b[^>]*?)\s+aria-label="[^"]*"')
ICON = re.compile(r'<i class="(fa[^"]*)"(?![^>]*aria-hidden)')


def tidy(html: str) -> str:
    """Return a page's HTML with the corrections above."""
    html = SUMMARY.sub(r"\1", html)
    return ICON.sub(r'<i aria-hidden="true" class="\1"', html)


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
