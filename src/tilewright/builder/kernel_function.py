"""Kernels: a Python function, traced once for each choice of its static arguments, and launched.

    @tilewright.kernel
    def scale(k, n: "u32", a: "f32", x: "ptr f32", *, per_thread=4): …

    scale.trace(per_thread=8).module          the PTX tree
    scale[blocks, 256](n, 2.0, x)             a launch, where the arrays live

Parameters after ``k`` are device parameters; keyword-only parameters are static. A higher layer
launches kernels; it registers itself with ``set_launcher``.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, overload

from ..errors import KernelError, SourceLocation
from ..lazy_imports import provide, provided, untraced
from ..notebook_display import Drawable
from ..pickled_names import PickledByName
from ..ptx import parameter_block, tree
from ..ptx.rules.requirements import lowest_target, module_requirements
from ..ptx.rules.written_parameters import written_parameters
from ..ptx.syntax.printer import print_module
from .builder import Builder
from .kernel_parameters import Param, declared, parameters
from .launch_bounds import dimensions
from .operations.kernel_memory import DYNAMIC_SHARED
from .source_location import kernel_error, user_errors
from .values.registers import is_integer

_LEAST_TARGET = "sm_50"


@dataclass(frozen=True)
class Traced(Drawable):
    """A traced kernel: its module, and the properties that a launch needs."""

    module: tree.Module = field(repr=False)
    name: str
    params: tuple[Param, ...]
    block: tuple[int, int, int] | None
    dynamic_shared: int
    static_shared: int
    cluster: tuple[int, int, int] | None = None

    @property
    def entry(self) -> tree.Function:
        """The kernel's function in the module."""
        return self.module.functions[self.name]

    @property
    def target(self) -> str:
        """The lowest target that supports the kernel, such as ``sm_80``."""
        return self.module.target[0]

    @property
    def ptx(self) -> str:
        """The module as text."""
        return print_module(self.module)

    @cached_property
    def written(self) -> frozenset[int]:
        """The indices of the parameters through which the kernel may write."""
        return written_parameters(self.entry)


class Launcher(Protocol):
    """Launches a traced kernel; ``args`` has one element for each of ``traced.params``."""

    def __call__(
        self,
        traced: Traced,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: tuple[Any, ...],
        *,
        device: Any = None,
        stream: Any = None,
        programmatic: bool = False,
    ) -> Any: ...


def set_launcher(launcher: Launcher | None) -> None:
    """Register the function through which ``kernel[grid, block](…)`` launches; None removes it."""
    provide("launcher", None if launcher is None else lambda: launcher)


@dataclass(frozen=True)
class KernelOptions:
    """The options of the decorator. ``k.launch_bounds`` and ``k.require`` set some of them from
    inside the kernel.
    """

    name: str = ""
    params: Mapping[str, Any] | None = None
    block: Any = None
    exact: bool = False
    min_ctas: int = 0
    max_registers: int = 0
    target: str = ""
    lines: bool = True
    cluster: Any = None


# --- tracing ----------------------------------------------------------------------------------


def trace(
    function: Callable[..., Any], static: Mapping[str, Any] | None = None, **options: Any
) -> Traced:
    """Trace a kernel function with the keyword-only arguments ``static``.

    ``options`` are the fields of ``KernelOptions``.
    """
    checked = _options(options)
    return _trace(function, parameters(function, checked.params), static or {}, checked)


def trace_declared(
    function: Callable[..., None], params: Mapping[str, Any], **options: Any
) -> Traced:
    """Trace ``function(k, *values)``, whose parameters ``params`` declares by name and type."""
    return _trace(function, declared(params), {}, _options(options))


def _trace(
    function: Callable[..., Any],
    params: tuple[Param, ...],
    static: Mapping[str, Any],
    options: KernelOptions,
) -> Traced:
    name = options.name or function.__name__
    if not re.fullmatch(r"[A-Za-z_$][\w$]*", name, re.ASCII):
        raise KernelError(
            f"a kernel's name must be an identifier of PTX, got {name!r}",
            hint="use letters, digits, _ and $",
        )
    size = parameter_block.layout_parameters(name, [p.variable() for p in params]).size
    if size > parameter_block.MAX_BYTES:
        limit = parameter_block.MAX_BYTES
        message = f"the parameters of {name} must have at most {limit} bytes, got {size}"
        raise KernelError(message, hint="pass large values through a pointer")
    k = Builder(line_info=options.lines)
    k.launch_bounds(
        options.block,
        exact=options.exact,
        min_ctas=options.min_ctas,
        max_registers=options.max_registers,
        cluster=options.cluster,
    )
    if options.target:
        k.require(options.target)
    try:
        values = [p.load(k) for p in params]
        with user_errors():
            result = function(k, *values, **static)
        _check_result(function, result)
        k.control.finish()
    finally:
        k.control.close()
    shared = k.memory.dynamic_bytes, k.memory.static_bytes
    return Traced(_module(k, name, params), name, params, k.bounds.block, *shared, k.bounds.cluster)


def _check_result(function: Callable[..., Any], result: Any) -> None:
    """Raise KernelError if a kernel returns a value. A lambda always does, so it may."""
    code = function.__code__
    if result is not None and code.co_name != "<lambda>":
        raise KernelError(
            f"a kernel must return None, but {function.__name__} returns {result!r}",
            location=SourceLocation(code.co_filename, code.co_firstlineno),
            hint="store results through a pointer",
        )


def _module(k: Builder, name: str, params: tuple[Param, ...]) -> tree.Module:
    """The module, with the lowest PTX version and target that support its contents and meet
    ``k.require``.
    """
    items: list[tree.Item] = [tree.File(index, file) for file, index in k.emitter.files.items()]
    if k.memory.dynamic_align:
        dynamic = tree.Variable("shared", "b8", DYNAMIC_SHARED, (0,), k.memory.dynamic_align)
        items.append(replace(dynamic, linkage="extern"))
    items += [*k.printing.externs(), *k.printing.texts(), _function(k, name, params)]
    module = tree.Module(items=tuple(items))
    required = {("1.0", name) for name in (_LEAST_TARGET, *k.bounds.targets)}
    version, target = lowest_target({*module_requirements(module), *required})
    return replace(module, version=version, target=(target.name,))


def _function(k: Builder, name: str, params: tuple[Param, ...]) -> tree.Function:
    bounds = tuple(tree.Directive(d, tuple(map(str, n))) for d, n in k.bounds.directives.items())
    e = k.emitter
    declarations: list[tree.Statement] = [
        *e.register_declarations(),
        *k.memory.variables,
        *k.printing.depots(),
    ]
    body = (*declarations, *e.prologue, *e.body)
    return tree.Function(name, "entry", tuple(p.variable() for p in params), (), bounds, body)


# --- kernels ----------------------------------------------------------------------------------


class Kernel(PickledByName):
    """A kernel function with its parameters; ``@kernel`` creates it. ``help(kernel)`` shows its
    parameters and its own docstring, and ``inspect.signature`` what a launch takes.
    """

    def __init__(self, function: Callable[..., Any], options: KernelOptions) -> None:
        self.params = parameters(function, options.params)
        self.take_names(function, options.name)
        self.options = options
        code = function.__code__
        first = code.co_argcount
        self._statics = code.co_varnames[first : first + code.co_kwonlyargcount]
        self._cache: dict[Any, Traced] = {}

    def __repr__(self) -> str:
        defaults = self.function.__kwdefaults__ or {}
        statics = [f"{n}={defaults[n]!r}" if n in defaults else n for n in self._statics]
        shown = [*map(str, self.params), *(["*", *statics] if statics else ())]
        return f"kernel {self.__name__}({', '.join(shown)})"

    @property
    def __signature__(self) -> inspect.Signature:
        """What a launch takes: device parameters by position, static arguments by name."""
        own = inspect.signature(self.function).parameters
        device = [
            inspect.Parameter(p.name, inspect.Parameter.POSITIONAL_ONLY, annotation=p.type_text)
            for p in self.params
        ]
        return inspect.Signature([*device, *(own[name] for name in self._statics)])

    def pickled_arguments(self) -> tuple[Any, ...]:
        """The function and the options."""
        return self.function, self.options

    def trace(self, **static: Any) -> Traced:
        """The traced kernel for these static arguments; it is traced once and cached."""
        static = {**(self.function.__kwdefaults__ or {}), **static}
        key = tuple((name, type(static[name]), static[name]) for name in sorted(static))
        try:
            traced = self._cache.get(key)
        except TypeError:
            raise self._error(f"static arguments must be hashable, got {static!r}") from None
        if traced is None:
            self._check_statics(static)
            traced = self._cache[key] = _trace(self.function, self.params, static, self.options)
        return traced

    def _check_statics(self, static: Mapping[str, Any]) -> None:
        unknown = sorted(set(static) - set(self._statics))
        missing = sorted(set(self._statics) - set(static))
        if unknown or missing:
            problem = (
                f"unknown static argument {unknown[0]!r}"
                if unknown
                else f"missing static argument {missing[0]!r}"
            )
            names = ", ".join(self._statics) or "none"
            raise self._error(
                f"{self.__name__}: {problem}", f"its static (keyword-only) arguments: {names}"
            )

    def _error(self, message: str, hint: str = "") -> KernelError:
        code = self.function.__code__
        return KernelError(
            message, location=SourceLocation(code.co_filename, code.co_firstlineno), hint=hint
        )

    def __getitem__(self, launch: Any) -> ConfiguredKernel:
        """``kernel[grid, block]``, or ``kernel[grid]`` if the kernel declares its block.

        Two numbers are a grid and a block, because Python passes ``kernel[(2, 4)]`` as
        ``kernel[2, 4]``. Write a 2-D grid without a block as ``kernel[(2, 4), None]``.
        """
        grid, size = launch if isinstance(launch, tuple) and len(launch) == 2 else (launch, None)
        block = dimensions(size) if size is not None else None
        numbers = is_integer(grid) and is_integer(size)
        return ConfiguredKernel(self, dimensions(grid), block, numbers)

    def __call__(self, *args: Any, **static: Any) -> Any:
        raise self._error(
            f"{self.__name__} is a kernel and needs a grid", "call kernel[grid, block](…)"
        )


@dataclass(frozen=True)
class ConfiguredKernel:
    """A kernel with its grid and block; calling it launches. ``numbers``: both are numbers."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int] | None
    numbers: bool

    def __call__(
        self,
        *args: Any,
        device: Any = None,
        stream: Any = None,
        programmatic: bool = False,
        **static: Any,
    ) -> Any:
        """Launch with the device parameters ``args``; keywords are static arguments.

        ``programmatic``: programmatic dependent launch. The grid starts once all CTAs of the
        previous kernel have called ``k.launch_dependent_grids`` or exited, and waits for that
        kernel in ``k.wait_for_prior_grids``.
        """
        options = {"device": device, "stream": stream, "programmatic": programmatic}
        return _launch(self, args, options, static)

    def _size(self, traced: Traced) -> tuple[int, int, int]:
        """The block size of the launch or of the kernel. Raises KernelError if it is ambiguous."""
        name, size = self.kernel.__name__, self.block or traced.block
        if size is None:
            raise self.kernel._error(
                f"the block size of {name} is not known", "call kernel[grid, block](…)"
            )
        if self.numbers and traced.block not in (None, size):
            grid, block = self.grid[0], size[0]
            raise self.kernel._error(
                f"{name}[{grid}, {block}]: the kernel declares a block of {traced.block}",
                f"{name}[({grid}, {block}), None] has a 2-D grid, {name}[{grid}, ({block},)] a"
                f" block of {block}",
            )
        return size


@untraced
def _launch(configured: ConfiguredKernel, args: tuple[Any, ...], options: Any, static: Any) -> Any:
    kernel = configured.kernel
    if len(args) != len(kernel.params):
        takes = ", ".join(map(str, kernel.params)) or "nothing"
        raise kernel._error(f"{kernel.__name__} takes {takes}, got {len(args)} arguments")
    traced = kernel.trace(**static)
    launcher: Launcher | None = provided("launcher")
    if launcher is None:
        raise kernel._error("no launcher is registered", "import tilewright to register it")
    return launcher(traced, configured.grid, configured._size(traced), args, **options)


@overload
def kernel(function: Callable[..., None]) -> Kernel: ...
@overload
def kernel(
    function: None = None,
    *,
    name: str = "",
    params: Mapping[str, Any] | None = None,
    block: Any = None,
    exact: bool = False,
    min_ctas: int = 0,
    max_registers: int = 0,
    target: str = "",
    lines: bool = True,
    cluster: Any = None,
) -> Callable[[Callable[..., None]], Kernel]: ...
def kernel(function: Callable[..., None] | None = None, **options: Any) -> Any:
    """Decorator that makes a kernel of a Python function: ``@kernel``, or with options
    ``@kernel(block=256, target="sm_90a")``.

    Options: ``name``; ``params`` (specifications by name, instead of annotations); ``block``
    (``.maxntid``, with ``exact`` ``.reqntid``); ``cluster`` (``.reqnctapercluster``, and the grid
    is a multiple of it); ``min_ctas``; ``max_registers``; ``target`` (the lowest one allowed);
    ``lines`` (False: no ``.loc``).
    """
    checked = _options(options)
    if function is not None:
        return Kernel(function, checked)
    return lambda function: Kernel(function, checked)


def _options(values: Mapping[str, Any]) -> KernelOptions:
    """The options. Raises KernelError for an unknown option or an option of the wrong type."""
    names = [f.name for f in fields(KernelOptions)]
    for name in values:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"options are {', '.join(names)}"
            raise kernel_error(f"a kernel has no option {name!r}", hint)
    options = KernelOptions(**values)
    for name, description in (("name", "text"), ("target", "text, such as sm_90a")):
        if not isinstance(getattr(options, name), str):
            raise kernel_error(f"{name} must be {description}, got {getattr(options, name)!r:.60}")
    if options.params is not None and not isinstance(options.params, Mapping):
        raise kernel_error(f"params must map names to types, got {options.params!r:.60}")
    return options
