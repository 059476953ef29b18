"""The call graph of a kernel, and the choice of functions that are not inlined.

Not inlined are recursive functions, functions that allocate from the stack, and long functions if
the kernel would exceed ``MAX_OPERATIONS`` otherwise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property

from ...ptx import tree

# Addresses of functions: numbers that a kernel can pass on and compare, and call.
FIRST_FUNCTION_ADDRESS, FUNCTION_ADDRESS_STRIDE = 16, 16
MAX_OPERATIONS = 1 << 17  # of a kernel with the functions that it calls
# Limits of the operations of an inlined function. The first limit with which the kernel has at most
# MAX_OPERATIONS applies.
INLINE_LIMITS = (MAX_OPERATIONS, 1 << 8, 0)
MAX_INLINE_DEPTH = 32  # nested inlined calls
CALL_COST = 16  # operations of a call that is not inlined (approximate)


def code_addresses(module: tree.Module) -> dict[str, int]:
    """The address of each function."""
    names = (f.name for f in module.functions.values() if f.kind == "func")
    return {
        name: FIRST_FUNCTION_ADDRESS + FUNCTION_ADDRESS_STRIDE * i for i, name in enumerate(names)
    }


def reachable_functions(module: tree.Module, function: tree.Function) -> dict[str, tree.Function]:
    """The functions with a body that a kernel may call, directly or indirectly."""
    return CallGraph(module, function).functions


def referenced_symbols(module: tree.Module, function: tree.Function) -> set[str]:
    """The symbols in the code of a kernel and of the functions that it calls."""
    instructions = (i for f in reachable_code(module, function) for i in f.instructions())
    return {n for i in instructions for o in i.operands for n in _symbols(o)}


def reachable_code(module: tree.Module, function: tree.Function) -> tuple[tree.Function, ...]:
    """A kernel and the functions that it may call."""
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


def results_and_arguments(call: tree.Instruction) -> tuple[tree.Vector, tree.Vector]:
    """The two operand lists of a call with all its operands: ``(results), callee, (arguments)``."""
    results, _, arguments, *_ = call.operands
    assert isinstance(results, tree.Vector) and isinstance(arguments, tree.Vector)
    return results, arguments


class CallGraph:
    """The functions that ``root`` may call, directly or indirectly.

    ``callees``: the callees of each function, one for each call. ``indirect_targets``: the
    candidates of each call through a register, by the ``id`` of the instruction.
    """

    def __init__(self, module: tree.Module, root: tree.Function) -> None:
        self.module, self.root, self.all_functions = module, root, module.functions
        self.functions: dict[str, tree.Function] = {}
        self.callees: dict[str, list[str]] = {}
        self.indirect_targets: dict[int, list[str]] = {}
        queue = [root]
        while queue:
            self._visit(queue.pop(), queue)

    def _visit(self, function: tree.Function, queue: list[tree.Function]) -> None:
        calls, bodies = filter(is_call, function.instructions()), self.all_functions
        names = (name for call in calls for name in self._callee_names(function, call))
        self.callees[function.name] = [
            n for n in names if n in bodies and bodies[n].body is not None
        ]
        for name in self.callees[function.name]:
            if name not in self.functions:
                self.functions[name] = bodies[name]
                queue.append(bodies[name])

    def _callee_names(self, function: tree.Function, call: tree.Instruction) -> list[str]:
        callee = call.operands[1] if len(call.operands) > 1 else None
        if isinstance(callee, tree.Symbol):
            return [callee.name]
        indirect = isinstance(callee, tree.Register)
        candidates = self._indirect_candidates(function, call) if indirect else []
        self.indirect_targets[id(call)] = candidates
        return candidates

    # --- calls through registers ---

    def _indirect_candidates(self, function: tree.Function, call: tree.Instruction) -> list[str]:
        """The functions that a call through a register may call: those in its ``.calltargets``, or
        else those whose address is taken, if they have a body and the call's number of operands.
        """
        results, arguments = results_and_arguments(call)
        prototype = call.operands[3:]
        listed = _targets(function, getattr(prototype[0], "name", "")) if prototype else None
        candidates = listed or self.address_taken
        counts = [len(results.items), len(arguments.items)]
        return [
            f.name
            for f in self.all_functions.values()
            if f.name in candidates
            and f.body is not None
            and [len(f.results), len(f.params)] == counts
        ]

    @cached_property
    def address_taken(self) -> set[str]:
        """The symbols in initialisers and in the operands of instructions other than calls."""
        variables = [v.init for v in self.module.items if isinstance(v, tree.Variable)]
        names = set(_symbols_in(variables))
        for f in self.all_functions.values():
            code = (i for i in f.instructions() if not is_call(i))
            names |= set(_symbols_in([o for i in code for o in i.operands]))
        return names

    # --- inline or not ---

    @cached_property
    def _components(self) -> dict[str, str]:
        """For each function, a representative of its strongly connected component (Kosaraju's
        algorithm: a walk over the callers, in reverse postorder).
        """
        callers = defaultdict(list)
        for name, callees in self.callees.items():
            for callee in callees:
                callers[callee].append(name)
        components: dict[str, str] = {}
        for representative in reversed(list(self._postorder())):
            queue = [representative]
            while queue:
                name = queue.pop()
                if name not in components:
                    components[name] = representative
                    queue += callers[name]
        return components

    @cached_property
    def _recursive(self) -> set[str]:
        sizes = Counter(self._components.values())
        mutual = {name for name, first in self._components.items() if sizes[first] > 1}
        return mutual | {name for name, callees in self.callees.items() if name in callees}

    def in_same_cycle(self, one: str, other: str) -> bool:
        """Whether each of two functions may call the other, directly or indirectly."""
        return one in self._recursive and self._components[one] == self._components[other]

    @cached_property
    def out_of_line(self) -> frozenset[str]:
        """The functions that are not inlined."""
        names: frozenset[str] = frozenset()
        for limit in INLINE_LIMITS:
            names, size = self._partition(limit)
            if size <= MAX_OPERATIONS:
                break
        return names

    def _partition(self, limit: int) -> tuple[frozenset[str], int]:
        """The functions that are not inlined if ``limit`` is the longest one that is; and the
        number of operations of all code then.
        """
        sizes, depths = dict.fromkeys(self.functions, CALL_COST), dict.fromkeys(self.functions, 0)
        separate, total = set(), 0
        for name in self._postorder():
            callees = self.callees[name]
            size = self._instruction_counts[name] + sum(sizes[n] for n in callees)
            depth = 1 + max((depths[n] for n in callees), default=0)
            never = name in self._recursive or name in self._stack_allocating
            if name not in self.functions:
                total += size
            elif never or size > limit or depth > MAX_INLINE_DEPTH:
                separate.add(name)
                total += size
            else:
                sizes[name], depths[name] = size, depth
        return frozenset(separate), total

    def _postorder(self) -> Iterator[str]:
        """Functions, callees before their callers (as far as there is no recursion)."""
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
        """Functions with ``alloca``: their return frees what they have allocated."""
        return {
            n for n, f in self.functions.items() if any(map(_allocates_stack, f.instructions()))
        }

    def out_of_line_postorder(self) -> list[tree.Function]:
        """The functions that are not inlined, callees first."""
        return [self.functions[n] for n in self._postorder() if n in self.out_of_line]


def _allocates_stack(i: tree.Instruction) -> bool:
    return i.opcode.partition(".")[0] == "alloca"


def _targets(function: tree.Function, label: str) -> set[str]:
    """The names of the ``.calltargets`` with that label."""
    directives = (d for d in _directives(function.body or ()) if d.name == "calltargets")
    return {name for d in directives if d.label == label for name in d.arguments}


def _directives(body: tuple[tree.Statement, ...]) -> Iterator[tree.Directive]:
    for s in body:
        if isinstance(s, tree.Directive):
            yield s
        elif isinstance(s, tree.Block):
            yield from _directives(s.body)


def _symbols_in(items: object) -> Iterator[str]:
    """The symbols in nested initialisers and operands."""
    if isinstance(items, tree.Symbol):
        yield items.name
    elif isinstance(items, tree.Masked):
        yield from _symbols_in(items.symbol)
    elif isinstance(items, tuple | list):
        for item in items:
            yield from _symbols_in(item)
