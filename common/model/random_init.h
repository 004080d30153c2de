// Initializes a model's weights at random. Any part can be drawn on its own: an element depends
// only on the seed, its segment's name and its index within the logical tensor. Ranks that hold
// different shards or parts thus start from the same model, for any number of ranks.
#ifndef TANDEM_COMMON_MODEL_RANDOM_INIT_H_
#define TANDEM_COMMON_MODEL_RANDOM_INIT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/arena.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"

namespace tandem::model {

// Writes elements [first, first + count) of this rank's part of a segment to `out`, which holds
// `count` elements of `dtype` (float32, bfloat16 or float16). Matrices are normal with standard
// deviation spec.initializer_range, rounded to `dtype`; norms are ones, biases and
// norms that count from one zeros.
void RandomInit(const ModelSpec& spec, const ParameterTable& table, ParameterTable::SegmentRef ref,
                uint64_t seed, int64_t first, int64_t count, at::ScalarType dtype, void* out);

// Initializes all segments of an arena on the CPU.
void RandomInit(const ModelSpec& spec, uint64_t seed, Arena& arena);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_RANDOM_INIT_H_
