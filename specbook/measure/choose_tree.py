"""The tree for this machine, from two profiles and a draft model, as an artifact.

Everything that the choice rests on comes with a name: who was measured, on which text,
at which temperature, on which machine. Profiles that do not belong together are
refused, because a tree for one target planned with the acceptance of another fits
neither (section 0x0AE).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import checks
from ..errors import SpecbookError
from ..topologies.artifact import TreeArtifact, kernel_text
from ..topologies.hardware import Decision, decide
from .acceptance import AcceptanceProfile
from .verify_report import VerifyProfile

SHOWN_TIES = 5


@dataclass(frozen=True)
class ChosenTree:
    """The decision and the artifact that keeps it."""

    decision: Decision
    artifact: TreeArtifact

    def lines(self) -> list[str]:
        """What was chosen, how sure it is, and what comes near."""
        best, standing = self.decision.choice.best, self.decision.standing
        low, high = standing.speedup
        told = [
            f"{best.nodes} rows with the root, {best.depth} deep: "
            f"{best.progress:.2f} tokens a round expected, {best.steps:.2f} target "
            "steps of one row",
            f"speed-up over one token a step {best.speedup:.2f} [{low:.2f}, "
            f"{high:.2f}]; the fastest in {standing.wins:.0%} of "
            f"{self.decision.worlds} resampled worlds",
        ]
        if len(json.loads(self.artifact.calibration_data)) == 1:
            told.append(
                "one prompt was counted: how acceptance differs between texts is in "
                "none of these intervals"
            )
        near = self.decision.near_ties
        if near:
            told.append(
                f"{len(near)} other trees cannot be told from it; among them "
                + "; ".join(
                    f"{one.candidate.nodes} rows, {one.candidate.depth} deep "
                    f"({one.candidate.speedup:.2f})"
                    for one in near[:SHOWN_TIES]
                )
            )
        return told


def choose_tree(
    times: VerifyProfile,
    counts: AcceptanceProfile,
    draft_steps: Mapping[int, Sequence[float]],
    *,
    workload: str | None = None,
    prefix: int | None = None,
    shape: str | None = None,
    batch: int = 1,
    max_depth: int | None = None,
    pooled: bool = False,
    worlds: int = 1000,
    seed: int = 0,
) -> ChosenTree:
    """The fastest tree by these measurements.

    `times`: of the runtime's own forward, at `prefix` tokens and `shape`, by default
    the first that was measured. `counts`: of the source that will draft, on `workload`
    or on all. `draft_steps`: {rows: seconds} (`measure_draft_step`), empty for a source
    without a model. `batch`: so many requests share a forward; above one it is the
    profile's batched forward that counts. `pooled`: one row of slots for all depths, so
    that deeper trees can be planned than were measured. Raises `SpecbookError` for
    profiles of two targets or number formats, and what `decide` raises.
    """
    for value, kind in ((times, VerifyProfile), (counts, AcceptanceProfile)):
        if not isinstance(value, kind):
            raise SpecbookError(
                f"a {kind.KIND} is needed, got a {type(value).__name__}"
            )
    checks.boolean(pooled, "pooled")
    for field in ("target", "dtype"):
        one, other = times.settings.get(field), counts.settings.get(field)
        if one != other:
            raise SpecbookError(
                f"the times are of {field} {one}, the counts of {other}: they do not "
                "belong together"
            )
    observed = counts.observed(workload)
    checks.integer(batch, "batch", least=1)
    forward = "runtime" if batch == 1 else "batch"
    measured = times.times(forward, batch, prefix, shape, draft=draft_steps)
    decision = decide(
        observed.pooled() if pooled else observed,
        measured,
        max_depth=max_depth,
        worlds=worlds,
        seed=seed,
    )
    best = decision.choice.best
    temperature = float(counts.settings["temperature"])
    names = counts.workloads() if workload is None else [workload]
    data = [prompt.prompt for prompt in counts.prompts if prompt.workload in names]
    drafted = best.steps - measured.steps()[best.nodes]
    artifact = TreeArtifact(
        target_checkpoint=str(counts.settings["target"]),
        tokenizer=str(counts.settings["tokenizer"]),
        proposal_artifact=str(counts.settings["proposal"]),
        verifier=str(counts.settings["verifier"]),
        sampling_policy=f"temperature {temperature:g}, no truncation",
        temperatures=(temperature, temperature),
        calibration_data=json.dumps(data),
        calibration_date=str(counts.machine.get("date", "not recorded")),
        batch_regime=(
            "one request" if batch == 1 else f"{batch} requests in one forward"
        ),
        hardware=str(times.machine.get("processor", "not recorded")),
        kernel=kernel_text(
            times.settings.get("runtime" if batch == 1 else "batch"),
            times.machine.get("threads"),
        ),
        verify_curve=tuple(measured.steps().items()),
        draft_step=drafted / best.depth if best.depth else 0.0,
        acceptance=best.plan.acceptance,
        method=best.plan.method,
        parents=best.tree.parents,
        ranks=best.tree.token_ids,
    )
    return ChosenTree(decision, artifact)
