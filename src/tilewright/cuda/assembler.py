"""PTX text to machine code, by the fastest assembler that is correct for it.

nvJitLink is tried first: it starts no process and needs no GPU. The driver's linker is used if
nvJitLink is older than the PTX's ``.version`` or architecture, or newer than the driver, which then
could not load its code. ``ptxas`` is used if there is neither.

Both linkers make relocatable code. In it ``setmaxnreg`` has no effect, so kernels that rely on it
spill (no option prevents that), and dynamic shared memory starts right after static shared memory,
whatever its alignment. PTX that needs either is assembled as a whole program: by ``ptxas`` (120 to
400 ms for a GEMM), else by the driver, which does so when it loads PTX text. The driver caches the
result, and reports only when it assembles.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any

from ..errors import CudaError, DeviceError, MissingPackage, TargetError
from . import ptxas
from .cubin import Cubin, assembler_error, text_of
from .driver import INSTALL, call, cu, error_of, nvjitlink, version
from .gpu import gpu

_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.MULTILINE)
_ALIGNED = re.compile(r"\.extern\s+\.shared\s+\.align\s+(?:32|64|128|256|512|\d{4,})\b")
_SHARED = re.compile(r"(?<!\.extern)\s\.shared\s+\.")
_UNSUPPORTED = (  # in errors of an assembler that is too old or broken: another one may work
    "Unsupported .version", "ERROR_UNRECOGNIZED_ARCH", "ERROR_UNSUPPORTED_ARCH",
    "is not defined for option 'gpu-name'", ptxas.BROKEN,
)  # fmt: skip
_LOG_BYTES = 1 << 16


def compile(
    ptx: str | bytes,
    arch: str | None = None,
    *,
    contract: bool = True,
    lineinfo: bool = False,
    max_registers: int | None = None,
    file: str = "<ptx>",
) -> Cubin:
    """Assemble PTX for ``arch`` (``sm_90a``; None: the PTX's own ``.target``).

    With ``contract=False`` the assembler does not contract ``mul`` and ``add`` without a rounding
    modifier to an FMA. ``lineinfo`` keeps ``.loc`` lines for profilers. ``file`` names the PTX in
    errors.

    If only the driver can assemble a whole program, the cubin holds the PTX, and its errors are
    raised when it is loaded.

    Raises CudaError with the line of the PTX and the assembler's log in its notes; MissingPackage
    or DeviceError if there is no assembler.
    """
    text = ptx.decode() if isinstance(ptx, bytes) else ptx
    text = text.rstrip("\0")
    arch = arch or target_of(text)
    options = AssemblerOptions(contract, lineinfo, max_registers, file)
    linkers = with_nvjitlink, with_driver, with_ptxas
    first, *fallbacks = (with_ptxas, on_load) if _needs_whole_program(text) else linkers
    first_error: MissingPackage | DeviceError
    try:
        return first(text, arch, options)
    except MissingPackage as error:
        first_error = error
    except CudaError as error:
        if not _may_fall_back(error):
            raise
        first_error = error
    last_error: Exception | None = None
    for fallback in fallbacks:
        try:
            return fallback(text, arch, options)
        except (MissingPackage, DeviceError) as error:
            missing = isinstance(first_error, MissingPackage)
            if isinstance(error, CudaError) and (error.location or missing):
                raise
            last_error = error
    raise first_error from last_error


def target_of(ptx: str) -> str:
    """The architecture of the PTX's ``.target``. Raises TargetError if it has none."""
    found = _TARGET.search(ptx)
    if not found:
        raise TargetError(
            "the PTX must have a .target line", hint="write .target sm_80, or pass arch="
        )
    return found[1]


def _needs_whole_program(ptx: str) -> bool:
    """Whether the PTX uses ``setmaxnreg``, or aligned dynamic shared memory after static."""
    return "setmaxnreg" in ptx or bool(_ALIGNED.search(ptx) and _SHARED.search(ptx))


def compiler(ptx: str = "") -> str:
    """Name and version of the assembler that ``compile`` tries first, for cache keys; "" if none.

    Raises DeviceError if $TILEWRIGHT_PTXAS is needed and can't be used.
    """
    whole = _needs_whole_program(ptx)
    try:
        if whole:
            return str(ptxas.find(_driver_major()))
        return "nvJitLink {}.{}".format(*_usable_nvjitlink().version())
    except MissingPackage:
        pass
    try:
        return _driver(whole)
    except (MissingPackage, DeviceError):
        pass
    try:
        return str(ptxas.find(None))
    except MissingPackage:
        return ""


@dataclass(frozen=True, slots=True)
class AssemblerOptions:
    """The options of ``compile``, translated for each assembler."""

    contract: bool
    lineinfo: bool
    registers: int | None
    file: str

    def nvjitlink(self, arch: str) -> list[str]:
        words = [f"-arch={arch}", "-verbose"]
        if not self.contract:
            # -fma=0 affects only LTO, not PTX (measured with 13.5)
            words.append("-Xptxas=--fmad=false")
        if self.lineinfo:
            words.append("-lineinfo")
        if self.registers is not None:
            words.append(f"-maxrregcount={self.registers}")
        return words

    def ptxas(self, arch: str) -> list[str]:
        words = ["-v", "-arch", arch]
        if not self.contract:
            words.append("--fmad=false")
        if self.lineinfo:
            words.append("-lineinfo")
        if self.registers is not None:
            words += ["-maxrregcount", str(self.registers)]
        return words

    def driver(self, arch: str, info: bytearray, error: bytearray) -> dict[Any, Any]:
        option, target = cu().CUjit_option, f"CU_TARGET_COMPUTE_{arch.removeprefix('sm_').upper()}"
        words = {
            option.CU_JIT_INFO_LOG_BUFFER: info,
            option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: len(info),
            option.CU_JIT_ERROR_LOG_BUFFER: error,
            option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: len(error),
            option.CU_JIT_LOG_VERBOSE: 1,
        }
        number = getattr(cu().CUjit_target, target, None)
        if number is None:
            raise TargetError(
                f"the CUDA driver can't compile for {arch!r}",
                hint=f"update the driver, or {INSTALL}",
            )
        words[option.CU_JIT_TARGET] = number
        if self.lineinfo:
            words[option.CU_JIT_GENERATE_LINE_INFO] = 1
        if self.registers is not None:
            words[option.CU_JIT_MAX_REGISTERS] = self.registers
        return words


# --- ptxas --------------------------------------------------------------------------------------


def with_ptxas(ptx: str, arch: str, options: AssemblerOptions) -> Cubin:
    program = ptxas.find(_driver_major())
    status, code, log = program(ptx, options.ptxas(arch))
    if status:
        raise assembler_error(log, ptx, options.file, code=status, name="PTXAS_REFUSED")
    return Cubin(code, arch, log, str(program))


def _driver_major() -> int | None:
    """The major version of CUDA that the driver supports; None without a driver."""
    try:
        return version()[0]
    except (MissingPackage, DeviceError):
        return None


# --- nvJitLink --------------------------------------------------------------------------------


def _usable_nvjitlink() -> Any:
    """nvJitLink. Raises MissingPackage if the driver can't load its code."""
    module = nvjitlink()
    major, driver = module.version()[0], _driver_major()
    if driver is not None and major > driver:
        raise MissingPackage(
            f"nvJitLink {major} makes code that the CUDA {driver} driver can't load",
            hint=f"update the driver, or pip install 'cuda-bindings[all]=={driver}.*'",
        )
    return module


def with_nvjitlink(ptx: str, arch: str, options: AssemblerOptions) -> Cubin:
    module = _usable_nvjitlink()
    words = options.nvjitlink(arch)
    try:
        handle = module.create(len(words), words)
    except module.nvJitLinkError as error:
        raise CudaError(
            f"nvJitLink refused {' '.join(words)}: {error}", name=_error_name(error)
        ) from error
    try:
        data = ptx.encode()
        module.add_data(handle, module.InputType.PTX, data, len(data), options.file)
        module.complete(handle)
        code = _filled(handle, module.get_linked_cubin_size, module.get_linked_cubin)
        log = _filled(handle, module.get_info_log_size, module.get_info_log)
    except module.nvJitLinkError as error:
        log = _filled(handle, module.get_error_log_size, module.get_error_log)
        status = getattr(error, "status", 0)
        raise assembler_error(
            text_of(log), ptx, options.file, code=status, name=_error_name(error)
        ) from error
    finally:
        module.destroy(handle)
    return Cubin(bytes(code), arch, text_of(log), "nvJitLink {}.{}".format(*module.version()))


def _filled(handle: int, size: Any, fill: Any) -> bytearray:
    """The buffer that ``fill`` writes, of the size that ``size`` returns."""
    buffer = bytearray(size(handle))
    if buffer:
        fill(handle, buffer)
    return buffer


def _error_name(error: Exception) -> str:
    """``ERROR_PTX_COMPILE (4)`` of cuda-bindings as ``NVJITLINK_ERROR_PTX_COMPILE``."""
    return f"NVJITLINK_{str(error).split(' ')[0]}"


def _may_fall_back(error: CudaError) -> bool:
    """Whether another assembler may accept the PTX."""
    text = f"{error.message} {error.name}"
    return any(reason in text for reason in _UNSUPPORTED)


# --- the driver -------------------------------------------------------------------------------


def with_driver(ptx: str, arch: str, options: AssemblerOptions) -> Cubin:
    if not options.contract:
        raise MissingPackage("the driver's assembler always contracts mul + add", hint=INSTALL)
    info, errors = bytearray(_LOG_BYTES), bytearray(_LOG_BYTES)
    with gpu().active():
        words = options.driver(arch, info, errors)
        state = call("cuLinkCreate", len(words), list(words), list(words.values()))
        try:
            code = _linked(state, ptx, options.file)
        except CudaError as error:
            if not text_of(errors):
                raise
            log, file = text_of(errors), options.file
            raise assembler_error(log, ptx, file, code=error.code, name=error.name) from error
        finally:
            cu().cuLinkDestroy(state)
    return Cubin(code, arch, text_of(info), _driver())


def on_load(ptx: str, arch: str, options: AssemblerOptions) -> Cubin:
    """The PTX itself, which the driver assembles as a whole program when it is loaded."""
    if options != AssemblerOptions(True, False, None, options.file):
        raise MissingPackage(
            "the driver accepts no options for PTX that it assembles on load", hint=ptxas.HINT
        )
    return Cubin(ptx.encode(), arch, "", _driver(whole=True))


def _driver(whole: bool = False) -> str:
    """Name and version of the driver's assembler; ``whole``: PTX assembled on load."""
    return "driver {}.{}".format(*version()) + (", when loaded" if whole else "")


def _linked(state: Any, ptx: str, file: str) -> bytes:
    data, kind = ptx.encode() + b"\0", cu().CUjitInputType.CU_JIT_INPUT_PTX
    call(
        "cuLinkAddData", state, kind, data, len(data), file.encode(), 0, [], [], doing="assembling"
    )
    status, address, size = cu().cuLinkComplete(state)
    if status:
        raise error_of(cu(), status, "linking")
    return ctypes.string_at(int(address), size)
