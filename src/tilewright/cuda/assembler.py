"""PTX text to machine code, by the fastest assembler that does it justice.

nvJitLink comes first: it starts no process and needs no GPU. Where it is older than the PTX's
``.version`` or the architecture, or newer than the driver, which could not load what it makes, the
driver's linker stands in. Both make code for linking, in which ``setmaxnreg`` is without effect,
and what relied on it spills (there is no option against that), and dynamic shared memory begins
right behind other shared memory, whatever its alignment. PTX that has either is assembled as a
whole program: by the program ``ptxas`` (120 to 400 ms for a GEMM), else by the driver, which does
so when it loads PTX text and keeps the result in a cache of its own, but reports only once. Where
there is neither nvJitLink nor a driver, ``ptxas`` makes the rest, too.
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
_OTHERS_MAY = (  # take what this assembler refused
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

    ``contract=False`` keeps a plain ``mul`` and ``add`` apart, which ptxas otherwise makes an FMA;
    ``lineinfo`` keeps ``.loc`` lines for profilers; ``file`` names the PTX in errors.

    Where only the driver can make a whole program, the cubin is the PTX itself, and what is wrong
    with it is found when it is loaded.

    Raises CudaError with the line of the PTX and the assembler's log in its notes, MissingPackage
    and DeviceError where there is nothing to compile with.
    """
    text = ptx.decode() if isinstance(ptx, bytes) else ptx
    text = text.rstrip("\0")
    arch = arch or target_of(text)
    options = AssemblerOptions(contract, lineinfo, max_registers, file)
    linkers = with_nvjitlink, with_driver, with_ptxas
    first, *others = (with_ptxas, on_load) if _is_whole(text) else linkers
    unsuited: MissingPackage | DeviceError
    try:
        return first(text, arch, options)
    except MissingPackage as error:
        unsuited = error
    except CudaError as error:
        if not _others_may(error):
            raise
        unsuited = error
    last: Exception | None = None
    for other in others:
        try:
            return other(text, arch, options)
        except (MissingPackage, DeviceError) as error:
            missing = isinstance(unsuited, MissingPackage)
            if isinstance(error, CudaError) and (error.location or missing):
                raise
            last = error
    raise unsuited from last


def target_of(ptx: str) -> str:
    """The architecture of the PTX's ``.target``. Raises TargetError where it has none."""
    found = _TARGET.search(ptx)
    if not found:
        raise TargetError("the PTX has no .target line", hint="write .target sm_80, or give arch=")
    return found[1]


def _is_whole(ptx: str) -> bool:
    """Whether it has what only a whole program can have."""
    return "setmaxnreg" in ptx or bool(_ALIGNED.search(ptx) and _SHARED.search(ptx))


def compiler(ptx: str = "") -> str:
    """What ``compile`` tries first for this PTX, with its version, for a cache's key; or nothing.

    Raises DeviceError where $TILEWRIGHT_PTXAS is asked for and can't be used.
    """
    whole = _is_whole(ptx)
    try:
        if whole:
            return str(ptxas.find(_newest()))
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
    """The caller's wishes, in each assembler's own words."""

    contract: bool
    lineinfo: bool
    registers: int | None
    file: str

    def nvjitlink(self, arch: str) -> list[str]:
        words = [f"-arch={arch}", "-verbose"]
        if not self.contract:
            words.append(
                "-Xptxas=--fmad=false"
            )  # -fma=0 only reaches LTO, not PTX (13.5, measured)
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
        known = getattr(cu().CUjit_target, target, None)
        if known is None:
            raise TargetError(
                f"the CUDA driver can't compile for {arch!r}", hint=f"update it, or {INSTALL}"
            )
        words[option.CU_JIT_TARGET] = known
        if self.lineinfo:
            words[option.CU_JIT_GENERATE_LINE_INFO] = 1
        if self.registers is not None:
            words[option.CU_JIT_MAX_REGISTERS] = self.registers
        return words


# --- ptxas --------------------------------------------------------------------------------------


def with_ptxas(ptx: str, arch: str, options: AssemblerOptions) -> Cubin:
    program = ptxas.find(_newest())
    status, code, log = program(ptx, options.ptxas(arch))
    if status:
        raise assembler_error(log, ptx, options.file, code=status, name="PTXAS_REFUSED")
    return Cubin(code, arch, log, str(program))


def _newest() -> int | None:
    """The major version of CUDA that the driver knows; None where there is no driver."""
    try:
        return version()[0]
    except (MissingPackage, DeviceError):
        return None


# --- nvJitLink --------------------------------------------------------------------------------


def _usable_nvjitlink() -> Any:
    """nvJitLink, where the driver can load what it makes, or where there is no driver."""
    module = nvjitlink()
    major, newest = module.version()[0], _newest()
    if newest is not None and major > newest:
        raise MissingPackage(
            f"nvJitLink {major} makes code that the CUDA {newest} driver can't load",
            hint=f"update the driver, or pip install 'cuda-bindings[all]=={newest}.*'",
        )
    return module


def with_nvjitlink(ptx: str, arch: str, options: AssemblerOptions) -> Cubin:
    module = _usable_nvjitlink()
    words = options.nvjitlink(arch)
    try:
        handle = module.create(len(words), words)
    except module.nvJitLinkError as error:
        raise CudaError(
            f"nvJitLink refused {' '.join(words)}: {error}", name=_name(error)
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
            text_of(log), ptx, options.file, code=status, name=_name(error)
        ) from error
    finally:
        module.destroy(handle)
    return Cubin(bytes(code), arch, text_of(log), "nvJitLink {}.{}".format(*module.version()))


def _filled(handle: int, size: Any, fill: Any) -> bytearray:
    """What nvJitLink writes into a buffer of the size that it asks for."""
    buffer = bytearray(size(handle))
    if buffer:
        fill(handle, buffer)
    return buffer


def _name(error: Exception) -> str:
    """``NVJITLINK_ERROR_PTX_COMPILE`` of cuda-bindings' ``ERROR_PTX_COMPILE (4)``."""
    return f"NVJITLINK_{str(error).split(' ')[0]}"


def _others_may(error: CudaError) -> bool:
    """Whether another assembler could take what this one refused."""
    said = f"{error.message} {error.name}"
    return any(words in said for words in _OTHERS_MAY)


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
    """The PTX itself, for the driver to assemble as a whole program when it is loaded."""
    if options != AssemblerOptions(True, False, None, options.file):
        raise MissingPackage("the driver takes no options for PTX that it loads", hint=ptxas.HINT)
    return Cubin(ptx.encode(), arch, "", _driver(whole=True))


def _driver(whole: bool = False) -> str:
    """The driver's assembler, with its version; it makes whole programs when it loads PTX."""
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
