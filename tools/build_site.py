"""Build the book's site from notebooks that were executed already.

    python tools/build_site.py                 after make book or make test
    python tools/build_site.py --stale         draw older executions (while writing)

Stages docs/, the executed notebooks and the generated pages in build/site-src, adds
MathJax, runs Sphinx with every warning an error, and checks the pages that came out.
The site in build/site opens from disk and asks no other machine for anything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from specbook import claims  # noqa: E402
from tools import execute, pages, webparts  # noqa: E402

SOURCE = ROOT / "build" / "site-src"
SITE = ROOT / "build" / "site"


class NoSite(ValueError):
    """The site cannot be built; the message says what is missing."""


# ---- what goes in ----------------------------------------------------------------


def executions(folder: Path, stale: bool) -> tuple[list[Path], dict[str, Any]]:
    """Return the executed notebooks and their timings.

    Raises NoSite when there are none, when one failed, or when the package, its data
    or a notebook changed since (unless ``stale``): an output older than its code is
    the fault that readers of other books met most often.
    """
    stamp_file, timings_file = folder / "stamp.json", folder / "timings.json"
    if not stamp_file.exists() or not timings_file.exists():
        raise NoSite("no notebook has been executed yet: run make book")
    stamp = json.loads(stamp_file.read_text(encoding="utf-8"))
    timings = json.loads(timings_file.read_text(encoding="utf-8"))
    failed = [n for n, r in timings["notebooks"].items() if not r["passed"]]
    if failed:
        raise NoSite(f"executions failed: {', '.join(failed)}: mend them, make book")
    if not stale:
        if not stamp["complete"]:
            raise NoSite("only some notebooks were executed: run make book")
        if stamp["sources"] != execute.source_hash():
            raise NoSite("the executions are older than the sources: run make book")
    return [folder / name for name in stamp["notebooks"]], timings


def stage(notebooks: list[Path], timings: dict[str, Any], stale: bool) -> None:
    """Lay out build/site-src: sources, executed notebooks, generated pages.

    Raises NoSite, unless ``stale``, for a claim that its notebook ran without showing.
    """
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copyfile(ROOT / name, SOURCE / name.lower())
    shutil.copyfile(ROOT / "data" / "references.bib", SOURCE / "references.bib")
    for path in SOURCE.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        path.write_text(pages.in_the_site(text), encoding="utf-8")
    (SOURCE / "notebooks").mkdir()
    for path in notebooks:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        pages.add_run_note(notebook, timings, path.stem)
        pages.name_solutions(notebook)
        text = json.dumps(notebook, ensure_ascii=False)
        (SOURCE / "notebooks" / path.name).write_text(text, encoding="utf-8")
    pages.draw_cover(SOURCE / "cover.png")
    pages.write_api(SOURCE / "api")
    pages.write_run(SOURCE / "run.md", timings, notebooks)
    records = claims.read_records(execute.RECORDS)
    missing = pages.unshown(records, [path.stem for path in notebooks])
    if missing and not stale:
        raise NoSite(f"claims that their notebook did not show: {', '.join(missing)}")
    pages.write_claims(SOURCE / "claims.md", records)


def sphinx(math: str) -> int:
    """Run Sphinx, warnings as errors; return its status."""
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-n", "-W"]
    command += ["--keep-going", "-q", "-d", str(ROOT / "build" / "doctrees")]
    command += [str(SOURCE), str(SITE)]
    env = {**os.environ, "SPECBOOK_ROOT": str(ROOT), "SPECBOOK_MATH": math}
    shutil.rmtree(ROOT / "build" / "doctrees", ignore_errors=True)
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


# ---- what came out ---------------------------------------------------------------

FETCHING = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "link": ("href",),
    "source": ("src", "srcset"),
    "audio": ("src",),
    "video": ("src", "poster"),
    "object": ("data",),
    "embed": ("src",),
}
QUIET_LINKS = {"canonical", "next", "prev", "author", "license", "search", "index"}
ALT_IS_A_NAME = re.compile(r"\.(png|svg|jpe?g|gif|webp)$|^(image|figure|plot)$", re.I)


class Page(HTMLParser):
    """Collect a page's faults: foreign requests, images without words, headings."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.level = 0
        self.titles = 0
        # Before the article the theme repeats the title, for printing only.
        self.reading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check one element."""
        have = dict(attrs)
        if not (tag == "link" and (have.get("rel") or "") in QUIET_LINKS):
            for name in FETCHING.get(tag, ()):
                if re.match(r"\s*(https?:)?//", have.get(name) or ""):
                    self.faults.append(f"<{tag}> asks another machine: {have[name]}")
        if tag == "img":
            alt = (have.get("alt") or "").strip()
            shown = have.get("role") != "presentation"
            if shown and (not alt or ALT_IS_A_NAME.search(alt)):
                self.faults.append(f"image without words: {have.get('src')} ({alt!r})")
        self.reading = self.reading or tag == "article"
        if self.reading and re.fullmatch(r"h[1-6]", tag):
            new = int(tag[1])
            self.titles += new == 1
            if new > self.level + 1:
                self.faults.append(f"<{tag}> follows <h{self.level}>")
            self.level = new


def page_faults(html: str) -> list[str]:
    """Return the faults of one page's HTML."""
    page = Page()
    page.feed(html)
    if page.reading and page.titles != 1:
        page.faults.append(f"{page.titles} first-level headings")
    return page.faults


def style_faults(css: str) -> list[str]:
    """Return the foreign addresses that a style sheet would fetch."""
    return re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", css)


def site_faults(site: Path) -> list[str]:
    """Return every fault of every page and style sheet of a built site."""
    found = []
    for path in sorted(site.rglob("*.html")):
        if "_static" in path.parts:
            continue
        for fault in page_faults(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: {fault}")
    for path in sorted(site.rglob("*.css")):
        for fault in style_faults(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: asks another machine: {fault}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stale", action="store_true", help="accept older executions")
    options = parser.parse_args(arguments)
    try:
        notebooks, timings = executions(execute.EXECUTED, options.stale)
        stage(notebooks, timings, options.stale)
    except NoSite as error:
        print(error, file=sys.stderr)
        return 1
    math = "mathjax"
    try:
        webparts.copy_mathjax(SOURCE / "_static")
    except webparts.MissingPart as error:
        print(f"{error}: formulas will use the browser's own MathML", file=sys.stderr)
        math = "mathml"
    status = sphinx(math)
    if status:
        return status
    found = site_faults(SITE)
    for fault in found:
        print(fault, file=sys.stderr)
    if found:
        return 1
    print(f"The book: {SITE / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
