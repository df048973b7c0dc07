/* Statuses, versions, dtypes. The public enumerations are checked against the internal ones here.
 * */
#include <stdio.h>

#include "capi/capi.h"
#include "kernels/table.h"

#define SAME(name) _Static_assert((int)STATOR_##name == (int)ST_##name, "status values differ")
#define STATUS(name, value, text) SAME(name);
#include "base/status.def"
#undef STATUS
#define DTYPE(name, text, wire, bytes, kind) \
    _Static_assert((int)STATOR_DTYPE_##name == (wire), "dtype values differ");
#include "ir/dtypes.def"
#undef DTYPE
_Static_assert((int)STATOR_MAX_RANK == (int)IR_MAX_RANK, "rank limits differ");

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

stator_status_t capi_missing(const char *function, const char *argument) {
    return capi_status(FAIL(ST_INVALID, "%s: %s is NULL", function, argument));
}

const char *stator_status_text(stator_status_t status) {
    return st_status_text((st_status_t)status);
}
const char *stator_last_error(void) {
    return st_last_error();
}
const char *stator_version(void) {
    return TEXT(STATOR_VERSION_MAJOR) "." TEXT(STATOR_VERSION_MINOR) "." TEXT(STATOR_VERSION_PATCH);
}
const char *stator_libraries(void) {
    return kern_libraries();
}
const char *stator_dtype_text(stator_dtype_t dtype) {
    return ir_dtype_text((ir_dtype_t)dtype);
}
size_t stator_dtype_bytes(stator_dtype_t dtype) {
    return ir_dtype_bytes((ir_dtype_t)dtype);
}
