"""How teacher data are made and how a draft is trained: plain values, checked.

Nothing here needs torch, so a command line can refuse an option before it loads.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from .. import checks, corpora
from ..errors import SpecbookError
from ..models.heads.config import KINDS, MIXING, MOST_SEED, HeadsConfig, config_of
from . import asks

DTYPES = ("float32", "bfloat16")
LOSSES = ("teacher", "label")
STATES = ("computed", "stored")
HEAD_STARTS = ("identity", "least_squares")
ADAPTER_STARTS = ("norm", "least_squares")
WITH_A_LINEAR_WAY = MIXING
"""Kinds of heads that may start from least squares, and do so unless told otherwise."""
STARTS = ("random", "embeddings", "copying")
"""What the student has of the target when training begins."""

CYCLE = (
    "edit_code",
    "continue_code",
    "source",
    "answer_from_text",
    "edit_code",
    "continue_code",
    "source",
    "chat",
)
"""The kinds of consecutive shards: any stretch of eight holds the same mixture."""

NEW_TOKENS = {
    "edit_code": 224,
    "continue_code": 192,
    "answer_from_text": 144,
    "chat": 192,
    "source": 0,
}
TEMPERATURES = (0.0, 0.0, 0.7, 1.0)
"""In turn, within a shard."""


@dataclass(frozen=True)
class Recipe:
    """How teacher rows are made.

    `seed` of all draws; `sequences` in a shard; `top_k` tokens kept of each law;
    `prompt_tokens`: longer asks are drawn again; `window_tokens` of a stretch of
    source; `dtype` of the target, which makes the data and is not what is verified
    with; `packages` whose sources are used, the share `held_out` of their files not.
    """

    seed: int = 0
    sequences: int = 32
    top_k: int = 16
    prompt_tokens: int = 400
    window_tokens: int = 512
    dtype: str = "bfloat16"
    packages: tuple[str, ...] = corpora.PACKAGES
    held_out: Fraction = Fraction(1, 20)

    def __post_init__(self) -> None:
        _keep(self, checks.integer, 0, "seed")
        _keep(self, checks.integer, 1, "sequences", "top_k")
        _keep(self, checks.integer, 2, "prompt_tokens", "window_tokens")
        checks.one_of(self.dtype, "dtype", DTYPES)
        names = checks.entries(self.packages, "packages", "package names")
        for index, name in enumerate(names):
            checks.text(name, f"packages[{index}]")
        object.__setattr__(self, "packages", tuple(names))
        checks.real(self.held_out, "held_out", least=0, most=1)

    def described(self) -> dict[str, Any]:
        """As plain JSON, with the fixed texts and numbers that it stands on."""
        return {
            **asdict(self),
            "packages": list(self.packages),
            "held_out": str(self.held_out),
            "cycle": list(CYCLE),
            "new_tokens": NEW_TOKENS,
            "temperatures": list(TEMPERATURES),
            "wordings": hashlib.sha256("\n".join(asks.wordings()).encode()).hexdigest(),
        }


@dataclass(frozen=True)
class Settings:
    """How a draft is built and trained.

    `layers`, `width` of its stream, `inner` width of its feed-forward blocks, `heads`
    and `kv_heads` (as wide as the target's); `start`: what it has before training (see
    `student`). `steps` of AdamW on batches of at most `rows_per_step` tokens, padding
    counted. The learning rate warms up over `warm_up` steps to
    `learning_rate` (embeddings: `embedding_rate`) and falls on a half cosine to a
    tenth. `clip`: largest norm of the gradient. `dtype` of the products; `others`:
    sampled columns of the head (see `distil`).
    """

    layers: int = 4
    width: int = 192
    inner: int = 512
    heads: int = 6
    kv_heads: int = 3
    start: str = "copying"
    steps: int = 1300
    rows_per_step: int = 2048
    learning_rate: float = 2e-3
    embedding_rate: float = 1e-3
    warm_up: int = 50
    weight_decay: float = 0.05
    clip: float = 1.0
    seed: int = 0
    dtype: str = "bfloat16"
    others: int = 4096
    checkpoint_every: int = 200

    def __post_init__(self) -> None:
        shape = ("layers", "width", "inner", "heads", "kv_heads")
        counts = ("steps", "rows_per_step", "others", "checkpoint_every")
        _keep(self, checks.integer, 1, *shape, *counts)
        _keep(self, checks.integer, 0, "warm_up", "seed")
        rates = ("learning_rate", "embedding_rate", "weight_decay", "clip")
        _keep(self, checks.float64, 0, *rates)
        if self.clip == 0:
            raise SpecbookError(f"clip must be above 0, got {self.clip}")
        if self.heads % self.kv_heads:
            raise SpecbookError(
                f"each of kv_heads serves as many heads: {self.heads} heads are no "
                f"multiple of {self.kv_heads}"
            )
        checks.one_of(self.start, "start", STARTS)
        checks.one_of(self.dtype, "dtype", ("float32", "bfloat16"))

    def described(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    def rate(self, step: int) -> float:
        """What the learning rates are multiplied with at `step` (from 0)."""
        return _cosine(step, self.warm_up, self.steps)


@dataclass(frozen=True)
class HeadsSettings:
    """How a set of draft heads is built and trained.

    `kind` and `heads` (K, how many tokens ahead); `layers` of a head, None for the
    kind's usual number. `start`: "identity" says what the target said a token earlier,
    "least_squares" is the best linear guess (see `least_squares`), None is the latter
    for kinds that have one. `loss`: "teacher" learns the target's law where each token
    stands, "label" the token alone (see `heads`). `state_weight`: of the distance to
    the target's own states, added to that. `decay`: head i weighs
    decay^(i - 1). `self_share`: the share of positions where heads are given what they
    said themselves, and learn the target's law behind that. `vocabulary`: so many ids
    that the heads are to predict (`cut.likely_ids`), None for all. `steps` of AdamW on
    packed streams of at most `rows_per_step` tokens; rates, `clip` and `others` as in
    `Settings`. `dtype`: of the frozen target and of the products with its LM head;
    `states`: "computed" for each batch anew, or "stored" once on disk (see `states`);
    heads compute in float32 and are written as `stored`.
    """

    kind: str
    heads: int = 4
    layers: int | None = None
    start: str | None = None
    loss: str = "teacher"
    state_weight: float = 0.0
    decay: float = 1.0
    self_share: float = 0.0
    vocabulary: int | None = None
    steps: int = 1000
    rows_per_step: int = 1024
    learning_rate: float = 1e-3
    warm_up: int = 50
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    dtype: str = "bfloat16"
    states: str = "computed"
    others: int = 4096
    checkpoint_every: int = 200
    stored: str = "bfloat16"

    def __post_init__(self) -> None:
        checks.one_of(self.kind, "kind", KINDS)
        counts = ("heads", "steps", "rows_per_step", "others", "checkpoint_every")
        _keep(self, checks.integer, 1, *counts)
        for name in ("layers", "vocabulary"):
            if getattr(self, name) is not None:
                _keep(self, checks.integer, 1, name)
        _keep(self, checks.integer, 0, "warm_up", "seed")
        rates = ("state_weight", "decay", "learning_rate", "weight_decay", "clip")
        _keep(self, checks.float64, 0, *rates)
        if self.clip == 0:
            raise SpecbookError(f"clip must be above 0, got {self.clip}")
        checks.integer(self.seed, "seed", most=MOST_SEED)
        try:
            self.decay ** (self.heads - 1)
        except OverflowError:
            raise SpecbookError(
                f"decay {self.decay:g} is too large for {self.heads} heads: a head "
                "would weigh more than any number"
            ) from None
        linear = self.kind in WITH_A_LINEAR_WAY
        if self.start is not None:
            checks.one_of(self.start, "start", HEAD_STARTS)
        if self.start == "least_squares" and not linear:
            raise SpecbookError(
                f"start 'least_squares' needs a linear way, which {self.kind} heads do "
                f"not have; {', '.join(WITH_A_LINEAR_WAY)} do"
            )
        checks.one_of(self.loss, "loss", LOSSES)
        share = checks.float64(self.self_share, "self_share", least=0)
        if share > 1 or (share and self.loss == "label"):
            raise SpecbookError(
                f"self_share must be at most 1, and 0 with the loss 'label', got "
                f"{share:g}: behind what heads say themselves the text has no label"
            )
        object.__setattr__(self, "self_share", share)
        checks.one_of(self.dtype, "dtype", DTYPES)
        checks.one_of(self.states, "states", STATES)
        checks.one_of(self.stored, "stored", ("float16", "bfloat16"))

    def config(self, width: int) -> HeadsConfig:
        """The heads' shape at a target's hidden `width`. Raises `SpecbookError` for
        one that cannot be."""
        changes = {"heads": self.heads}
        if self.layers is not None:
            changes["layers"] = self.layers
        return config_of(self.kind, width, **changes)

    @property
    def begins(self) -> str:
        """The start, that of the kind where none is set."""
        usual = HEAD_STARTS[self.kind in WITH_A_LINEAR_WAY]
        return self.start or usual

    def described(self) -> dict[str, Any]:
        """As plain JSON, with the start that None stands for."""
        return {**asdict(self), "start": self.begins}

    def rate(self, step: int) -> float:
        """What the learning rate is multiplied with at `step` (from 0)."""
        return _cosine(step, self.warm_up, self.steps)


@dataclass(frozen=True)
class KangarooSettings:
    """How an adapter of Kangaroo is built and trained (section 0x05B).

    `boundary`: l, how many of the target's layers draft; `attention_heads` of the
    adapter's one attention. `start`: "norm" reads the shallow rows as if they were the
    last, "least_squares" by the best linear guess of these (see `kangaroo_start`).
    `temperature`: that of both laws in the loss, which is
    multiplied with its square; the official recipe has 1. `vocabulary`: so many ids
    that are drafted (`cut.likely_ids`), None for all. `steps`, rates, `clip` and
    `others` as in `Settings`, on packed streams of at most `rows_per_step` tokens.
    `dtype`: of the frozen layers and of the products with the LM head; `states`: the
    rows above those layers "computed" for each batch anew, or "stored" once on disk.
    The adapter computes in float32 and is written as `stored`.
    """

    boundary: int
    attention_heads: int = 9
    start: str = "norm"
    temperature: float = 1.0
    vocabulary: int | None = None
    steps: int = 1000
    rows_per_step: int = 1024
    learning_rate: float = 1e-3
    warm_up: int = 50
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    dtype: str = "bfloat16"
    states: str = "computed"
    others: int = 4096
    checkpoint_every: int = 200
    stored: str = "bfloat16"

    def __post_init__(self) -> None:
        counts = ("boundary", "attention_heads", "steps", "rows_per_step", "others")
        _keep(self, checks.integer, 1, *counts, "checkpoint_every")
        if self.vocabulary is not None:
            _keep(self, checks.integer, 1, "vocabulary")
        _keep(self, checks.integer, 0, "warm_up", "seed")
        checks.integer(self.seed, "seed", most=MOST_SEED)
        rates = ("temperature", "learning_rate", "weight_decay", "clip")
        _keep(self, checks.float64, 0, *rates)
        for name in ("temperature", "clip"):
            if getattr(self, name) == 0:
                raise SpecbookError(f"{name} must be above 0, got 0")
        checks.one_of(self.start, "start", ADAPTER_STARTS)
        checks.one_of(self.dtype, "dtype", DTYPES)
        checks.one_of(self.states, "states", STATES)
        checks.one_of(self.stored, "stored", ("float16", "bfloat16"))

    def described(self) -> dict[str, Any]:
        """As plain JSON, with the kind of draft that it makes."""
        return {"kind": "kangaroo", **asdict(self)}

    def rate(self, step: int) -> float:
        """What the learning rate is multiplied with at `step` (from 0)."""
        return _cosine(step, self.warm_up, self.steps)


def _cosine(step: int, warm_up: int, steps: int) -> float:
    """Up in a line, then down on a half cosine to a tenth."""
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    done = (step - warm_up) / max(1, steps - warm_up)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * done))


def _keep(settings: Any, check: Callable[..., Any], least: int, *names: str) -> None:
    """Each of the fields `names` as `check` gives it back: a number of numpy's, or a
    Fraction, is no plain JSON, and what is trained is told in JSON."""
    for name in names:
        value = check(getattr(settings, name), name, least=least)
        object.__setattr__(settings, name, value)
