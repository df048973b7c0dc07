#!/usr/bin/env python3
"""Writes the models of test_onnx_control.c: NAME.onnx, and NAME.tensors with inputs and outputs.

The outputs are onnxruntime's, and agree with those of ONNX's own reference evaluator where that one
has the form. Needs the packages onnx, onnxruntime and numpy:

    python3 make.py
"""
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HERE = pathlib.Path(__file__).parent
F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
rng = np.random.default_rng(5)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(",") if inputs else [], outputs.split(","),
                            name=f"{op}_{outputs.split(',')[0]}", **attributes)


def value(name, dtype=F, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(name, nodes, inputs, outputs, constants=()):
    tensors = [numpy_helper.from_array(np.asarray(data), key) for key, data in constants]
    return helper.make_graph(nodes, name, inputs, outputs, tensors)


def write(name, nodes, inputs, outputs, constants=(), feeds=None, opset=17):
    made = helper.make_model(graph(name, nodes, [value(k, t, s) for k, t, s in inputs],
                                   [value(*o) for o in outputs], constants),
                             opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(made)
    if feeds is None:
        feeds = {}
        for key, dtype, shape in inputs:
            feeds[key] = (rng.normal(size=shape).astype(np.float32) if dtype == F
                          else rng.integers(0, 4, size=shape))
    results = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    try:
        again = ReferenceEvaluator(made).run(None, feeds)
    except (RuntimeError, ValueError):  # no directions of Scan, no Loop without condition or turn
        print(name, "by onnxruntime alone")
        again = results
    for a, b in zip(results, again):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in feeds.items()]
    tensors += [numpy_helper.from_array(np.asarray(v), "out." + o[0])
                for o, v in zip(outputs, results)]
    (HERE / f"{name}.onnx").write_bytes(made.SerializeToString())
    (HERE / f"{name}.tensors").write_bytes(
        helper.make_graph([], name, [], [], tensors).SerializeToString())


def f32(*values):
    return np.array(values, np.float32)


# ---- If ----

def branches():
    """Both read the input, each something else of the graph around, and initializers of their own."""
    then = graph("t", [node("MatMul", "x,w", "t0"), node("Add", "t0,tb", "t1")], [],
                 [value("t1")], [("tb", f32(0.5, -1, 2))])
    other = graph("e", [node("Sub", "x,mean", "e0"), node("Relu", "e0", "e1")], [], [value("e1")])
    return then, other


then, other = branches()
for name, limit in (("if_then", -1e9), ("if_else", 1e9)):
    write(name, [node("ReduceMean", "x", "mean", axes=[1], keepdims=1),
                 node("ReduceMax", "x", "most", keepdims=0),
                 node("Greater", "most,limit", "c"),
                 node("If", "c", "y", then_branch=then, else_branch=other),
                 node("Neg", "y", "z")],
          [("x", F, [2, 3])], [("z", F, [2, 3])],
          [("w", rng.normal(size=(3, 3)).astype(np.float32)), ("limit", np.float32(limit))])

# a condition of shapes: one branch is left, and its shape differs from the other's
write("if_known", [node("Shape", "x", "s"), node("Gather", "s,one", "n"),
                   node("Equal", "n,three", "c"),
                   node("If", "c", "y",
                        then_branch=graph("t", [node("Transpose", "x", "t0", perm=[1, 0])], [],
                                          [value("t0")]),
                        else_branch=graph("e", [node("Identity", "x", "e0")], [], [value("e0")])),
                   node("Exp", "y", "z")],
      [("x", F, [2, 3])], [("z", F, [3, 2])], [("one", np.int64(1)), ("three", np.int64(3))])

# an If in an If, whose inner branches read the outermost graph
inner = node("If", "d", "i0", then_branch=graph("it", [node("Mul", "x,x", "i1")], [], [value("i1")]),
             else_branch=graph("ie", [node("Add", "x,a", "i2")], [], [value("i2")]))
write("if_nested", [node("ReduceSum", "x", "sum", keepdims=0), node("Less", "sum,zero", "d"),
                    node("Not", "d", "c"),
                    node("If", "c", "y",
                         then_branch=graph("t", [node("Sin", "x", "a"), inner], [], [value("i0")]),
                         else_branch=graph("e", [node("Cos", "x", "e0")], [], [value("e0")]))],
      [("x", F, [4])], [("y", F, [4])], [("zero", np.float32(0))],
      feeds={"x": f32(1, -0.5, 2, 0.25)})

# ---- Scan ----

cell = [node("MatMul", "h,u", "hu"), node("Add", "hu,xt", "p"), node("Tanh", "p", "hn"),
        node("Mul", "hn,k", "out")]
u = ("u", rng.normal(size=(3, 3)).astype(np.float32))


def scan(name, shape, out_shape, **attributes):
    body = graph("b", cell, [value("h", F, [2, 3]), value("xt", F, [2, 3])],
                 [value("hn", F, [2, 3]), value("out", F, [2, 3])], [("k", np.float32(2))])
    write(name, [node("Scan", "h0,x", "hl,ys", body=body, num_scan_inputs=1, **attributes)],
          [("h0", F, [2, 3]), ("x", F, shape)], [("hl", F, [2, 3]), ("ys", F, out_shape)], [u])


scan("scan", [4, 2, 3], [4, 2, 3])
scan("scan_backward", [4, 2, 3], [4, 2, 3], scan_input_directions=[1], scan_output_directions=[1])
scan("scan_input_backward", [4, 2, 3], [4, 2, 3], scan_input_directions=[1])
scan("scan_output_backward", [4, 2, 3], [4, 2, 3], scan_output_directions=[1])
scan("scan_axes", [2, 4, 3], [2, 3, 4], scan_input_axes=[1], scan_output_axes=[-1])

# two scanned inputs in other directions and along other axes; the body passes one on, and gives one
# of the graph around
body = graph("b", [node("Mul", "a,b", "ab"), node("Add", "s,ab", "sn"), node("Identity", "b", "bb"),
                   node("Identity", "bias", "cc")],
             [value("s", F, [3]), value("a", F, [3]), value("b", F, [3])],
             [value("sn", F, [3]), value("bb", F, [3]), value("cc", F, [3])])
write("scan_two", [node("Scan", "s0,x,y", "sl,bs,cs", body=body, num_scan_inputs=2,
                        scan_input_axes=[0, -1], scan_input_directions=[0, 1],
                        scan_output_directions=[1, 0])],
      [("s0", F, [3]), ("x", F, [4, 3]), ("y", F, [3, 4])],
      [("sl", F, [3]), ("bs", F, [4, 3]), ("cs", F, [4, 3])], [("bias", f32(1, 2, 3))])

# ---- Loop ----


def loop(name, nodes, carried, stacked, start, trip=5, condition=True, constants=(), more=()):
    """The body's condition comes out as 'go'."""
    body = graph("b", nodes, [value("i", I, []), value("c", B, [])] +
                 [value(k, F, s) for k, s in carried],
                 [value("go", B, [])] + [value(k + "n", F, s) for k, s in carried] +
                 [value(k, F, s) for k, s in stacked])
    tensors = [("trip", np.int64(trip))] if trip is not None else []
    if condition is not None:
        tensors.append(("cond", np.bool_(condition)))
    write(name, list(more) + [node("Loop", ",".join(["trip" if trip is not None else "",
                                                     "cond" if condition is not None else ""] +
                                                    [k + "0" for k, _ in carried]),
                                   ",".join([k + "l" for k, _ in carried] + [k + "s" for k, _ in stacked]),
                                   body=body)],
          [("x", F, [3])] + [(k + "0", F, s) for k, s in carried],
          [(k + "l", F, s) for k, s in carried] + [(k + "s", F, [start] + s) for k, s in stacked],
          tensors + list(constants))


by_turn = [node("Cast", "i", "fi", to=F), node("Mul", "fi,x", "ix"), node("Add", "a,ix", "an"),
           node("Sin", "an", "o"), node("Identity", "c", "go")]
loop("loop", by_turn, [("a", [3])], [("o", [3])], 5)
loop("loop_without_condition", by_turn, [("a", [3])], [("o", [3])], 5, condition=None)
loop("loop_of_no_turn", by_turn, [("a", [3])], [("o", [3])], 0, condition=False)
loop("loop_of_one_turn", by_turn[:-1] + [node("Not", "c", "go")], [("a", [3])], [("o", [3])], 1)
loop("loop_true", by_turn[:-1] + [node("Less", "small,large", "go")], [("a", [3])], [("o", [3])], 5,
     constants=[("small", np.int64(1)), ("large", np.int64(2))])
# a trip count out of shapes, and an If by the turn's number in the body
odd = node("If", "odd", "an", then_branch=graph("t", [node("Mul", "a,x", "t0")], [], [value("t0")]),
           else_branch=graph("e", [node("Add", "a,ix", "e0")], [], [value("e0")]))
loop("loop_if", [node("Cast", "i", "fi", to=F), node("Mul", "fi,x", "ix"), node("Mod", "i,two", "m"),
                 node("Equal", "m,onei", "odd"), odd, node("Identity", "c", "go")],
     [("a", [3])], [], 0, trip=4, constants=[("two", np.int64(2)), ("onei", np.int64(1))])
# a Scan in a Loop, over what the outermost graph has
inner_body = graph("sb", [node("Add", "s,r", "sn"), node("Mul", "sn,a", "so")],
                   [value("s", F, [3]), value("r", F, [3])],
                   [value("sn", F, [3]), value("so", F, [3])])
loop("loop_scan", [node("Scan", "a,rows", "an,pieces", body=inner_body, num_scan_inputs=1),
                   node("ReduceSum", "pieces,axis", "o", keepdims=0), node("Identity", "c", "go")],
     [("a", [3])], [("o", [3])], 3, trip=3,
     constants=[("rows", rng.normal(size=(2, 3)).astype(np.float32) / 4),
                ("axis", np.array([0], np.int64))])
