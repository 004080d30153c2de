#include "services/rollout/ranks/step_order.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/model/cache_groups.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

constexpr size_t kNumAxes = 3;  // time, height and width

absl::Status Wrong(int sequence, const char* what) {
  return absl::InternalError(absl::StrCat("step order, sequence ", sequence, ": ", what,
                                          "; run the same release on all ranks"));
}

int64_t TableSize(int64_t num_tokens, const CacheLayout& cache) {
  return (num_tokens + cache.block_size - 1) / cache.block_size *
         static_cast<int64_t>(cache.windows.size());
}

bool IsBlock(int32_t block, const CacheLayout& cache) {
  return block >= 0 && block < cache.num_blocks;
}

bool IsState(int32_t state, const CacheLayout& cache) {
  return state >= 0 && state < cache.num_states;
}

// Whether the table has a block wherever the step reads or writes.
bool HoldsTokens(const v1::SequenceStep& step, const CacheLayout& cache) {
  const auto groups = static_cast<int64_t>(cache.windows.size());
  if (step.blocks_size() < TableSize(step.num_computed() + step.num_tokens(), cache) ||
      step.blocks_size() % groups != 0) {
    return false;
  }
  for (int i = 0; i < step.blocks_size(); ++i) {
    if (IsBlock(step.blocks(i), cache)) continue;
    const int64_t first =
        model::FirstBlockInUse(cache.windows[i % groups], step.num_computed(), cache.block_size);
    if (step.blocks(i) != model::kNoBlock || i / groups >= first) return false;
  }
  return true;
}

void WriteImages(const RunItem& item, v1::SequenceStep& step) {
  const Sequence& sequence = *item.sequence;
  if (sequence.places == nullptr) return;
  const int64_t end = sequence.num_computed + item.num_tokens;
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    for (int64_t token = sequence.num_computed; token < end; ++token) {
      step.add_positions(sequence.PositionOf(token, axis));
    }
  }
  if (!item.image_rows.defined()) return;
  for (const int64_t token : sequence.places->TokensIn(sequence.num_computed, end)) {
    step.add_image_tokens(token - sequence.num_computed);
  }
  const at::Tensor rows = item.image_rows.cpu().contiguous();
  step.set_image_rows(rows.const_data_ptr(), rows.nbytes());
}

}  // namespace

CacheLayout LayoutOf(const model::PagedKvCache& cache) {
  return {cache.options().num_blocks, cache.options().block_size, cache.groups().windows,
          cache.states().count()};
}

void WriteStep(absl::Span<const RunItem> items, const CacheCopies& copies, const CacheLayout& cache,
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
    step.mutable_blocks()->Add(sequence.blocks.begin(),
                               sequence.blocks.begin() + TableSize(end, cache));
    step.set_samples(item.samples);
    step.set_scores(item.scores);
    if (item.scores) {
      step.set_score_temperature(item.score_temperature);
      step.set_first_scored_token(item.first_scored);
    }
    WriteImages(item, step);
    if (cache.num_states > 0) step.set_state(sequence.state);
  }
  for (const auto& [from, to] : copies.blocks) {
    order.add_block_copies(from);
    order.add_block_copies(to);
  }
  for (const auto& [from, to] : copies.states) {
    order.add_state_copies(from);
    order.add_state_copies(to);
  }
}

absl::Status StepMirror::ReadImages(const v1::SequenceStep& step, const RowLayout& rows, int i,
                                    Sequence& sequence, RunItem& item) {
  sequence.places = nullptr;
  const int64_t num_rows = step.image_tokens_size();
  if (step.positions().empty() && num_rows == 0 && step.image_rows().empty()) {
    return absl::OkStatus();
  }
  const auto width = rows.width * static_cast<int64_t>(c10::elementSize(rows.dtype));
  if (step.positions_size() != static_cast<int64_t>(kNumAxes) * step.num_tokens() ||
      static_cast<int64_t>(step.image_rows().size()) != num_rows * width) {
    return Wrong(i, "its positions or rows of images do not add up");
  }
  model::ImagePlaces& places = places_[i];
  places.tokens.clear();
  int64_t least = 0;
  for (const int64_t token : step.image_tokens()) {
    if (token < least || token >= step.num_tokens()) {
      return Wrong(i, "its placeholders are not tokens of the step, in order");
    }
    places.tokens.push_back(step.num_computed() + token);
    least = token + 1;
  }
  // As with the tokens, earlier positions are arbitrary.
  auto from = step.positions().begin();
  for (std::vector<int64_t>& axis : places.positions) {
    axis.resize(step.num_computed() + step.num_tokens());
    std::copy_n(from, step.num_tokens(), axis.begin() + step.num_computed());
    from += step.num_tokens();
  }
  sequence.places = &places;
  if (num_rows == 0) return absl::OkStatus();
  item.image_rows = at::empty({num_rows, rows.width}, rows.dtype);
  std::memcpy(item.image_rows.mutable_data_ptr(), step.image_rows().data(),
              step.image_rows().size());
  return absl::OkStatus();
}

absl::Status StepMirror::Read(const v1::StepOrder& order, const CacheLayout& cache,
                              const RowLayout& rows) {
  items_.clear();
  block_copies_.clear();
  state_copies_.clear();
  sequences_.resize(std::max<size_t>(sequences_.size(), order.sequences_size()));
  places_.resize(sequences_.size());
  for (int i = 0; i < order.sequences_size(); ++i) {
    const v1::SequenceStep& step = order.sequences(i);
    const int64_t given = step.token_ids_size();
    if (step.num_computed() < 0 || step.num_tokens() < 1 || given < step.num_tokens() ||
        given > step.num_tokens() + 1) {
      return Wrong(i, "its token counts do not add up");
    }
    if (!HoldsTokens(step, cache)) return Wrong(i, "its blocks cannot hold its tokens");
    if (cache.num_states > 0 && !IsState(step.state(), cache)) {
      return Wrong(i, "its state does not exist");
    }
    Sequence& sequence = sequences_[i];
    sequence.num_computed = step.num_computed();
    // The order holds only what the step reads; earlier tokens are arbitrary.
    sequence.tokens.resize(step.num_computed() + given);
    std::copy(step.token_ids().begin(), step.token_ids().end(),
              sequence.tokens.begin() + step.num_computed());
    sequence.blocks.assign(step.blocks().begin(), step.blocks().end());
    sequence.state = cache.num_states > 0 ? step.state() : -1;
    RunItem item{.sequence = &sequence, .num_tokens = step.num_tokens()};
    item.samples = step.samples();
    item.scores = step.scores();
    item.score_temperature = step.scores() ? step.score_temperature() : 1.0;
    item.first_scored = std::max<int64_t>(1, step.first_scored_token());
    RETURN_IF_ERROR(ReadImages(step, rows, i, sequence, item));
    items_.push_back(item);
  }
  for (int i = 0; i + 1 < order.block_copies_size(); i += 2) {
    if (!IsBlock(order.block_copies(i), cache) || !IsBlock(order.block_copies(i + 1), cache)) {
      return absl::InternalError("step order: it copies a block that does not exist");
    }
    block_copies_.emplace_back(order.block_copies(i), order.block_copies(i + 1));
  }
  for (int i = 0; i + 1 < order.state_copies_size(); i += 2) {
    if (!IsState(order.state_copies(i), cache) || !IsState(order.state_copies(i + 1), cache)) {
      return absl::InternalError("step order: it copies a state that does not exist");
    }
    state_copies_.emplace_back(order.state_copies(i), order.state_copies(i + 1));
  }
  return absl::OkStatus();
}

}  // namespace tandem::rollout
