#!/usr/bin/env python3
"""Rates of single products, convolutions and attentions on a GPU, as lines of a target description.

    gpu_rates.py STATOR [--target h200] [--dtype bf16] [--steps 5]

One graph holds every op by itself, over operands of its own; `stator trace` times each kernel inside the
recorded step, where the others sweep the second-level cache. Prints a `rate` line an op, with what the
target predicted, for targets/NAME.target. Each is the least of the steps. The convolutions are ResNet-50's
with a batch of 192 images instead of 256, the products have the rows of the Llamas in bench/ and other
widths: a prediction of those models is no test of models unseen.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

lines, rates = [], {}  # a node's name → what its line begins with


def tensor(dims, dtype):
    name = f"p{len(lines)}"
    shape = ",".join(str(d) for d in dims)
    lines.append(f'%{name} "{name}" = parameter {{dtype={dtype}, shape=[{shape}]}}')
    return f"%{name}"


def node(op, inputs, attrs="", outputs=1, rate=""):
    names = [f"%v{len(lines)}_{i}" for i in range(outputs)]
    called = f"r{len(lines)}"
    lines.append(f"{', '.join(names)} \"{called}\" = {op}({', '.join(inputs)}) {attrs}")
    for name in names:
        lines.append(f'output "{name[1:]}" = {name}')
    rates[called] = (op + (".last" if op.startswith("conv") else ""), rate)
    return names


def products(dtype):
    """A linear layer's three: y = x wᵀ, dx = dy w, dw = dyᵀ x."""
    for m in (16384, 32768):
        for k, n in ((512, 512), (512, 2048), (2048, 512), (1024, 1024), (1024, 3072), (3072, 1024),
                     (1024, 24576)):
            x, w, dy = tensor((m, k), dtype), tensor((n, k), dtype), tensor((m, n), dtype)
            node("matmul", (x, w), "{transpose_b=true}", rate=f"m={m} n={n} k={k}")
            node("matmul", (dy, w), rate=f"m={m} n={k} k={n}")
            node("matmul", (dy, x), "{transpose_a=true}", rate=f"m={n} n={k} k={m}")


def convolutions(dtype, batch):
    for c, o, side, taps, stride in ((64, 64, 56, 1, 1), (64, 256, 56, 1, 1), (256, 64, 56, 1, 1), (256, 128, 56, 1, 1),
                                     (128, 512, 28, 1, 1), (512, 128, 28, 1, 1), (512, 256, 28, 1, 1),
                                     (256, 1024, 14, 1, 1), (1024, 256, 14, 1, 1), (512, 2048, 7, 1, 1),
                                     (2048, 512, 7, 1, 1), (256, 512, 56, 1, 2), (1024, 2048, 14, 1, 2),
                                     (128, 128, 56, 3, 2), (256, 256, 28, 3, 2), (512, 512, 14, 3, 2),
                                     (64, 64, 56, 3, 1), (256, 256, 14, 3, 1)):
        low, out = taps // 2, side // stride
        high = low if stride == 1 else taps // 2
        window = (f"strides=[{stride},{stride}], pads_low=[{low},{low}], pads_high=[{high},{high}], "
                  "dilations=[1,1], channels_last=true")
        x, w = tensor((batch, side, side, c), dtype), tensor((o, taps, taps, c), dtype)
        dy = tensor((batch, out, out, o), dtype)
        rate = f"n={batch} c={c} o={o} p={out * out} i={side * side} r={taps * taps}"
        rate += f" s={stride * stride}" if stride > 1 else ""
        node("conv", (x, w), f"{{{window}}}", rate=rate)
        node("conv_grad_input", (dy, w), f"{{{window}, spatial=[{side},{side}]}}", rate=rate)
        node("conv_grad_weight", (x, dy), f"{{{window}, kernel=[{taps},{taps}]}}", rate=rate)


def attentions(dtype):
    for b, h, g, s, d in ((32, 16, 16, 1024, 64), (8, 16, 4, 2048, 64), (4, 16, 16, 4096, 64),
                          (8, 16, 16, 2048, 128), (2, 32, 8, 8192, 128)):
        q, k, v, do = (tensor((b, s, n, d), dtype) for n in (h, g, g, h))
        attrs = f"{{causal=true, scale={d ** -0.5:.6f}, rows_first=true}}"
        rate = f"b={b} h={h} g={g} m={s} s={s} d={d} e={d}"
        o, lse = node("attention", (q, k, v), attrs, 2, rate)
        node("attention_grad", (do, q, k, v, o, lse), attrs, 3, rate)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("stator")
    p.add_argument("--target", default="h200")
    p.add_argument("--device", default="cuda")
    p.add_argument("--dtype", default="bf16")
    p.add_argument("--steps", default="5")
    p.add_argument("--batch", type=int, default=192)
    a = p.parse_args()
    for part in (products, lambda t: convolutions(t, a.batch), attentions):
        lines.clear()
        rates.clear()
        part(a.dtype)
        with tempfile.TemporaryDirectory() as folder:
            graph, trace = Path(folder, "rates.stator"), Path(folder, "rates.json")
            graph.write_text('graph "rates" {\n' + "\n".join(lines) + "\n}\n")
            done = subprocess.run([a.stator, "trace", graph, "--mode", "eval", "--fusion", "off", "--layout", "off",
                                   "--target", a.target, "--device", a.device, "--steps", a.steps, "-o", trace],
                                  capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            report(json.loads(trace.read_text()), a.dtype, a.device)


def report(trace, dtype, device):
    """The least of the steps' times counts."""
    least, of = {}, {}
    for e in trace["traceEvents"]:
        args = e.get("args", {})
        if args.get("name") not in rates:
            continue
        of.setdefault(args["name"], {}).update(args)
        if e["cat"] == ("planned" if device == "null" else "measured"):
            least[args["name"]] = min(e["dur"], least.get(args["name"], float("inf")))
    missing = [n for n in rates if n not in least]
    if missing:
        sys.exit(f"the trace lacks {len(missing)} of {len(rates)} kernels: {rates[missing[0]]}")
    for called, (op, shape) in rates.items():
        us, flop = least[called], of[called]["flop"]
        print(f"rate {op} {dtype} {shape} gflops={flop / us / 1e3:.0f}"
              f"  # {us:.1f} us, predicted {of[called]['predicted_us']:.1f}", flush=True)


if __name__ == "__main__":
    main()
