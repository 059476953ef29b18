"""The builder, ``k``: the first argument of a kernel function.

It is composed of parts, one class in each file: the emitter, special registers, arithmetic,
conversions, memory, control flow, warp operations, Hopper's operations, printing and tensors. A
part receives the parts that it uses; ``forward`` makes its methods the builder's.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

from ..dtypes import DType
from ..errors import UnknownName
from .emitter import Emitter
from .forward import forward
from .functions.atomic_operations import AtomicOperations
from .functions.elementary_functions import ElementaryFunctions
from .functions.thread_reductions import ThreadReductions
from .launch_bounds import LaunchBounds
from .opcode_namespace import Opcode
from .operations.arithmetic import ArithmeticOperations
from .operations.bitwise import BitwiseOperations
from .operations.bulk_copy import BulkCopies
from .operations.cluster_operations import ClusterOperations
from .operations.control_flow import ControlFlow
from .operations.kernel_memory import KernelMemory
from .operations.kernel_printing import KernelPrinting
from .operations.mbarrier_operations import MbarrierOperations
from .operations.special_values import SpecialRegisters, Vector3
from .operations.tma_operations import TmaOperations
from .operations.unpack_floats import FloatUnpacking
from .operations.unpack_integers import IntegerUnpacking
from .operations.unpack_nibbles import NibbleUnpacking
from .operations.value_conversions import ConversionOperations
from .operations.variables import Variables
from .operations.warp_operations import WarpOperations
from .operations.wgmma_operations import WgmmaOperations
from .source_location import current_location
from .suggestions import suggest
from .tensors.memory_vectors import MemoryVectors
from .tensors.tensor_copy import TensorCopies
from .tensors.tensor_elements import TensorElements
from .tensors.tensor_operations import TensorOperations
from .values.pointer import Pointer
from .values.registers import Reg, Scalar, Var

PartType = TypeVar("PartType")


class Builder:
    """Builds one kernel: its methods append instructions to the kernel's body.

    ``k.tid``, ``k.ntid``, ``k.ctaid`` and ``k.nctaid`` have ``.x .y .z`` (u32). ``k.ptx`` emits any
    instruction by its name.
    """

    def __init__(self, *, line_info: bool = True) -> None:
        self._parts: dict[str, Any] = {}
        self.emitter = emitter = self._add(Emitter(self, line_info=line_info))
        self.bounds = self._add(LaunchBounds())
        self.variables = variables = self._add(Variables(emitter))
        bitwise = self._add(BitwiseOperations(emitter, variables))
        arithmetic = self._add(ArithmeticOperations(emitter, variables, bitwise))
        conversions = self._add(ConversionOperations(emitter, variables, arithmetic))
        self._add(IntegerUnpacking(emitter))
        self._add(FloatUnpacking(emitter))
        self._add(NibbleUnpacking(emitter))
        self.memory = self._add(KernelMemory(emitter, variables))
        self.control = self._add(ControlFlow(emitter, variables, arithmetic))
        special = self._add(SpecialRegisters(emitter, arithmetic, self.bounds))
        self.special_registers = special
        self.printing = self._add(KernelPrinting(emitter, conversions, self.control))
        warp = self._add(WarpOperations(emitter, arithmetic, conversions))
        self._add(ElementaryFunctions(emitter))
        self._add(AtomicOperations())
        self._add(
            ThreadReductions(
                arithmetic, bitwise, warp, self.memory, self.control, special, self.bounds
            )
        )
        wgmma = self._add_hopper()
        elements = self._add(TensorElements(emitter, variables, conversions))
        self._add(MemoryVectors(emitter, conversions, elements))
        copies = self._add(TensorCopies(emitter, self.memory, warp, elements))
        self._add(TensorOperations(emitter, arithmetic, warp, elements, copies, wgmma))
        self.ptx = Opcode(emitter)
        self.tid, self.ntid, self.ctaid, self.nctaid = (
            Vector3(self.special_registers, name) for name in ("tid", "ntid", "ctaid", "nctaid")
        )

    def _add_hopper(self) -> WgmmaOperations:
        emitter = self.emitter
        cluster = self._add(ClusterOperations(emitter, self.control, self.special_registers))
        self._add(MbarrierOperations(emitter, self.control, cluster))
        self._add(BulkCopies(emitter))
        self._add(TmaOperations(emitter))
        return self._add(WgmmaOperations(emitter))

    def _add(self, part: PartType) -> PartType:
        self._parts[type(part).__name__] = part
        return part

    @overload
    def var(self, value: str | DType, init: Scalar | None = None) -> Var: ...
    @overload
    def var(self, value: Reg) -> Var: ...
    @overload
    def var(self, value: Pointer) -> Pointer: ...
    def var(self, value: str | DType | Reg | Pointer, init: Scalar | None = None) -> Any:
        """A variable: ``k.var("u32", 0)``, ``k.var("f32")`` (undefined until set), ``k.var(reg)``,
        ``k.var(pointer)``.
        """
        return self.variables.var(value, init)

    def __getattr__(self, name: str) -> Any:
        """Raise UnknownName with a suggestion. Python calls it only for unknown names."""
        if name.startswith("_"):
            raise AttributeError(name)
        hint = suggest(name, dir(self))
        raise UnknownName(f"the builder has no k.{name}", location=current_location(), hint=hint)

    @property
    def laneid(self) -> Reg:
        """The lane's index in its warp."""
        return self.special_registers.laneid

    @property
    def warpid(self) -> Reg:
        """The warp's index in its CTA: the linear thread index / 32."""
        return self.special_registers.warpid

    @property
    def thread(self) -> Reg:
        """The linear thread index in the CTA (``tid.x`` where the block is declared 1-D)."""
        return self.special_registers.thread

    @property
    def cluster_rank(self) -> Reg:
        """The CTA's rank in its cluster."""
        return self.special_registers.special("cluster_ctarank")

    # --- Launch bounds and target ---
    launch_bounds = forward(LaunchBounds.launch_bounds)
    require = forward(LaunchBounds.require)

    # --- Instructions, predication and labels ---
    emit = forward(Emitter.emit)
    compute = forward(Emitter.compute)
    when = forward(Emitter.when)
    label = forward(Emitter.label)
    place_label = forward(Emitter.place_label)
    in_prologue = forward(Emitter.in_prologue)
    eliminate_common_subexpressions = forward(Emitter.eliminate_common_subexpressions)
    immediate = forward(Emitter.immediate)
    constant = forward(Emitter.constant)
    emit_once = forward(Emitter.emit_once)
    check_predicate = forward(Emitter.check_predicate)
    static_condition = forward(Emitter.static_condition)

    # --- Special registers ---
    special = forward(SpecialRegisters.special)

    # --- Constants, variables and copies ---
    const = forward(Variables.const)
    mov = forward(Variables.mov)
    as_result = forward(Variables.as_result)

    # --- Arithmetic and comparisons ---
    add = forward(ArithmeticOperations.add)
    sub = forward(ArithmeticOperations.sub)
    mul = forward(ArithmeticOperations.mul)
    truediv = forward(ArithmeticOperations.truediv)
    floordiv = forward(ArithmeticOperations.floordiv)
    mod = forward(ArithmeticOperations.mod)
    div = forward(ArithmeticOperations.div)
    rem = forward(ArithmeticOperations.rem)
    mad = forward(ArithmeticOperations.mad)
    fma = forward(ArithmeticOperations.fma)
    min = forward(ArithmeticOperations.min)
    max = forward(ArithmeticOperations.max)
    neg = forward(ArithmeticOperations.neg)
    abs = forward(ArithmeticOperations.abs)
    compare = forward(ArithmeticOperations.compare)
    select = forward(ArithmeticOperations.select)

    # --- Elementary functions ---
    exp = forward(ElementaryFunctions.exp)
    exp2 = forward(ElementaryFunctions.exp2)
    log = forward(ElementaryFunctions.log)
    log2 = forward(ElementaryFunctions.log2)
    tanh = forward(ElementaryFunctions.tanh)
    erf = forward(ElementaryFunctions.erf)
    sigmoid = forward(ElementaryFunctions.sigmoid)
    sqrt = forward(ElementaryFunctions.sqrt)
    rsqrt = forward(ElementaryFunctions.rsqrt)
    rcp = forward(ElementaryFunctions.rcp)
    sin = forward(ElementaryFunctions.sin)
    cos = forward(ElementaryFunctions.cos)
    elementwise = forward(ElementaryFunctions.elementwise)

    # --- Bitwise operations ---
    and_ = forward(BitwiseOperations.and_)
    or_ = forward(BitwiseOperations.or_)
    xor = forward(BitwiseOperations.xor)
    not_ = forward(BitwiseOperations.not_)
    shl = forward(BitwiseOperations.shl)
    shr = forward(BitwiseOperations.shr)

    # --- Conversions ---
    convert = forward(ConversionOperations.convert)
    view = forward(ConversionOperations.view)
    pack = forward(ConversionOperations.pack)
    unpack = forward(ConversionOperations.unpack)
    unpack_integers = forward(IntegerUnpacking.unpack_integers)
    unpack_floats = forward(FloatUnpacking.unpack_floats)
    unpack_table = forward(FloatUnpacking.unpack_table)
    unpack_nibbles = forward(NibbleUnpacking.unpack_nibbles)
    unpack_nibble_table = forward(NibbleUnpacking.unpack_nibble_table)

    # --- Memory and addresses ---
    shared = forward(KernelMemory.shared)
    dynamic_shared = forward(KernelMemory.dynamic_shared)
    array = forward(KernelMemory.array)
    pointer = forward(KernelMemory.pointer)
    symbol_address = forward(KernelMemory.symbol_address)
    address_add = forward(KernelMemory.address_add)

    load_vector = forward(MemoryVectors.load_vector)
    store_vector = forward(MemoryVectors.store_vector)

    # --- Atomic operations ---
    atomic_add = forward(AtomicOperations.atomic_add)
    atomic_min = forward(AtomicOperations.atomic_min)
    atomic_max = forward(AtomicOperations.atomic_max)
    atomic_and = forward(AtomicOperations.atomic_and)
    atomic_or = forward(AtomicOperations.atomic_or)
    atomic_xor = forward(AtomicOperations.atomic_xor)
    atomic_exchange = forward(AtomicOperations.atomic_exchange)
    atomic_compare_exchange = forward(AtomicOperations.atomic_compare_exchange)

    # --- Reductions ---
    warp_reduce = forward(ThreadReductions.warp_reduce)
    block_reduce = forward(ThreadReductions.block_reduce)

    # --- Control flow ---
    range = forward(ControlFlow.range)
    while_ = forward(ControlFlow.while_)
    break_ = forward(ControlFlow.break_)
    continue_ = forward(ControlFlow.continue_)
    if_ = forward(ControlFlow.if_)
    else_ = forward(ControlFlow.else_)
    ret = forward(ControlFlow.ret)
    branch = forward(ControlFlow.branch)

    # --- Warps and CTAs ---
    barrier = forward(WarpOperations.barrier)
    barrier_arrive = forward(WarpOperations.barrier_arrive)
    syncwarp = forward(WarpOperations.syncwarp)
    cp_async = forward(WarpOperations.cp_async)
    cp_async_commit = forward(WarpOperations.cp_async_commit)
    cp_async_wait = forward(WarpOperations.cp_async_wait)
    ldmatrix = forward(WarpOperations.ldmatrix)
    stmatrix = forward(WarpOperations.stmatrix)
    movmatrix = forward(WarpOperations.movmatrix)
    mma = forward(WarpOperations.mma)
    shfl = forward(WarpOperations.shfl)
    vote = forward(WarpOperations.vote)
    ballot = forward(WarpOperations.ballot)
    activemask = forward(WarpOperations.activemask)

    # --- Mbarriers ---
    mbarrier_init = forward(MbarrierOperations.mbarrier_init)
    fence_mbarrier_init = forward(MbarrierOperations.fence_mbarrier_init)
    mbarrier_arrive = forward(MbarrierOperations.mbarrier_arrive)
    mbarrier_try_wait = forward(MbarrierOperations.mbarrier_try_wait)
    mbarrier_wait = forward(MbarrierOperations.mbarrier_wait)
    cp_async_mbarrier_arrive = forward(MbarrierOperations.cp_async_mbarrier_arrive)

    # --- TMA ---
    tma_load = forward(TmaOperations.tma_load)
    tma_store = forward(TmaOperations.tma_store)
    tma_reduce = forward(TmaOperations.tma_reduce)
    tma_prefetch = forward(TmaOperations.tma_prefetch)
    tma_prefetch_map = forward(TmaOperations.tma_prefetch_map)
    tensor_address = forward(TmaOperations.tensor_address)
    map_address = forward(TmaOperations.map_address)

    # --- Bulk copies ---
    bulk_load = forward(BulkCopies.bulk_load)
    bulk_prefetch = forward(BulkCopies.bulk_prefetch)
    bulk_store = forward(BulkCopies.bulk_store)
    bulk_reduce = forward(BulkCopies.bulk_reduce)
    bulk_commit = forward(BulkCopies.bulk_commit)
    bulk_wait = forward(BulkCopies.bulk_wait)
    fence_async = forward(BulkCopies.fence_async)

    # --- wgmma ---
    wgmma = forward(WgmmaOperations.wgmma)
    wgmma_fence = forward(WgmmaOperations.wgmma_fence)
    wgmma_commit = forward(WgmmaOperations.wgmma_commit)
    wgmma_wait = forward(WgmmaOperations.wgmma_wait)

    # --- Clusters, warpgroups and grids ---
    mapa = forward(ClusterOperations.mapa)
    cluster_arrive = forward(ClusterOperations.cluster_arrive)
    cluster_wait = forward(ClusterOperations.cluster_wait)
    cluster_sync = forward(ClusterOperations.cluster_sync)
    elect = forward(ClusterOperations.elect)
    setmaxnreg = forward(ClusterOperations.setmaxnreg)
    wait_for_prior_grids = forward(ClusterOperations.wait_for_prior_grids)
    launch_dependent_grids = forward(ClusterOperations.launch_dependent_grids)

    # --- Printing and assertions ---
    print = forward(KernelPrinting.print)
    assert_ = forward(KernelPrinting.assert_)

    # --- Tensors ---
    values = forward(TensorElements.values)
    write = forward(TensorElements.write)
    move = forward(TensorElements.move)
    move_bits = forward(TensorElements.move_bits)
    make_rmem_tensor = forward(TensorCopies.make_rmem_tensor)
    make_smem_tensor = forward(TensorCopies.make_smem_tensor)
    copy = forward(TensorCopies.copy)
    fill = forward(TensorOperations.fill)
    clear = forward(TensorOperations.clear)
    transform = forward(TensorOperations.transform)
    axpby = forward(TensorOperations.axpby)
    make_fragment_A = forward(TensorOperations.make_fragment_A)
    make_fragment_B = forward(TensorOperations.make_fragment_B)
    descriptor = forward(TensorOperations.descriptor)
    gemm = forward(TensorOperations.gemm)
