"""Where an instruction is: the PTX versions and targets that have it, and the one taken if not told
which.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from ..errors import TargetError
from ..target import Target, parse_version

DEFAULT_ARCH = "sm_90a"

Requirement = tuple[str, str]  # (".version", ".target"), both the lowest


class TargetRequirements:
    """Mixed into a row with ``needs``, alternatives of which any one will do, ``until``, the first
    PTX version that has it no more, and ``arch``, the architecture as which it is seen.
    """

    __slots__ = ()

    needs: tuple[Requirement, ...]
    until: str
    arch: str

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
        found = Target.parse(arch)
        return any(found.runs(target) for _, target in self.needs)

    def in_version(self, version: str, arch: Target | str) -> bool:
        """Whether a module of this ``.version`` and ``.target`` may use it."""
        found, given = Target.parse(arch), parse_version(version)
        if self.until and given >= parse_version(self.until):
            return False
        return any(given >= parse_version(p) and found.runs(t) for p, t in self.needs)

    def on(self, arch: Target | str) -> Self:
        """The same as another architecture has it, whether or not that has it."""
        name = Target.parse(arch).name
        return self if name == self.arch else replace(self, arch=name)  # type: ignore[type-var]

    def asked_on(self, arch: Target | str) -> Self:
        """The same on ``arch``, as it is where none is given ("")."""
        if isinstance(arch, str) and not arch:
            return self
        if not self.runs_on(arch):
            raise TargetError(f"{self} needs {self.wanted}, not {arch}")
        return self.on(arch)
