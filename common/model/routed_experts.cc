#include "common/model/routed_experts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::model {

absl::StatusOr<RoutedLayout> RoutedLayout::Of(const ModelSpec& spec) {
  RoutedLayout out;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto& experts = spec.layers[i].experts;
    out.index_.push_back(experts.has_value() ? out.num_layers() : -1);
    if (!experts.has_value()) continue;
    if (out.top_k_ == 0) out.top_k_ = experts->routing.top_k;
    if (experts->routing.top_k != out.top_k_) {
      return absl::InvalidArgumentError(
          absl::StrCat("routing travels with samples if all layers have as many experts per token; "
                       "layer ",
                       i, " has ", experts->routing.top_k, ", an earlier one ", out.top_k_));
    }
    if (experts->num_experts >= kUnknownExpert) {
      return absl::InvalidArgumentError(absl::StrCat("routing travels with samples for at most ",
                                                     kUnknownExpert - 1, " experts; layer ", i,
                                                     " has ", experts->num_experts));
    }
    out.num_experts_.push_back(experts->num_experts);
  }
  if (out.num_experts_.empty()) {
    return absl::InvalidArgumentError("the model has no layer with experts");
  }
  return out;
}

absl::Status RoutedLayout::CheckLength(int64_t num_tokens) const {
  const int64_t most = kMaxRoutedBytes / bytes_per_token();
  if (num_tokens <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the experts of a sequence of ", num_tokens, " tokens, ", bytes_per_token(),
                   " bytes each, do not fit in one message; at most ", most, " tokens do"));
}

absl::Status RoutedLayout::Check(absl::Span<const uint16_t> experts) const {
  for (size_t begin = 0; begin < experts.size(); begin += top_k_) {
    const absl::Span<const uint16_t> row = experts.subspan(begin, top_k_);
    const auto layer = static_cast<int64_t>(begin) / top_k_ % num_layers();
    const auto token = static_cast<int64_t>(begin) / values_per_token();
    const bool is_unknown = std::all_of(row.begin(), row.end(),
                                        [](uint16_t expert) { return expert == kUnknownExpert; });
    if (is_unknown) continue;
    for (size_t k = 0; k < row.size(); ++k) {
      if (row[k] < num_experts_[layer] && (k == 0 || row[k - 1] < row[k])) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, ", layer ", layer,
                       " of those with experts: expected ascending experts "
                       "below ",
                       num_experts_[layer], ", or ", kUnknownExpert, " for all; found ", row[k]));
    }
  }
  return absl::OkStatus();
}

void AppendExperts(absl::string_view bytes, std::vector<uint16_t>& experts) {
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    experts.push_back(static_cast<uint16_t>(static_cast<uint8_t>(bytes[i]) |
                                            static_cast<uint8_t>(bytes[i + 1]) << 8));
  }
}

}  // namespace tandem::model
