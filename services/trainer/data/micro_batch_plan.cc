#include "services/trainer/data/micro_batch_plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace tandem::trainer {
namespace {

struct Bin {
  int64_t tokens = 0;
  std::vector<int64_t> items;

  void Add(int64_t item, int64_t length) {
    tokens += length;
    items.push_back(item);
  }
};

// Longest first, each to the bin that has least (the first of equals): within 4/3 of the best.
std::vector<Bin> Spread(absl::Span<const int64_t> longest_first, absl::Span<const int64_t> lengths,
                        size_t num_bins) {
  std::vector<Bin> bins(num_bins);
  for (int64_t item : longest_first) {
    const auto least = std::min_element(
        bins.begin(), bins.end(), [](const Bin& a, const Bin& b) { return a.tokens < b.tokens; });
    least->Add(item, lengths[item]);
  }
  return bins;
}

// Longest first, each to the first bin with room: within 11/9 of the fewest bins.
std::vector<Bin> FirstFit(absl::Span<const int64_t> longest_first,
                          absl::Span<const int64_t> lengths, int64_t max_tokens) {
  std::vector<Bin> bins;
  for (int64_t item : longest_first) {
    const auto with_room = std::find_if(bins.begin(), bins.end(), [&](const Bin& bin) {
      return bin.tokens + lengths[item] <= max_tokens;
    });
    if (with_room != bins.end()) {
      with_room->Add(item, lengths[item]);
    } else {
      bins.emplace_back().Add(item, lengths[item]);
    }
  }
  return bins;
}

// Pieces for each rank, at least: with fewer the ranks could not be given the same.
constexpr int64_t kPiecesOfRank = 4;

// Sequences that stay together, in order.
std::vector<Bin> MakePieces(absl::Span<const int64_t> lengths, int num_ranks, int64_t max_tokens,
                            absl::Span<const int64_t> groups) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  int64_t most = max_tokens;
  if (num_ranks > 1) most = std::min(most, total / (kPiecesOfRank * num_ranks));
  std::vector<Bin> pieces;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    const bool joins = !groups.empty() && !pieces.empty() &&
                       groups[pieces.back().items.back()] == groups[i] &&
                       pieces.back().tokens + lengths[i] <= most;
    if (!joins) pieces.emplace_back();
    pieces.back().Add(static_cast<int64_t>(i), lengths[i]);
  }
  return pieces;
}

}  // namespace

MicroBatchPlan PlanMicroBatches(absl::Span<const int64_t> lengths, int num_ranks,
                                int64_t max_tokens, absl::Span<const int64_t> groups) {
  const std::vector<Bin> pieces = MakePieces(lengths, num_ranks, max_tokens, groups);
  std::vector<int64_t> sizes, longest_first;
  for (const Bin& piece : pieces) {
    longest_first.push_back(static_cast<int64_t>(sizes.size()));
    sizes.push_back(piece.tokens);
  }
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](int64_t a, int64_t b) { return sizes[a] > sizes[b]; });

  const std::vector<Bin> ranks = Spread(longest_first, sizes, num_ranks);
  std::vector<std::vector<Bin>> filled;
  size_t num_micro_batches = 1;
  for (const Bin& rank : ranks) {
    filled.push_back(FirstFit(rank.items, sizes, max_tokens));
    num_micro_batches = std::max(num_micro_batches, filled.back().size());
  }

  MicroBatchPlan plan(num_ranks);
  for (int r = 0; r < num_ranks; ++r) {
    // Even micro-batches keep the ranks in step; where spreading would break the limit, full ones
    // stay.
    std::vector<Bin> even = Spread(ranks[r].items, sizes, num_micro_batches);
    const bool fits = std::all_of(even.begin(), even.end(), [&](const Bin& bin) {
      return bin.tokens <= max_tokens || bin.items.size() == 1;
    });
    std::vector<Bin>& bins = fits ? even : filled[r];
    bins.resize(num_micro_batches);
    for (Bin& bin : bins) {
      std::sort(bin.items.begin(), bin.items.end());
      std::vector<int64_t>& indices = plan[r].emplace_back();
      for (const int64_t piece : bin.items) {
        indices.insert(indices.end(), pieces[piece].items.begin(), pieces[piece].items.end());
      }
    }
  }
  return plan;
}

}  // namespace tandem::trainer
