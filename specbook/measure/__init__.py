"""Measurements on the reader's own machine: decoding speed and the cost of rows."""
