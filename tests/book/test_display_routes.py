"""Alt text and caption reach the reader by both ways a notebook becomes a page."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.book.pages import images

ALT = 'A rising line: "a < b" & more'
CELLS = [
    "from matplotlib.figure import Figure\n"
    "from specbook import plotting\n"
    "fig = Figure()\n"
    "ax = fig.add_subplot()\n"
    "line = ax.plot([1, 2])",
    f"plotting.figure(fig, alt={ALT!r}, caption='It rises.')",
]
PLAIN = ["%matplotlib inline", "fig"]


def notebook(cells):
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_markdown_cell("# Page")]
    book.cells += [nbformat.v4.new_code_cell(source) for source in cells]
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    return book


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """One executed notebook: a framed figure, and a bare one as the planted fault."""
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("books")
    book = notebook([*CELLS, *PLAIN])
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    path = folder / "page.ipynb"
    nbformat.write(book, path)
    return path


def check(html):
    """The framed figure keeps its texts; the bare one shows that others lose them."""
    framed, bare = images(html)
    assert framed["alt"] == ALT
    assert framed["src"].startswith("data:image/png;base64,")
    assert re.search(r"<figcaption[^>]*>It rises\.</figcaption>", html)
    assert bare["alt"] in {
        None,
        "",
        "No description has been provided for this image",
    } or ("png" in bare["src"] and bare["alt"] in bare["src"])


@pytest.mark.parametrize("template", ["lab", "classic"])
def test_through_nbconvert(executed, template):
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name=template)
    html, _ = exporter.from_filename(str(executed))
    check(html)


@pytest.mark.slow
def test_through_sphinx(executed, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (source / "page.ipynb").write_bytes(Path(executed).read_bytes())
    (source / "conf.py").write_text(
        "project = 'p'\nextensions = ['myst_nb']\nroot_doc = 'page'\n"
        "nb_execution_mode = 'off'\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "-b", "html"]
    done = subprocess.run(
        [*command, str(source), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    check(html.split('class="body"')[-1].split('class="sphinxsidebar"')[0])
