"""The heuristic: the recorded choices, and columns of candidates against single configurations."""

from __future__ import annotations

from gemm_cases.choice_cases import cases, choice, recorded


def test_the_choices_are_the_recorded_ones() -> None:
    """Configuration, estimate and number of candidates of 2,000 random problems."""
    changed = [
        f"{problem} on {device.name}: {line}, was {old}"
        for (problem, device), old in zip(cases(), recorded(), strict=True)
        if (line := choice(problem, device)) != old
    ]
    assert not changed, "\n".join(changed[:20])
