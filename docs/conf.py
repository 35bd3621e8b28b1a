"""Sphinx settings of the book's site.

Run through tools/build_site.py, which stages these sources beside the executed
notebooks. Nothing here executes a notebook or reads the network.
"""

import os
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

import specbook  # noqa: E402

ROOT = Path(os.environ["SPECBOOK_ROOT"])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PROJECT["project"]["urls"]["Repository"]

project = "specbook"
author = "the specbook authors"
copyright = "2026, the specbook authors. Text and code: Apache-2.0"
version = release = specbook.__version__
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.bibtex",
    "mathml",
    "references",
    "house",
]
exclude_patterns = ["_ext"]
templates_path = ["_templates"]
# The pages show much that Python printed, and a curly quote is no quote in Python.
smartquotes = False
suppress_warnings = ["mystnb.unknown_mime_type"]

# Notebooks arrive executed. The build only draws them.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"
myst_enable_extensions = [
    "amsmath",
    "attrs_block",
    "attrs_inline",
    "colon_fence",
    "deflist",
    "dollarmath",
    "substitution",
]
myst_heading_anchors = 3
myst_dmath_double_inline = True

# With the data, since the overview reads it too: from an installed wheel as well.
bibtex_bibfiles = [str(ROOT / "data" / "references.bib")]
bibtex_default_style = "authoryear"
bibtex_reference_style = "author_year"

# Signatures name types of numpy, torch and the standard library, whose pages are not
# on this site, and some private names. Only public names of our own can be broken.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!specbook\.).*"),
    (r"py:.*", r"specbook\..*\b_\w+"),
]
# Docstrings put names into single backquotes (_ext/house.py reads their other habits).
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# A default is shown as the code writes it. Its repr (a function's address, say) would
# be no Python, and then the whole signature is shown raw.
autodoc_preserve_defaults = True
# An object that a package exports again is described once, in its own module.
autodoc_default_options = {
    "members": True,
    "ignore-module-all": True,
}
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "sphinx_book_theme"
html_title = "specbook"
html_static_path = ["_static"]
html_css_files = ["specbook.css"]
html_sidebars = {"**": ["search-button-field.html", "sbt-sidebar-nav.html"]}
html_show_sphinx = False
# A summary would be fetched, which a page opened from disk may not do.
html_show_search_summary = False
html_last_updated_fmt = None
html_permalinks_icon = "#"
pygments_style = "a11y-high-contrast-light"
html_theme_options = {
    "repository_url": REPOSITORY,
    "repository_branch": "main",
    "repository_provider": "github",
    "path_to_docs": "",
    "use_repository_button": True,
    "use_download_button": True,
    "use_fullscreen_button": False,
    "home_page_in_toc": True,
    "navbar_persistent": [],
    "show_toc_level": 2,
    "launch_buttons": {
        "binderhub_url": "https://mybinder.org",
        "colab_url": "https://colab.research.google.com",
        "notebook_interface": "jupyterlab",
    },
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# Formulas: MathJax from this site's own folder. Speech needs a worker, which a page
# opened from disk may not start; the MathML copy serves screen readers everywhere.
html_math_renderer = os.environ.get("SPECBOOK_MATH", "mathjax")
mathjax_path = "mathjax/tex-chtml.js"
mathjax4_config = {
    "loader": {"load": ["a11y/assistive-mml"]},
    "output": {"fontPath": "[mathjax]/%%FONT%%-font"},
    "options": {
        "enableSpeech": False,
        "enableBraille": False,
        "enableEnrichment": False,
        "enableComplexity": False,
        "enableExplorer": False,
        "enableAssistiveMml": True,
        "menuOptions": {
            "settings": {
                "enrich": False,
                "speech": False,
                "braille": False,
                "assistiveMml": True,
            }
        },
    },
}
