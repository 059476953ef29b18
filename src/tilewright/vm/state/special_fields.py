"""Special registers that are fields of the machine's records.

The others (``%laneid``, lane masks, clocks, ``%tid``) are in ``vm/program/evaluator.py``. Registers
that a real driver fills in (``%pm`` and most of ``%envreg``) are 0. The reserved shared memory
follows a CTA's own, in kernels that read its address.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...native.native_language import Struct
from .records import Cta, LaunchRecord, WarpRecord

AXES = "xyz"
RESERVED = ("begin", "end", "cap", "0", "1")  # %reserved_smem_offset_…


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of the warp's record or of one that it points to (``via``)."""

    record: type[Struct]
    name: str
    via: str = ""
    index: int = 0


_CTA = {"%ctaid": "index", "%clusterid": "cluster_id", "%cluster_ctaid": "cluster_index"}
_LAUNCH = {
    "%nctaid": "grid",
    "%nclusterid": "clusters",
    "%cluster_nctaid": "cluster",
    "%ntid": "block",
}

FIELDS: dict[str, RecordField] = {
    "%warpid": RecordField(WarpRecord, "index"),
    "%smid": RecordField(Cta, "smid", "cta"),
    **{
        f"%reserved_smem_offset_{name}": RecordField(LaunchRecord, "reserved_smem", "launch", i)
        for i, name in enumerate(RESERVED)
    },
    "%dynamic_smem_size": RecordField(LaunchRecord, "dynamic_bytes", "launch"),
    "%total_smem_size": RecordField(LaunchRecord, "total_smem", "launch"),
    "%aggr_smem_size": RecordField(LaunchRecord, "aggregate_smem", "launch"),
    "%nwarpid": RecordField(LaunchRecord, "warp_slots", "launch"),
    "%gridid": RecordField(LaunchRecord, "number", "launch"),
    "%envreg1": RecordField(LaunchRecord, "workspace", "launch", 1),
    "%envreg2": RecordField(LaunchRecord, "workspace", "launch", 0),
    "%nsmid": RecordField(LaunchRecord, "sms", "launch"),
    "%cluster_ctarank": RecordField(Cta, "rank", "cta"),
    "%cluster_nctarank": RecordField(LaunchRecord, "cluster_size", "launch"),
    "%is_explicit_cluster": RecordField(LaunchRecord, "explicit", "launch"),
}
for _i, _axis in enumerate(AXES):
    FIELDS |= {f"{n}.{_axis}": RecordField(Cta, f, "cta", _i) for n, f in _CTA.items()}
    FIELDS |= {
        f"{n}.{_axis}": RecordField(LaunchRecord, f, "launch", _i) for n, f in _LAUNCH.items()
    }

#: Special registers that are the same in all lanes of a warp.
UNIFORM = frozenset(FIELDS)
