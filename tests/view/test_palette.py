"""The eight colours stay apart for every colour vision, and in print; text on them is read.

Colour vision deficiencies as Machado, Oliveira and Fernandes (2009) simulate them, at their full
strength; distances in CIELAB, where 2.3 is just noticed.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tilewright.view.palette import EIGHT

VISION = {
    "all cones": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                 [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900]],
    "print": [[0.2126, 0.7152, 0.0722]] * 3,
}  # fmt: skip
APART = {"print": 3.5}  # else 14
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
          [0.0193339, 0.1191920, 0.9503041]]  # fmt: skip
WHITE = [0.95047, 1.0, 1.08883]


def linear(colours: tuple[str, ...]) -> np.ndarray:
    srgb = np.array([[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in colours]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.clip(rgb, 0, 1) @ np.array(TO_XYZ).T / WHITE
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    x, y, z = f.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


@pytest.mark.parametrize("vision", VISION)
def test_the_eight_are_told_apart(vision: str) -> None:
    seen = lab(linear(EIGHT) @ np.array(VISION[vision]).T)
    nearest = min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))
    assert nearest >= APART.get(vision, 14)


def test_neighbours_differ_most() -> None:
    seen = lab(linear(EIGHT) @ np.array(VISION["print"]).T)
    around = np.linalg.norm(seen - np.roll(seen, 1, axis=0), axis=1)
    assert around.min() >= 5


def test_text_on_them_is_read() -> None:
    luminance = linear(EIGHT) @ [0.2126, 0.7152, 0.0722]
    assert ((luminance + 0.05) / 0.06).min() >= 4.5  # WCAG 2's contrast with #1a1a1a
