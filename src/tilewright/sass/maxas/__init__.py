"""maxas, the assembler of sm_5x by Scott Gray, in Python: its file format and its commands.

    kernel = assemble_maxas(encoding_table(52), text)
    cubin = insert_kernel(CubinFile.parse(data), kernel)

The same format, allocator and scheduler serve sm_80 and sm_90a. Programs in a file are Python;
whoever assembles a file runs them.
"""

from .cubin_kernels import CodingTest, check_encodings, extract_kernel, insert_kernel, list_kernels
from .maxas_assembler import AssembledKernel, assemble_maxas, preprocess
from .new_cubin import new_cubin
from .preprocessor import folder_loader
from .sass_dump import SassDump

__all__ = [
    "assemble_maxas", "AssembledKernel", "preprocess", "folder_loader",
    "list_kernels", "extract_kernel", "insert_kernel", "check_encodings", "CodingTest",
    "SassDump", "new_cubin",
]  # fmt: skip
