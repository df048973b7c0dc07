/* Archives of torch.export.save (PyTorch 2.8 and later): a zip with an ATen graph in JSON and the
 * raw bytes of the weights. Read without Python: nothing in the archive is executed or unpickled.
 */
#ifndef STATOR_IMPORT_PT2_H
#define STATOR_IMPORT_PT2_H

#include "import/import.h"

bool pt2_probe(const void *data, size_t bytes);
/* An import_format_t reader. Parameters and buffers keep their PyTorch names; weights with one path
 * become one parameter with aliases; a buffer outside the state dict that nothing changes becomes a
 * constant; a parameter that needs no gradient becomes a buffer. */
st_status_t pt2_read(const char *path, const void *data, size_t bytes, const char *what,
                     const import_options_t *options, import_result_t *result) ST_WARN_UNUSED;

#endif
