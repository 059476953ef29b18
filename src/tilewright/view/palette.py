"""The colours: 32 for lanes, a hue for the quad and a tint for the place in it; eight for the rest.

The eight hues are Okabe and Ito's (2008), which people of every colour vision tell apart, in an
order that puts light and dark ones side by side. All tints are light, so black text on them is
easy to read. Each of the ``EIGHT`` has a lightness of its own, five steps of L* from the next: they
differ in print, and by 14 in CIELAB for people who see no red, no green or no blue.
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
SHARES = (0.54, 0.82, 0.08, 1.0, 0.46, 0.74, 0.58, 0.82)  # of the hues in EIGHT


def _mixed(hue: tuple[int, int, int], share: float) -> str:
    return "#" + "".join(f"{round(255 + (c - 255) * share):02x}" for c in hue)


LANES = tuple(_mixed(hue, share) for hue in HUES for share in TINTS)
EIGHT = tuple(_mixed(hue, share) for hue, share in zip(HUES, SHARES, strict=True))
RANK = {colour: place for place, colour in enumerate((*LANES, *EIGHT))}
