// RotaryTables: the frequencies of a model's rotary embeddings and the scales of its queries, made
// once; Make() turns the positions of a batch into what the layers read.
//
//   const RotaryTables tables(spec);
//   Rotary rotary = tables.Make(positions, {});
#ifndef TANDEM_COMMON_MODEL_ROTARY_TABLES_H_
#define TANDEM_COMMON_MODEL_ROTARY_TABLES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/model_spec.h"
#include "common/model/rotary.h"

namespace tandem::model {

// Immutable; usable from several threads.
class RotaryTables {
 public:
  explicit RotaryTables(const ModelSpec& spec);

  // positions: int64 [num_tokens], on any device; or [3, num_tokens], by time, height and width. Three
  // equal ones give the bits of one, and are what a model has whose ropes have no sections or whose
  // queries are scaled. lengths: int64 [num_tokens] on the CPU, the number
  // of tokens of each token's whole sequence; only a model whose ropes depend on it
  // (rotary_frequencies.h) reads it. Undefined: no sequence is longer than LongestGeneration().
  Rotary Make(const at::Tensor& positions, const at::Tensor& lengths) const;

 private:
  struct Rope {
    RopeSpec spec;
    at::Tensor inverse_frequencies;  // float32 [rotary_dim / 2], of sequences that are not longer
    double attention_factor = 1.0;
  };

  RotaryAngles ByLength(const RopeSpec& rope, const at::Tensor& positions,
                        const at::Tensor& lengths) const;

  int64_t head_dim_;
  std::vector<Rope> ropes_;
  std::vector<QueryPositionScale> scales_;  // distinct ones
  std::vector<int> scale_of_layer_;         // its place in scales_; -1: none
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROTARY_TABLES_H_
