/* The spellings (spellings.h). Sources are named in the rows: torch (ATen core decompositions), hf
 * (transformers through torch.export), onnx (its exporters), tf (tf2onnx), jax. */
#include "spellings.h"

#define G(body) "graph \"g\" {\n" body "}\n"

/* x and what the result y is weighted with, so that no gradient is trivial */
#define X "%x x = parameter {dtype=f64, shape=[2,3,8]}\n"
#define SUM(y)                                              \
    "%r r = input {dtype=f64, shape=[2,3,8]}\n%ry = mul(" y \
    ", %r)\n"                                               \
    "%loss = reduce_sum(%ry) {axes=[0,1,2]}\noutput \"loss\" = %loss\n"
#define W "%w w = parameter {dtype=f64, shape=[8]}\n"
#define BIAS "%b b = parameter {dtype=f64, shape=[8]}\n"
#define NUM(name, value) "%" name " = constant {dtype=f64, shape=[], data=" value "}\n"
#define EPS NUM("eps", "1e-05")
#define RMS_STAT \
    "%sq = square(%x)\n%ms = reduce_mean(%sq) {axes=[2], keep=true}\n%mse = add(%ms, %eps)\n"
#define MEAN "%u = reduce_mean(%x) {axes=[2], keep=true}\n"
#define VAR                                     \
    MEAN "%d = sub(%x, %u)\n%sq = square(%d)\n" \
         "%v = reduce_mean(%sq) {axes=[2], keep=true}\n%ve = add(%v, %eps)\n"

/* q [2,4,6,8], k and v [2,4,6,8] */
#define QKV                                           \
    "%q q = parameter {dtype=f64, shape=[2,4,6,8]}\n" \
    "%k k = parameter {dtype=f64, shape=[2,4,6,8]}\n" \
    "%v v = parameter {dtype=f64, shape=[2,4,6,8]}\n"
#define SUM4(y)                                               \
    "%r r = input {dtype=f64, shape=[2,4,6,8]}\n%ry = mul(" y \
    ", %r)\n"                                                 \
    "%loss = reduce_sum(%ry) {axes=[0,1,2,3]}\noutput \"loss\" = %loss\n"
#define QK "%kt = transpose(%k) {perm=[0,1,3,2]}\n%qk = matmul(%q, %kt)\n"
#define SOFT(s) "%p = softmax(" s ") {axis=3}\n%y = matmul(%p, %v)\n"
#define SCALED NUM("c", "0.3") "%s = mul(%qk, %c)\n"
#define ROWS                                                                                \
    "%rows = iota {dtype=i64, shape=[6,1], axis=0}\n%keys = iota {dtype=i64, shape=[1,6], " \
    "axis=1}\n"
#define CAUSAL ROWS "%see = le(%keys, %rows)\n"
#define INF NUM("zero", "0") NUM("inf", "-inf")
#define FINITE NUM("zero", "0") NUM("inf", "-3.4028234663852886e+38")
#define ADDITIVE "%mask = select(%see, %zero, %inf)\n"

/* x [2,4,6,8] and tables from positions 0 … 5 and 4 frequencies */
#define X4 "%x x = parameter {dtype=f64, shape=[2,4,6,8]}\n"
#define ANGLES                                       \
    "%pos = iota {dtype=f64, shape=[6,1], axis=0}\n" \
    "%freq = constant {dtype=f64, shape=[4], data=[1,0.5,0.1,0.01]}\n%angle = mul(%pos, %freq)\n"
#define WIDE                                                                        \
    ANGLES                                                                          \
    "%both = concat(%angle, %angle) {axis=1}\n%c0 = cos(%both)\n%s0 = sin(%both)\n" \
    "%c = reshape(%c0) {shape=[1,1,6,8]}\n%s = reshape(%s0) {shape=[1,1,6,8]}\n"
#define NARROW ANGLES "%c = cos(%angle)\n%s = sin(%angle)\n"
#define LOW "%lo = slice(%x) {begin=[0,0,0,0], end=[2,4,6,4], step=[1,1,1,1]}\n"
#define HIGH "%hi = slice(%x) {begin=[0,0,0,4], end=[2,4,6,8], step=[1,1,1,1]}\n"
#define EVEN "%lo = slice(%x) {begin=[0,0,0,0], end=[2,4,6,8], step=[1,1,1,2]}\n"
#define ODD "%hi = slice(%x) {begin=[0,0,0,1], end=[2,4,6,8], step=[1,1,1,2]}\n"
#define TURN "%nh = neg(%hi)\n%turn = concat(%nh, %lo) {axis=3}\n"
#define ROTATE "%xc = mul(%x, %c)\n%ts = mul(%turn, %s)\n%y = add(%xc, %ts)\n"
#define HALVES                                                      \
    "%lc = mul(%lo, %c)\n%hs = mul(%hi, %s)\n%re = sub(%lc, %hs)\n" \
    "%hc = mul(%hi, %c)\n%ls = mul(%lo, %s)\n%im = add(%hc, %ls)\n"

/* logits [5,3], labels [5] */
#define LOGITS "%x x = parameter {dtype=f64, shape=[5,3]}\n%y y = input {dtype=i64, shape=[5]}\n"
#define LOGP LOGITS "%lp = log_softmax(%x) {axis=1}\n"
#define PICK(index) "%i = reshape(" index ") {shape=[5,1]}\n%g = gather_along(%lp, %i) {axis=1}\n"

const spelling_t spellings[] = {
    /* ---- RMS norm ---- */
    {"rms: hf",
     G(X W EPS RMS_STAT "%i = rsqrt(%mse)\n%n = mul(%x, %i)\n%y = mul(%w, %n)\n" SUM("%y")),
     "rms_norm", "rsqrt", "{eps=1e-05}", 0},
    {"rms: onnx, sqrt and reciprocal",
     G(X W EPS RMS_STAT
       "%s = sqrt(%mse)\n%i = reciprocal(%s)\n%n = mul(%x, %i)\n%y = mul(%n, %w)\n" SUM("%y")),
     "rms_norm", "sqrt", NULL, 0},
    {"rms: onnx, division by the root",
     G(X W EPS RMS_STAT "%s = sqrt(%mse)\n%n = div(%x, %s)\n%y = mul(%n, %w)\n" SUM("%y")),
     "rms_norm", "div", NULL, 0},
    {"rms: one over the root",
     G(X W EPS NUM("one", "1") RMS_STAT
       "%s = sqrt(%mse)\n%i = div(%one, %s)\n%n = mul(%x, %i)\n%y = mul(%n, %w)\n" SUM("%y")),
     "rms_norm", "div", NULL, 0},
    {"rms: pow for both",
     G(X W EPS NUM("two", "2")
           NUM("half", "-0.5") "%sq = pow(%x, %two)\n%ms = reduce_mean(%sq) {axes=[2], keep=true}\n"
                               "%mse = add(%ms, %eps)\n%i = pow(%mse, %half)\n%n = mul(%x, %i)\n%y "
                               "= mul(%n, %w)\n" SUM("%y")),
     "rms_norm", "pow", NULL, 0},
    {"rms: a sum over the count, kept by a reshape",
     G(X W EPS NUM("count",
                   "8") "%sq = mul(%x, %x)\n%t = reduce_sum(%sq) {axes=[2]}\n%m = div(%t, %count)\n"
                        "%mk = reshape(%m) {shape=[2,3,1]}\n%mse = add(%mk, %eps)\n%i = "
                        "rsqrt(%mse)\n%n = mul(%x, %i)\n%y = mul(%n, %w)\n" SUM("%y")),
     "rms_norm", "rsqrt", NULL, 0},
    {"rms: weight on the statistic",
     G(X W EPS RMS_STAT "%i = rsqrt(%mse)\n%iw = mul(%i, %w)\n%y = mul(%x, %iw)\n" SUM("%y")),
     "rms_norm", "rsqrt", NULL, 0},
    {"rms: one plus weight",
     G(X W EPS NUM("one", "1") RMS_STAT
       "%i = rsqrt(%mse)\n%n = mul(%x, %i)\n%w1 = add(%w, %one)\n%y = mul(%n, %w1)\n" SUM("%y")),
     "rms_norm", "rsqrt", NULL, 0},
    {"rms: no weight", G(X EPS RMS_STAT "%i = rsqrt(%mse)\n%y = mul(%x, %i)\n" SUM("%y")),
     "rms_norm", "rsqrt", NULL, 0},
    {"rms: the root mean square of another value",
     G(X W EPS "%e = exp(%x)\n%sq = square(%e)\n%ms = reduce_mean(%sq) {axes=[2], keep=true}\n%mse "
               "= add(%ms, %eps)\n"
               "%i = rsqrt(%mse)\n%n = mul(%x, %i)\n%y = mul(%n, %w)\n" SUM("%y")),
     NULL, NULL, NULL, 0},
    {"rms: over another dim",
     G(X W EPS
       "%sq = square(%x)\n%ms = reduce_mean(%sq) {axes=[1], keep=true}\n%mse = add(%ms, %eps)\n"
       "%i = rsqrt(%mse)\n%n = mul(%x, %i)\n%y = mul(%n, %w)\n" SUM("%y")),
     NULL, NULL, NULL, 0},
    {"rms: a sum without its count",
     G(X W EPS
       "%sq = square(%x)\n%ms = reduce_sum(%sq) {axes=[2], keep=true}\n%mse = add(%ms, %eps)\n"
       "%i = rsqrt(%mse)\n%n = mul(%x, %i)\n%y = mul(%n, %w)\n" SUM("%y")),
     NULL, NULL, NULL, 0},
    {"rms: a sum over another count",
     G(X W EPS NUM(
         "count",
         "7") "%sq = square(%x)\n%t = reduce_sum(%sq) {axes=[2], keep=true}\n%ms = div(%t, "
              "%count)\n"
              "%mse = add(%ms, %eps)\n%i = rsqrt(%mse)\n%n = mul(%x, %i)\n%y = mul(%n, %w)\n" SUM(
                  "%y")),
     NULL, NULL, NULL, 0},
    {"rms: eps that depends on data",
     G(X W "%eps eps = parameter {dtype=f64, shape=[]}\n"
           "%sq = square(%x)\n%ms = reduce_mean(%sq) {axes=[2], keep=true}\n"
           "%e2 = square(%eps)\n%mse = add(%ms, %e2)\n%i = rsqrt(%mse)\n%n = mul(%x, %i)\n%y = "
           "mul(%n, %w)\n" SUM("%y")),
     NULL, NULL, NULL, 0},

    /* ---- layer norm ---- */
    {"layer: onnx opset 9",
     G(X W BIAS EPS VAR
       "%s = sqrt(%ve)\n%n = div(%d, %s)\n%nw = mul(%n, %w)\n%y = add(%nw, %b)\n" SUM("%y")),
     "layer_norm", "sqrt", NULL, 0},
    {"layer: torch",
     G(X W BIAS EPS VAR
       "%i = rsqrt(%ve)\n%n = mul(%d, %i)\n%nw = mul(%n, %w)\n%y = add(%nw, %b)\n" SUM("%y")),
     "layer_norm", "rsqrt", NULL, 0},
    {"layer: product of deviations",
     G(X W BIAS EPS MEAN
       "%d = sub(%x, %u)\n%sq = mul(%d, %d)\n%v = reduce_mean(%sq) {axes=[2], keep=true}\n%ve = "
       "add(%v, %eps)\n"
       "%i = rsqrt(%ve)\n%n = mul(%d, %i)\n%nw = mul(%w, %n)\n%y = add(%b, %nw)\n" SUM("%y")),
     "layer_norm", "rsqrt", NULL, 0},
    {"layer: mean of squares less squared mean",
     G(X W BIAS EPS MEAN "%d = sub(%x, %u)\n%xx = square(%x)\n%m2 = reduce_mean(%xx) {axes=[2], "
                         "keep=true}\n%uu = square(%u)\n"
                         "%v = sub(%m2, %uu)\n%ve = add(%v, %eps)\n%i = rsqrt(%ve)\n%n = mul(%d, "
                         "%i)\n%nw = mul(%w, %n)\n%y = add(%b, %nw)\n" SUM("%y")),
     "layer_norm", "rsqrt", NULL, 0},
    {"layer: tf, folded like a batch norm",
     G(X W BIAS EPS VAR "%i = rsqrt(%ve)\n%iw = mul(%i, %w)\n%xw = mul(%x, %iw)\n%uw = mul(%u, "
                        "%iw)\n%bu = sub(%b, %uw)\n"
                        "%y = add(%xw, %bu)\n" SUM("%y")),
     "layer_norm", "rsqrt", NULL, 0},
    {"layer: no bias",
     G(X W EPS VAR "%i = rsqrt(%ve)\n%n = mul(%d, %i)\n%y = mul(%n, %w)\n" SUM("%y")), "layer_norm",
     "rsqrt", NULL, 0},
    {"layer: neither weight nor bias", G(X EPS VAR "%i = rsqrt(%ve)\n%y = mul(%d, %i)\n" SUM("%y")),
     "layer_norm", "rsqrt", NULL, 0},
    {"layer: a residual is no bias",
     G(X W EPS VAR
       "%i = rsqrt(%ve)\n%n = mul(%d, %i)\n%nw = mul(%n, %w)\n%y = add(%nw, %x)\n" SUM("%y")),
     "layer_norm", "rsqrt", "add(", 0},
    {"layer: the mean of something else",
     G(X W BIAS EPS "%e = exp(%x)\n%u = reduce_mean(%e) {axes=[2], keep=true}\n%d = sub(%x, "
                    "%u)\n%sq = square(%d)\n"
                    "%v = reduce_mean(%sq) {axes=[2], keep=true}\n%ve = add(%v, %eps)\n%s = "
                    "sqrt(%ve)\n%q = mul(%x, %s)\n%n = div(%q, %s)\n%y = add(%n, %b)\n" SUM("%y")),
     NULL, NULL, NULL, 0},

    /* ---- activations ---- */
    {"gelu: onnx",
     G(X NUM("rt", "1.4142135623730951") NUM("one", "1")
           NUM("half", "0.5") "%a = div(%x, %rt)\n%e = erf(%a)\n%e1 = add(%e, %one)\n%xe = mul(%x, "
                              "%e1)\n%y = mul(%xe, %half)\n" SUM("%y")),
     "gelu", "erf", NULL, 0},
    {"gelu: torch",
     G(X NUM("rt", "0.7071067811865476") NUM("one", "1")
           NUM("half", "0.5") "%h = mul(%x, %half)\n%a = mul(%x, %rt)\n%e = erf(%a)\n%e1 = add(%e, "
                              "%one)\n%y = mul(%h, %e1)\n" SUM("%y")),
     "gelu", "erf", NULL, 0},
    {"gelu: numbers rounded to float32",
     G(X NUM("rt", "0.7071067690849304") NUM("one", "1")
           NUM("half", "0.5") "%h = mul(%x, %half)\n%a = mul(%x, %rt)\n%e = erf(%a)\n%e1 = add(%e, "
                              "%one)\n%y = mul(%h, %e1)\n" SUM("%y")),
     "gelu", "erf", NULL, 1e-7},
    {"gelu: tanh, torch",
     G(X NUM("k", "0.7978845608028654") NUM("c", "0.044715") NUM("one", "1") NUM(
         "half", "0.5") "%h = mul(%x, %half)\n%x2 = mul(%x, %x)\n%x3 = mul(%x2, %x)\n%cx = "
                        "mul(%x3, %c)\n%in = add(%x, %cx)\n%kin = mul(%in, %k)\n"
                        "%t = tanh(%kin)\n%t1 = add(%t, %one)\n%y = mul(%h, %t1)\n" SUM("%y")),
     "gelu", "tanh(", "{tanh=true}", 0},
    {"gelu: tanh, hf",
     G(X NUM("k", "0.7978845608028654") NUM("c", "0.044715") NUM("one", "1") NUM("half", "0.5") NUM(
         "three",
         "3") "%x3 = pow(%x, %three)\n%cx = mul(%x3, %c)\n%in = add(%x, %cx)\n%kin = mul(%in, %k)\n"
              "%t = tanh(%kin)\n%t1 = add(%t, %one)\n%ht = mul(%half, %t1)\n%y = mul(%x, "
              "%ht)\n" SUM("%y")),
     "gelu", "pow", "{tanh=true}", 0},
    {"gelu: another constant",
     G(X NUM("rt", "0.7") NUM("one", "1")
           NUM("half", "0.5") "%h = mul(%x, %half)\n%a = mul(%x, %rt)\n%e = erf(%a)\n%e1 = add(%e, "
                              "%one)\n%y = mul(%h, %e1)\n" SUM("%y")),
     NULL, NULL, NULL, 0},
    {"silu: onnx", G(X "%s = sigmoid(%x)\n%y = mul(%x, %s)\n" SUM("%y")), "silu", "sigmoid", NULL,
     0},
    {"silu: over one plus exp",
     G(X NUM("one",
             "1") "%n = neg(%x)\n%e = exp(%n)\n%e1 = add(%one, %e)\n%y = div(%x, %e1)\n" SUM("%y")),
     "silu", "exp", NULL, 0},
    {"silu: torch",
     G(X NUM("one", "1") "%n = neg(%x)\n%e = exp(%n)\n%e1 = add(%e, %one)\n%s = "
                         "reciprocal(%e1)\n%y = mul(%x, %s)\n" SUM("%y")),
     "silu", "exp", NULL, 0},
    {"sigmoid: one over one plus exp",
     G(X NUM(
         "one",
         "1") "%n = neg(%x)\n%e = exp(%n)\n%e1 = add(%e, %one)\n%y = div(%one, %e1)\n" SUM("%y")),
     "sigmoid", "exp", NULL, 0},
    {"silu: the sigmoid of another value",
     G(X "%e = exp(%x)\n%s = sigmoid(%e)\n%y = mul(%x, %s)\n" SUM("%y")), NULL, NULL, NULL, 0},
    {"silu: the sigmoid is needed too",
     G(X "%s = sigmoid(%x)\n%xs = mul(%x, %s)\n%y = add(%xs, %s)\n" SUM("%y")), NULL, NULL, NULL,
     0},

    /* ---- softmax and loss ---- */
    {"softmax: exp, max, sum",
     G(X "%m = reduce_max(%x) {axes=[1], keep=true}\n%d = sub(%x, %m)\n%e = exp(%d)\n"
         "%t = reduce_sum(%e) {axes=[1], keep=true}\n%y = div(%e, %t)\n" SUM("%y")),
     "softmax", "exp", "{axis=1}", 0},
    {"softmax: times the reciprocal",
     G(X "%m = reduce_max(%x) {axes=[2], keep=true}\n%d = sub(%x, %m)\n%e = exp(%d)\n"
         "%t = reduce_sum(%e) {axes=[2], keep=true}\n%i = reciprocal(%t)\n%y = mul(%e, %i)\n" SUM(
             "%y")),
     "softmax", "exp", "{axis=2}", 0},
    {"softmax: the sum of another axis",
     G(X "%m = reduce_max(%x) {axes=[2], keep=true}\n%d = sub(%x, %m)\n%e = exp(%d)\n"
         "%t = reduce_sum(%e) {axes=[1], keep=true}\n%y = div(%e, %t)\n" SUM("%y")),
     NULL, NULL, NULL, 0},
    {"log-softmax: torch",
     G(X "%m = reduce_max(%x) {axes=[2], keep=true}\n%d = sub(%x, %m)\n%e = exp(%d)\n"
         "%t = reduce_sum(%e) {axes=[2], keep=true}\n%l = log(%t)\n%y = sub(%d, %l)\n" SUM("%y")),
     "log_softmax", "exp", "{axis=2}", 0},
    {"log-softmax: less logsumexp",
     G(X "%m = reduce_max(%x) {axes=[2], keep=true}\n%d = sub(%x, %m)\n%e = exp(%d)\n"
         "%t = reduce_sum(%e) {axes=[2], keep=true}\n%l = log(%t)\n%lse = add(%l, %m)\n%y = "
         "sub(%x, %lse)\n" SUM("%y")),
     "log_softmax", "exp", NULL, 0},
    {"log-softmax: the log of softmax overflows elsewhere",
     G(X "%p = softmax(%x) {axis=2}\n%y = log(%p)\n" SUM("%y")), NULL, NULL, NULL, 0},
    {"nll: mean of all rows",
     G(LOGP PICK(
         "%y") "%n = neg(%g)\n%loss = reduce_mean(%n) {axes=[0,1]}\noutput \"loss\" = %loss\n"),
     "cross_entropy", "gather_along", NULL, 0},
    {"nll: negated at the end",
     G(LOGP PICK("%y") "%f = reshape(%g) {shape=[5]}\n%m = reduce_mean(%f) {axes=[0]}\n%loss = "
                       "neg(%m)\noutput \"loss\" = %loss\n"),
     "cross_entropy", "gather_along", NULL, 0},
    {"nll: sum of all rows",
     G(LOGP PICK(
         "%y") "%n = neg(%g)\n%loss = reduce_sum(%n) {axes=[0,1]}\noutput \"loss\" = %loss\n"),
     "cross_entropy", "gather_along", "mean=false", 0},
    {"nll: torch, with an index that is ignored",
     G(LOGP
       "%ig = constant {dtype=i64, shape=[], data=1}\n%no = constant {dtype=i64, shape=[], "
       "data=0}\n" NUM("zero", "0") "%ok = ne(%y, %ig)\n%safe = select(%ok, %y, %no)\n" PICK(
           "%safe") "%f = reshape(%g) {shape=[5]}\n%n = neg(%f)\n"
                    "%kept = select(%ok, %n, %zero)\n%t = reduce_sum(%kept) {axes=[0]}\n%oki = "
                    "cast(%ok) {dtype=i64}\n%ci = reduce_sum(%oki) {axes=[0]}\n"
                    "%c = cast(%ci) {dtype=f64}\n%loss = div(%t, %c)\noutput \"loss\" = %loss\n"),
     "cross_entropy", "gather_along", "ignore_index=1", 0},
    {"nll: one index is ignored, another is made safe",
     G(LOGP "%ig = constant {dtype=i64, shape=[], data=1}\n%io = constant {dtype=i64, shape=[], "
            "data=2}\n%no = constant {dtype=i64, shape=[], data=0}\n" NUM(
                "zero", "0") "%ok = ne(%y, %ig)\n%ko = ne(%y, %io)\n%safe = select(%ko, %y, "
                             "%no)\n" PICK("%safe") "%f = reshape(%g) {shape=[5]}\n%n = neg(%f)\n"
                                                    "%kept = select(%ok, %n, %zero)\n%loss = "
                                                    "reduce_sum(%kept) {axes=[0]}\noutput \"loss\" "
                                                    "= %loss\n"),
     NULL, NULL, NULL, 0},

    /* ---- rotary embedding ---- */
    {"rope: hf, halves", G(X4 WIDE LOW HIGH TURN ROTATE SUM4("%y")), "rope", "neg", "= rope(", 0},
    {"rope: halves with narrow tables",
     G(X4 NARROW LOW HIGH HALVES "%y = concat(%re, %im) {axis=3}\n" SUM4("%y")), "rope", "sub",
     NULL, 0},
    {"rope: pairs, slices by two",
     G(X4 NARROW EVEN ODD HALVES
       "%r1 = reshape(%re) {shape=[2,4,6,4,1]}\n%i1 = reshape(%im) {shape=[2,4,6,4,1]}\n"
       "%st = concat(%r1, %i1) {axis=4}\n%y = reshape(%st) {shape=[2,4,6,8]}\n" SUM4("%y")),
     "rope", "sub", "interleaved=true", 0},
    {"rope: pairs, as complex numbers",
     G(X4 NARROW
       "%p = reshape(%x) {shape=[2,4,6,4,2]}\n%l5 = slice(%p) {begin=[0,0,0,0,0], end=[2,4,6,4,1], "
       "step=[1,1,1,1,1]}\n"
       "%h5 = slice(%p) {begin=[0,0,0,0,1], end=[2,4,6,4,2], step=[1,1,1,1,1]}\n%lo = reshape(%l5) "
       "{shape=[2,4,6,4]}\n%hi = reshape(%h5) {shape=[2,4,6,4]}\n" HALVES
       "%r1 = reshape(%re) {shape=[2,4,6,4,1]}\n%i1 = reshape(%im) {shape=[2,4,6,4,1]}\n"
       "%st = concat(%r1, %i1) {axis=4}\n%y = reshape(%st) {shape=[2,4,6,8]}\n" SUM4("%y")),
     "rope", "sub", "interleaved=true", 0},
    {"rope: pairs with wide tables",
     G(X4 ANGLES "%a1 = reshape(%angle) {shape=[6,4,1]}\n%ab = concat(%a1, %a1) {axis=2}\n%both = "
                 "reshape(%ab) {shape=[6,8]}\n%c = cos(%both)\n%s = sin(%both)\n" EVEN ODD
                 "%nh = neg(%hi)\n%n1 = reshape(%nh) {shape=[2,4,6,4,1]}\n%l1 = reshape(%lo) "
                 "{shape=[2,4,6,4,1]}\n%st = concat(%n1, %l1) {axis=4}\n"
                 "%turn = reshape(%st) {shape=[2,4,6,8]}\n" ROTATE SUM4("%y")),
     "rope", "neg", "interleaved=true", 0},
    {"rope: rows before heads",
     G(X4 "%pos = iota {dtype=f64, shape=[4,1], axis=0}\n%freq = constant {dtype=f64, shape=[4], "
          "data=[1,0.5,0.1,0.01]}\n%angle = mul(%pos, %freq)\n"
          "%a4 = reshape(%angle) {shape=[1,4,1,4]}\n%c = cos(%a4)\n%s = sin(%a4)\n" LOW HIGH HALVES
          "%y = concat(%re, %im) {axis=3}\n" SUM4("%y")),
     "rope", "sub", "perm=[0,2,1,3]", 0},
    {"rope: positions from a table of the input",
     G(X4 "%pos pos = input {dtype=f64, shape=[6,1]}\n%freq = constant {dtype=f64, shape=[4], "
          "data=[1,0.5,0.1,0.01]}\n%angle = mul(%pos, %freq)\n"
          "%both = concat(%angle, %angle) {axis=1}\n%c = cos(%both)\n%s = sin(%both)\n" LOW HIGH
              TURN ROTATE SUM4("%y")),
     "rope", "neg", NULL, 0},
    {"rope: the halves of the table differ",
     G(X4 ANGLES "%a2 = add(%angle, %freq)\n%both = concat(%angle, %a2) {axis=1}\n%c = "
                 "cos(%both)\n%s = sin(%both)\n" LOW HIGH TURN ROTATE SUM4("%y")),
     NULL, NULL, NULL, 0},
    {"rope: the other half is negated",
     G(X4 WIDE LOW HIGH "%nl = neg(%lo)\n%turn = concat(%nl, %hi) {axis=3}\n" ROTATE SUM4("%y")),
     NULL, NULL, NULL, 0},
    {"rope: positions that depend on the batch",
     G(X4 "%pos pos = input {dtype=f64, shape=[2,1,6,1]}\n%freq = constant {dtype=f64, shape=[4], "
          "data=[1,0.5,0.1,0.01]}\n%angle = mul(%pos, %freq)\n"
          "%both = concat(%angle, %angle) {axis=3}\n%c = cos(%both)\n%s = sin(%both)\n" LOW HIGH
              TURN ROTATE SUM4("%y")),
     NULL, NULL, NULL, 0},
    {"rope: learned tables",
     G(X4 "%a a = parameter {dtype=f64, shape=[6,4]}\n%both = concat(%a, %a) {axis=1}\n%c = "
          "cos(%both)\n%s = sin(%both)\n" LOW HIGH TURN ROTATE SUM4("%y")),
     NULL, NULL, NULL, 0},

    /* ---- attention ---- */
    {"attention: bare", G(QKV QK SOFT("%qk") SUM4("%y")), "attention", "softmax", "{scale=1}", 0},
    {"attention: scaled after", G(QKV QK SCALED SOFT("%s") SUM4("%y")), "attention", "softmax",
     "{scale=0.3}", 0},
    {"attention: divided after",
     G(QKV QK NUM("c", "4") "%s = div(%qk, %c)\n" SOFT("%s") SUM4("%y")), "attention", "softmax",
     "{scale=0.25}", 0},
    {"attention: scaled before, on both",
     G(QKV NUM("c", "0.5") "%qs = mul(%q, %c)\n%kt = transpose(%k) {perm=[0,1,3,2]}\n%ks = "
                           "mul(%kt, %c)\n%qk = matmul(%qs, %ks)\n" SOFT("%qk") SUM4("%y")),
     "attention", "softmax", "{scale=0.25}", 0},
    {"attention: causal, added -inf",
     G(QKV QK SCALED CAUSAL INF ADDITIVE "%sm = add(%s, %mask)\n" SOFT("%sm") SUM4("%y")),
     "attention", "select", "{causal=true, scale=0.3}", 0},
    {"attention: causal, added least number",
     G(QKV QK SCALED CAUSAL FINITE ADDITIVE "%sm = add(%mask, %s)\n" SOFT("%sm") SUM4("%y")),
     "attention", "select", "{causal=true, scale=0.3}", 0},
    {"attention: causal, filled",
     G(QKV QK SCALED CAUSAL NUM("inf", "-1e+09") "%sm = select(%see, %s, %inf)\n" SOFT("%sm")
           SUM4("%y")),
     "attention", "select", "{causal=true, scale=0.3}", 0},
    {"attention: causal, filled where later",
     G(QKV QK SCALED ROWS "%see = gt(%keys, %rows)\n" INF
                          "%sm = select(%see, %inf, %s)\n" SOFT("%sm") SUM4("%y")),
     "attention", "select", "{causal=true, scale=0.3}", 0},
    {"attention: causal before the scale",
     G(QKV QK CAUSAL INF ADDITIVE NUM(
         "c", "0.3") "%sm = add(%qk, %mask)\n%s = mul(%sm, %c)\n" SOFT("%s") SUM4("%y")),
     "attention", "select", "{causal=true, scale=0.3}", 0},
    {"attention: subtracted (1 - mask) * 1e9",
     G(QKV QK SCALED CAUSAL "%f = cast(%see) {dtype=f64}\n" NUM("one", "1")
           NUM("big", "1e+10") "%no = sub(%one, %f)\n%nb = mul(%no, %big)\n"
                               "%sm = sub(%s, %nb)\n" SOFT("%sm") SUM4("%y")),
     "attention", "sub", "{causal=true, scale=0.3}", 0},
    {"attention: sliding window",
     G(QKV QK SCALED CAUSAL INF "%far = sub(%rows, %keys)\n%w = constant {dtype=i64, shape=[], "
                                "data=3}\n%near = lt(%far, %w)\n"
                                "%both = logical_and(%see, %near)\n%mask = select(%both, %zero, "
                                "%inf)\n%sm = add(%s, %mask)\n" SOFT("%sm") SUM4("%y")),
     "attention", "select", "{causal=true, window=3, scale=0.3}", 0},
    {"attention: causal and window as two masks",
     G(QKV QK SCALED CAUSAL INF ADDITIVE
       "%far = sub(%rows, %keys)\n%w = constant {dtype=i64, shape=[], data=2}\n%near = lt(%far, "
       "%w)\n"
       "%s1 = add(%s, %mask)\n%sm = select(%near, %s1, %inf)\n" SOFT("%sm") SUM4("%y")),
     "attention", "select", "{causal=true, window=2, scale=0.3}", 0},
    {"attention: a mask that sees everything goes",
     G(QKV QK SCALED NUM("zero", "0") "%sm = add(%s, %zero)\n" SOFT("%sm") SUM4("%y")), "attention",
     "add", NULL, 0},
    {"attention: causal but for one element",
     G(QKV QK SCALED CAUSAL INF
       "%r2 = constant {dtype=i64, shape=[6,1], data=[0,0,0,1,0,0]}\n%rr = add(%rows, %r2)\n%see2 "
       "= le(%keys, %rr)\n"
       "%mask = select(%see2, %zero, %inf)\n%sm = add(%s, %mask)\n" SOFT("%sm") SUM4("%y")),
     "attention", "softmax", ") {scale=0.3}", 0},
    {"attention: a bias is no mask",
     G(QKV QK SCALED "%i = iota {dtype=f64, shape=[6], axis=0}\n%sm = add(%s, %i)\n" SOFT("%sm")
           SUM4("%y")),
     "attention", "softmax", ") {scale=0.3}", 0},
    {"attention: padding stays as the mask",
     G(QKV QK SCALED FINITE "%see see = input {dtype=bool, shape=[2,1,1,6]}\n" ADDITIVE
                            "%sm = add(%s, %mask)\n" SOFT("%sm") SUM4("%y")),
     "attention", "softmax", ") {scale=0.3}", 0},
    {"attention: padding by a fill that absorbs",
     G(QKV QK SCALED NUM(
         "inf", "-3.4028234663852886e+38") "%see see = input {dtype=bool, shape=[2,1,1,6]}\n%sm = "
                                           "select(%see, %s, %inf)\n" SOFT("%sm") SUM4("%y")),
     "attention", "softmax", NULL, 0},
    {"attention: padding by a fill that does not absorb",
     G(QKV QK SCALED NUM("inf", "-1e+09") "%see see = input {dtype=bool, shape=[2,1,1,6]}\n%sm = "
                                          "select(%see, %s, %inf)\n" SOFT("%sm") SUM4("%y")),
     NULL, NULL, NULL, 0},
    {"attention: causal by -inf and padding",
     G(QKV QK SCALED CAUSAL INF ADDITIVE NUM(
         "least",
         "-3.4028234663852886e+38") "%pad pad = input {dtype=bool, shape=[2,1,1,6]}\n%pm = "
                                    "select(%pad, %zero, %least)\n"
                                    "%s1 = add(%s, %mask)\n%sm = add(%s1, %pm)\n" SOFT("%sm")
                                        SUM4("%y")),
     "attention", "softmax", "{causal=true, scale=0.3}", 0},
    {"attention: causal by a finite number and padding",
     G(QKV QK SCALED CAUSAL FINITE ADDITIVE
       "%pad pad = input {dtype=bool, shape=[2,1,1,6]}\n%pm = select(%pad, %zero, %inf)\n"
       "%s1 = add(%s, %mask)\n%sm = add(%s1, %pm)\n" SOFT("%sm") SUM4("%y")),
     "attention", "softmax", ") {scale=0.3}", 0},
    {"attention: onnx, empty rows to zero",
     G(QKV QK SCALED CAUSAL FINITE ADDITIVE
       "%sm = add(%s, %mask)\n%p = softmax(%sm) {axis=3}\n%nan = ne(%p, %p)\n%pz = select(%nan, "
       "%zero, %p)\n"
       "%y = matmul(%pz, %v)\n" SUM4("%y")),
     "attention", "select", "{causal=true, scale=0.3}", 0},
    {"attention: onnx, keys transposed as one batch",
     G(QKV "%k3 = reshape(%k) {shape=[8,6,8]}\n%t3 = transpose(%k3) {perm=[0,2,1]}\n%kt = "
           "reshape(%t3) {shape=[2,4,8,6]}\n%qk = matmul(%q, %kt)\n" SCALED SOFT("%s") SUM4("%y")),
     "attention", "softmax", "{scale=0.3}", 0},
    {"attention: products over one batch of heads",
     G(QKV "%q3 = reshape(%q) {shape=[8,6,8]}\n%k3 = reshape(%k) {shape=[8,6,8]}\n%v3 = "
           "reshape(%v) {shape=[8,6,8]}\n%t3 = transpose(%k3) {perm=[0,2,1]}\n"
           "%qk3 = matmul(%q3, %t3)\n%qk = reshape(%qk3) {shape=[2,4,6,6]}\n" CAUSAL INF ADDITIVE
           "%sm = add(%qk, %mask)\n%s3 = reshape(%sm) {shape=[8,6,6]}\n"
           "%p = softmax(%s3) {axis=2}\n%y3 = matmul(%p, %v3)\n%y = reshape(%y3) "
           "{shape=[2,4,6,8]}\n" SUM4("%y")),
     "attention", "softmax", "{causal=true, scale=1}", 0},
    {"attention: heads in groups, expanded",
     G("%q q = parameter {dtype=f64, shape=[2,4,6,8]}\n%k0 k0 = parameter {dtype=f64, "
       "shape=[2,2,6,8]}\n%v0 v0 = parameter {dtype=f64, shape=[2,2,6,8]}\n"
       "%k5 = reshape(%k0) {shape=[2,2,1,6,8]}\n%kb = broadcast(%k5) {shape=[2,2,2,6,8]}\n%k = "
       "reshape(%kb) {shape=[2,4,6,8]}\n"
       "%v5 = reshape(%v0) {shape=[2,2,1,6,8]}\n%vb = broadcast(%v5) {shape=[2,2,2,6,8]}\n%v = "
       "reshape(%vb) {shape=[2,4,6,8]}\n" QK SCALED SOFT("%s") SUM4("%y")),
     "attention", "broadcast", "{scale=0.3}", 0},
    {"attention: heads in groups, gathered",
     G("%q q = parameter {dtype=f64, shape=[2,4,6,8]}\n%k0 k0 = parameter {dtype=f64, "
       "shape=[2,2,6,8]}\n%v0 v0 = parameter {dtype=f64, shape=[2,2,6,8]}\n"
       "%h = constant {dtype=i64, shape=[4], data=[0,0,1,1]}\n%k = gather(%k0, %h) {axis=1}\n%v = "
       "gather(%v0, %h) {axis=1}\n" QK SCALED SOFT("%s") SUM4("%y")),
     "attention", "gather", "{scale=0.3}", 0},
    {"attention: heads in another order are no groups",
     G("%q q = parameter {dtype=f64, shape=[2,4,6,8]}\n%k0 k0 = parameter {dtype=f64, "
       "shape=[2,2,6,8]}\n%v0 v0 = parameter {dtype=f64, shape=[2,2,6,8]}\n"
       "%h = constant {dtype=i64, shape=[4], data=[0,1,0,1]}\n%k = gather(%k0, %h) {axis=1}\n%v = "
       "gather(%v0, %h) {axis=1}\n" QK SCALED SOFT("%s") SUM4("%y")),
     "attention", "softmax", "= gather(", 0},
    {"attention: one key head for all",
     G("%q q = parameter {dtype=f64, shape=[2,4,6,8]}\n%k k = parameter {dtype=f64, "
       "shape=[2,1,6,8]}\n%v v = parameter {dtype=f64, shape=[2,1,6,8]}\n" QK SCALED SOFT("%s")
           SUM4("%y")),
     "attention", "softmax", "{scale=0.3}", 0},
    {"attention: a learned bias has a gradient",
     G(QKV QK SCALED
       "%bias bias = parameter {dtype=f64, shape=[1,4,6,6]}\n%sm = add(%s, %bias)\n" SOFT("%sm")
           SUM4("%y")),
     NULL, NULL, NULL, 0},
    {"attention: over queries instead of keys",
     G(QKV QK SCALED "%p = softmax(%s) {axis=2}\n%y = matmul(%p, %v)\n" SUM4("%y")), NULL, NULL,
     NULL, 0},
    {"attention: probabilities are needed too",
     G(QKV QK SCALED SOFT("%s") "%pp = reduce_sum(%p) {axes=[0,1,2,3]}\noutput \"probabilities\" = "
                                "%pp\n" SUM4("%y")),
     NULL, NULL, NULL, 0},
    {"attention: a node with a constant mask",
     G(QKV CAUSAL "%y, %lse = attention(%q, %k, %v, %see) {scale=0.3}\n" SUM4("%y")), "attention",
     "constant", "{causal=true, scale=0.3}", 0},
    {"attention: a node with a factor of two",
     G(QKV NUM("c", "0.25") "%qc = mul(%q, %c)\n%y, %lse = attention(%qc, %k, %v)\n" SUM4("%y")),
     "attention", "constant", "{scale=0.08838834764831843}", 0},
};

const size_t n_spellings = sizeof spellings / sizeof spellings[0];
