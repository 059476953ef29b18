import torch, tilewright, tilewright.torch as tt, time
F=torch.nn.functional
torch.manual_seed(0)
def r(*s,d=torch.bfloat16): return torch.randn(*s,device="cuda",dtype=d).requires_grad_()
def show(n,f):
    try: print(n,f(),flush=True)
    except Exception as e: print(n,"FAIL",type(e).__name__,str(e)[:500],flush=True)
def err(a,b): return float((a.double()-b.double()).abs().max()/b.double().abs().max())
for d in (torch.bfloat16,torch.float16,torch.float32):
  for act in (None,"gelu","relu"):
    for gated in (False,True):
      if gated and d is torch.float32: continue
      def one():
        x,w,b,g=r(2,128,256,d=d),r(512,256,d=d),r(512,d=d),r(512,256,d=d) if gated else None
        res=r(2,128,512,d=d)
        ins=[t for t in (x,w,b,g,res) if t is not None]
        f=(lambda v:v) if act is None else getattr(F,act)
        outs=[]
        for rep in range(4):
            y=tt.linear(x,w,b,gate=g,activation=act,residual=res)
            dy=torch.ones_like(y)*0.5
            outs.append((y,*torch.autograd.grad(y,ins,dy)))
        same=all(torch.equal(p,q) for o in outs[1:] for p,q in zip(o,outs[0]))
        wide=[t.detach().double().requires_grad_() for t in ins]
        it=iter(wide); X,W,B=next(it),next(it),next(it); G=next(it) if gated else None; R=next(it)
        want=(f(F.linear(X,G))*F.linear(X,W,B) if gated else f(F.linear(X,W,B)))+R
        ref=(want,*torch.autograd.grad(want,wide,torch.ones_like(want)*0.5))
        return same,["%.1e"%err(p,q) for p,q in zip(outs[0],ref)]
      show((str(d)[6:],act,gated),one)
# compile inductor + cuda graphs
x,w,b=r(128,256),r(512,256),r(512)
f=lambda x,w,b: tt.linear(x,w,b,activation="gelu")*2
t=time.time()
c=torch.compile(f,fullgraph=True)
def comp(c):
    y1,y2=f(x,w,b),c(x,w,b)
    g1,g2=(torch.autograd.grad(y.float().sum(),(x,w,b)) for y in (y1,y2))
    return [err(p,q) for p,q in zip((y2,*g2),(y1,*g1))]
show("inductor",lambda:comp(c)); print(time.time()-t)
c2=torch.compile(f,fullgraph=True,mode="reduce-overhead")
def cg():
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        e=comp(c2)
    return e
show("reduce-overhead",cg)
def graph():
    with torch.no_grad():
        y=f(x,w,b); g=torch.cuda.CUDAGraph()
        s=torch.cuda.Stream()
        with torch.cuda.stream(s): f(x,w,b)
        torch.cuda.synchronize()
        with torch.cuda.graph(g): z=f(x,w,b)
        z.zero_(); g.replay(); torch.cuda.synchronize()
        return torch.equal(y,z)
show("graph",graph)
# activation_backward rate, column sums
def ms(f,n=20):
    g=torch.cuda.CUDAGraph(); f(); torch.cuda.synchronize()
    with torch.cuda.graph(g):
        for _ in range(n): f()
    g.replay(); torch.cuda.synchronize()
    ts=[]
    for _ in range(5):
        s,e=torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)
        s.record(); g.replay(); e.record(); torch.cuda.synchronize(); ts.append(s.elapsed_time(e)/n)
    return sorted(ts)[2]*1e3
with torch.no_grad():
    dy,p,q=(torch.randn(8192,14336,device="cuda").bfloat16() for _ in range(3))
    ones=torch.ones(8192,device="cuda").bfloat16()
    out=torch.empty_like(dy)
    def T(n,f): show(n,lambda:"%.0f us"%ms(f))
    T("copy",lambda:out.copy_(dy))
    T("dgelu+bias",lambda:tt.activation_backward(dy,p,activation="gelu",bias=True))
    T("dgelu",lambda:tt.activation_backward(dy,p,activation="gelu"))
    T("dswiglu",lambda:tt.activation_backward(dy,p,q,activation="silu"))
    T("torch gelu_backward",lambda:torch.ops.aten.gelu_backward(dy,p))
    T("torch sum",lambda:dy.sum(0))
    T("ones @ dy",lambda:tilewright.matmul(ones,dy,out_dtype="f32"))
    cc=torch.compile(lambda dy,p:(lambda z:(z,z.float().sum(0)))(torch.ops.aten.gelu_backward(dy,p)))
    T("inductor dgelu+bias",lambda:cc(dy,p))
