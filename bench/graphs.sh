#!/bin/sh
# Graphs of ten models to measure plans with, written into a folder: text forms from here, the rest
# from 'stator model'. Usage: graphs.sh STATOR FOLDER
set -eu
stator=$1
cd "$2"

# Three layers.
awk 'BEGIN {
    n = split("784 512 256 10", d, " "); B = 256
    print "graph \"mlp\" {"
    printf "%%x x = input {dtype=f32, shape=[%d,%d]}\n%%y y = input {dtype=i64, shape=[%d]}\n", B, d[1], B
    h = "x"
    for (i = 1; i < n; i++) {
        printf "%%w%d \"fc%d.weight\" = parameter {dtype=f32, shape=[%d,%d]}\n", i, i, d[i], d[i + 1]
        printf "%%b%d \"fc%d.bias\" = parameter {dtype=f32, shape=[%d]}\n", i, i, d[i + 1]
        printf "%%m%d = matmul(%%%s, %%w%d)\n%%a%d = add(%%m%d, %%b%d)\n", i, h, i, i, i, i
        h = "a" i
        if (i < n - 1) { printf "%%r%d = relu(%%a%d)\n", i, i; h = "r" i }
    }
    printf "%%loss, %%total = cross_entropy(%%%s, %%y)\noutput \"loss\" = %%loss\n}\n", h
}' > mlp.stator

# Convolutions with biases and pooling, then fully connected: "conv CHANNELS KERNEL", "pool", "fc
# N".
convolutional() { # name batch channels size layers
    awk -v name="$1" -v B="$2" -v C="$3" -v S="$4" -v layers="$5" 'BEGIN {
        print "graph \"" name "\" {"
        printf "%%x x = input {dtype=f32, shape=[%d,%d,%d,%d]}\n%%y y = input {dtype=i64, shape=[%d]}\n", B, C, S, S, B
        n = split(layers, l, ","); h = "x"; flat = 0
        for (i = 1; i <= n; i++) {
            split(l[i], f, " ")
            if (f[1] == "conv") {
                p = int(f[3] / 2)
                printf "%%w%d \"conv%d.weight\" = parameter {dtype=f32, shape=[%d,%d,%d,%d]}\n", i, i, f[2], C, f[3], f[3]
                printf "%%b%d \"conv%d.bias\" = parameter {dtype=f32, shape=[%d]}\n", i, i, f[2]
                printf "%%c%d = conv(%%%s, %%w%d, %%b%d) {strides=[1,1], pads_low=[%d,%d], pads_high=[%d,%d], dilations=[1,1]}\n", i, h, i, i, p, p, p, p
                printf "%%h%d = relu(%%c%d)\n", i, i
                C = f[2]
            } else if (f[1] == "pool") {
                printf "%%h%d, %%i%d = max_pool(%%%s) {kernel=[2,2], strides=[2,2], pads_low=[0,0], pads_high=[0,0], dilations=[1,1]}\n", i, i, h
                S = S / 2
            } else {
                if (!flat) { flat = C * S * S; printf "%%f%d = reshape(%%%s) {shape=[%d,%d]}\n", i, h, B, flat; h = "f" i }
                printf "%%w%d \"fc%d.weight\" = parameter {dtype=f32, shape=[%d,%d]}\n", i, i, f[2], flat
                printf "%%b%d \"fc%d.bias\" = parameter {dtype=f32, shape=[%d]}\n", i, i, f[2]
                printf "%%m%d = matmul(%%%s, %%w%d) {transpose_b=true}\n%%h%d = add(%%m%d, %%b%d)\n", i, h, i, i, i, i
                flat = f[2]
            }
            h = "h" i
        }
        printf "%%loss, %%total = cross_entropy(%%%s, %%y)\noutput \"loss\" = %%loss\n}\n", h
    }'
}
convolutional lenet 64 1 28 "conv 16 5,pool,conv 32 5,pool,fc 128,fc 10" > lenet.stator
convolutional vgg 16 3 32 "conv 32 3,conv 32 3,pool,conv 64 3,conv 64 3,pool,fc 256,fc 10" > vgg.stator

# GPT-2: learned positions, layer norms, biases, tanh gelu, tied output.
awk 'BEGIN {
    B = 8; T = 128; L = 4; D = 192; H = 6; V = 1000; E = D / H
    print "graph \"gpt\" {"
    printf "%%x x = input {dtype=i32, shape=[%d,%d]}\n%%y y = input {dtype=i32, shape=[%d,%d]}\n", B, T, B, T
    printf "%%wte \"wte.weight\" = parameter {dtype=f32, shape=[%d,%d]}\n%%wpe \"wpe.weight\" = parameter {dtype=f32, shape=[%d,%d]}\n", V, D, T, D
    print "%e = gather(%wte, %x) {axis=0}\n%h = add(%e, %wpe)"
    h = "h"
    for (l = 0; l < L; l++) {
        p = "l" l
        linear(norm(h, p "a"), p "qkv", D, 3 * D)
        for (j = 0; j < 3; j++) {
            printf "%%%ss%d = slice(%%%sqkv) {begin=[0,0,%d], end=[%d,%d,%d], step=[1,1,1]}\n", p, j, p, j * D, B, T, (j + 1) * D
            printf "%%%sr%d = reshape(%%%ss%d) {shape=[%d,%d,%d,%d]}\n%%%st%d = transpose(%%%sr%d) {perm=[0,2,1,3]}\n", p, j, p, j, B, T, H, E, p, j, p, j
        }
        printf "%%%so, %%%slse = attention(%%%st0, %%%st1, %%%st2) {causal=true}\n", p, p, p, p, p
        printf "%%%sback = transpose(%%%so) {perm=[0,2,1,3]}\n%%%sflat = reshape(%%%sback) {shape=[%d,%d,%d]}\n", p, p, p, p, B, T, D
        linear(p "flat", p "proj", D, D)
        printf "%%%sh1 = add(%%%s, %%%sproj)\n", p, h, p
        linear(norm(p "h1", p "b"), p "up", D, 4 * D)
        printf "%%%sg = gelu(%%%sup) {tanh=true}\n", p, p
        linear(p "g", p "down", 4 * D, D)
        printf "%%%sh2 = add(%%%sh1, %%%sdown)\n", p, p, p
        h = p "h2"
    }
    printf "%%logits = matmul(%%%s, %%wte) {transpose_b=true}\n", norm(h, "f")
    printf "%%rows = reshape(%%logits) {shape=[%d,%d]}\n%%labels = reshape(%%y) {shape=[%d]}\n", B * T, V, B * T
    print "%loss, %total = cross_entropy(%rows, %labels)\noutput \"loss\" = %loss\n}"
}
function norm(x, p) {
    printf "%%%sw \"%s.norm.weight\" = parameter {dtype=f32, shape=[%d]}\n%%%sb \"%s.norm.bias\" = parameter {dtype=f32, shape=[%d]}\n", p, p, D, p, p, D
    printf "%%%sn, %%%sm, %%%sv = layer_norm(%%%s, %%%sw, %%%sb)\n", p, p, p, x, p, p
    return p "n"
}
function linear(x, p, from, to) {
    printf "%%%sw \"%s.weight\" = parameter {dtype=f32, shape=[%d,%d]}\n%%%sb \"%s.bias\" = parameter {dtype=f32, shape=[%d]}\n", p, p, from, to, p, p, to
    printf "%%%sm = matmul(%%%s, %%%sw)\n%%%s = add(%%%sm, %%%sb)\n", p, x, p, p, p, p
}' > gpt.stator

# An LSTM over 24 steps, one node a step.
awk 'BEGIN {
    B = 64; T = 24; I = 64; H = 128
    print "graph \"lstm\" {"
    printf "%%x x = input {dtype=f32, shape=[%d,%d,%d]}\n%%y y = input {dtype=i64, shape=[%d]}\n", B, T, I, B
    printf "%%wi \"lstm.weight_ih\" = parameter {dtype=f32, shape=[%d,%d]}\n%%wh \"lstm.weight_hh\" = parameter {dtype=f32, shape=[%d,%d]}\n", I, 4 * H, H, 4 * H
    printf "%%b \"lstm.bias\" = parameter {dtype=f32, shape=[%d]}\n%%wo \"fc.weight\" = parameter {dtype=f32, shape=[%d,10]}\n", 4 * H, H
    printf "%%h_0 = constant {dtype=f32, shape=[%d,%d], data=0}\n%%c_0 = constant {dtype=f32, shape=[%d,%d], data=0}\n", B, H, B, H
    for (t = 0; t < T; t++) {
        n = t + 1
        printf "%%xs%d = slice(%%x) {begin=[0,%d,0], end=[%d,%d,%d], step=[1,1,1]}\n%%xt%d = reshape(%%xs%d) {shape=[%d,%d]}\n", t, t, B, n, I, t, t, B, I
        printf "%%p%d = matmul(%%xt%d, %%wi)\n%%q%d = matmul(%%h_%d, %%wh)\n%%s%d = add(%%p%d, %%q%d)\n%%z%d = add(%%s%d, %%b)\n", t, t, t, t, t, t, t, t, t
        for (g = 0; g < 4; g++) {
            printf "%%g%d_%d = slice(%%z%d) {begin=[0,%d], end=[%d,%d], step=[1,1]}\n", t, g, t, g * H, B, (g + 1) * H
            printf "%%a%d_%d = %s(%%g%d_%d)\n", t, g, g == 2 ? "tanh" : "sigmoid", t, g
        }
        printf "%%fc%d = mul(%%a%d_1, %%c_%d)\n%%ig%d = mul(%%a%d_0, %%a%d_2)\n%%c_%d = add(%%fc%d, %%ig%d)\n", t, t, t, t, t, t, n, t, t
        printf "%%th%d = tanh(%%c_%d)\n%%h_%d = mul(%%a%d_3, %%th%d)\n", t, n, n, t, t
    }
    printf "%%logits = matmul(%%h_%d, %%wo)\n%%loss, %%total = cross_entropy(%%logits, %%y)\noutput \"loss\" = %%loss\n}\n", T
}' > lstm.stator

llama() { # name hidden intermediate layers heads kv vocabulary batch sequence
    printf '{"model_type": "llama", "vocab_size": %d, "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d, "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true}' \
        "$7" "$2" "$3" "$4" "$5" "$6" > "$1.json"
    "$stator" model llama --config "$1.json" --batch "$8" --seq "$9" -o "$1.stator"
}
llama char_llama 128 344 4 4 2 63 16 128
llama stories 64 172 5 8 4 512 8 256
llama wide_llama 512 1376 2 8 8 2000 4 96
"$stator" model resnet --depth 8 --classes 10 --channels 1 --image 28 --batch 64 -o resnet8.stator
"$stator" model resnet --depth 18 --classes 100 --channels 3 --image 64 --batch 4 -o resnet18.stator
