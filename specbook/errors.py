"""The named errors of the package.

All of them are `ValueError`s, because all of them mean the same thing: the caller
handed over something that cannot be right, and the message says what and where.
"""


class SpecbookError(ValueError):
    """Base class of every error that specbook raises on purpose."""


class TreeError(SpecbookError):
    """A candidate tree, or a path through one, is malformed."""


class ProposalError(SpecbookError):
    """A proposal's fields contradict one another."""


class LawError(SpecbookError):
    """A row is not a probability law: NaN, negative, wrong length, wrong sum."""


class ChanceError(SpecbookError):
    """A program asked for an impossible random event, or is not repeatable."""


class ContractError(SpecbookError):
    """A proposal and a verifier do not fit together (article, section 0x02A)."""


class ManifestError(SpecbookError):
    """A round manifest is incomplete, or does not describe what is running."""


class TargetError(SpecbookError):
    """A target model cannot be used, or its session was driven out of order."""


class ArtifactError(SpecbookError):
    """A file on disk is missing, damaged, foreign or of another version."""


class FetchError(ArtifactError):
    """The real target could not be obtained."""
