"""One training step of the char-level Llama in PyTorch eager on the CPU: the peer of bench/char_llama.sh.

Prints one JSON line: version, threads, BLAS, its own sgemm rate at 2048^3, median step time. The model is
the one of examples/llama/char.json: RMSNorm, rotary positions, grouped heads through
scaled_dot_product_attention, gated SiLU, AdamW. Only torch is needed.
"""
import argparse
import json
import re
import statistics
import time

import torch
import torch.nn.functional as F

WIDTH, FFN, LAYERS, HEADS, KV_HEADS, SYMBOLS = 128, 344, 4, 4, 2, 63
HEAD = WIDTH // HEADS


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.norm1, self.norm2 = torch.nn.RMSNorm(WIDTH, eps=1e-5), torch.nn.RMSNorm(WIDTH, eps=1e-5)
        self.q, self.k = linear(WIDTH, WIDTH), linear(WIDTH, KV_HEADS * HEAD)
        self.v, self.o = linear(WIDTH, KV_HEADS * HEAD), linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = linear(WIDTH, FFN), linear(WIDTH, FFN), linear(FFN, WIDTH)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, h, cos, sin):
        n, t, _ = h.shape
        x = self.norm1(h)
        q = self.rotate(self.q(x).view(n, t, HEADS, HEAD).transpose(1, 2), cos, sin)
        k = self.rotate(self.k(x).view(n, t, KV_HEADS, HEAD).transpose(1, 2), cos, sin)
        v = self.v(x).view(n, t, KV_HEADS, HEAD).transpose(1, 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        h = h + self.o(a.transpose(1, 2).reshape(n, t, WIDTH))
        x = self.norm2(h)
        return h + self.down(F.silu(self.gate(x)) * self.up(x))


class Llama(torch.nn.Module):
    def __init__(self, seq):
        super().__init__()
        self.embed = torch.nn.Embedding(SYMBOLS, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = torch.nn.Linear(WIDTH, SYMBOLS, bias=False)
        angle = torch.outer(torch.arange(seq), 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x, y):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h, self.cos, self.sin)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.view(-1, SYMBOLS), y.view(-1))


def sgemm_rate(n=2048, rounds=5):
    a, b = torch.randn(n, n), torch.randn(n, n)
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2 * n**3 / statistics.median(times[1:]) / 1e9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = Llama(args.seq)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ids = torch.randint(SYMBOLS, (args.batch, args.seq + 1))
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append((time.perf_counter() - start) * 1e3)
    warm = sorted(times[5:])
    config = torch.__config__.show()
    blas = re.findall(r"BLAS_INFO=(\w+)", config) + re.findall(r"Math Kernel Library Version \S+", config)
    print(json.dumps({
        "stack": "pytorch eager", "version": torch.__version__, "threads": torch.get_num_threads(),
        "blas": ", ".join(blas), "parameters": sum(p.numel() for p in model.parameters()),
        "sgemm_gflops": round(sgemm_rate(), 1), "step_ms_median": round(statistics.median(warm), 2),
        "step_ms_min": round(warm[0], 2)}))


if __name__ == "__main__":
    main()
