// Rotations of every kind that are not plain (rotary.h), for tests.
#ifndef TANDEM_TESTS_COMMON_MODEL_OTHER_ROTATIONS_H_
#define TANDEM_TESTS_COMMON_MODEL_OTHER_ROTATIONS_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "common/model/rotary.h"

namespace tandem::model {

// Angles for the first `rotary_dim` elements of a head.
inline RotaryAngles RandomAngles(int64_t rows, int64_t rotary_dim, bool interleaved = false) {
  const at::Tensor angles = at::randn({rows, rotary_dim / 2});
  return {angles.cos(), angles.sin(), interleaved};
}

inline NormTensors RandomNorm(const QkNormSpec& spec, int64_t heads, int64_t head_dim,
                              at::ScalarType dtype) {
  std::vector<int64_t> sizes = {head_dim};
  if (spec.over == QkNormSpec::Over::kEachHead) sizes = {heads, head_dim};
  if (spec.over == QkNormSpec::Over::kAllHeads) sizes = {heads * head_dim};
  NormTensors norm;
  if (spec.norm.weight) norm.weight = at::randn(sizes).to(dtype);
  if (spec.norm.bias) norm.bias = at::randn(sizes).to(dtype);
  return norm;
}

// A head_dim of 24 or more. The norms' tensors have type `dtype`.
inline std::vector<HeadRotation> OtherRotations(const QkvShape& shape, int64_t rows,
                                                at::ScalarType dtype) {
  const int64_t dim = shape.head_dim;
  std::vector<HeadRotation> rotations;
  const std::vector<RotaryAngles> angles = {{},
                                            RandomAngles(rows, dim),
                                            RandomAngles(rows, dim, /*interleaved=*/true),
                                            RandomAngles(rows, dim / 2),
                                            RandomAngles(rows, dim / 2 + 2, /*interleaved=*/true)};
  for (const RotaryAngles& of : angles) {
    rotations.push_back({.angles = of, .shape = shape});
    rotations.push_back({.angles = of, .shape = shape, .query_scale = at::rand({rows}) + 0.5});
    if (rotations[rotations.size() - 2].IsPlain()) rotations.erase(rotations.end() - 2);
  }
  const std::vector<NormSpec> norms = {
      {.eps = 1e-3},
      {.eps = 1e-5, .unit_offset = true},
      {.eps = 1e-5, .weight = false},
      {.kind = NormKind::kLayer, .eps = 1e-5},
      {.kind = NormKind::kLayer, .eps = 1e-5, .bias = true, .unit_offset = true}};
  using Over = QkNormSpec::Over;
  for (const NormSpec& norm : norms) {
    for (const Over over : {Over::kHead, Over::kEachHead, Over::kAllHeads}) {
      for (const bool after : {false, true}) {
        HeadRotation rotation{.angles = angles[1 + rotations.size() % 4], .shape = shape};
        rotation.norm = {over, after, norm};
        if (rotation.IsPlain()) continue;
        rotation.q_norm = RandomNorm(*rotation.norm, shape.num_heads, dim, dtype);
        rotation.k_norm = RandomNorm(*rotation.norm, shape.num_kv_heads, dim, dtype);
        rotations.push_back(rotation);
      }
    }
  }
  for (const NormSpec& norm : {NormSpec{.eps = 1e-5, .weight = false},
                               NormSpec{.kind = NormKind::kLayer, .eps = 1e-5, .weight = false}}) {
    rotations.push_back(rotations.back());
    rotations.back().value_norm = norm;
  }
  return rotations;
}

// The rows [begin, begin + count) of a batch.
inline HeadRotation RowsOf(HeadRotation rotation, int64_t begin, int64_t count) {
  for (at::Tensor* table : {&rotation.angles.cos, &rotation.angles.sin, &rotation.query_scale}) {
    if (table->defined()) *table = table->narrow(0, begin, count);
  }
  return rotation;
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_OTHER_ROTATIONS_H_
