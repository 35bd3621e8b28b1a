"""specbook: draft sources, candidate trees and exact verifiers that you can run.

The package is the runnable half of a textbook. Its modules stand on five floors; the
lower two (chance, contracts, trees, verifiers, model-free draft sources) are exact
mathematics on numpy and never import torch. Importing this package imports none of
them: ask for what you need, for example ``from specbook.tree import CandidateTree``.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
