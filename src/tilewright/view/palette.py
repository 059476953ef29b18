"""The colours: 32 for lanes (a hue for the quad, a tint for the lane in it), and eight others.

The eight hues are those of Okabe and Ito (2008), which are distinguishable with any colour vision,
ordered so that light and dark ones alternate. All tints are light, so that black text is readable.
Each of the ``EIGHT`` has a different lightness, at least five L* apart: they differ in grey print,
and by 14 in CIELAB for protanopia, deuteranopia and tritanopia.
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
RANK = {colour: index for index, colour in enumerate((*LANES, *EIGHT))}
