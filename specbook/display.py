"""Show something as HTML in a notebook and as text everywhere else."""

from __future__ import annotations

import re
import sys
from html import escape

LIGHT_BOX = (
    "background:#ffffff;color:#1a1a1a;border:1px solid #6b6b6b;"
    "border-left:5px solid {edge};padding:.45em .75em;margin:.5em 0;"
    "font-size:.92em;line-height:1.45;overflow-wrap:anywhere"
)
"""The box of a badge or a report. Its face is opaque, so that its contrast is the
same on a light page, on a dark page and in an editor of any theme."""

MONO = "font-family:monospace;color:#1a1a1a;background:#ffffff"


def in_notebook() -> bool:
    """Whether a Jupyter kernel is running this code (IPython is never imported)."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def visible(text: str) -> str:
    """`text` with control characters as pictures: what a model or a cell says must not
    be able to steer the terminal."""
    return "".join(
        chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t"
        else "\N{SYMBOL FOR DELETE}" if ord(c) == 127
        else "" if 128 <= ord(c) < 160
        else c
        for c in text
    )  # fmt: skip


def marked(text: str) -> str:
    """`text` as HTML, with each `name` in single backquotes set as code.

    For reports in a proportional or a fixed font alike: the name also stands in bold
    type, since in a fixed font nothing else would tell it from the words.
    """
    return re.sub(
        r"`([^`\n]+)`",
        lambda found: f'<b style="{MONO}">{found[1]}</b>',
        escape(text),
    )


def show(html: str, text: str) -> None:
    """Displays `html` in a notebook, with `text` as its fallback; prints `text`
    elsewhere, made `visible`, replacing what the stream's encoding cannot write."""
    text = visible(text)
    if in_notebook():
        from IPython.display import display

        display({"text/html": html, "text/plain": text}, raw=True)
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))
