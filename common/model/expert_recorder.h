// ExpertRecorder: the experts that a forward pass chooses.
//
//   ExpertRecorder recorder(layout, num_tokens);
//   const RouterPass routers{.recorder = &recorder};
//   x = model.Block(params, layer, x, rotary, attention, nullptr, &routers);
//   Use(recorder.Of(first_token, count));
//
// A pass on a device writes to memory there, which may be captured in a graph: RecordOn() before it, and
// Fetch() when it is done.
#ifndef TANDEM_COMMON_MODEL_EXPERT_RECORDER_H_
#define TANDEM_COMMON_MODEL_EXPERT_RECORDER_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
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

  // buffer: int32 [rows, values_per_token()], at least as many rows as the pass has.
  void RecordOn(at::Tensor buffer) { buffer_ = std::move(buffer); }
  int64_t values_per_token() const { return layout_.values_per_token(); }

  // experts: int64 [num_tokens, top_k], of all of the pass's tokens, and of those that fill it up.
  void Record(int64_t layer, const at::Tensor& experts) {
    if (buffer_.defined()) {
      buffer_.narrow(0, 0, experts.size(0))
          .narrow(1, layout_.IndexOf(layer) * layout_.top_k(), layout_.top_k())
          .copy_(experts);
      return;
    }
    const at::Tensor rows = experts.contiguous();
    const auto* from = rows.const_data_ptr<int64_t>();
    const int64_t top_k = layout_.top_k();
    uint16_t* to = values_.data() + layout_.IndexOf(layer) * top_k;
    for (int64_t t = 0; t < rows.size(0); ++t, to += layout_.values_per_token()) {
      for (int64_t k = 0; k < top_k; ++k) to[k] = static_cast<uint16_t>(*from++);
    }
  }

  // Copies what the device has recorded; waits for it.
  void Fetch() {
    const at::Tensor rows =
        buffer_.narrow(0, 0, static_cast<int64_t>(values_.size()) / values_per_token()).cpu();
    const int32_t* const from = rows.const_data_ptr<int32_t>();
    std::copy_n(from, values_.size(), values_.begin());
  }

  // Of tokens [first, first + count).
  absl::Span<const uint16_t> Of(int64_t first, int64_t count) const {
    const int64_t each = layout_.values_per_token();
    return {values_.data() + first * each, static_cast<size_t>(count * each)};
  }

 private:
  const RoutedLayout& layout_;
  std::vector<uint16_t> values_;
  at::Tensor buffer_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_EXPERT_RECORDER_H_
