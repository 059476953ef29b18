"""Matrix instructions as LLVM IR, with the bits of the hardware."""
