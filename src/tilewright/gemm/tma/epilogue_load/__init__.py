"""Epilogue load of kernel ``tma``: tensor copies of an epilogue's matrix operands."""
