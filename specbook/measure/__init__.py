"""Measurements: decoding speed and the cost of rows on the reader's own machine, and
what a source would have saved on outputs that were recorded."""

# Not lazily: importing the submodule of that name later would hide the function.
from .replay import replay

__all__ = ["replay"]
