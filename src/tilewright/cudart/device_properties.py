"""Properties of the virtual GPU: ``cudaDeviceAttr`` by number, and ``cudaDeviceProp`` in the
layouts of CUDA 12 and 13.

Texture sizes are 0: the virtual machine has no textures.
"""

from __future__ import annotations

import struct

from ..target import DEFAULT_DEVICE, DEVICES, DeviceSpec, Target

COUNT = 160  # number of attributes
SIZES = (1008, 1032)  # bytes of cudaDeviceProp in CUDA 13 and 12
NAME = 256  # bytes of the name
STATIC_SHARED = 48 << 10  # bytes of shared memory without opt-in

# Offsets in cudaDeviceProp of CUDA 13 and of CUDA 12 (- if absent), and the attribute stored there:
# 4-byte fields, then 8-byte fields.
_WORDS = """
304 304 12, 308 308 10, 320 320 1, 324 324 2, 328 328 3, 332 332 4, 336 336 5, 340 340 6,
344 344 7, 360 360 75, 364 364 76, 384 388 16, 388 396 18, 392 400 19, 560 576 31, 564 580 32,
568 584 33, 572 588 34, 576 592 50, 584 600 40, 588 604 41, 592 612 37, 596 616 38, 604 624 39,
608 628 78, 612 632 79, 616 636 80, 632 648 82, 636 652 83, 652 672 88, 656 676 89, 660 680 90,
668 688 95, 688 712 106, 692 716 109, 704 728 99, 720 744 115, 748 772 120,
- 348 13, - 384 15, - 608 36, - 668 87
"""
_LONGS = """
296 296 8, 312 312 11, 352 352 9, 368 368 14, 376 376 51, 624 640 81, 672 696 97, 696 720 111
"""
_MEMORY = (288, 288)  # offsets of totalGlobalMem


def device_of(target: Target) -> DeviceSpec:
    """The GPU that a machine of this architecture reports to be."""
    known = (d for d in (DEFAULT_DEVICE, *DEVICES.values()) if d.target.number == target.number)
    return next(
        known, DeviceSpec(f"GPU of {target}", target, DEFAULT_DEVICE.sms, DEFAULT_DEVICE.l2)
    )


def attributes(device: DeviceSpec) -> list[int]:
    """The attributes by number; 0 for an unsupported one."""
    limits, target = device.limits, device.target
    cluster = int(limits.cluster > 1)
    known = {
        1: limits.threads_per_block, 2: 1024, 3: 1024, 4: 64,  # block
        5: (1 << 31) - 1, 6: 65535, 7: 65535,  # grid
        8: STATIC_SHARED, 9: 64 << 10, 10: 32, 11: (1 << 31) - 1, 12: limits.registers_per_sm,
        13: 1_980_000, 14: 512, 15: 1, 16: device.sms, 19: 1, 30: 512, 31: 1, 36: 3_201_000,
        37: 6144, 38: device.l2, 39: limits.threads_per_sm, 40: 3, 41: 1, 51: 32,
        75: target.number // 10, 76: target.number % 10, 78: 1, 79: 1, 80: 1,
        81: limits.shared_per_sm, 82: limits.registers_per_sm, 83: 1, 87: 2, 89: 1, 90: 1, 95: 1,
        97: limits.shared_per_block, 99: 1, 106: limits.blocks_per_sm,
        111: limits.shared_reserved, 115: 1, 120: cluster,
    }  # fmt: skip
    return [known.get(number, 0) for number in range(COUNT)]


def properties(device: DeviceSpec, memory: int) -> tuple[bytes, bytes]:
    """``cudaDeviceProp`` of CUDA 13 and of CUDA 12, for a GPU with ``memory`` bytes."""
    values = attributes(device)
    layouts = tuple(bytearray(size) for size in SIZES)
    name = f"{device.name} (tilewright's virtual machine)".encode()[: NAME - 1]
    for layout, at in zip(layouts, _MEMORY, strict=True):
        layout[: len(name)] = name
        struct.pack_into("<Q", layout, at, memory)
    for rows, form in ((_WORDS, "<i"), (_LONGS, "<Q")):
        for row in rows.split(","):
            *offsets, number = row.split()
            for layout, offset in zip(layouts, offsets, strict=True):
                if offset != "-":
                    struct.pack_into(form, layout, int(offset), values[int(number)])
    return bytes(layouts[0]), bytes(layouts[1])
