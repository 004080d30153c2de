#include "services/rollout/ranks/step_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::rollout {
namespace {

absl::Status Wrong(int sequence, const char* what) {
  return absl::InternalError(absl::StrCat("step order, sequence ", sequence, ": ", what,
                                          "; run the same release on all ranks"));
}

}  // namespace

void WriteStep(absl::Span<const RunItem> items,
               absl::Span<const std::pair<int32_t, int32_t>> block_copies, int64_t block_size,
               v1::StepOrder& order) {
  for (const RunItem& item : items) {
    const Sequence& sequence = *item.sequence;
    v1::SequenceStep& step = *order.add_sequences();
    step.set_num_computed(sequence.num_computed);
    step.set_num_tokens(item.num_tokens);
    const int64_t end = sequence.num_computed + item.num_tokens;
    const int64_t given = std::min(end + (item.scores ? 1 : 0), sequence.num_tokens());
    step.mutable_token_ids()->Add(sequence.tokens.begin() + sequence.num_computed,
                                  sequence.tokens.begin() + given);
    const int64_t blocks = (end + block_size - 1) / block_size;
    step.mutable_blocks()->Add(sequence.blocks.begin(), sequence.blocks.begin() + blocks);
    step.set_samples(item.samples);
    step.set_scores(item.scores);
    if (item.scores) step.set_score_temperature(item.score_temperature);
  }
  for (const auto& [from, to] : block_copies) {
    order.add_block_copies(from);
    order.add_block_copies(to);
  }
}

absl::Status StepMirror::Read(const v1::StepOrder& order, int64_t block_size, int64_t num_blocks) {
  const auto is_block = [num_blocks](int32_t block) { return block >= 0 && block < num_blocks; };
  items_.clear();
  block_copies_.clear();
  sequences_.resize(std::max<size_t>(sequences_.size(), order.sequences_size()));
  for (int i = 0; i < order.sequences_size(); ++i) {
    const v1::SequenceStep& step = order.sequences(i);
    const int64_t given = step.token_ids_size();
    const int64_t end = step.num_computed() + step.num_tokens();
    if (step.num_computed() < 0 || step.num_tokens() < 1 || given < step.num_tokens() ||
        given > step.num_tokens() + 1) {
      return Wrong(i, "its token counts do not add up");
    }
    if (step.blocks_size() * block_size < end ||
        !std::all_of(step.blocks().begin(), step.blocks().end(), is_block)) {
      return Wrong(i, "its blocks cannot hold its tokens");
    }
    Sequence& sequence = sequences_[i];
    sequence.num_computed = step.num_computed();
    // The order holds only what the step reads; earlier tokens are arbitrary.
    sequence.tokens.resize(step.num_computed() + given);
    std::copy(step.token_ids().begin(), step.token_ids().end(),
              sequence.tokens.begin() + step.num_computed());
    sequence.blocks.assign(step.blocks().begin(), step.blocks().end());
    RunItem item{.sequence = &sequence, .num_tokens = step.num_tokens()};
    item.samples = step.samples();
    item.scores = step.scores();
    item.score_temperature = step.scores() ? step.score_temperature() : 1.0;
    items_.push_back(item);
  }
  for (int i = 0; i + 1 < order.block_copies_size(); i += 2) {
    if (!is_block(order.block_copies(i)) || !is_block(order.block_copies(i + 1))) {
      return absl::InternalError("step order: it copies a block that does not exist");
    }
    block_copies_.emplace_back(order.block_copies(i), order.block_copies(i + 1));
  }
  return absl::OkStatus();
}

}  // namespace tandem::rollout
