"""NVRTC of CUDA 12.9: the library and headers of the wheels nvidia-cuda-nvrtc-cu12,
nvidia-cuda-runtime-cu12, nvidia-cuda-cccl-cu12 and nvidia-cuda-nvcc-cu12.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path

HEADERS = {  # of C, which NVRTC has not
    "assert.h": "#include <cuda/std/cassert>",
    "stdint.h": "#include <cuda/std/cstdint>\nusing namespace cuda::std;",
    "stdio.h": "",
    "stdlib.h": "",
}
DEFINED = ["-DINFINITY=__int_as_float(0x7f800000)", "-DNAN=__int_as_float(0x7fffffff)"]


def compiled(source: Path, flags: list[str]) -> str:
    """The PTX that NVRTC makes of a source; RuntimeError with what it says against it."""
    wheels = Path(next(iter(find_spec("nvidia").submodule_search_locations)))
    library = ctypes.CDLL(str(wheels / "cuda_nvrtc" / "lib" / "libnvrtc.so.12"))
    includes = [
        f"-I{wheels / part / 'include'}" for part in ("cuda_runtime", "cuda_cccl", "cuda_nvcc")
    ]
    program = ctypes.c_void_p()
    names, texts = _strings(HEADERS), _strings(HEADERS.values())
    text = source.read_text().encode()
    library.nvrtcCreateProgram(
        ctypes.byref(program), text, source.name.encode(), len(HEADERS), texts, names
    )
    options = [*flags, *DEFINED, *includes]
    failed = library.nvrtcCompileProgram(program, len(options), _strings(options))
    what = "ProgramLog" if failed else "PTX"
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    found = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, found)
    if failed:
        raise RuntimeError(found.value.decode())
    return found.value.decode()


def _strings(texts) -> ctypes.Array:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
