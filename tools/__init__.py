"""Build scripts of the book. Not part of the installed package."""
