"""The mainloops of kernel ``tma``: plain, promoted, with block scales."""
