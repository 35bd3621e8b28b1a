"""`python -m specbook` is the command line."""

from .cli import app

app(prog_name="specbook")
