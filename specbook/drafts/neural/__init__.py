"""Draft sources that run a model. They load it only when they are asked for."""
