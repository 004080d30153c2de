// What PackedAttention takes of a prompt with images.
#ifndef TANDEM_TESTS_SUPPORT_SEEN_ENDS_H_
#define TANDEM_TESTS_SUPPORT_SEEN_ENDS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <cstdint>

#include "common/model/image_places.h"
#include "common/model/model_spec.h"
#include "common/model/packed_attention.h"

namespace tandem::testing {

// The attention of one sequence of `num_tokens` tokens, of which `places` are images.
inline model::PackedAttention AttentionOf(const model::VisionSpec& spec,
                                          const model::ImagePlaces& places, int64_t num_tokens) {
  at::Tensor seen_ends;
  if (spec.images_see_ahead) {
    seen_ends = at::tensor(model::SeenEnds(places.tokens, 0, num_tokens), at::kLong);
  }
  return model::PackedAttention(at::tensor({int64_t{0}, num_tokens}, at::kLong),
                                model::PackedAttention::Implementation::kFast, /*prefixes=*/{},
                                seen_ends);
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_SEEN_ENDS_H_
