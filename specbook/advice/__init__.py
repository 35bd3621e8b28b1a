"""Which source, tree and verifier this runtime should use: from evidence to an answer.

`estimate` is one configuration with its promised or measured times; `constraints` says
which configurations may run at all, and why the others may not; `choosing` takes the
fastest and says how sure that is; `flips` says what would change the answer. Evidence
comes from decoded prompts (`measured`) or from counts and times (`predicted`); `regret`
compares an advice with what was then measured; `answer` prints and keeps it. `guide`
and `red_flags` are the article's lists of sections 0x10 and 0x11, as something to run.
"""

from __future__ import annotations

from .choosing import Advice, advise
from .constraints import Constraints
from .estimate import Estimate
from .flips import Flip, nearest_flips

__all__ = ["Advice", "Constraints", "Estimate", "Flip", "advise", "nearest_flips"]
