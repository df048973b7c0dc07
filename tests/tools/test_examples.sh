# The launch scripts of examples/ on small data: they run through and leave what they promise.
. "$STATOR_SOURCE_DIR/tests/tools/common.sh"
examples=$STATOR_SOURCE_DIR/examples
STATOR=$stator
export STATOR

awk 'BEGIN { for (i = 0; i < 3000; i++) printf "The %d%s", i * 7 % 10, i % 5 ? " " : "\n" }' > text.txt
config() { # vocabulary
    cat > config.json << END
{"model_type": "llama", "vocab_size": $1, "hidden_size": 8, "intermediate_size": 12,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 1024, "hidden_act": "silu"}
END
}

config 15
OUT=llama "$examples/llama/train.sh" 2 config.json text.txt chars 4 16 > out
says out "held-out loss"
[ -s llama/llama.jsonl ] && [ -s llama/checkpoints/model.safetensors ] || fail "a result is missing: $(ls llama)"
answer 2 "$examples/llama/train.sh" 2
says err "train.sh [--OPTION VALUE …] RANKS CONFIG.json"
# a model of few positions gets a sample that fits into them
sed 's/1024/48/' config.json > short.json
OUT=short "$examples/llama/train.sh" 1 short.json text.txt chars 4 16 > out
says out "held-out loss" "The "
# a second run does not take the first one's folder
answer 2 env OUT=short "$examples/llama/train.sh" 1 short.json text.txt chars 4 16
says err "short/checkpoints' has the checkpoints of another run"
# options reach the training: the same numbers on the device that it has anyway, none on one that it
# cannot have
OUT=given "$examples/llama/train.sh" --device cpu --target cpu 2 config.json text.txt chars 4 16 > out
cmp llama/checkpoints/model.safetensors given/checkpoints/model.safetensors
answer 2 env OUT=tape "$examples/llama/train.sh" --device tape 2 config.json text.txt chars 4 16
says err "device 'tape'"

if command -v bible > /dev/null; then
    config 63
    OUT=kjv STEPS=21 "$examples/llama/train_kjv.sh" 2 config.json > out
    says out "vocabulary: 63" "held-out loss" "a sample"
    tail -1 kjv/llama.jsonl > last
    says last '"held_out_loss":' '"seconds":'
    [ "$(wc -c < kjv/kjv.txt)" = 4137850 ] || fail "the text has $(wc -c < kjv/kjv.txt) bytes"
else
    echo "train_kjv.sh is not tested: there is no command 'bible'"
fi

# 16 images of 8 x 8 pixels
{ printf '\000\000\010\003\000\000\000\020\000\000\000\010\000\000\000\010'; head -c 1024 text.txt; } > images
{ printf '\000\000\010\001\000\000\000\020'; printf '\000\001\002\003%.0s' 1 2 3 4; } > labels
cat > small.conf << 'END'
depth=8
classes=4
image=8
batch=4
lr=0.1
warmup=1
mean=0.5
std=0.25
train_images=images
train_labels=labels
test_images=images
test_labels=labels
END
OUT=resnet EPOCHS=2 "$examples/resnet50/train.sh" --fusion on 2 ./small.conf > out
says out accuracy "step 8/8"
answer 2 env OUT=tape "$examples/resnet50/train.sh" --device tape 2 ./small.conf
says err "device 'tape'"
[ -s resnet/resnet.jsonl ] && [ -s resnet/checkpoints/model.safetensors ] || fail "a result is missing: $(ls resnet)"
