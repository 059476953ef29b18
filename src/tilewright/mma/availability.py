"""Availability of an instruction: the PTX versions and targets that have it, and the default
architecture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from ..errors import TargetError
from ..target import Target, parse_version

DEFAULT_ARCH = "sm_90a"

Requirement = tuple[str, str]  # (".version", ".target"), both the lowest


class TargetRequirements:
    """Mixin of rows with ``needs`` (alternatives, any of which suffices), ``until`` (the first PTX
    version that no longer has it) and ``arch`` (the architecture whose semantics it has).
    """

    __slots__ = ()

    needs: tuple[Requirement, ...]
    until: str
    arch: str

    @property
    def ptx(self) -> str:
        """The first PTX version that has the instruction."""
        return self.needs[0][0]

    @property
    def target(self) -> str:
        """The lowest target that has the instruction."""
        return self.needs[0][1]

    @property
    def required_targets(self) -> str:
        """The targets that have the instruction: ``sm_120a or sm_120f``."""
        return " or ".join(target for _, target in self.needs)

    def runs_on(self, arch: Target | str) -> bool:
        """Whether some PTX version has the instruction for this target."""
        actual = Target.parse(arch)
        return any(actual.runs(target) for _, target in self.needs)

    def in_version(self, version: str, arch: Target | str) -> bool:
        """Whether a module of this ``.version`` and ``.target`` may use it."""
        target, number = Target.parse(arch), parse_version(version)
        if self.until and number >= parse_version(self.until):
            return False
        return any(number >= parse_version(p) and target.runs(t) for p, t in self.needs)

    def on(self, arch: Target | str) -> Self:
        """The same row with the semantics of ``arch``, whether or not ``arch`` has it."""
        name = Target.parse(arch).name
        return self if name == self.arch else replace(self, arch=name)  # type: ignore[type-var]

    def for_arch(self, arch: Target | str) -> Self:
        """The same row for ``arch``, or unchanged for "". TargetError where ``arch`` lacks it."""
        if isinstance(arch, str) and not arch:
            return self
        if not self.runs_on(arch):
            raise TargetError(f"{self} needs {self.required_targets}, got {arch}")
        return self.on(arch)
