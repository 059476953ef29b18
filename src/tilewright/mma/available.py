"""Where an instruction is: the PTX versions and targets that have it, and the one taken if not told
which.
"""

from __future__ import annotations

from ..target import Target, parse_version

DEFAULT_ARCH = "sm_90a"

Need = tuple[str, str]  # (".version", ".target"), both the lowest


class Available:
    """Mixed into a row with ``needs``, alternatives of which any one will do, and ``until``, the
    first PTX version that has it no more.
    """

    __slots__ = ()

    needs: tuple[Need, ...]
    until: str

    @property
    def ptx(self) -> str:
        """The first PTX version that has it."""
        return self.needs[0][0]

    @property
    def target(self) -> str:
        """The lowest target that has it."""
        return self.needs[0][1]

    @property
    def wanted(self) -> str:
        """The targets that have it: ``sm_120a or sm_120f``."""
        return " or ".join(target for _, target in self.needs)

    def runs_on(self, arch: Target | str) -> bool:
        """Whether some PTX version has it for this target."""
        found = Target.parse(arch) if isinstance(arch, str) else arch
        return any(found.runs(target) for _, target in self.needs)

    def in_version(self, version: str, arch: Target | str) -> bool:
        """Whether a module of this ``.version`` and ``.target`` may use it."""
        found, given = Target.parse(arch) if isinstance(arch, str) else arch, parse_version(version)
        if self.until and given >= parse_version(self.until):
            return False
        return any(given >= parse_version(p) and found.runs(t) for p, t in self.needs)
