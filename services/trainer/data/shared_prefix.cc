#include "services/trainer/data/shared_prefix.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include <algorithm>

namespace tandem::trainer {
namespace {

// Sequences that are looked at to see whether one is worth being whole.
constexpr int64_t kLookAhead = 16;

class Sharing {
 public:
  explicit Sharing(const PackedBatch& whole)
      : whole_(whole), contents_(Contents(whole)), ids_(contents_.const_data_ptr<int64_t>()) {
    if (!whole.routed_experts.defined()) return;
    experts_ = whole.routed_experts.const_data_ptr<int32_t>();
    experts_per_token_ = whole.routed_experts.size(1);
  }

  PackedBatch Share() {
    std::vector<int64_t> tokens;  // rows of `whole` that are kept
    out_.cu_seqlens = {0};
    for (int64_t s = 0; s < whole_.num_sequences(); ++s) {
      int64_t prefix = owner_ < 0 ? 0 : Common(owner_, s);
      if (prefix > 0 && IsWorthBeingWhole(s, prefix)) prefix = 0;
      if (prefix == 0) {
        owner_ = s;
        owner_row_ = out_.cu_seqlens.back();
      }
      AddRows(s, prefix);
      for (int64_t t = prefix; t < Length(s); ++t) tokens.push_back(whole_.cu_seqlens[s] + t);
      out_.prefixes.insert(out_.prefixes.end(), {owner_row_, prefix});
      out_.cu_seqlens.push_back(static_cast<int64_t>(tokens.size()));
    }
    if (out_.num_tokens() == whole_.num_tokens()) return whole_;
    const at::Tensor kept = LongTensor(tokens);
    out_.token_ids = whole_.token_ids.index_select(0, kept);
    out_.positions = whole_.positions.index_select(-1, kept);
    out_.rows = LongTensor(rows_);
    out_.targets = whole_.targets;
    out_.temperatures = whole_.temperatures;
    out_.soft_ids = whole_.soft_ids;
    out_.soft_weights = whole_.soft_weights;
    out_.soft_targets_only = whole_.soft_targets_only;
    out_.update_tokens = whole_.update_tokens;
    if (experts_ != nullptr) out_.routed_experts = whole_.routed_experts.index_select(0, kept);
    if (whole_.image_rows.defined()) out_.image_rows = whole_.image_rows.index_select(0, kept);
    out_.image_indices = whole_.image_indices;
    out_.images = whole_.images;
    return std::move(out_);
  }

 private:
  int64_t Length(int64_t s) const { return whole_.cu_seqlens[s + 1] - whole_.cu_seqlens[s]; }

  // Leading tokens that two sequences have in common.
  int64_t Common(int64_t a, int64_t b) const {
    const int64_t* const first = ids_ + whole_.cu_seqlens[a];
    const int64_t* const second = ids_ + whole_.cu_seqlens[b];
    const int64_t tokens =
        std::mismatch(first, first + std::min(Length(a), Length(b)), second).first - first;
    if (experts_ == nullptr) return tokens;
    const int32_t* const of_first = experts_ + whole_.cu_seqlens[a] * experts_per_token_;
    const int32_t* const of_second = experts_ + whole_.cu_seqlens[b] * experts_per_token_;
    const int32_t* const end = of_first + tokens * experts_per_token_;
    return (std::mismatch(of_first, end, of_second).first - of_first) / experts_per_token_;
  }

  // Whether keeping `s` whole pays: later sequences would share more tokens with it, beyond those
  // they share with the current owner, than the `prefix` tokens that it would recompute.
  bool IsWorthBeingWhole(int64_t s, int64_t prefix) const {
    int64_t gain = 0;
    const int64_t end = std::min(whole_.num_sequences(), s + 1 + kLookAhead);
    for (int64_t next = s + 1; next < end && gain <= prefix; ++next) {
      const int64_t more = Common(s, next) - std::max(prefix, Common(owner_, next));
      if (more <= 0) break;
      gain += more;
    }
    return gain > prefix;
  }

  // Adds the rows from which the sequence's tokens are predicted.
  void AddRows(int64_t s, int64_t prefix) {
    const int64_t* const rows = whole_.rows.const_data_ptr<int64_t>();
    const int64_t own = out_.cu_seqlens.back() - prefix;
    for (; next_row_ < whole_.rows.numel() && rows[next_row_] < whole_.cu_seqlens[s + 1];
         ++next_row_) {
      const int64_t t = rows[next_row_] - whole_.cu_seqlens[s];
      rows_.push_back(t < prefix ? owner_row_ + t : own + t);
    }
  }

  // What tells tokens apart: the id, or the row of an image, which is the same for all of its
  // placeholders' ids. The positions of equal prefixes are equal.
  static at::Tensor Contents(const PackedBatch& whole) {
    if (!whole.image_rows.defined()) return whole.token_ids;
    return at::where(whole.image_rows.lt(0), whole.token_ids, whole.image_rows.neg().sub(1));
  }

  static at::Tensor LongTensor(const std::vector<int64_t>& values) {
    at::Tensor out = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
    std::copy(values.begin(), values.end(), out.mutable_data_ptr<int64_t>());
    return out;
  }

  const PackedBatch& whole_;
  const at::Tensor contents_;
  const int64_t* const ids_;          // of contents_
  const int32_t* experts_ = nullptr;  // [num_tokens, experts_per_token_]; null if there are none
  int64_t experts_per_token_ = 0;
  PackedBatch out_;
  std::vector<int64_t> rows_;
  int64_t next_row_ = 0;   // of the whole batch's
  int64_t owner_ = -1;     // the last sequence that is whole
  int64_t owner_row_ = 0;  // its first row in the result
};

}  // namespace

PackedBatch SharePrefixes(const PackedBatch& whole) { return Sharing(whole).Share(); }

at::Tensor TokenUses(const PackedBatch& batch) {
  at::Tensor uses = at::ones({batch.num_tokens()}, at::kFloat);
  auto* const use = uses.mutable_data_ptr<float>();
  for (size_t i = 0; i + 1 < batch.prefixes.size(); i += 2) {
    const int64_t first = batch.prefixes[i];
    for (int64_t t = 0; t < batch.prefixes[i + 1]; ++t) use[first + t] += 1.0f;
  }
  return uses;
}

}  // namespace tandem::trainer
