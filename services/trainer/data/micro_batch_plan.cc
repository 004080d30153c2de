#include "services/trainer/data/micro_batch_plan.h"

#include <algorithm>
#include <cstddef>
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

}  // namespace

MicroBatchPlan PlanMicroBatches(absl::Span<const int64_t> lengths, int num_ranks,
                                int64_t max_tokens) {
  std::vector<int64_t> longest_first;
  for (int64_t i = 0; i < static_cast<int64_t>(lengths.size()); ++i) {
    if (lengths[i] > 0) longest_first.push_back(i);
  }
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });

  const std::vector<Bin> ranks = Spread(longest_first, lengths, num_ranks);
  std::vector<std::vector<Bin>> filled;
  size_t num_micro_batches = 1;
  for (const Bin& rank : ranks) {
    filled.push_back(FirstFit(rank.items, lengths, max_tokens));
    num_micro_batches = std::max(num_micro_batches, filled.back().size());
  }

  MicroBatchPlan plan(num_ranks);
  for (int r = 0; r < num_ranks; ++r) {
    // Even micro-batches keep the ranks in step; where spreading would break the limit, full ones
    // stay.
    std::vector<Bin> even = Spread(ranks[r].items, lengths, num_micro_batches);
    const bool fits = std::all_of(even.begin(), even.end(), [&](const Bin& bin) {
      return bin.tokens <= max_tokens || bin.items.size() == 1;
    });
    std::vector<Bin>& bins = fits ? even : filled[r];
    bins.resize(num_micro_batches);
    for (Bin& bin : bins) {
      std::sort(bin.items.begin(), bin.items.end());
      plan[r].push_back(std::move(bin.items));
    }
  }
  return plan;
}

}  // namespace tandem::trainer
