"""What the builder's methods, and ``@kernel``, are given that they can't take: a typed error each,
at the user's line.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tilewright.builder import kernel, ptr, trace
from tilewright.builder.builder import Builder
from tilewright.builder.kernel_parameters import by_value
from tilewright.errors import KernelError, TilewrightError, UnknownName

PARAMS = {"x": "ptr f32", "a": "f32", "i": "u32"}
JUNK = [2, "x", None, (1, 2)]


def methods() -> dict[str, list[int]]:
    """The builder's, by name, and how many arguments each may have: the fewest and the most."""
    found = {}
    for name in dir(Builder):
        static = inspect.getattr_static(Builder, name)
        if name.startswith("_") or isinstance(static, property):
            continue
        taken = list(inspect.signature(getattr(Builder, name)).parameters.values())[1:]
        if any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in taken):
            continue
        plain = [p for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD]
        least = sum(p.default is p.empty for p in plain)
        more = any(p.kind is p.VAR_POSITIONAL for p in taken)
        found[name] = sorted({least, len(plain), least + more})
    return found


def combinations(count: int) -> list[list[Any]]:
    """Junk in each place, and in all; elsewhere what is good for something ("x", "i")."""
    made: list[list[Any]] = [[(junk,)] * count for junk in JUNK]
    for place in range(count):
        for good in ("x", "i"):
            made += [[good] * place + [(j,)] + [good] * (count - place - 1) for j in JUNK]
    return made


def use(method: str, given: list[Any]) -> None:
    def body(k, x, a, i):
        names = {"x": x, "a": a, "i": i}
        args = [names[g] if isinstance(g, str) else g[0] for g in given]
        made = getattr(k, method)(*args)
        if hasattr(made, "__enter__"):
            with made:
                pass
        elif inspect.isgenerator(made):
            next(made, None)

    trace(body, params=PARAMS)


@pytest.mark.filterwarnings("ignore")
def test_every_method_rejects_invalid_arguments() -> None:
    wrong = []
    for name, counts in methods().items():
        for count in counts:
            for given in combinations(count):
                try:
                    use(name, given)
                except TilewrightError:
                    pass
                except Exception as error:
                    wrong.append(f"k.{name}{tuple(given)}: {error!r}")
    assert not wrong


def loop(k: Builder, condition: Any) -> None:
    with k.while_(condition):
        k.break_()


def branch(k: Builder, condition: Any) -> None:
    with k.if_(condition):
        pass


SAID = {
    "k.neg must be given a register, got 2": lambda k, a: k.neg(2),
    "k.abs must be given a register, got 1.5": lambda k, a: k.abs(1.5),
    "k.add must be given a register, got 'x', 'y'": lambda k, a: k.add("x", "y"),
    "k.min must be given a register, got None, None": lambda k, a: k.min(None, None),
    "k.compare must be given a register, got 2": lambda k, a: k.compare("lt", 1, 2),
    "div must be given a register, got 4, 2": lambda k, a: k.div(4, 2),
    "mad must be given a register, got 1, 2, 3": lambda k, a: k.mad(1, 2, 3),
    "<< of 1 and -2: negative shift count": lambda k, a: k.shl(1, -2),
    "// of 1 and 0: ": lambda k, a: k.floordiv(1, 0),
    "the shift count must be an integer or a register": lambda k, a: k.shl(k.tid.x, 1.5),
    "the condition of k.while_ must be a function, got 0": lambda k, a: loop(k, 0),
    "a condition must be a predicate or a Python bool, got 1": lambda k, a: branch(k, 1),
    "a condition must be a predicate or a Python bool, got 'x'": (
        lambda k, a: loop(k, lambda: "x")
    ),
    "a condition must be a predicate or a Python bool, got 2": lambda k, a: k.ret(2),
    "a condition must be a predicate or a Python bool, got 0": lambda k, a: k.select(0, a, a),
    "expected a predicate": lambda k, a: branch(k, a),
    "an opcode must be text": lambda k, a: k.emit(5),
    "descriptor got unsupported arguments: AttributeError": lambda k, a: k.descriptor(5),
}


@pytest.mark.parametrize("words", SAID)
def test_errors_name_the_expected_and_the_given_value(words: str) -> None:
    with pytest.raises(KernelError) as caught:
        trace(SAID[words], params={"a": "f32"}, name="f")
    assert words in caught.value.message
    assert caught.value.location is not None and caught.value.location.file == __file__


def test_operations_evaluated_at_trace_time() -> None:
    def body(k, x):
        for condition in (True, np.bool_(False)):
            with k.if_(condition):
                x[0] = float(condition)
        assert (k.add(2, 3), k.shl(1, 4), k.max(2, 5), k.not_(True)) == (5, 16, 5, False)

    assert trace(body, params={"x": "ptr f32"}).ptx.count("st.global") == 1


NAMES = {
    "atomicAdd": r"k.atomic_add\(pointer, x\)",
    "gelu": r"k.elementwise\(tilewright.gelu, x\)",
    "barier": "did you mean k.barrier?",
    "threadIdx": "k.tid",
    "syncthreads": r"k.barrier\(\)",
    "popc": "k.ptx spells instructions: popc",
    "something_else": "k.ptx spells any instruction",
}


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_method_has_a_suggestion(name: str) -> None:
    def body(k):
        assert not hasattr(k, name)
        getattr(k, name)

    with pytest.raises(UnknownName, match=rf"no k.{name}(.|\n)*hint: .*{NAMES[name]}") as caught:
        trace(body)
    assert isinstance(caught.value, KernelError) and isinstance(caught.value, AttributeError)


def test_exceptions_of_the_user_are_not_changed() -> None:
    def body(k):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        trace(body)


def plain(k, x):
    pass


OPTIONS: dict[str, Any] = {
    "no option 'blok'(.|\n)*did you mean block": {"blok": 5},
    "no option 'zzz'(.|\n)*options are name, params": {"zzz": 5},
    "name must be text, got 5": {"name": 5},
    "target must be text, such as sm_90a, got 90": {"target": 90},
    "params must map names to types": {"params": ["f32"]},
    "no parameter 'y'(.|\n)*its parameters: x": {"params": {"x": "ptr f32", "y": "f32"}},
    "annotation 'ptr f32 align x' of parameter x raised SyntaxError": {
        "params": {"x": "ptr f32 align x"}
    },
    "annotation '1/0' of parameter x raised ZeroDivisionError": {"params": {"x": "1/0"}},
    "align must be a power of two in bytes, got 3": {"params": {"x": "ptr f32 align 3"}},
    "must have at least one byte, got 0": {"params": {"x": "bytes 0"}},
}


@pytest.mark.parametrize("words", OPTIONS)
def test_options_of_a_kernel(words: str) -> None:
    given = {"params": {"x": "ptr f32"}, **OPTIONS[words]}
    for make in (lambda: kernel(**given)(plain), lambda: trace(plain, **given)):
        with pytest.raises(KernelError, match=words):
            make()


def test_types_of_parameters() -> None:
    for make in (lambda: ptr("f32", align=0), lambda: by_value(-1), lambda: by_value(8, 6)):
        with pytest.raises(KernelError, match="must"):
            make()
