#!/usr/bin/env python3
"""Writes the models of test_control.c: NAME.pt2, a torch.export archive, and NAME.safetensors with its
input x, and the loss and the gradients ("grad.PARAMETER") that PyTorch has for it.

The gradients are those of the same steps written out as Python's own loops and branches: that of
PyTorch's scan (2.11) is another where a loop carries two values. The losses of both must agree.

Needs the packages torch (2.11) and safetensors:

    python3 make.py
"""
import json
import pathlib
import zipfile

import torch
from safetensors.torch import save_file
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

HERE = pathlib.Path(__file__).parent


def plain_cond(condition, true, false, operands):
    return true(*operands) if condition else false(*operands)


def plain_scan(step, carried, x, dim, reverse=False):
    stacked = []
    slices = list(x.unbind(dim))
    for piece in reversed(slices) if reverse else slices:
        carried, result = step(carried, piece)
        stacked.append(result)
    if reverse:
        stacked.reverse()
    if isinstance(stacked[0], tuple):
        return carried, tuple(torch.stack(results) for results in zip(*stacked))
    return carried, torch.stack(stacked)


def plain_map(each, pair, scale):
    return tuple(torch.stack(r) for r in zip(*(each(p, scale) for p in zip(*pair))))


def plain_while(test, body, carried):
    while test(*carried):
        carried = body(*carried)
    return carried


class Flow:
    cond, scan, map, while_loop = (staticmethod(f) for f in (torch.cond, scan, map_over, while_loop))


class Plain:
    cond, scan, map, while_loop = (
        staticmethod(f) for f in (plain_cond, plain_scan, plain_map, plain_while))


flow = Flow


def without_origins(value):
    """The same JSON without what says where a line of code stood."""
    if isinstance(value, dict):
        return {k: {} if k == "metadata" else without_origins(v) for k, v in value.items()}
    return [without_origins(v) for v in value] if isinstance(value, list) else value


def rewrite(path):
    with zipfile.ZipFile(path) as archive:
        entries = [(e.filename, archive.read(e)) for e in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            if "/models/" in name:
                data = json.dumps(without_origins(json.loads(data)), separators=(",", ":")).encode()
            if ".data/" in name or name.endswith("sample_inputs/model.pt"):
                continue
            info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)


class Linear(torch.nn.Module):
    def __init__(self, inputs=3, outputs=3):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(outputs, inputs) / 2)
        self.b = torch.nn.Parameter(torch.randn(outputs) / 2)

    def apply_to(self, x):
        return torch.nn.functional.linear(x, self.w, self.b)


class Cond(Linear):
    """Both branches read the parameters; one gives its input's transform, the other only a scale."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        def true(x):
            y = self.apply_to(x)
            return y.sin(), y * 2

        def false(x):
            return x.cos() * self.b, x + 1

        y, z = flow.cond(x.sum() > self.limit, true, false, (x,))
        return (y.square() + z).mean()


class CondInCond(Linear):
    def forward(self, x):
        def inner_true(x):
            return self.apply_to(x).tanh()

        def inner_false(x):
            return x * self.b

        def true(x):
            return flow.cond(x.max() > 100, inner_true, inner_false, (x,)) + x

        def false(x):
            return x.exp()

        return flow.cond(x.sum() > -1e9, true, false, (x,)).square().mean()


class Scan(Linear):
    """A recurrence from the last step to the first; two carried values, two stacked ones."""

    def __init__(self, reverse):
        super().__init__(5, 2)
        self.reverse = reverse

    def forward(self, x):
        def step(carried, x):
            h, total = carried
            h = torch.tanh(self.apply_to(torch.cat([h, x], dim=1)))
            return (h, total + h.square()), (h * 2, x.sin())

        start = (torch.zeros(x.shape[0], 2), torch.ones(x.shape[0], 2))
        (h, total), (ys, sines) = flow.scan(step, start, x, dim=1, reverse=self.reverse)
        weights = torch.arange(1.0, 1.0 + x.shape[1])[:, None, None]
        return (h.sum() + total.sum() + (ys * weights).sum() + (sines * weights).sum()) / 16


class Map(Linear):
    def forward(self, x):
        def each(pair, scale):
            a, b = pair
            return (self.apply_to(a) * b).relu() * scale, a - b

        y, z = flow.map(each, (x, x.cos()), self.b * 2)
        return (y + z * y).mean()


class While(Linear):
    """Counts down by two from seven: four turns."""

    def forward(self, x):
        def test(i, x):
            return i > 0

        def body(i, x):
            return i - 2, torch.tanh(self.apply_to(x)) + x

        _, y = flow.while_loop(test, body, (torch.tensor(7), x))
        return y.square().mean()


class WhileTwice(Linear):
    """Turns that follow from two carried numbers and a constant; and none at all."""

    def forward(self, x):
        def test(i, j, x):
            return torch.logical_and(i < 20, j != 8)

        def body(i, j, x):
            return i + 1, j * 2, x + self.apply_to(x) * 0.25

        one = torch.ones((), dtype=torch.int64)
        _, _, y = flow.while_loop(test, body, (torch.tensor(0), one, x))
        _, _, z = flow.while_loop(test, body, (one * 20, one, x.cos()))
        return (y.square() + z).mean()


class CondInScan(Linear):
    def forward(self, x):
        def step(h, x):
            def true(h, x):
                return torch.tanh(self.apply_to(h)) + x

            def false(h, x):
                return h - x * self.b

            h = flow.cond(x.sum() > 0, true, false, (h, x))
            return h, h * 1

        h, ys = flow.scan(step, torch.zeros(3), x, dim=0)
        return (h.sum() + ys.square().sum()) / 8


def write(name, module, x):
    path = HERE / f"{name}.pt2"
    exported = torch.export.export(module, (x,))
    torch.export.save(exported, path)
    rewrite(path)
    global flow
    own = module(x).item()
    flow = Plain
    loss = module(x)
    loss.backward()
    flow = Flow
    assert abs(own - loss.item()) <= 1e-5 * abs(own), (name, own, loss.item())
    tensors = {"x": x, "loss": loss.detach()}
    for key, parameter in module.named_parameters():
        grad = parameter.grad  # None: in no branch that was taken
        tensors["grad." + key] = torch.zeros_like(parameter) if grad is None else grad
    save_file({k: v.contiguous() for k, v in tensors.items()}, HERE / f"{name}.safetensors")


torch.manual_seed(3)
write("cond_true", Cond(-1e9), torch.randn(4, 3))
write("cond_false", Cond(1e9), torch.randn(4, 3))
write("cond_in_cond", CondInCond(), torch.randn(4, 3))
write("scan", Scan(False), torch.randn(4, 5, 3))
write("scan_reverse", Scan(True), torch.randn(4, 5, 3))
write("map", Map(), torch.randn(4, 3))
write("cond_in_scan", CondInScan(), torch.randn(6, 3))
write("while", While(), torch.randn(4, 3))
write("while_twice", WhileTwice(), torch.randn(4, 3))
