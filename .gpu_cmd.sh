cat > /tmp/bits.py <<'P'
import sys, numpy as np, torch, tilewright, ml_dtypes
sys.path.insert(0,"tests/quantization"); sys.path.insert(0,"tests/support"); sys.path.insert(0,"tests")
import test_mixed_input as t
for form,type_,size,config in t.CASES:
    rng=t.SEED(sum(size)); m,n,k=size
    p=t.quantized(rng,n,k,form); x=t.operand(rng,m,k,type_)
    v=tilewright.matmul(x,p.T,out_dtype="f32",device="vm",config=config)
    g=tilewright.matmul(x,p.T,out_dtype="f32",device="cuda",config=config)
    print(form,type_,config,"BITS",np.array_equal(v.view(np.uint32),g.view(np.uint32)),flush=True)
P
timeout 60 python3 /tmp/bits.py 2>&1 | tail -12
B="timeout 50 python3 benchmarks/mixed_input.py"
$B --m 16 --configs "tma:64x16x128:1:12/1x1~ tma:64x16x256:1:8/1x1~ tma:64x16x256:1:12/1x1~ tma:64x16x256:1:12/2x1~ tma:128x16x128:2:10/1x1*2~ tma:128x16x256:2:8/1x1*2~ tma:128x16x256:2:8/2x1*2~"
$B --m 64 --configs "tma:64x64x128:1:8/1x1~ tma:64x64x128:1:8/2x1~ tma:128x64x128:2:6/1x1*2~ tma:64x64x256:1:5/1x1~" 
$B --m 128 --configs "tma:64x128x128:1:5/1x1~ tma:128x64x128:2:7/1x1~ tma:128x64x128:2:7/2x1~ tma:64x128x128:1:5/2x1~"
$B --m 256 --configs "tma:128x128x128:2:4/1x1~ tma:128x128x128:2:4/2x1~ tma:128x128x128:2p:4/2x1~ tma:256x128x128:2:4/1x1*2~"
$B --m 4096 --configs "tma:128x128x128:2:4/2x1~ tma:128x128x128:2p:4/2x1~ tma:256x128x128:2:4/1x1~ tma:256x128x128:2:4/1x2~ tma:256x96x128:2:4/1x1~ tma:128x160x128:2:4/2x1~ tma:128x128x128:2:5/1x2~"
