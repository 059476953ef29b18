"""PTX as compilers and inline assembly write it: everything that is known to trip parsers."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "ptx"
FILES = {path.name: path.read_text() for path in sorted(DATA.glob("*.ptx"))}

HEAD = ".version 8.5\n.target sm_90a, debug\n.address_size 64\n"

WILD = (
    HEAD
    + r"""
// a comment; with { braces
/* and * another
one */
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.extern .func __assertfail(.param .b64 a) .noreturn ;
.extern .shared .align 16 .b8 smem[];
.global .align 1 .b8 $str$17[6] = {104, 101, 0x6CU, 0b11, 017, 0};
.global .align 8 .u64 pointers[3] = {generic($str$17)+2, smem, $str$17+1};
.global .b8 bytes[2] = {0xff(smem), 0xFF00(smem)};
.global .v4 .f32 vector = {1.0, 0f3F800000, 0d3FF0000000000000, -2.5e-3};
.const .s32 nested[2][2] = {{1, -2}, {3}};
.global .u32 scalar = 4*8+1;
.global .attribute(.managed) .align 4 .b32 managed;
.weak .func (.param .b32 out) low(.param .b32 in) ;
.visible .entry wild(
	.param .u64 .ptr .global .align 16 wild_a,
	.param .align 64 .b8 wild_b[128],
	.param .u32 wild_n
)
.maxntid 128, 1, 1
.minnctapersm 2
.reqnctapercluster 2, 1, 1
.explicitcluster
{
	.reg .pred 	%p<4>, %px;
	.reg .b16 	%rs<3>;
	.reg .b32 	%r<10>; .reg .f32 %f<4>;
	.reg .v2 .f32 %v;
	.reg .b64 	%rd<10>;
	.loc	1 19 3
	.loc	2 449 9, function_name $L__info_string0, inlined_at 1 19 3
	.loc 1 20 24                          // file.py:20:24
	mov.b64 %rd1, wild_b;
	ld.param.u32 %r1, [%rd1+-952];
	ld.global.u32 %r2, [ %rd4 + 0 ];
	ld.shared.v2.b32 {%r1, _}, [smem+16];
	mov.f32 %v.x, 0f3F800000; mov.f32 %f1, .5;
	setp.lt.and.s32 %p1|%p2, %r1, -5, !%p3;
	@!%p1 bra $L__BB0_2;
	@ %p2 bra.uni	$L__BB0_2;
	shfl.sync.bfly.b32 	%r58|%p3, %r5, 0x1F, 31, -1;
	{
	.reg .pred p;
	.reg .b32 tmp<2>, q;
LAB_WAIT:
	setp.ne.b32 p, tmp0, q;
	@!p bra LAB_WAIT;
	{ .reg .b32 p; LAB_WAIT: mov.b32 p, tmp1; bra LAB_WAIT; }
	and.pred p, p, !p;
	}
	cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
	[%r1], [%rd1, {%r2, %r3}], [%r4];
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %rd1, %rd2,
%p1, 1, -1, 0, 1;
$L__BB0_2: .pragma "nounroll";
	prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _,
	.param .align 8 .b8 _[16]) .noreturn;
targets: .branchtargets $L__BB0_2, end;
	call.uni (retval0),
	vprintf,
	(
	param0,
	param1
	);
	call (%r1), %rd3, (%r2, 5), prototype_0;
	call low, (%r1) ; call low; call %rd3, prototype_0;
	tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [tex, smp, {%f0, %f1}];
	add .s32 %r1 /* here too */, %r2, (1 << 4) | 3;
	brx.idx %r1, targets;
end:
	brkpt ; ret;
}
.alias low2, low;
	.file	1 "/some/where.cu", 1700000000, 4096
.section	.debug_str
	{
$L__info_string0:
.b8 95,90 // it is } here
.b32 .debug_abbrev
	}
"""
)
