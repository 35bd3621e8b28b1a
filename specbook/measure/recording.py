"""Recorded outputs of a target: what a recording holds, its file, and how it is read.

Whether a looked-up candidate is accepted depends on the tokens that the target said
and on nothing else (section 0x04B). So its outputs, once recorded, stand for the
target: any number of sources can be measured on them, by `replay`, without a model.

A folder of recordings holds one JSON file of ids for each temperature and a
`manifest.json`, which binds every file to the prompts, the target and the policy that
it was made with. The loader refuses a file that is not the one that was recorded, and
a recording of other prompts or of another target.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import checks, paths, prompts
from ..errors import ArtifactError, SpecbookError
from ..policy import SamplingPolicy

FORMAT = 1
STOP_REASONS = ("eos", "length", "context")


@dataclass(frozen=True)
class RecordedOutput:
    """What the target said after one prompt.

    `prompt_ids`, `tokens`: ids. `stop_reason`: as in `engine.Generation`. `prompt_id`,
    `workload` and `half`: those of the frozen prompt, or empty. `seed`: of the random
    draws, None where nothing was drawn.
    """

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    stop_reason: str = "length"
    prompt_id: str = ""
    workload: str = ""
    half: str = ""
    seed: int | None = None

    def __post_init__(self) -> None:
        name = self.prompt_id or "output"
        for part in ("prompt_ids", "tokens"):
            ids = checks.token_ids(getattr(self, part), f"{name}: {part}")
            if not ids:
                raise SpecbookError(f"{name}: {part} is empty")
            object.__setattr__(self, part, tuple(ids))
        checks.one_of(self.stop_reason, f"{name}: stop_reason", STOP_REASONS)
        for part in ("prompt_id", "workload", "half"):
            checks.text(getattr(self, part), f"{name}: {part}")
        if self.seed is not None:
            seed = checks.integer(self.seed, f"{name}: seed", least=0)
            object.__setattr__(self, "seed", seed)


@dataclass(frozen=True)
class Recording:
    """Outputs of one target under one policy, and the limits that they ended by.

    `vocab_size`: of the target. `eos_token_ids`: the ids that ended an output, each at
    its end. `max_new_tokens`: the most that was asked for; None where each output was
    simply cut where it ends. `context_limit`: the target's. `temperature`: of the
    draws, 0 for greedy. `about`: the manifest entry, empty for what was not loaded.
    Raises `SpecbookError`, naming the output, where ids and limits contradict one
    another.
    """

    outputs: tuple[RecordedOutput, ...]
    vocab_size: int
    eos_token_ids: tuple[int, ...] = ()
    max_new_tokens: int | None = None
    context_limit: int | None = None
    temperature: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        vocab = checks.integer(self.vocab_size, "vocab_size", least=1)
        ends = checks.token_ids(
            self.eos_token_ids, "eos_token_ids", vocab_size=self.vocab_size
        )
        outputs = checks.entries(self.outputs, "outputs", "RecordedOutputs")
        for name, value in (
            ("outputs", tuple(outputs)),
            ("vocab_size", vocab),
            ("eos_token_ids", tuple(ends)),
        ):
            object.__setattr__(self, name, value)
        for name in ("max_new_tokens", "context_limit"):
            if (limit := getattr(self, name)) is not None:
                object.__setattr__(self, name, checks.integer(limit, name, least=1))
        temperature = SamplingPolicy(self.temperature).temperature
        object.__setattr__(self, "temperature", temperature)
        if not isinstance(self.about, Mapping):
            raise SpecbookError(f"about must be a mapping, got {self.about!r}")
        for index, output in enumerate(outputs):
            if not isinstance(output, RecordedOutput):
                raise SpecbookError(
                    f"outputs[{index}] is no RecordedOutput: {output!r}"
                )
            self._check(output, output.prompt_id or f"outputs[{index}]")

    def _check(self, output: RecordedOutput, name: str) -> None:
        for part in ("prompt_ids", "tokens"):
            checks.token_ids(
                getattr(output, part), f"{name}: {part}", vocab_size=self.vocab_size
            )
        count, whole = len(output.tokens), len(output.prompt_ids) + len(output.tokens)
        ended = [i for i, t in enumerate(output.tokens) if t in self.eos_token_ids]
        if ended and ended[0] < count - 1:
            raise SpecbookError(
                f"{name}: tokens go on after the end token at {ended[0]}"
            )
        if (output.stop_reason == "eos") != bool(ended):
            raise SpecbookError(
                f"{name}: stopped by {output.stop_reason!r}, but its last token "
                f"{output.tokens[-1]} is {'an' if ended else 'no'} end token"
            )
        for limit, what, found, reason in (
            (self.max_new_tokens, "new tokens", count, "length"),
            (self.context_limit, "tokens in all", whole, "context"),
        ):
            if limit is None:
                if reason == "context" == output.stop_reason:
                    raise SpecbookError(f"{name}: stopped by a context limit of None")
            elif found > limit or (output.stop_reason == reason and found < limit):
                raise SpecbookError(
                    f"{name}: {found} {what} and stopped by {output.stop_reason!r}, "
                    f"with a limit of {limit}"
                )

    @classmethod
    def of(
        cls,
        pairs: Iterable[Any],
        *,
        vocab_size: int | None = None,
        eos_token_id: int | Iterable[int] | None = None,
        temperature: float = 0.0,
    ) -> Recording:
        """A recording of your own: `pairs` of (prompt ids, output ids).

        `vocab_size`: the target's; by default 1 + the largest id here, and then a
        source that proposes a larger one is refused. An output that ends with one of
        `eos_token_id` was ended by it. Raises `SpecbookError` for what is no pair.
        """
        ends = list(end_tokens(eos_token_id))
        outputs = []
        for index, pair in enumerate(checks.entries(pairs, "pairs", "pairs")):
            parts = () if isinstance(pair, str) else pair
            if not isinstance(parts, (tuple, list)) or len(parts) != 2:
                raise SpecbookError(
                    f"recorded[{index}] must be a pair (prompt ids, output ids), "
                    f"got {pair!r}"
                )
            prompt, tokens = (
                checks.token_ids(ids, f"recorded[{index}]: {what}")
                for ids, what in zip(parts, ("prompt ids", "output ids"), strict=True)
            )
            stopped = "eos" if tokens and tokens[-1] in ends else "length"
            outputs.append(RecordedOutput(tuple(prompt), tuple(tokens), stopped))
        if vocab_size is None:
            ids = [t for o in outputs for t in (*o.prompt_ids, *o.tokens)]
            vocab_size = 1 + max([*ids, *ends], default=0)
        return cls(tuple(outputs), vocab_size, tuple(ends), temperature=temperature)

    def select(self, workload: str | None = None, half: str | None = None) -> Recording:
        """The outputs of one workload and half of the frozen prompts (all where None).
        Raises `SpecbookError` for an unknown name, and when nothing is left."""
        if workload is not None:
            checks.one_of(workload, "workload", prompts.WORKLOADS)
        if half is not None:
            checks.one_of(half, "half", prompts.HALVES)
        kept = tuple(
            output
            for output in self.outputs
            if workload in (None, output.workload) and half in (None, output.half)
        )
        if not kept:
            raise SpecbookError(f"nothing was recorded for {workload!r}, {half!r}")
        return replace(self, outputs=kept)


def end_tokens(eos: Any) -> tuple[int, ...]:
    """`eos` as ids: None, one id, or several."""
    if eos is None:
        return ()
    if isinstance(eos, (str, bytes)) or not isinstance(eos, Iterable):
        eos = [eos]
    return tuple(checks.token_ids(list(eos), "eos_token_id"))


# -------------------------------------------------------------------------- files


def file_name(temperature: float) -> str:
    """The name of the file of ids that were recorded at `temperature`."""
    policy = SamplingPolicy(temperature)
    return "greedy.json" if policy.greedy else f"temperature_{policy.temperature}.json"


def load(
    temperature: float = 0.0,
    *,
    workload: str | None = None,
    half: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    target: Any = None,
) -> Recording:
    """The outputs that were recorded at `temperature`.

    `workload`, `half`: as in `prompts.load`. `folder`: by default the recordings that
    ship in `data/recordings`. `target`: the recording must be of this very checkpoint
    and tokenizer. Raises `ArtifactError` for a file that is missing, altered or
    malformed, and for a recording of other prompts or another target; all name what
    differs.
    """
    folder = checked_folder(folder)
    name = file_name(temperature)
    content = manifest(folder)
    if name not in content["files"]:
        raise ArtifactError(
            f"{folder}: nothing is recorded at temperature {temperature}; there is "
            f"{sorted(content['files'])}"
        )
    check_prompts(content["prompts"], folder / "manifest.json")
    entry = content["files"][name]
    if target is not None:
        check_target(entry["target"], target, folder / name)
    data = prompts.read_bytes(folder / name)
    digest = hashlib.sha256(data).hexdigest()
    if digest != entry["sha256"]:
        raise ArtifactError(
            f"{folder / name} was altered: its SHA-256 is {digest[:12]}..., "
            f"recorded as {str(entry['sha256'])[:12]}..."
        )
    found = parse(data, entry, folder / name)
    if len(found.outputs) != entry["outputs"]:
        raise ArtifactError(
            f"{folder / name} holds {len(found.outputs)} outputs, recorded as "
            f"{entry['outputs']}"
        )
    if workload is None and half is None:
        return found
    return found.select(workload, half)


ENTRY = {
    "sha256",
    "outputs",
    "temperature",
    "max_new_tokens",
    "vocab_size",
    "eos_token_ids",
    "context_limit",
    "target",
    "source",
    "verifier",
    "seeds",
    "command",
    "specbook",
    "machine",
}
"""What the manifest says about each file."""


def manifest(folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """What was recorded: the hashes of the prompts, and an entry (`ENTRY`) for each
    file. Raises `ArtifactError` for what is no manifest of this version."""
    path = checked_folder(folder) / "manifest.json"
    content = _json(prompts.read_bytes(path), path)
    if not isinstance(content, dict) or set(content) != {"format", "prompts", "files"}:
        raise ArtifactError(f"{path} is not a manifest of recordings")
    if content["format"] != FORMAT:
        raise ArtifactError(f"{path}: unknown format {content['format']!r}")
    for part in ("prompts", "files"):
        if not isinstance(content[part], dict):
            raise ArtifactError(f"{path}: {part} must be an object")
    for name, entry in content["files"].items():
        if not isinstance(entry, dict) or set(entry) != ENTRY:
            raise ArtifactError(f"{path}: {name} needs exactly {sorted(ENTRY)}")
        if not isinstance(entry["target"], dict):
            raise ArtifactError(f"{path}: {name}: target must be an object")
        if file_name(_temperature(entry, path)) != name:
            raise ArtifactError(
                f"{path}: {name} cannot be of temperature {entry['temperature']}"
            )
    return content


def parse(data: bytes, entry: Mapping[str, Any], path: Path) -> Recording:
    """The recording whose outputs are in `data` and whose limits are in `entry`."""
    content = _json(data, path)
    if not isinstance(content, dict) or set(content) != {"format", "outputs"}:
        raise ArtifactError(f"{path} is not a file of recorded outputs")
    if content["format"] != FORMAT:
        raise ArtifactError(f"{path}: unknown format {content['format']!r}")
    if not isinstance(content["outputs"], list):
        raise ArtifactError(f"{path}: outputs must be a list")
    frozen = {prompt.id: prompt for prompt in prompts.load()}
    order = {name: place for place, name in enumerate(frozen)}
    outputs: list[RecordedOutput] = []
    last = -1
    try:
        for index, values in enumerate(content["outputs"]):
            if not isinstance(values, dict) or set(values) != _FIELDS:
                raise SpecbookError(f"outputs[{index}] needs exactly {sorted(_FIELDS)}")
            name = values["prompt_id"]
            if not isinstance(name, str) or name not in frozen:
                raise SpecbookError(f"outputs[{index}]: no prompt is called {name!r}")
            if order[name] <= last:
                raise SpecbookError(f"outputs[{index}]: {name} is out of order")
            last = order[name]
            prompt = frozen[name]
            outputs.append(
                RecordedOutput(**values, workload=prompt.workload, half=prompt.half)
            )
        return Recording(
            outputs=tuple(outputs),
            vocab_size=entry["vocab_size"],
            eos_token_ids=tuple(
                checks.entries(entry["eos_token_ids"], "eos_token_ids", "ids")
            ),
            max_new_tokens=entry["max_new_tokens"],
            context_limit=entry["context_limit"],
            temperature=entry["temperature"],
            about=entry,
        )
    except SpecbookError as error:
        raise ArtifactError(f"{path}: {error}") from error


_FIELDS = {"prompt_id", "seed", "stop_reason", "prompt_ids", "tokens"}


def dump(outputs: Iterable[RecordedOutput]) -> str:
    """The outputs as `parse` reads them: JSON, one output a line."""
    lines = [
        json.dumps(
            {name: getattr(output, name) for name in sorted(_FIELDS)},
            separators=(",", ":"),
        )
        for output in outputs
    ]
    body = ",\n".join(lines)
    return f'{{"format":{FORMAT},"outputs":[\n{body}\n]}}\n'


def check_prompts(recorded: Mapping[str, Any], path: Path) -> None:
    """The prompts that are frozen now are those that `recorded` names."""
    frozen = prompts.manifest()["files"]
    for name in sorted(set(frozen) | set(recorded)):
        if frozen.get(name) != recorded.get(name):
            raise ArtifactError(f"{path}: recorded on another {name}")


def check_target(recorded: Mapping[str, Any], target: Any, path: Path) -> None:
    """`target` has the tokenizer and the weights that were recorded."""
    if not callable(getattr(target, "identity", None)):
        raise SpecbookError(f"target must be a target model, got {target!r}")
    about = target.identity()
    for name in ("tokenizer", "checkpoint", "output_head"):
        if recorded.get(name) != about[name]:
            raise ArtifactError(
                f"{path} was recorded with another {name}: {recorded.get(name)!r}, "
                f"this target's is {about[name]!r}"
            )


def checked_folder(folder: Any) -> Path:
    """`folder` as a path; None is the folder that ships in `data/`."""
    if folder is None:
        return paths.data_path("recordings")
    if not isinstance(folder, (str, os.PathLike)):
        raise ArtifactError(f"folder must be a path, got {folder!r}")
    return Path(folder)


def _json(data: bytes, path: Path) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not JSON: {error}") from error


def _temperature(entry: Mapping[str, Any], path: Path) -> float:
    return checks.float64(
        entry["temperature"], f"{path}: temperature", least=0, error=ArtifactError
    )
