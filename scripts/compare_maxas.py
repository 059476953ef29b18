"""Compares our assembler with maxas on its own SGEMM, where a checkout of maxas is at hand.

    python scripts/compare_maxas.py CHECKOUT [--perl]

The preprocessed and the final files must assemble to the recorded words, with and without automatic
reuse; ``--perl`` runs maxas' assembler too, instead of reading the recorded digests. Nothing of
maxas is part of this repository.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tilewright.sass import encoding_table
from tilewright.sass.maxas import AssembledKernel, assemble_maxas

FILES = ("pre_64", "final_64", "pre_128", "final_128")
# SHA-256 of maxas' words (perl 5.36, maxas 54eda7a): (file, automatic reuse)
DIGESTS = {
    ("pre_64", True): "7d0407019bdf6335704003668dd7353865e3f1b30fb5f785951c50f32e0805c3",
    ("pre_64", False): "5a607483f0081b12c9674547c14bc6b2a33a8b192066f6880893421dce3ed142",
    ("final_64", True): "7d0407019bdf6335704003668dd7353865e3f1b30fb5f785951c50f32e0805c3",
    ("final_64", False): "7d0407019bdf6335704003668dd7353865e3f1b30fb5f785951c50f32e0805c3",
    ("pre_128", True): "ba1d236157040316dccb8a45becc17898b3d001bbdf29e9221c1b90ae1d85b7e",
    ("pre_128", False): "86260d528fb422fbe7e0bcb82cf51d7569e32431d904702295252fd963a1d1e6",
    ("final_128", True): "ba1d236157040316dccb8a45becc17898b3d001bbdf29e9221c1b90ae1d85b7e",
    ("final_128", False): "ba1d236157040316dccb8a45becc17898b3d001bbdf29e9221c1b90ae1d85b7e",
}
_PERL = """
use MaxAs::MaxAs;
my ($file, $reuse, $out) = @ARGV;
open my $in, $file or die; local $/; my $text = <$in>;
my $kernel = MaxAs::MaxAs::Assemble($text, ['', '.'], $reuse, 1);
open my $to, ">:raw", $out; print $to pack("Q<*", @{$kernel->{KernelData}}); close $to;
"""


def assembled(checkout: Path, name: str, reuse: bool) -> AssembledKernel:
    """One of maxas' files by our assembler."""
    text = (checkout / "sgemm" / f"sgemm_{name}.sass").read_text(encoding="utf-8")
    return assemble_maxas(encoding_table(52), text, name, automatic_reuse=reuse)


def by_perl(checkout: Path, name: str, reuse: bool) -> bytes:
    """The same file by maxas."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "words")
        file = checkout / "sgemm" / f"sgemm_{name}.sass"
        command = ["perl", "-I", str(checkout / "lib"), "-e", _PERL]
        subprocess.run([*command, str(file), str(int(reuse)), str(out)], check=True)
        return out.read_bytes()


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("checkout", type=Path)
    options.add_argument("--perl", action="store_true", help="run maxas itself")
    given = options.parse_args()
    different = 0
    for name in FILES:
        for reuse in (True, False):
            kernel = assembled(given.checkout, name, reuse)
            same = hashlib.sha256(kernel.code).hexdigest() == DIGESTS[name, reuse]
            if given.perl:
                same &= kernel.code == by_perl(given.checkout, name, reuse)
            different += not same
            print("same     " if same else "DIFFERENT", f"{name:9} reuse {reuse!s:5}",
                  kernel.report().splitlines()[0])  # fmt: skip
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
