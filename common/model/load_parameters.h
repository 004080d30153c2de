// Loads weights from a Hugging Face folder. Checks all names and shapes before it reads a byte,
// then passes on one parameter at a time, so that a rank can keep its shard and drop the rest.
//
//   RETURN_IF_ERROR(LoadParameters(folder, table, [&](ParameterTable::SegmentRef ref,
//                                                     const StoredSource& source) {
//     return CopySegment(table.segment(ref), source, first, count, at::kFloat, shard);
//   }));
#ifndef TANDEM_COMMON_MODEL_LOAD_PARAMETERS_H_
#define TANDEM_COMMON_MODEL_LOAD_PARAMETERS_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "common/io/model_folder.h"
#include "common/model/arena.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_source.h"

namespace tandem::model {

// What LoadParameters() refuses by names and shapes alone, without reading a weight.
absl::Status CheckParameters(const io::ModelFolder& folder, const ParameterTable& table);

using SegmentSink =
    std::function<absl::Status(ParameterTable::SegmentRef, const StoredSource& source)>;

// Passes the logical tensor of every segment of the table to `sink` in canonical order, except
// those of a value head that the folder does not have; an error of the sink ends the load. Tensors
// are where the rules of the table's spec place them (stored_layout.h); those that it ignores are
// logged. Before the first call: StoredLayout::Create()'s errors; FAILED_PRECONDITION lists
// missing, unexpected and misshapen tensors; UNIMPLEMENTED names a tensor that is not float32,
// bfloat16 or float16, nor quantised by a method that quantization/ reads; FAILED_PRECONDITION if
// the config ties the head to the embedding but the
// folder holds two different ones.
absl::Status LoadParameters(const io::ModelFolder& folder, const ParameterTable& table,
                            const SegmentSink& sink);

// Loads all segments of the arena's table into an arena on any device.
absl::Status LoadParameters(const io::ModelFolder& folder, Arena& arena);

// Copies elements [first, first + count) of the segment, counted within its part of the logical
// tensor, converted to `dtype`, to `out` on the CPU. Errors are those of StoredSource::Copy().
absl::Status CopySegment(const Segment& segment, const StoredSource& source, int64_t first,
                         int64_t count, at::ScalarType dtype, void* out);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LOAD_PARAMETERS_H_
