"""A planted fault, and what happens when it is looked for (section 0x0E).

A `Fault` holds one program, `attempt`, that does a thing right or with the fault in it
and ends in a check of the package. So the two runs differ in the fault and in nothing
else: the check must let the first pass and refuse the second. That it was *this* check
which refused is read off the stack of the error, not believed.

`damage` measures what the fault does where nobody checks: on the same kind of input,
right or wrong, a number that is 0 when all is well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from tempfile import gettempdir
from types import TracebackType
from typing import Any

from .. import checks
from ..errors import SpecbookError

LAYERS = ("source", "contract", "tree", "target", "rule", "commit", "plan", "training")
"""Where in a round a fault sits, in the order of a round; then what comes before it."""

VARIATION = "total variation"
LOGITS = "largest logit gap"
TOKENS = "wrong tokens"


@dataclass(frozen=True)
class Fault:
    """A mistake that somebody could make, and mostly somebody did.

    `id`: words joined by hyphens. `layer`: one of `LAYERS`. `section`: the article's.
    `mistake`: what is done. `symptom`: what one sees of it. `shapes`: why nothing
    complains by itself. `check`: the dotted name of the check that catches it.
    `attempt(planted)`: runs into that check, which raises if `planted`. `says`: words
    that its message then has. `damage(planted)`: see the module; in `unit`; None where
    there is nothing to measure, or the run would not end. `seen`: public threads of
    people who met it. `blind`: what the check cannot see.
    """

    id: str
    layer: str
    section: str
    mistake: str
    symptom: str
    shapes: str
    check: str
    attempt: Callable[[bool], Any]
    says: str
    damage: Callable[[bool], Any] | None = None
    unit: str = ""
    seen: tuple[str, ...] = ()
    blind: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = f"{field.name} of a fault", getattr(self, field.name)
            if field.type == "str":
                checks.text(value, name)
                # Every message holds the empty text: it would say nothing.
                if field.name not in ("unit", "blind") and not value.strip():
                    raise SpecbookError(f"{name} is empty")
        checks.one_of(self.layer, "layer", LAYERS)
        checks.function(self.attempt, f"attempt of fault {self.id!r}")
        if self.damage is not None:
            checks.function(self.damage, f"damage of fault {self.id!r}")
        checks.instance(self.seen, f"seen of fault {self.id!r}", tuple)
        for thread in self.seen:
            checks.text(thread, f"a thread of fault {self.id!r}")
        resolve(self.check)
        if (self.damage is None) != (self.unit == ""):
            raise SpecbookError(f"fault {self.id!r}: a damage needs its unit")

    def run(self) -> Finding:
        """Runs the check without the fault and with it, and measures the damage.

        Raises `SpecbookError` if the check refuses the healthy run.
        """
        began = time.perf_counter()
        try:
            self.attempt(False)
        except ValueError as error:
            raise SpecbookError(
                f"fault {self.id!r}: the healthy run was refused: {error}"
            ) from error
        message, caught = "", False
        try:
            self.attempt(True)
        except ValueError as error:
            # The name of a temporary folder says nothing, and is another each time.
            folder = rf"{re.escape(gettempdir())}[/\\]\w+[/\\]"
            message = re.sub(folder, "", str(error))
            caught = passed_through(error, self.check)
        spent = time.perf_counter() - began
        harm = None if self.damage is None else (self.damage(False), self.damage(True))
        return Finding(self, message, caught, harm, spent)


@dataclass(frozen=True)
class Finding:
    """What came of a fault.

    `message`: of the refusal, "" if there was none. `by_check`: whether it was raised
    in the check that the fault names. `damage`: (without, with) the fault, or None.
    `seconds`: of the two runs of the check.
    """

    fault: Fault
    message: str
    by_check: bool
    damage: tuple[Any, Any] | None
    seconds: float

    @property
    def caught(self) -> bool:
        """Whether the named check refused the fault, in words that name it."""
        return self.by_check and self.fault.says in self.message

    @property
    def harm(self) -> str:
        """The damage as text."""
        if self.damage is None:
            return ""
        value = self.damage[1]
        told = f"{value:.3g}" if isinstance(value, float) else str(value)
        return f"{told} {self.fault.unit}"


def resolve(name: str) -> Any:
    """The function, method or class of a dotted name. Raises `SpecbookError`."""
    parts = checks.text(name, "name").split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        if callable(found):
            return found
        break
    raise SpecbookError(f"there is no check called {name!r}")


def passed_through(error: BaseException, name: str) -> bool:
    """Whether `error` was raised in the function, method or class called `name`, or in
    what it called."""
    found = resolve(name)
    module, wanted = found.__module__, found.__qualname__
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        here = code.co_qualname
        if trace.tb_frame.f_globals.get("__name__") == module and (
            here == wanted or here.startswith(f"{wanted}.")
        ):
            return True
        trace = trace.tb_next
    return False
