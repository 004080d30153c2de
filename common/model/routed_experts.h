// RoutedExperts: the experts that tokens were routed to, as they travel with samples: uint16, token by
// token, [layers with experts, experts per token], ascending in each layer.
//
//   ASSIGN_OR_RETURN(const RoutedLayout layout, RoutedLayout::Of(spec));
//   std::vector<uint16_t> experts(num_tokens * layout.values_per_token(), kUnknownExpert);
#ifndef TANDEM_COMMON_MODEL_ROUTED_EXPERTS_H_
#define TANDEM_COMMON_MODEL_ROUTED_EXPERTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// All experts of a token in a layer are known, or none is.
inline constexpr uint16_t kUnknownExpert = 0xFFFF;

// The most bytes of one sample's experts, prompt and completion together: they travel in one message.
inline constexpr int64_t kMaxRoutedBytes = int64_t{12} << 20;

// Appends what Segment.routed_experts holds, little endian.
void AppendExperts(absl::string_view bytes, std::vector<uint16_t>& experts);

// Where a token's experts of each layer are.
class RoutedLayout {
 public:
  // INVALID_ARGUMENT: the model has no experts, or layers with different numbers of experts per
  // token, or more experts than have numbers.
  static absl::StatusOr<RoutedLayout> Of(const ModelSpec& spec);

  int64_t num_layers() const { return static_cast<int64_t>(num_experts_.size()); }
  int64_t top_k() const { return top_k_; }
  int64_t values_per_token() const { return num_layers() * top_k_; }
  int64_t bytes_per_token() const {
    return values_per_token() * static_cast<int64_t>(sizeof(uint16_t));
  }
  // RESOURCE_EXHAUSTED if a sequence of so many tokens has more than kMaxRoutedBytes.
  absl::Status CheckLength(int64_t num_tokens) const;
  // The place of a layer among those with experts; -1 for a dense layer.
  int64_t IndexOf(int64_t layer) const { return index_[layer]; }

  // INVALID_ARGUMENT says which token has what no router chooses: unknown experts beside known
  // ones, experts that the layer does not have, or in another order.
  absl::Status Check(absl::Span<const uint16_t> experts) const;

 private:
  std::vector<int64_t> index_;        // of each layer
  std::vector<int64_t> num_experts_;  // of each layer with experts
  int64_t top_k_ = 0;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROUTED_EXPERTS_H_
