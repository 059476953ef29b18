"""Machine code (SASS): cubin files and their edits."""

from .code_motion import CodeMotion
from .cubin_edit import with_code
from .cubin_file import CubinFile

__all__ = ["CubinFile", "CodeMotion", "with_code"]
