"""The loss curve of a Llama in PyTorch on one GPU, bf16 by autocast over float32 weights: the peer of
gpu_curve.sh.

    llama_curve_torch.py prepare CONFIG TOKENS FOLDER   writes FOLDER/weights.safetensors (float32, normal
                                                        with deviation 0.02, norms one) and batches.safetensors
    llama_curve_torch.py train CONFIG FOLDER STEPS      trains from them, one loss a line
    llama_curve_torch.py compare LOSSES LOG             mean absolute difference of the two curves

TOKENS is a token shard of `stator import`. A batch is 32 windows of 1024 tokens, taken in order and again
from the start when they end. AdamW(0.9, 0.95), decay 0.1, clipping at 1.0, 20 steps of warm-up to 6e-4.
Needs torch, numpy and safetensors.
"""
import json
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

BATCH, SEQ, RATE, WARMUP = 32, 1024, 6e-4, 20


def shapes(c):
    h, ff, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = h // c["num_attention_heads"] * c["num_key_value_heads"]
    out = {"model.embed_tokens.weight": (v, h), "model.norm.weight": (h,), "lm_head.weight": (v, h)}
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        out |= {at + "input_layernorm.weight": (h,), at + "post_attention_layernorm.weight": (h,),
                at + "self_attn.q_proj.weight": (h, h), at + "self_attn.k_proj.weight": (kv, h),
                at + "self_attn.v_proj.weight": (kv, h), at + "self_attn.o_proj.weight": (h, h),
                at + "mlp.gate_proj.weight": (ff, h), at + "mlp.up_proj.weight": (ff, h),
                at + "mlp.down_proj.weight": (h, ff)}
    return out


def prepare(config, tokens, folder):
    torch.manual_seed(0)
    weights = {n: torch.ones(s) if len(s) == 1 else torch.randn(s) * 0.02 for n, s in shapes(config).items()}
    save_file(weights, f"{folder}/weights.safetensors")
    head = np.fromfile(tokens, dtype=np.uint32, count=4)
    ids = np.fromfile(tokens, dtype={2: np.uint16, 4: np.uint32}[int(head[3])], offset=64).astype(np.int64)
    n = (len(ids) - 1) // (BATCH * SEQ)
    batches = {}
    for b in range(n):
        at = b * BATCH * SEQ
        batches[f"x.{b}"] = torch.from_numpy(ids[at:at + BATCH * SEQ].reshape(BATCH, SEQ).copy())
        batches[f"y.{b}"] = torch.from_numpy(ids[at + 1:at + 1 + BATCH * SEQ].reshape(BATCH, SEQ).copy())
    save_file(batches, f"{folder}/batches.safetensors")


def forward(w, c, x, y, cos, sin):
    heads, kv_heads, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    norm = lambda h, n: F.rms_norm(h.float(), (h.shape[-1],), w[n], eps)

    def rotate(t):
        a, b = t.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(t.dtype)

    h = F.embedding(x, w["model.embed_tokens.weight"])
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        z = norm(h, at + "input_layernorm.weight")
        split = lambda name, n: F.linear(z, w[at + f"self_attn.{name}.weight"]).view(*x.shape, n, -1).transpose(1, 2)
        q, k, v = rotate(split("q_proj", heads)), rotate(split("k_proj", kv_heads)), split("v_proj", kv_heads)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
        h = h + F.linear(o.transpose(1, 2).reshape(*x.shape, -1), w[at + "self_attn.o_proj.weight"])
        z = norm(h, at + "post_attention_layernorm.weight")
        m = F.silu(F.linear(z, w[at + "mlp.gate_proj.weight"])) * F.linear(z, w[at + "mlp.up_proj.weight"])
        h = h + F.linear(m, w[at + "mlp.down_proj.weight"])
    logits = F.linear(norm(h, "model.norm.weight"), w["lm_head.weight"])
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def train(config, folder, steps):
    device = torch.device("cuda")
    w = {n: t.to(device).requires_grad_() for n, t in load_file(f"{folder}/weights.safetensors").items()}
    batches = {n: t.to(device) for n, t in load_file(f"{folder}/batches.safetensors").items()}
    n_batches = len(batches) // 2
    d = config["hidden_size"] // config["num_attention_heads"]
    angle = torch.outer(torch.arange(SEQ, device=device).float(),
                        config["rope_theta"] ** (-torch.arange(0, d, 2, device=device).float() / d))
    cos, sin = angle.cos(), angle.sin()
    optimizer = torch.optim.AdamW(w.values(), lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / WARMUP)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = forward(w, config, batches[f"x.{step % n_batches}"], batches[f"y.{step % n_batches}"], cos, sin)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    print("\n".join(f"{float(x):.6f}" for x in losses))


def compare(losses, log):
    a = [float(x) for x in open(losses)]
    b = [json.loads(x) for x in open(log)]
    b = [x["loss"] for x in b if "loss" in x][:len(a)]
    apart = [abs(x - y) for x, y in zip(a, b)]
    print(json.dumps({"steps": len(apart), "mean_abs": sum(apart) / len(apart), "max_abs": max(apart),
                      "first": [a[0], b[0]], "last": [a[-1], b[-1]]}))


def main():
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "prepare":
        prepare(json.load(open(rest[0])), rest[1], rest[2])
    elif verb == "train":
        train(json.load(open(rest[0])), rest[1], int(rest[2]))
    elif verb == "compare":
        compare(rest[0], rest[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
