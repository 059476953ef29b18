"""The colour of a lane: a hue for its quad, a tint for its place in the quad.

The eight hues are Okabe and Ito's (2008), which people of every colour vision tell apart, in an
order that puts light and dark ones side by side. All tints are light, so black text on them is
easy to read, and in print each quad still goes from light to dark.
"""

from __future__ import annotations

HUES = (
    (0, 114, 178),  # blue
    (230, 159, 0),  # orange
    (0, 158, 115),  # green
    (204, 121, 167),  # purple
    (86, 180, 233),  # sky
    (213, 94, 0),  # vermilion
    (160, 160, 160),  # grey
    (240, 228, 66),  # yellow
)
TINTS = (0.16, 0.29, 0.42, 0.55)


def _mixed(hue: tuple[int, int, int], share: float) -> str:
    return "#" + "".join(f"{round(255 + (c - 255) * share):02x}" for c in hue)


LANES = tuple(_mixed(hue, share) for hue in HUES for share in TINTS)
