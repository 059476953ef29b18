"""The cost model of kernel ``tma``."""
