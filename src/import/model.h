/* Standard models built directly as graphs, with the parameter names of Hugging Face (Llama) and
 * torchvision (ResNet). Inputs: x and, for training, y (already shifted for language models; label
 * −100 is ignored). Outputs: "loss", and "correct" (number of right answers) for ResNet; without a
 * loss "logits". */
#ifndef STATOR_IMPORT_MODEL_H
#define STATOR_IMPORT_MODEL_H

#include "ir/graph.h"

typedef struct model_llama_config {
    int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, max_positions;
    double rms_eps, rope_theta;
    bool tied, attention_bias, mlp_bias;
    int64_t sliding_window; /* keys a query sees; 0: all */
    /* Routed experts in place of the MLP: 0 experts: none. Each token goes to the `routed` experts
     * that its router likes best, weighted by how much. In a sequence an expert takes at most
     * `capacity_factor` times its equal share of tokens, first choices before second ones, each in
     * order; what is over that passes by the residual sum alone. */
    int64_t experts, routed;
    double capacity_factor;
    /* The loss with a term that keeps the routers even: this times experts · sum over experts of
     * the part of all tokens that choose one, times its mean share, over all layers' tokens
     * together. 0: none. */
    double balance;
    /* rope_scaling of type "llama3"; factor 0: none */
    double rope_factor, rope_low_freq, rope_high_freq, rope_original_positions;
} model_llama_config_t;

/* Reads a Hugging Face config.json. FAILs naming the key on missing, mistyped or unsupported
 * entries. */
st_status_t model_llama_read_config(const char *path, model_llama_config_t *out) ST_WARN_UNUSED;

/* x i64[batch, seq] (and y i64[batch, seq] with a loss). */
st_status_t model_llama(const model_llama_config_t *config, int64_t batch, int64_t seq,
                        bool with_loss, ir_graph_t **out_graph) ST_WARN_UNUSED;

typedef struct model_resnet_config {
    int64_t depth; /* 8 (3 × 3 stem, 16/32/64 channels), 18 or 50 (torchvision) */
    int64_t classes, channels, image;
    double smoothing; /* label smoothing of the loss */
} model_resnet_config_t;

/* x f32[batch, channels, image, image], y i64[batch]. */
st_status_t model_resnet(const model_resnet_config_t *config, int64_t batch, bool with_loss,
                         ir_graph_t **out_graph) ST_WARN_UNUSED;

#endif
