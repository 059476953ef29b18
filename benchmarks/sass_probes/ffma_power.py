"""A register-only outer product of 8 × 8 on all SMs: how fast FFMA alone is at the power limit.

A and B hold different random numbers in every thread; each turn is 64 FFMAs, in the order in
which one operand or the other stays.
"""

from __future__ import annotations

from sass_probes.probe_kernel import ENTRY, EXIT, WAIT, assembled
from sass_probes.throughput import _address

A, B, C = 8, 21, 60  # first registers: B and C of a product are in different banks
TURNS = 4  # of the outer product in the loop's body


def kernel(reuse: bool) -> bytes:
    """The loop, as often as the parameter count says."""
    places = (A, 0x10), (A + 4, 0x2010), (B - 1, 0x4010), (B + 3, 0x6010), (B + 7, 0x6810)
    loads = [f"--:-:1:Y:f LDG.E.128 R{r}, desc[UR4][R48.64+{at:#x}]" for r, at in places]
    total = [f"--:-:-:Y:f FADD R{C}, R{C}, R{C + i}" for i in range(1, 64)]
    setup = [
        "--:-:-:Y:f IMAD.SHL.U32 R41, R1, 0x10, RZ", "--:-:-:Y:f MOV R43, c[0x0][0x21c]", WAIT,
        *_address(48, 41), *loads, *[f"--:-:-:Y:f MOV R{C + i}, RZ" for i in range(64)],
        "01:-:-:Y:f MOV R5, c[0x0][0x220]", WAIT,
    ]  # fmt: skip
    order = [(r, c if r % 2 == 0 else 7 - c) for r in range(8) for c in range(8)] * TURNS
    body = []
    for i, (r, c) in enumerate(order):
        following = order[(i + 1) % len(order)]
        mark = ".reuse" if reuse and following[0] == r else ""
        body.append(f"--:-:-:-:1 FFMA R{C + 8 * r + c}, R{A + r}{mark}, R{B + c}, R{C + 8 * r + c}")
    ends = [
        "--:-:-:Y:f IADD3 R5, R5, -0x1, RZ", "--:-:-:Y:f ISETP.NE.AND P1, PT, R5, RZ, PT",
        "--:-:-:Y:f @P1 BRA `(.L_top)", *total,
        WAIT, f"--:1:-:Y:f STG.E desc[UR4][R2.64], R{C}", "01:-:-:Y:f NOP",
    ]  # fmt: skip
    return assembled([*ENTRY, *setup, ".L_top:", *body, *ends, *EXIT])
