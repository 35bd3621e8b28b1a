"""Small faults to plant in a module, one at a time: what mutation testing runs on.

The operators are mutmut's. What is added here: methods behind a decorator (properties,
cached functions) get mutants too, every mutant knows the lines of its statement, and
one that changes nothing but the words of an error message says so.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import MutationVisitor, deep_replace
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import get_ignored_lines

CHECKERS = "checks"
"""The module whose functions take the name of an argument, for their messages."""


@dataclass(frozen=True)
class Mutant:
    """One change of one function.

    `lines`: those of the changed statement, to find the tests that run it. `message`:
    only the words of an error change. `start`, `stop` and `new`: the lines of the file,
    from 0, that are exchanged, and what for. `before` and `after`: the same on one line
    each. `same`: 2 for the second mutant of a function whose lines read alike, ....
    """

    path: str
    function: str
    lines: frozenset[int]
    message: bool
    start: int
    stop: int
    new: tuple[str, ...]
    before: str
    after: str
    same: int = 1

    @property
    def name(self) -> str:
        """What a list of survivors calls it: it outlives a move to other lines."""
        again = f" (#{self.same})" if self.same > 1 else ""
        return f"{self.path} {self.function}: {self.before} => {self.after}{again}"

    def source(self, text: str) -> str:
        """Return the module's text with the change in it."""
        lines = text.splitlines()
        lines[self.start : self.stop] = self.new
        return "\n".join(lines) + "\n"


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its lines."""
    text = path.read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(text))
    visitor = _Visitor(
        mutation_operators, get_ignored_lines(str(path), text, wrapper, None)
    )
    module = wrapper.visit(visitor)
    where = _Places(ast.parse(text))
    lines = text.splitlines()
    seen: Counter[tuple[str, str, str]] = Counter()
    for mutation, line, message in visitor.found:
        function = where.function(line)
        node = mutation.contained_by_top_level_function
        if function is None or node is None:  # run once, by the import
            continue
        # Only the function is rewritten: the whole module would take a hundred times
        # as long. Its text begins with the lines above its first decorator.
        changed = deep_replace(node, mutation.original_node, mutation.mutated_node)
        assert isinstance(changed, cst.FunctionDef)
        old = module.code_for_node(node).splitlines()
        new = module.code_for_node(changed).splitlines()
        top = where.first(line) - 1 - len(node.leading_lines)
        start, end = _difference(old, new)
        indent = "    " if "." in function else ""
        put = tuple(indent + each for each in new[start : len(new) - end])
        begin, stop = top + start, top + len(old) - end
        before = " ".join(each.strip() for each in lines[begin:stop])
        after = " ".join(each.strip() for each in put)
        seen[function, before, after] += 1
        yield Mutant(
            str(path),
            function,
            where.lines(line),
            message,
            begin,
            stop,
            put,
            before,
            after,
            seen[function, before, after],
        )


class _Visitor(MutationVisitor):
    """mutmut's visitor, which also enters functions that are decorated."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.found: list[tuple[Any, int, bool]] = []
        self._errors = 0
        self._checks = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        self._errors += _calls_error(node)
        self._checks += _calls_check(node)
        return super().on_visit(node)

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self._errors -= _calls_error(original_node)
        self._checks -= _calls_check(original_node)
        super().on_leave(original_node)

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        # mutmut leaves these alone because it copies a function under a new name, and
        # the decorator would then run twice. Here only a code object is exchanged.
        if isinstance(node, cst.FunctionDef):
            return False
        return super()._skip_node_and_children(node)

    def _create_mutations(self, node: cst.CSTNode) -> None:
        known = len(self.mutations)
        super()._create_mutations(node)
        line = self._line(node)
        for mutation in self.mutations[known:]:
            words = self._errors > 0 or (
                self._checks > 0 and _changes_words(node, mutation.mutated_node)
            )
            self.found.append((mutation, line, words))

    def _line(self, node: cst.CSTNode) -> int:
        position = self.get_metadata(cst.metadata.PositionProvider, node, None)
        if position is not None:
            self._last = position.start.line
        return self._last


def _calls_error(node: cst.CSTNode) -> bool:
    """Whether this makes an error: `SomethingError(...)`."""
    if not isinstance(node, cst.Call):
        return False
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    return isinstance(name, cst.Name) and name.value.endswith("Error")


def _calls_check(node: cst.CSTNode) -> bool:
    """Whether this is a call of `checks.something(...)`."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and isinstance(node.func.value, cst.Name)
        and node.func.value.value == CHECKERS
    )


def _changes_words(old: cst.CSTNode, new: cst.CSTNode) -> bool:
    """Whether a string, or a call's argument that is one, is all that changes."""
    texts = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
    if isinstance(old, texts):
        return True
    if not (isinstance(old, cst.Call) and isinstance(new, cst.Call)):
        return False
    if len(old.args) != len(new.args):
        return False
    pairs = zip(old.args, new.args, strict=True)
    changed = [(a.value, b.value) for a, b in pairs if a is not b]
    return bool(changed) and all(isinstance(value, texts) for value, _ in changed)


class _Places:
    """Which function a line belongs to, and which lines its statement has."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions: dict[int, ast.FunctionDef] = {}
        self._names: dict[ast.FunctionDef, str] = {}
        for node in tree.body:
            self._enter(node, "")
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    self._enter(inner, f"{node.name}.")

    def _enter(self, node: ast.stmt, prefix: str) -> None:
        if isinstance(node, ast.FunctionDef):
            self._names[node] = prefix + node.name
            last = node.end_lineno or node.lineno
            self._functions |= dict.fromkeys(range(node.lineno, last + 1), node)

    def first(self, line: int) -> int:
        """Return the line that this line's function begins at, with decorators."""
        node = self._functions[line]
        return min([node.lineno, *(each.lineno for each in node.decorator_list)])

    def function(self, line: int) -> str | None:
        """Return the qualified name of the outermost function of this line."""
        node = self._functions.get(line)
        return None if node is None else self._names[node]

    def lines(self, line: int) -> frozenset[int]:
        """Return the lines of the innermost statement here, a block's header alone.

        For a line of the signature, those of the function's body: it is read whenever
        the function is called.
        """
        top = self._functions[line]
        if line < top.body[0].lineno:
            return frozenset(range(top.body[0].lineno, (top.end_lineno or 0) + 1))
        best = _own_lines(top.body[0])
        for node in ast.walk(top):
            if isinstance(node, ast.stmt) and line in _own_lines(node):
                if len(_own_lines(node)) <= len(best) or line not in best:
                    best = _own_lines(node)
        return frozenset(best)


def _own_lines(node: ast.stmt) -> range:
    """The lines of a statement without those of the block below its header."""
    last = node.end_lineno or node.lineno
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        last = max(node.lineno, body[0].lineno - 1)
    return range(node.lineno, last + 1)


def _difference(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines are equal at the beginning, and how many at the end."""
    most = min(len(old), len(new))
    start = 0
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


# ---- planting --------------------------------------------------------------------


def plant(mutant: Mutant, module: Any) -> None:
    """Put the mutant's code and defaults into the live function of `module`.

    The function object stays the same one, so whoever imported it runs the mutant.
    Raises LookupError when the module has no such function.
    """
    function = _function(module, mutant.function)
    text = Path(function.__code__.co_filename).read_text(encoding="utf-8")
    tree = ast.parse(mutant.source(text))
    code = _code(compile(tree, function.__code__.co_filename, "exec"), mutant.function)
    function.__code__ = code
    _plant_defaults(function, _definition(tree, mutant.function))


def _function(module: Any, name: str) -> FunctionType:
    """The plain function behind a name, whatever decorates it."""
    owner, _, last = name.rpartition(".")
    holder = getattr(module, owner) if owner else module
    found = vars(holder)[last]
    while not isinstance(found, FunctionType):
        for way in ("fget", "func", "__wrapped__", "__func__"):
            if hasattr(found, way):
                found = getattr(found, way)
                break
        else:
            raise LookupError(f"{name} is no function: {found!r}")
    return found


def _code(code: CodeType, name: str) -> CodeType:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == name:
                return constant
            if name.startswith(constant.co_qualname + "."):
                return _code(constant, name)
    raise LookupError(f"no code of {name}")


def _definition(tree: ast.Module, name: str) -> ast.FunctionDef:
    body: list[ast.stmt] = tree.body
    *owners, last = name.split(".")
    for owner in owners:
        body = next(
            n.body for n in body if isinstance(n, ast.ClassDef) and n.name == owner
        )
    return next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == last)


def _plant_defaults(function: FunctionType, node: ast.FunctionDef) -> None:
    """Literal defaults as the mutant has them; those that are no literals stay."""
    if function.__defaults__:
        pairs = zip(function.__defaults__, node.args.defaults, strict=True)
        function.__defaults__ = tuple(_literal(new, old) for old, new in pairs)
    keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    for argument, new in keywords:
        if new is not None and function.__kwdefaults__:
            old = function.__kwdefaults__[argument.arg]
            function.__kwdefaults__[argument.arg] = _literal(new, old)


def _literal(node: ast.expr, otherwise: Any) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return otherwise
