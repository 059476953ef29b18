"""maxas, the assembler of sm_5x by Scott Gray, in Python: its file format and its commands.

    kernel = assemble_maxas(encoding_table(52), text)
    cubin = insert_kernel(CubinFile.parse(data), kernel)

The same format, allocator and scheduler serve sm_80 and sm_90a. Programs in a file are Python;
whoever assembles a file runs them.
"""

from .cubin_kernels import CodingTest, check_encodings, extract_kernel, insert_kernel, list_kernels
from .maxas_assembler import AssembledKernel, assemble_maxas, preprocess
from .preprocessor import folder_loader

__all__ = [
    "assemble_maxas", "AssembledKernel", "preprocess", "folder_loader",
    "list_kernels", "extract_kernel", "insert_kernel", "check_encodings", "CodingTest",
]  # fmt: skip
