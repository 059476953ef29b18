"""The call graph of a kernel, and the choice of functions that are not inlined: recursive
functions, functions that allocate from the stack, and long ones where the kernel would get too
long.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property

from ...ptx import tree

FIRST_FUNCTION_ADDRESS, FUNCTION_ADDRESS_STRIDE = (
    16,
    16,
)  # of functions: numbers that a kernel can pass on and compare
MAX_OPERATIONS = 1 << 17  # operations of a kernel with the functions that it calls
INLINE_LIMITS = (
    MAX_OPERATIONS,
    1 << 8,
    0,
)  # of a function inline: the first with which a kernel has MOST
MAX_INLINE_DEPTH = 32  # calls within calls inline
CALL_COST = 16  # operations, about, of a call that is none inline


def code_addresses(module: tree.Module) -> dict[str, int]:
    """What the address of each function is."""
    found = (f.name for f in module.functions.values() if f.kind == "func")
    return {
        name: FIRST_FUNCTION_ADDRESS + FUNCTION_ADDRESS_STRIDE * i for i, name in enumerate(found)
    }


def reachable_functions(module: tree.Module, function: tree.Function) -> dict[str, tree.Function]:
    """The functions with a body that a kernel may call, and those that they may."""
    return CallGraph(module, function).functions


def referenced_symbols(module: tree.Module, function: tree.Function) -> set[str]:
    """What the code of a kernel, and of the functions that it calls, names."""
    instructions = (i for f in reachable_code(module, function) for i in f.instructions())
    return {n for i in instructions for o in i.operands for n in _symbols(o)}


def reachable_code(module: tree.Module, function: tree.Function) -> tuple[tree.Function, ...]:
    """A kernel and the functions that it calls."""
    return (function, *reachable_functions(module, function).values())


def _symbols(o: tree.Operand) -> Iterator[str]:
    if isinstance(o, tree.Symbol):
        yield o.name
    elif isinstance(o, tree.MemoryOperand):
        yield from _symbols(o.base)
        for item in o.coords or ():
            yield from _symbols(item)
    elif isinstance(o, tree.Vector):
        for item in o.items:
            yield from _symbols(item)


def is_call(i: tree.Instruction) -> bool:
    return i.opcode.partition(".")[0] == "call"


class CallGraph:
    """The functions that ``root`` reaches."""

    def __init__(self, module: tree.Module, root: tree.Function) -> None:
        self.module, self.root, self.all_functions = module, root, module.functions
        self.functions: dict[str, tree.Function] = {}
        self.callees: dict[str, list[str]] = {}  # one for each call of each function
        self.indirect_targets: dict[
            int, list[str]
        ] = {}  # what each call through a register may mean
        queue = [root]
        while queue:
            self._visit(queue.pop(), queue)

    def _visit(self, function: tree.Function, queue: list[tree.Function]) -> None:
        calls, bodies = filter(is_call, function.instructions()), self.all_functions
        names = (name for call in calls for name in self._callee_names(function, call))
        kept = [n for n in names if n in bodies and bodies[n].body is not None]
        self.callees[function.name] = kept
        for name in kept:
            if name not in self.functions:
                self.functions[name] = bodies[name]
                queue.append(bodies[name])

    def _callee_names(self, function: tree.Function, call: tree.Instruction) -> list[str]:
        callee = call.operands[1] if len(call.operands) > 1 else None
        if isinstance(callee, tree.Symbol):
            return [callee.name]
        found = (
            self._indirect_candidates(function, call) if isinstance(callee, tree.Register) else []
        )
        self.indirect_targets[id(call)] = found
        return found

    # --- calls through registers ---

    def _indirect_candidates(self, function: tree.Function, call: tree.Instruction) -> list[str]:
        """What a call through a register may mean: functions with a body and as many operands, of
        its ``.calltargets``, or, where it has none, any whose address is taken.
        """
        results, _, arguments, *rest = call.operands
        listed = _targets(function, getattr(rest[0], "name", "")) if rest else None
        among = listed or self.address_taken
        counts = [len(results.items), len(arguments.items)]
        return [
            f.name
            for f in self.all_functions.values()
            if f.name in among and f.body is not None and [len(f.results), len(f.params)] == counts
        ]

    @cached_property
    def address_taken(self) -> set[str]:
        """Names that stand where addresses do."""
        found = set(
            _symbols_in([v.init for v in self.module.items if isinstance(v, tree.Variable)])
        )
        for f in self.all_functions.values():
            code = (i for i in f.instructions() if not is_call(i))
            found |= set(_symbols_in([o for i in code for o in i.operands]))
        return found

    # --- inline or not ---

    @cached_property
    def _cycles(self) -> dict[str, str]:
        """For each function one that stands for all in its cycle (Kosaraju's way: callers of
        callers, the last first).
        """
        callers = defaultdict(list)
        for name, callees in self.callees.items():
            for callee in callees:
                callers[callee].append(name)
        found: dict[str, str] = {}
        for first in reversed(list(self._postorder())):
            queue = [first]
            while queue:
                name = queue.pop()
                if name not in found:
                    found[name] = first
                    queue += callers[name]
        return found

    @cached_property
    def _recursive(self) -> set[str]:
        sizes = Counter(self._cycles.values())
        large = {name for name, first in self._cycles.items() if sizes[first] > 1}
        return large | {name for name, callees in self.callees.items() if name in callees}

    def in_same_cycle(self, one: str, other: str) -> bool:
        """Whether each of two functions may come to the other."""
        return one in self._recursive and self._cycles[one] == self._cycles[other]

    @cached_property
    def out_of_line(self) -> frozenset[str]:
        """The functions that are called, where all others stand inline."""
        found: frozenset[str] = frozenset()
        for limit in INLINE_LIMITS:
            found, size = self._partition(limit)
            if size <= MAX_OPERATIONS:
                break
        return found

    def _partition(self, limit: int) -> tuple[frozenset[str], int]:
        """The functions that are longer than ``limit`` or never inline, and the operations of all
        code then.
        """
        sizes, depths = dict.fromkeys(self.functions, CALL_COST), dict.fromkeys(self.functions, 0)
        found, total = set(), 0
        for name in self._postorder():
            callees = self.callees[name]
            size = self._instruction_counts[name] + sum(sizes[n] for n in callees)
            depth = 1 + max((depths[n] for n in callees), default=0)
            alone = name in self._recursive or name in self._stack_allocating
            if name not in self.functions:
                total += size
            elif alone or size > limit or depth > MAX_INLINE_DEPTH:
                found.add(name)
                total += size
            else:
                sizes[name], depths[name] = size, depth
        return frozenset(found), total

    def _postorder(self) -> Iterator[str]:
        """Callees before their callers, as far as they don't call each other."""
        seen, stack = {self.root.name}, [(self.root.name, iter(self.callees[self.root.name]))]
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n not in seen), None)
            if following is None:
                stack.pop()
                yield name
            else:
                seen.add(following)
                stack.append((following, iter(self.callees[following])))

    @cached_property
    def _instruction_counts(self) -> dict[str, int]:
        code = {**self.functions, self.root.name: self.root}
        return {name: sum(1 for _ in f.instructions()) for name, f in code.items()}

    @cached_property
    def _stack_allocating(self) -> set[str]:
        """Functions whose end gives back what they took from the stack."""
        found = (
            n for n, f in self.functions.items() for i in f.instructions() if _allocates_stack(i)
        )
        return set(found)

    def out_of_line_postorder(self) -> list[tree.Function]:
        """The separate functions, callees first."""
        return [self.functions[n] for n in self._postorder() if n in self.out_of_line]


def _allocates_stack(i: tree.Instruction) -> bool:
    return i.opcode.partition(".")[0] == "alloca"


def _targets(function: tree.Function, label: str) -> set[str]:
    """The names of the ``.calltargets`` with that label."""
    found = (d for d in _directives(function.body or ()) if d.name == "calltargets")
    return {name for d in found if d.label == label for name in d.arguments}


def _directives(body: tuple[tree.Statement, ...]) -> Iterator[tree.Directive]:
    for s in body:
        if isinstance(s, tree.Directive):
            yield s
        elif isinstance(s, tree.Block):
            yield from _directives(s.body)


def _symbols_in(items: object) -> Iterator[str]:
    """The symbols in initialisers and operands, however they nest."""
    if isinstance(items, tree.Symbol):
        yield items.name
    elif isinstance(items, tree.Masked):
        yield from _symbols_in(items.symbol)
    elif isinstance(items, tuple | list):
        for item in items:
            yield from _symbols_in(item)
