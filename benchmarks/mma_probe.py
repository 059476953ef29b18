"""Every matrix instruction on this GPU against the arithmetic of ``tilewright.mma``, bit by bit.

A one-instruction kernel (load fragments, multiply, store) runs over tiles of every hostile kind.
Prints, for each instruction and kind, how many elements of D differ and the first that does;
``--golden FILE`` keeps a compact sample of what the GPU returned.

    python benchmarks/mma_probe.py [--tiles 512] [--golden tests/data/mma_sm_90a.npz]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from tilewright import cuda, mma
from tilewright.build import trace

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from hostile import KINDS, tiles

KEPT = 8  # tiles of each instruction and kind


def probe_kernel(row: mma.Instruction):
    """One warp for each tile: registers of A, B, C in, of D out, 32-bit words by (tile, lane,
    register).
    """
    counts = {x: row.fragment(x).count for x in "abcd"}

    def probe(k, a, b, c, d):
        index = k.ctaid.x * 32 + k.tid.x
        typed = {"a": "b32", "b": "b32", "c": "f32" if row.c == "f32" else "b32"}
        loaded = []
        for name, pointer in (("a", a), ("b", b), ("c", c)):
            p = pointer.cast(typed[name]) + index * counts[name]
            loaded.append([p[i] for i in range(counts[name])])
        out = k.mma(row, *loaded)
        p = d + index * counts["d"]
        for i, value in enumerate(out):
            p[i] = value.view("b32")

    name = "probe_" + row.opcode.replace(".", "_")
    return trace(probe, name=name, params={x: "ptr b32" for x in "abcd"}, block=32, lines=False)


def run(gpu: cuda.Gpu, row: mma.Instruction, a, b, c) -> np.ndarray:
    """D's bits for tiles A, B, C as this GPU returns them."""
    traced = probe_kernel(row)
    loaded = gpu.load(cuda.compile(traced.ptx, gpu.arch))
    words = [row.fragment(x).registers(m) for x, m in zip("abc", (a, b, c), strict=True)]
    out = np.full((len(a), 32, row.fragment("d").count), 0xDEADBEEF, np.uint32)
    addresses = [gpu.alloc(w.nbytes) for w in (*words, out)]
    for address, w in zip(addresses, (*words, out), strict=True):
        gpu.upload(address, np.ascontiguousarray(w))
    params = np.array(addresses, np.uint64).tobytes()
    gpu.launch(loaded[traced.name], (len(a), 1, 1), (32, 1, 1), params)
    gpu.wait()
    gpu.download(out, addresses[-1])
    for address in addresses:
        gpu.free(address)
    loaded.close()
    return row.fragment("d").matrix(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=512)
    parser.add_argument("--golden", type=Path)
    options = parser.parse_args()
    gpu = cuda.gpu()
    golden, differing = {}, 0
    for row in mma.catalogue(gpu.arch):
        for kind in KINDS:
            a, b, c = tiles(row, kind, options.tiles, seed=1)
            got, want = run(gpu, row, a, b, c), row(a, b, c)
            wrong = np.argwhere(got != want)
            differing += len(wrong)
            print(f"{row.opcode:58s} {kind:24s} {len(wrong):8d} of {got.size} differ")
            for place in wrong[:3]:
                t, i, j = place
                bits = (f"{x[t, i, j]:#010x}" for x in (got, want, c))
                print("    tile {} ({},{}): GPU {}, ours {}, c {}".format(*place, *bits))
                print("    a", [hex(x) for x in a[t, i]])
                print("    b", [hex(x) for x in b[t, :, j]])
            for name, bits in zip("abcd", (a, b, c, got), strict=True):
                golden[f"{row.opcode}/{kind}/{name}"] = bits[:KEPT]
    if options.golden:
        np.savez_compressed(options.golden, **golden)
    print(f"{differing} elements differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
