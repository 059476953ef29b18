"""Latencies and throughputs measured on the H200: ``tables/sm_90a.timing.tsv``.

``benchmarks/sass_latencies.py --table FILE`` writes it, with our own machine code. A line has a
kind, an instruction, and its cycles:

    fixed R   FFMA R16, R8, R9, R10   alu a=5; fma a=4; …   the least stall before each consumer
    chain     MUFU.EX2 R16, R16       16.77                 from issue to the end of its barrier
    rate      IMAD {d}, R8, R9, R11   0.508                 of an SM for a warp's instruction
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

# The consumers of the table that stand for a group, by register file.
_GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "R": {
        "alu": ("alu a", "alu b", "alu c", "alu setp", "last"), "half": ("fma half",),
        "fma": ("fma a", "fma b", "fma c"), "fma_heavy": ("imad a", "imad b", "imad c"),
        "fp64": ("fp64",), "xu": ("xu",), "memory": ("store", "shuffle", "load address"),
        "tensor": ("tensor a", "tensor b", "tensor c", "tensor f16", "tensor int"),
        "uniform": ("uniform",),
    },
    "P": {
        "guard": ("guard alu", "guard fma", "guard imad", "guard fp64", "guard xu", "guard load",
                  "guard branch"),
        "alu": ("alu", "alu carry", "logic", "p2r"), "fma_heavy": ("imad",),
        "uniform": ("uniform",), "vote": ("vote",),
    },
    "UR": {
        "uniform": ("uniform", "uniform imad"), "alu": ("alu", "alu move"), "fma": ("fma",),
        "fma_heavy": ("imad",), "fp64": ("fp64",), "xu": ("xu",), "memory": ("load address",),
    },
    "UP": {"guard": ("guard uniform", "guard move"), "uniform": ("uniform",), "alu": ("alu",)},
}  # fmt: skip


@dataclass(frozen=True)
class MeasuredTiming:
    """``source`` is the table's first line. ``fixed``: by register file and instruction the least
    stall before each consumer; ``chains`` and ``rates``: cycles by instruction.
    """

    source: str
    fixed: dict[tuple[str, str], dict[str, int]]
    chains: dict[str, float]
    rates: dict[str, float]

    def latency(self, file: str, mnemonic: str, group: str) -> int | None:
        """The most cycles from any of a mnemonic's instructions to a group of consumers; None if
        they were not measured.
        """
        names = _GROUPS.get(file, {}).get(group, ())
        found = [
            cycles[name]
            for (where, text), cycles in self.fixed.items()
            if where == file and mnemonic_of(text) == mnemonic
            for name in names
            if name in cycles
        ]
        return max(found, default=None)

    def chain(self, opcode: str) -> float | None:
        """Cycles from issue to the end of the barrier, of an opcode with its modifiers, else of
        the first measured instruction with its mnemonic.
        """
        exact = {text.split()[0]: cycles for text, cycles in self.chains.items()}
        if opcode in exact:
            return exact[opcode]
        alike = (c for text, c in self.chains.items() if mnemonic_of(text) == mnemonic_of(opcode))
        return next(alike, None)


def mnemonic_of(text: str) -> str:
    """The mnemonic of an instruction or opcode; HFMA2.MMA is one of its own."""
    opcode = text.split()[0]
    return opcode if opcode == "HFMA2.MMA" else opcode.split(".")[0]


@cache
def measured_timing() -> MeasuredTiming:
    """The table of sm_90a."""
    file = files("tilewright.sass").joinpath("tables", "sm_90a.timing.tsv")
    source, *lines = file.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    fixed = {
        (kind.removeprefix("fixed "), text): _cycles(found)
        for kind, text, found in rows
        if kind.startswith("fixed ")
    }
    chains = {text: float(found) for kind, text, found in rows if kind == "chain"}
    rates = {text: float(found) for kind, text, found in rows if kind in ("rate", "mix", "bank")}
    return MeasuredTiming(source.removeprefix("# "), fixed, chains, rates)


def _cycles(text: str) -> dict[str, int]:
    """``alu a=5; fma a=4`` as a dictionary."""
    pairs = (item.rpartition("=") for item in text.split("; ") if item)
    return {name: int(cycles) for name, _, cycles in pairs}
