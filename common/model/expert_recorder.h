// ExpertRecorder: the experts that a forward pass on the CPU chooses.
//
//   ExpertRecorder recorder(layout, num_tokens);
//   const RouterPass routers{.recorder = &recorder};
//   x = model.Block(params, layer, x, rotary, attention, nullptr, &routers);
//   Use(recorder.Of(first_token, count));
#ifndef TANDEM_COMMON_MODEL_EXPERT_RECORDER_H_
#define TANDEM_COMMON_MODEL_EXPERT_RECORDER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/routed_experts.h"

namespace tandem::model {

// Single-threaded. The layout outlives it.
class ExpertRecorder {
 public:
  ExpertRecorder(const RoutedLayout& layout, int64_t num_tokens)
      : layout_(layout),
        values_(static_cast<size_t>(num_tokens * layout.values_per_token()), kUnknownExpert) {}

  // experts: int64 [num_tokens, top_k], of all of the pass's tokens.
  void Record(int64_t layer, const at::Tensor& experts) {
    const at::Tensor rows = experts.contiguous();
    const auto* from = rows.const_data_ptr<int64_t>();
    const int64_t top_k = layout_.top_k();
    uint16_t* to = values_.data() + layout_.IndexOf(layer) * top_k;
    for (int64_t t = 0; t < rows.size(0); ++t, to += layout_.values_per_token()) {
      for (int64_t k = 0; k < top_k; ++k) to[k] = static_cast<uint16_t>(*from++);
    }
  }

  // Of tokens [first, first + count).
  absl::Span<const uint16_t> Of(int64_t first, int64_t count) const {
    const int64_t each = layout_.values_per_token();
    return {values_.data() + first * each, static_cast<size_t>(count * each)};
  }

 private:
  const RoutedLayout& layout_;
  std::vector<uint16_t> values_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_EXPERT_RECORDER_H_
