"""A function's directives: what the checker takes and refuses is what ptxas 13.0 says."""

from __future__ import annotations

import pytest

from tilewright.errors import PtxCheckError
from tilewright.ptx import check, parse, print_module, problems

GOOD = """
.reqnctapercluster 2
.reqnctapercluster 2, 1, 1
.reqnctapercluster 0
.reqnctapercluster 100, 100
.maxclusterrank 8
.explicitcluster
.explicitcluster .reqnctapercluster 2
.explicitcluster .maxclusterrank 4
.reqntid 32 .reqnctapercluster 2 .blocksareclusters
.maxntid 0x80 .minnctapersm 2 .maxnreg 64
.reqntid 32 .reqntid 64
""".strip().splitlines()

BAD = {
    ".reqnctapercluster 2, 1, 1, 1": "takes 1 to 3 numbers, got 4",
    ".reqnctapercluster": "takes 1 to 3 numbers, got 0",
    ".reqnctapercluster %r1": "takes numbers, got %r1",
    ".maxclusterrank 8, 1": "takes 1 numbers, got 2",
    ".explicitcluster 1": "takes 0 numbers, got 1",
    ".reqnctapercluster 2 .maxclusterrank 4": "mutually exclusive",
    ".maxntid 128 .reqntid 128": "mutually exclusive",
    ".blocksareclusters": "needs .reqntid and .reqnctapercluster",
    ".reqnctapercluster 2 .blocksareclusters": "needs .reqntid",
    ".maxntid 1, 1, 0": "must be positive, got 0",
    ".minnctapersm 0 .maxntid 128": "must be positive, got 0",
    ".maxnreg 0": "must be positive, got 0",
}


def kernel(text: str, version: str = "9.0", target: str = "sm_90a"):
    head = f".version {version}\n.target {target}\n.address_size 64\n"
    return parse(f"{head}.entry k()\n{text}\n{{ ret; }}\n")


@pytest.mark.parametrize("text", GOOD)
def test_good(text: str) -> None:
    module = kernel(text)
    assert problems(module) == []
    assert parse(print_module(module)) == module


@pytest.mark.parametrize("text", BAD)
def test_bad(text: str) -> None:
    with pytest.raises(PtxCheckError) as caught:
        check(kernel(text))
    assert BAD[text] in caught.value.message
    assert caught.value.location is not None and caught.value.location.line == 5


@pytest.mark.parametrize("text", [".reqnctapercluster 2", ".maxclusterrank 8", ".explicitcluster"])
def test_clusters_need_hopper(text: str) -> None:
    with pytest.raises(PtxCheckError, match=r"needs \.target sm_90"):
        check(kernel(text, target="sm_80"))
    assert problems(kernel(text, "7.8", "sm_90")) == []
