"""The call ``grouped_matmul``: products of groups of rows with a matrix each, in one launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....gemm.epilogue.tracing import epilogue_key
from ....gemm.kernel_launch import GROUP_ADDRESS, INDEX_ADDRESSES
from ....lazy_imports import calling
from ....quantization.scaled import Scaled
from ...arrays import array_view
from ..epilogue_call import launch_with_epilogue
from ..epilogue_fast_call import LaunchedEpilogue, fast_call_with_epilogue
from ..epilogue_request import EpilogueArguments
from ..fast_path import CallCache, CallForm, D, FastCall
from ..problem_list.list_call import multiply_list
from ..problem_list.list_fast_call import ListArguments, repeated
from ..problem_list.list_loop import multiply_each, needs_loop
from ..problem_list.scaled_lists import without_list_scales
from ..request import MatmulOptions
from ..scaled.fast_scaled_call import is_gathered, unpacked
from ..scaled.scaled_operands import has_quantized, without_scales
from .matrix_list import matrix_list
from .row_groups import GroupArguments, row_groups

GATHER, SCATTER, _ = INDEX_ADDRESSES
SCALES_OF_A = "a_scales", "a_zeros", "a_sums"  # operands with A's rows
_fast_calls = CallCache()


def grouped_matmul(
    a: Any,
    b: Any,
    *,
    offsets: Any = None,
    counts: Any = None,
    along: str = "m",
    gather: Any = None,
    scatter: Any = None,
    expected_rows: int | None = None,
    out: Any = None,
    out_dtype: Any = None,
    precision: str = "ieee",
    fast_accum: bool = False,
    device: Any = None,
    config: Any = None,
    epilogue: Any = None,
    **operands: Any,
) -> Any:
    """D[rows of group g] = A[rows of group g] B[g], for all groups in one launch; along K:
    D[g] = A[:, columns of group g] B[rows of group g].

    ``b`` (groups, K, N) has a matrix for each group, with any strides: ``w.transpose(-2, -1)`` of
    weights (groups, N, K) is read where it is. Types are those of ``matmul``, but f64 and f32 other
    than with precision="tf32" or "tf32x3"; ``a`` and ``b`` may be ``Scaled``, with a scale for each
    row of ``a`` and column of ``b``, or in blocks of 128 along K, of ``a`` for each row. ``b`` may
    be a stack of ``Packed`` or 2:4 sparse weights: ``packed.T``, ``sparse.T``; or a list of
    matrices of one shape, type and layout, each anywhere in memory (such calls have no fast path).

    With ``offsets``, ``a`` is (M, K) and the result (M, N): group g has the rows from offsets[g] to
    offsets[g + 1] (groups + 1 elements), or from offsets[g - 1], the first from 0, to offsets[g]
    (groups elements: the ends, as torch has them). With ``counts``, ``a`` is (groups, capacity, K)
    and the result (groups, capacity, N), and group g has the first counts[g] rows of its matrix.
    Rows of no group are not written; groups may be empty.

    ``along="k"`` (the gradient of the weights): ``a`` is (M, K), ``b`` (K, N), both of 16 or
    8 bits, ``offsets`` has the end of each group, and the result is (groups, M, N), zeros for an
    empty group. Of 16 bits ``dy.mT`` and ``x``, both row-major, are read where they are; of 8 bits,
    which may be ``Scaled`` in blocks along K, a row-major ``a`` and a column-major ``b``; others
    are copied first. Groups of 8 bits must begin at multiples of 128.

    ``gather`` (M,) names the row of ``a`` that each row of the product has, so that M is its length
    and ``a`` has any rows, with A K-major; scales of a ``Scaled`` ``a`` are gathered with the rows.
    ``scatter`` (M,) names the row of the result that each row is written to, which ``out`` may have
    any number of; a row of index -1 is not written, and no row may be named twice. Both come with
    ``offsets`` and groups of rows; operands of the epilogue have the rows of the product.

    ``offsets`` and ``counts`` are contiguous int32 or int64 arrays where ``a`` is (or lists of
    integers, for arrays on the CPU). The kernel reads them: the host does not wait, and a call in a
    CUDA graph may have other sizes at each replay. On the CPU sizes that decrease or exceed M are
    an error; on a GPU the kernel takes them for the nearest possible size, so that no row outside
    of D is written.

    Two lists ``a`` and ``b`` are problems of any sizes (M, K) × (K, N), whose matrices lie anywhere
    with any strides; ``out`` and the result are lists, and no sizes are given. An operand may be a
    list, too, of arrays that broadcast to D of each problem or of numbers. There is one launch for
    each combination of contiguous dimensions of A and B; matrices that tensor copies cannot read
    are copied first. Of f32 and f64, packed and sparse weights, block scales, and on targets other
    than sm_90a, each problem is a call of ``matmul``.

    ``expected_rows`` are the rows that a group has about; only the choice of the configuration
    depends on them. By default all groups are expected to have the average of ``a``'s rows, or with
    ``counts`` the capacity.

    ``epilogue`` and its ``operands`` are those of ``matmul``: an operand broadcasts to (M, N), or
    is (groups, 1, N) or (groups, 1, 1) and varies by group. The other arguments are ``matmul``'s.

    >>> y = tilewright.grouped_matmul(x, w.mT, offsets=ends)

    Raises ProblemError, DtypeError, DeviceError, ConfigError, EpilogueError.
    """
    options = MatmulOptions(out_dtype, precision, fast_accum, device, config)
    given = GroupArguments(offsets, counts, along, gather, scatter, expected_rows)
    listed, function = None, epilogue
    if isinstance(a, tuple | list):
        given.check_absent()
        listed = ListArguments(a, b, out, operands)
        listed, function = without_list_scales(listed, epilogue, _accumulator)
        key = listed.key(function, options)
        if (results := repeated(key, listed)) is not None:
            return results
    else:
        key = _key(a, b, given, epilogue, options)
    for fast_call in _fast_calls.by_key.get(key, ()) if key and listed is None else ():
        result = fast_call(a, b, given.sizes, gather, scatter, out, operands)
        if result is not None:
            return result
    if epilogue is None and operands:
        raise TypeError(
            f"grouped_matmul() got unexpected arguments {', '.join(operands)}; operands need an "
            "epilogue"
        )
    matrices = (x for m in (a, b) for x in (m if isinstance(m, tuple | list) else (m,)))
    passed = *matrices, given.sizes, gather, scatter, out, *operands.values()
    if own := array_view.operators(passed):
        named = {"out": out, "epilogue": epilogue, **options._asdict(), **operands}
        return own.grouped_matmul(a, b, **given._asdict(), **named)
    if listed is not None:
        if needs_loop(listed, options):
            return multiply_each(listed, function, options)
        return multiply_list(listed, function or _accumulator, options, key)
    call = _launch(a, b, given, epilogue or _accumulator, operands, options, out)
    if key is not None and not isinstance(out, Mapping) and _may_repeat(call, b):
        arrays = {GROUP_ADDRESS: given.sizes, GATHER: gather, SCATTER: scatter}
        repeat = _fast_call(call, a, b, arrays, out, operands)
        if repeat is not None:
            _fast_calls.add(key, repeat)
    return call.result


# what torch.compile traces in place of ``grouped_matmul``
_traced = calling("torch_operators", "grouped_matmul")
grouped_matmul._torchdynamo_inline = _traced  # type: ignore[attr-defined]


def _key(a: Any, b: Any, given: GroupArguments, epilogue: Any, options: MatmulOptions) -> Any:
    """The key of a call among the fast calls; None for a call that has none."""
    try:
        if _is_list(b):
            return None
        shapes = (b[0].shape, b[1].shape) if type(b) in (tuple, list) else b.shape
        function = None if epilogue is None else epilogue_key(epilogue)
        if epilogue is not None and function is None:
            return None
        offsets, counts, along, gather, scatter, expected = given
        rows = gather is None or gather.shape, scatter is None or scatter.shape
        form = given.sizes.shape, offsets is None, counts is None, along, rows, expected
        key = function, type(a), a.shape, shapes, form, options
        hash(key)
    except (AttributeError, IndexError, RuntimeError, TypeError):  # no shape, or not hashable
        return None
    return key


def _launch(
    a: Any, b: Any, given: GroupArguments, function: Any, operands: Mapping[str, Any],
    options: MatmulOptions, out: Any,
) -> LaunchedEpilogue:  # fmt: skip
    """All stages of a call."""
    if given.along == "m" and _is_list(b):
        b = matrix_list(b)
    (left, right), scales = (a, b), None
    if has_quantized(a, b):
        left, right, function, operands, scales = without_scales(
            a, b, function, operands, grouped=given.along == "m"
        )
    first = right[0] if isinstance(right, tuple | list) and len(right) == 2 else right
    groups = row_groups(left[0] if isinstance(left, tuple) else left, first, given, out)
    if given.gather is not None and isinstance(a, Scaled):
        own = tuple(name for name in operands if name in SCALES_OF_A)
        groups = groups._replace(request=groups.request._replace(gathered=own))
    arguments = EpilogueArguments(function, {}, operands)
    return launch_with_epilogue(left, right, arguments, options, out, scales=scales, groups=groups)


def _is_list(b: Any) -> bool:
    """Whether B is a list of matrices, not a pair of stacks."""
    shape = getattr(b[0], "shape", None) if type(b) in (tuple, list) and b else None
    return isinstance(shape, tuple) and len(shape) == 2


def _may_repeat(call: LaunchedEpilogue, b: Any) -> bool:
    """Whether calls like this one may have a fast path."""
    return call.in_place and not is_gathered(*(b if isinstance(b, tuple | list) else (b,)))


def _accumulator(acc: Any) -> Any:
    return acc


def _fast_call(
    call: LaunchedEpilogue, a: Any, b: Any, groups: Mapping[str, Any], out: Any,
    operands: Mapping[str, Any],
) -> FastCall | None:  # fmt: skip
    """The fast path for calls like this one: ``fast_call(a, b, *groups, out, operands)``."""
    statements = ["if operands.keys() != names:", "    return None"]
    matrices = {"a": a, "b": b}
    if call.requested.b2 is not None:
        statements += ["if type(b) not in pair or len(b) != 2:", "    return None", "b, b2 = b"]
        matrices["b"], matrices["b2"] = b
    scaled = unpacked(matrices, call.requested.request.scales is not None)
    statements += scaled.statements
    matrices = scaled.data | {name: x for name, x in groups.items() if x is not None}
    if out is not None:
        matrices[D] = out
    sources = {name: (f"operands[{name!r}]", x) for name, x in operands.items()}
    form = CallForm(
        f"a, b, {', '.join(groups)}, {D}, operands",
        tuple(statements),
        tuple(f"{name} is None" for name, x in groups.items() if x is None),
        constants={"names": frozenset(operands), "pair": (tuple, list)} | scaled.constants,
    )
    sources |= scaled.operands
    return fast_call_with_epilogue(call, form, matrices, sources)
