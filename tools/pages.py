"""The pages that no hand writes: reference run, register of claims, API reference."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specbook import claims
from tools import floors

ROOT = Path(__file__).resolve().parent.parent


# ---- cover -----------------------------------------------------------------------

COVER = ("the cat sat on", "the cat sat down", "the cat ran home", "the dog ran home")


def draw_cover(target: Path) -> None:
    """Draw the landing page's picture: four continuations, one tree, one path kept."""
    from specbook import plotting
    from specbook.tree import CandidateTree

    words = list(dict.fromkeys(" ".join(COVER).split()))
    paths = [[words.index(word) for word in line.split()] for line in COVER]
    tree = CandidateTree.from_paths(paths, prefix_len=3)
    kept: list[int] = []
    for token in paths[0]:
        below = tree.children(kept[-1] if kept else -1)
        kept.append(next(row for row in below if tree.token_ids[row] == token))
    figure = plotting.draw_tree(tree, dict(enumerate(words)), committed=kept)
    figure.savefig(target, dpi=160)


# ---- reference run ---------------------------------------------------------------


def machine_line(timings: dict[str, Any]) -> str:
    """Return machine, versions and date of a run, for people."""
    machine = timings["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"Python {machine['python']}, {versions}, {timings['date']}"
    )


def add_run_note(notebook: dict[str, Any], timings: dict[str, Any], stem: str) -> None:
    """Put what this execution took below a staged notebook's title."""
    record = timings["notebooks"][stem]
    note = (
        "{.run-note}\n"
        f"This page ran in {record['seconds']:.0f} s with {record['peak_mb']} MB of "
        f"memory ({machine_line(timings)})."
    )
    first = notebook["cells"][0]
    text = "".join(first["source"])
    title, _, rest = text.partition("\n")
    if not title.startswith("# "):
        raise ValueError(f"{stem}: the first line is not its title")
    first["source"] = f"{title}\n\n{note}\n{rest}"


def name_solutions(notebook: dict[str, Any]) -> None:
    """Say on the fold of a wholly hidden cell what is in it: an exercise's solution."""
    for cell in notebook["cells"]:
        if "hide-cell" in cell.get("metadata", {}).get("tags", []):
            words = cell["metadata"].setdefault("mystnb", {})
            words.setdefault("code_prompt_show", "Show the solution")
            words.setdefault("code_prompt_hide", "Hide the solution")


def in_the_site(text: str) -> str:
    """Return a page of docs/ with links to notebooks as the site has them.

    There the notebooks lie below the pages, in the repository beside them.
    """
    return text.replace("](../notebooks/", "](notebooks/")


def title_of(path: Path) -> str:
    """Return a notebook's title: its first line that starts with one ``#``."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        for line in "".join(cell["source"]).splitlines():
            if line.startswith("# "):
                return line[2:].strip()
    raise ValueError(f"{path.name} has no title")


def write_run(target: Path, timings: dict[str, Any], notebooks: list[Path]) -> None:
    """Write the page of times and memory of the run that the site shows."""
    lines = [
        "# The run behind these pages",
        "",
        "Every notebook was executed once, from top to bottom, and the pages show that",
        "execution. Times are one run on the machine below: read them as an order of",
        "magnitude. Memory is the peak of the notebook's kernel; a run fails above",
        "1,500 MB, which is what a free Binder machine can give.",
        "",
        machine_line(timings) + ".",
        "",
        "| notebook | seconds | peak memory (MB) |",
        "|---|---:|---:|",
    ]
    total = 0.0
    for path in notebooks:
        record = timings["notebooks"][path.stem]
        total += record["seconds"]
        lines.append(
            f"| [{title_of(path)}](notebooks/{path.name}) "
            f"| {record['seconds']:.1f} | {record['peak_mb']} |"
        )
    lines += [f"| all | {total:.1f} | |", ""]
    target.write_text("\n".join(lines), encoding="utf-8")


# ---- claims ----------------------------------------------------------------------


def claim_links(records: dict[str, list[dict[str, Any]]], claim: Any) -> str:
    """Return a claim's id, as a link to the place on its page where it is shown."""
    if claim.id not in records:
        return f"{claim.id} (not in this run)"
    place = f"notebooks/{claim.notebook}.html#claim-{claim.id}"
    return f'<a href="{place}">{claim.id}</a>'


def unshown(records: dict[str, Any], stems: list[str]) -> list[str]:
    """Return the ids of claims whose notebook ran without showing them."""
    return [
        claim.id
        for claim in claims.load().values()
        if claim.notebook in stems and claim.id not in records
    ]


def write_claims(target: Path, records: dict[str, list[dict[str, Any]]]) -> None:
    """Write the register of claims: id (a link), wording, evidence."""
    lines = [
        "# Register of claims",
        "",
        "Each claim of the article that a computer can check has an id, and a visible",
        "check in a notebook shows it: follow the id to that place. An id begins with",
        "the section of the article that makes the claim. The build fails for a claim",
        "without a check and for a check without a claim. *Evidence* says how we show",
        "it: exact (enumerated, or an equality of integers and fractions), statistical",
        "(with the chance that a true claim fails), measured on the run's machine, or",
        "cited.",
        "",
        "| id | claim | evidence |",
        "|---|---|---|",
    ]
    for claim in claims.load().values():
        text = " ".join(claim.text.split()).replace("|", "\\|")
        rate = f" ({claim.false_alarm:g})" if claim.false_alarm else ""
        link = claim_links(records, claim)
        lines.append(f"| {link} | {text} | {claim.kind}{rate} |")
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---- API reference ---------------------------------------------------------------


def modules() -> Iterator[str]:
    """Yield the name of every public module of the package.

    The modules below ``specbook.exercises`` hold the answers, so they are left out.
    """
    package = importlib.import_module("specbook")
    for info in pkgutil.walk_packages(package.__path__, "specbook."):
        private = any(part.startswith("_") for part in info.name.split(".")[1:])
        if not private and not info.name.startswith("specbook.exercises."):
            yield info.name


def summary(name: str) -> str:
    """Return the first line of a module's docstring; ValueError when it has none."""
    text = importlib.import_module(name).__doc__
    if not text or not text.strip():
        raise ValueError(f"{name} has no docstring")
    return " ".join(text.strip().split("\n\n")[0].split())


def contents(name: str, names: list[str]) -> list[str]:
    """Return the lines that link what is in a package: its modules, its own names.

    A package exports names that its modules define, and each is described once, where
    it is defined. So without these lines the package's page would lead nowhere.
    """
    inside = [other for other in names if other.rpartition(".")[0] == name]
    lines: list[str] = []
    if inside:
        lines += ["", "| module | what |", "|---|---|"]
        for other in inside:
            what = summary(other).replace("|", "\\|")
            lines.append(f"| [{other}]({other}.md) | {what} |")
    package = importlib.import_module(name)
    exported = {}
    for word in getattr(package, "__all__", ()):
        home = getattr(getattr(package, word), "__module__", name)
        if home != name and home in names:
            exported[word] = home
    if exported:
        told = [f"[`{word}`]({home}.md)" for word, home in sorted(exported.items())]
        lines += ["", f"Names that it exports: {', '.join(told)}."]
    return lines


def write_api(folder: Path) -> None:
    """Write one page for each public module, and an index by floor."""
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(modules(), key=lambda name: (floors.floor(name), name))
    lines = [
        "# API reference",
        "",
        "The package is built in floors, like a house: a module uses only modules of",
        "its own floor and of the floors below. So whoever reads from floor 1 upwards",
        "meets nothing that was not explained before. The first two floors are exact",
        "mathematics on numpy, scipy and networkx and never import torch.",
        "",
    ]
    for number, title in floors.TITLES.items():
        lines += [
            f"## Floor {number}: {title.lower()}",
            "",
            "| module | what |",
            "|---|---|",
        ]
        for name in names:
            if floors.floor(name) == number:
                what = summary(name).replace("|", "\\|")
                lines.append(f"| [{name}]({name}.md) | {what} |")
        lines.append("")
    lines += ["```{toctree}", ":hidden:", "", *names, "```", ""]
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")
    for name in names:
        page = [
            f"# {name}",
            "",
            "```{eval-rst}",
            f".. automodule:: {name}",
            "```",
            *contents(name, names),
            "",
        ]
        (folder / f"{name}.md").write_text("\n".join(page), encoding="utf-8")
