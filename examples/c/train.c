/* Load a graph, train it on a batch of tensors, save the weights.
 *
 *   train GRAPH.stator WEIGHTS.safetensors BATCH.safetensors STEPS OUT.safetensors */
#include <stator/stator.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                    \
    do {                                                             \
        if ((call) != STATOR_OK) {                                   \
            fprintf(stderr, "%s: %s\n", #call, stator_last_error()); \
            return 1;                                                \
        }                                                            \
    } while (0)

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: %s GRAPH WEIGHTS BATCHES STEPS OUT\n", argv[0]);
        return 2;
    }
    stator_options_t *options;
    stator_graph_t *model, *step;
    stator_plan_t *plan;
    stator_session_t *session;
    stator_tensors_t *weights, *batches, *trained;
    stator_data_t *data;

    TRY(stator_options_create(&options));
    TRY(stator_options_set(options, "ranks", "2"));
    TRY(stator_options_set(options, "optimizer", "adamw"));
    TRY(stator_options_set(options, "lr", "1e-3"));
    TRY(stator_graph_load(argv[1], &model));
    TRY(stator_graph_make_training(model, options, &step)); /* gradient and optimizer */
    TRY(stator_plan_compile(step, options, NULL, &plan));   /* kernels, order, memory, ranks */
    TRY(stator_session_create(plan, NULL, &session));
    TRY(stator_tensors_load(argv[2], &weights));
    TRY(stator_session_load(session, weights));
    TRY(stator_tensors_load(argv[3], &batches));
    TRY(stator_data_tensors(plan, batches, "x=x.*,y=y.*", &data));

    for (int i = 1; i <= atoi(argv[4]); i++) {
        size_t n;
        const stator_tensor_t *feeds;
        float loss;
        stator_fetch_t fetch = {"loss", &loss, sizeof loss};
        TRY(stator_data_next(data, &n, &feeds));
        TRY(stator_session_step(session, n, feeds, 1, &fetch));
        printf("step %d loss %.6f\n", i, loss);
    }
    TRY(stator_session_export(session, &trained));
    TRY(stator_tensors_save(trained, argv[5]));

    stator_tensors_destroy(trained);
    stator_data_destroy(data);
    stator_tensors_destroy(batches);
    stator_tensors_destroy(weights);
    stator_session_destroy(session);
    stator_plan_destroy(plan);
    stator_graph_destroy(step);
    stator_graph_destroy(model);
    stator_options_destroy(options);
    return 0;
}
