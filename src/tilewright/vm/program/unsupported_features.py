"""Features of instructions (``ptx.isa.row``) that no evaluator of the virtual machine provides.

A kernel that contains an instruction with such a feature is refused before launch. When an
evaluator gains the primitives of a feature, remove the feature here. The tests of this module
compare the rows' declarations with the primitives that their meanings use.
"""

from __future__ import annotations

UNSUPPORTED_FEATURES = frozenset({"multimem", "tensor_copy_sm100"})
