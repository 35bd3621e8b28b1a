"""REST: retrieval from a datastore, as candidates of a tree (sections 0x04B, 0x04C).

`Datastore` holds the documents and finds what followed a suffix, `ContinuationTrie`
merges and counts, `rest_propose` is the article's function and `Rest` the draft source.
`leakage` looks for evaluation material; `build_for_target` indexes the sources of the
installed packages.
"""

from . import leakage
from .datastore import Datastore
from .nodes import CONTRACT, TrieNode
from .packages import build_for_target
from .release import UNDECLARED, Release
from .source import Rest, RestSession, rest_propose
from .trie import ContinuationTrie

__all__ = [
    "CONTRACT",
    "UNDECLARED",
    "ContinuationTrie",
    "Datastore",
    "Release",
    "Rest",
    "RestSession",
    "TrieNode",
    "build_for_target",
    "leakage",
    "rest_propose",
]
