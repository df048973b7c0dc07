/* Steps with a source's batches in turn, or with one batch that stays on the device. */
#include "tools/tool.h"

void tool_feeder_open(const stator_plan_t *plan, stator_session_t *session, stator_data_t *data,
                      bool stays, tool_feeder_t *out) {
    const bool ahead = stator_plan_info(plan).feeds_bytes > 0;
    *out = (tool_feeder_t){
        .session = session, .data = data, .ahead = data && ahead, .stays = stays && ahead};
    if (data) stator_data_position(data, &out->epoch, &out->sample);
}

/* The batch that the next step takes, to the device. */
static stator_status_t feed(tool_feeder_t *feeder) {
    size_t n_feeds;
    const stator_tensor_t *feeds;
    TOOL_TRY(stator_data_next(feeder->data, &n_feeds, &feeds));
    feeder->next_valid = stator_data_valid(feeder->data);
    TOOL_TRY(stator_session_feed(feeder->session, n_feeds, feeds));
    feeder->fed = true;
    return STATOR_OK;
}

static stator_status_t step_at_once(tool_feeder_t *feeder, size_t n_fetches,
                                    const stator_fetch_t *fetches) {
    size_t n_feeds = 0;
    const stator_tensor_t *feeds = NULL;
    if (feeder->data) {
        TOOL_TRY(stator_data_next(feeder->data, &n_feeds, &feeds));
        feeder->valid = stator_data_valid(feeder->data);
        stator_data_position(feeder->data, &feeder->epoch, &feeder->sample);
    }
    return stator_session_step(feeder->session, n_feeds, feeds, n_fetches, fetches);
}

stator_status_t tool_feeder_step(tool_feeder_t *feeder, bool more, size_t n_fetches,
                                 const stator_fetch_t *fetches) {
    if (!feeder->ahead) return step_at_once(feeder, n_fetches, fetches);
    if (!feeder->fed) TOOL_TRY(feed(feeder));
    TOOL_TRY(stator_session_step_start(feeder->session, 0, NULL, n_fetches, fetches));
    stator_data_position(feeder->data, &feeder->epoch, &feeder->sample);
    feeder->valid = feeder->next_valid;
    feeder->fed = feeder->stays;
    stator_status_t fed = more && !feeder->stays ? feed(feeder) : STATOR_OK;
    if (fed == STATOR_OK) return stator_session_step_wait(feeder->session);
    /* what went wrong with the batch is told, unless the step itself failed */
    tool_fail(fed, "%s", stator_last_error());
    stator_status_t status = stator_session_step_wait(feeder->session);
    return status == STATOR_OK ? fed : tool_fail(status, "%s", stator_last_error());
}
