// Weights from a Hugging Face folder. Names and shapes are checked before a byte is read; then the
// tensors come one at a time, so that a rank can keep its shard and let the rest go.
//
//   RETURN_IF_ERROR(LoadParameters(folder, table, [&](ParameterTable::SegmentRef ref,
//                                                     const io::TensorView& tensor) {
//     return CopySegment(table.segment(ref), tensor, first, count, at::kFloat, shard);
//   }));
#ifndef TANDEM_COMMON_MODEL_LOAD_PARAMETERS_H_
#define TANDEM_COMMON_MODEL_LOAD_PARAMETERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/io/model_folder.h"
#include "common/io/safetensors.h"
#include "common/model/arena.h"
#include "common/model/compare_parameters.h"
#include "common/model/parameter_table.h"

namespace tandem::model {

using SegmentSink =
    std::function<absl::Status(ParameterTable::SegmentRef, const io::TensorView& tensor)>;

// Hands the logical tensor of every segment of the table to `sink`, but those of a value head that
// the folder does not have, in canonical order; an error of the sink ends the load. Before the
// first: FAILED_PRECONDITION lists missing, unexpected and misshapen tensors; UNIMPLEMENTED names a
// tensor that is not float32, bfloat16 or float16; FAILED_PRECONDITION too where the config ties
// the head to the embedding but the folder holds two different ones.
absl::Status LoadParameters(const io::ModelFolder& folder, const ParameterTable& table,
                            const SegmentSink& sink);

// All that the arena's table has into an arena on any device.
absl::Status LoadParameters(const io::ModelFolder& folder, Arena& arena);

// Elements [first, first + count) of what the segment holds of its logical tensor, converted as
// CopyElements() does.
absl::Status CopySegment(const Segment& segment, const io::TensorView& tensor, int64_t first,
                         int64_t count, at::ScalarType dtype, void* out);

// Elements [first, first + count) of a tensor, converted to `dtype`, into `out` on the CPU.
// OUT_OF_RANGE where the tensor has fewer; UNIMPLEMENTED for element types other than those above.
absl::Status CopyElements(const io::TensorView& tensor, int64_t first, int64_t count,
                          at::ScalarType dtype, void* out);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LOAD_PARAMETERS_H_
