/* Stator: graphs – what is computed.
 *
 * A graph is the global program in static single assignment: values are tensors, nodes are ops,
 * state (parameters, buffers) changes only through explicit updates. It says nothing of ranks,
 * memory or order. Ownership: create functions give the caller an object to destroy; accessors lend
 * strings that live as long as the graph. A graph may be read by several threads at once, and
 * written by one. Functions that read or write files block on the disk; those that derive a graph
 * take milliseconds to seconds, and leave the one they are given as it is. NO_MEMORY may come from
 * each that makes something. (Nearest: torch.fx.Graph and torch.export.ExportedProgram; MLIR's
 * module.) */
#ifndef STATOR_GRAPH_H
#define STATOR_GRAPH_H

#include "stator/options.h"
#include "stator/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* First eight bytes of `.stator` files. */
#define STATOR_GRAPH_MAGIC "STATORG\n"

typedef struct stator_graph stator_graph_t;
typedef uint32_t stator_value_t;
#define STATOR_NO_VALUE UINT32_MAX

/* ---- where graphs come from ---- */

/* Empty graph for the builder functions below. */
STATOR_API stator_status_t stator_graph_create(const char *name,
                                               stator_graph_t **out_graph) STATOR_WARN_UNUSED;
STATOR_API void stator_graph_destroy(stator_graph_t *graph); /* NULL is fine */
/* Reads a `.stator` file or the text form, told apart by content. NOT_FOUND; PARSE: where it is
 * damaged, or the line; UNSUPPORTED: made by a newer version; INVALID: what no op allows, naming
 * the node. */
STATOR_API stator_status_t stator_graph_load(const char *path,
                                             stator_graph_t **out_graph) STATOR_WARN_UNUSED;
/* Reads a torch.export archive (.pt2) or an ONNX model, told apart by content. *out_tensors
 * receives the values of parameters and buffers. NOT_FOUND; PARSE: where it is damaged; UNSUPPORTED
 * names node and op. (Nearest: torch.export.load, onnx.load.) Option keys: "constant". ONNX does
 * not tell parameters from constants: see stator_graph_settle. */
STATOR_API stator_status_t stator_graph_import(const char *path, const stator_options_t *options,
                                               stator_graph_t **out_graph,
                                               stator_tensors_t **out_tensors) STATOR_WARN_UNUSED;
/* Fits a graph to a weights file. Names may differ by one constant prefix, and tied weights may be
 * stored under another of their names: parameters and buffers take the file's names, also in
 * `values` (what stands beside the graph; may be NULL). What an importer could only assume to be a
 * parameter and `weights` does not hold becomes a constant with its value from `values`, with a
 * note. INVALID lists parameters that are missing and tensors left over. */
STATOR_API stator_status_t stator_graph_settle(stator_graph_t *graph,
                                               const stator_tensors_t *weights,
                                               stator_tensors_t *values) STATOR_WARN_UNUSED;
/* The graph with sizes for its open symbols, all of them: option key "bind" ("batch=8,seq=128").
 * Graphs have open symbols where a model file has named dims, or by the option "symbolic" of the
 * standard models; compiling and deriving need graphs without. INVALID names symbols and bounds.
 * The parameters are the same in all bindings, so that one checkpoint and one state fit all. */
STATOR_API stator_status_t stator_graph_bind(const stator_graph_t *graph,
                                             const stator_options_t *options,
                                             stator_graph_t **out_graph) STATOR_WARN_UNUSED;
/* Standard models. Llama: "config" (Hugging Face config.json), "batch", "seq"; with_loss 0 gives an
 * inference graph: x → "logits". ResNet: "depth", "classes", "channels", "image", "batch",
 * "smoothing". Option "symbolic" leaves "batch" and "seq" open. INVALID names the option or the
 * configuration's key; NOT_FOUND, PARSE: the configuration. (Nearest: transformers'
 * AutoModelForCausalLM .from_config, torchvision.models.resnet50.) */
STATOR_API stator_status_t stator_graph_llama(const stator_options_t *options, int with_loss,
                                              stator_graph_t **out_graph) STATOR_WARN_UNUSED;
STATOR_API stator_status_t stator_graph_resnet(const stator_options_t *options, int with_loss,
                                               stator_graph_t **out_graph) STATOR_WARN_UNUSED;

/* ---- where they go ---- */

/* Atomic; checksummed protobuf. IO: the text gives path and reason; the old file is untouched
 * then. */
STATOR_API stator_status_t stator_graph_save(const stator_graph_t *graph,
                                             const char *path) STATOR_WARN_UNUSED;
/* The text form; the caller frees *out_text with stator_free. */
STATOR_API stator_status_t stator_graph_print(const stator_graph_t *graph,
                                              char **out_text) STATOR_WARN_UNUSED;
STATOR_API void stator_free(void *memory);
/* What import and settle have to say, one note a line; "" if nothing. Lives as long as the graph.
 * */
STATOR_API const char *stator_graph_notes(const stator_graph_t *graph);

/* ---- what is in them ---- */

typedef enum stator_port_kind {
    STATOR_INPUT = 0,
    STATOR_PARAMETER = 1,
    STATOR_BUFFER = 2,
    STATOR_OUTPUT = 3
} stator_port_kind_t;
STATOR_API size_t stator_graph_count(const stator_graph_t *graph, stator_port_kind_t kind);
/* Name and type of number `index` of a kind, in the order of the graph; data is NULL. An empty
 * tensor past the end. */
STATOR_API stator_tensor_t stator_graph_at(const stator_graph_t *graph, stator_port_kind_t kind,
                                           size_t index);
STATOR_API size_t stator_graph_node_count(const stator_graph_t *graph);
/* A size that is open: what stator_graph_bind needs a value for. */
typedef struct stator_symbol {
    const char *name;    /* the graph's */
    int64_t least, most; /* inclusive; most INT64_MAX: no bound */
    int64_t example;     /* for which stator_graph_at has the sizes */
} stator_symbol_t;
/* Open symbol number `index`; 0 past the end. (Nearest: torch.export's range_constraints.) */
STATOR_API int stator_graph_symbol_at(const stator_graph_t *graph, size_t index,
                                      stator_symbol_t *out_symbol);
/* How dim `dim` of an input, parameter or buffer follows from open symbols ("2*seq"); NULL where it
 * does not, for outputs, and past the end. The string is the graph's. */
STATOR_API const char *stator_graph_dim_at(const stator_graph_t *graph, stator_port_kind_t kind,
                                           size_t index, int32_t dim);

/* ---- building ---- */

/* The ops, their inputs, outputs and attributes are listed by stator_op_at; ops broadcast as NumPy
 * does. `attributes` is text: "axis=1, keep=true, shape=[4,32], dtype=f32"; NULL for none.
 * *out_first is the first output, the others follow it. INVALID: the message names op, attribute
 * and shapes. */
STATOR_API stator_status_t stator_graph_add(stator_graph_t *graph, const char *op, const char *name,
                                            size_t n_inputs, const stator_value_t *inputs,
                                            const char *attributes,
                                            stator_value_t *out_first) STATOR_WARN_UNUSED;
/* Inputs, parameters and buffers (INVALID: another kind); `tensor->name` is required, data ignored.
 * An input's first dim is the batch that ranks share. */
STATOR_API stator_status_t stator_graph_add_port(stator_graph_t *graph, stator_port_kind_t kind,
                                                 const stator_tensor_t *tensor,
                                                 stator_value_t *out_value) STATOR_WARN_UNUSED;
/* All elements, row-major. */
STATOR_API stator_status_t stator_graph_add_constant(stator_graph_t *graph,
                                                     const stator_tensor_t *tensor,
                                                     stator_value_t *out_value) STATOR_WARN_UNUSED;
/* `value` under a name of its own: INVALID if the name is taken or there is no such value. */
STATOR_API stator_status_t stator_graph_add_output(stator_graph_t *graph, const char *name,
                                                   stator_value_t value) STATOR_WARN_UNUSED;
/* Type of a value; data and name are NULL. INVALID: there is no such value. */
STATOR_API stator_status_t stator_graph_value_type(const stator_graph_t *graph,
                                                   stator_value_t value,
                                                   stator_tensor_t *out_type) STATOR_WARN_UNUSED;
typedef struct stator_op_info {
    const char *name, *summary;
} stator_op_info_t;
/* Row `index` of the op table; 0 past its end. Thread-safe. */
STATOR_API int stator_op_at(size_t index, stator_op_info_t *out_info);

/* ---- deriving ---- */

/* Appends reverse mode: outputs "grad.<parameter>" for every parameter. Option keys: "loss",
 * "fetch" for further outputs, and "loss-scale" (auto: 65536 with dtype f16, else none): the
 * gradients are computed times it and divided by it in float32; one that overflows is not finite,
 * and wants a smaller scale. UNSUPPORTED lists every node on the path that has no gradient rule;
 * NOT_FOUND: the loss; INVALID: it is no float scalar. (Nearest: jax.value_and_grad,
 * torch.autograd.grad.) */
STATOR_API stator_status_t
stator_graph_add_gradients(const stator_graph_t *graph, const stator_options_t *options,
                           stator_graph_t **out_graph) STATOR_WARN_UNUSED;
/* The whole training step: gradient, accumulation, clipping, schedule, optimizer, moving average.
 * Outputs "grad_norm" (before clipping) and "lr" beside the graph's own. Option keys: those of
 * "training" in the table, and "fetch": values of the graph, and gradients "grad.<parameter>", that
 * become outputs too; names that are none are passed over here and refused by stator_plan_compile.
 * INVALID names the option; otherwise as stator_graph_add_gradients. (Nearest: torch.optim with
 * torch.nn.utils.clip_grad_norm_, optax.) */
STATOR_API stator_status_t
stator_graph_make_training(const stator_graph_t *graph, const stator_options_t *options,
                           stator_graph_t **out_graph) STATOR_WARN_UNUSED;

#ifdef __cplusplus
}
#endif
#endif
