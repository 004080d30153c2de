#include "common/weights/sender_shares.h"

#include <algorithm>
#include <utility>

namespace tandem::weights {
namespace {

Place Shifted(const Place& place, const Region::Source& source) {
  return {source.block, source.offset + place.offset, place.stride};
}

}  // namespace

void SenderShares::Add(const Region& region, const PieceMatch& match, int32_t receiver,
                       const Place& to) {
  std::vector<int32_t> senders;
  for (const Region::Source& source : region.sources) senders.push_back(source.rank);
  const auto [found, is_new] = group_index_.try_emplace(senders, groups_.size());
  if (is_new) groups_.emplace_back().senders = std::move(senders);
  Group& group = groups_[found->second];
  group.wanted.push_back(
      {{match.piece, {0, match.a_offset, match.a_stride}, to}, receiver, region.sources});
  group.elements += match.piece.elements();
}

std::vector<int64_t> SenderShares::Quotas(const Group& group) const {
  // The level up to which the lowest k fill, for the k at which it stays below the next.
  std::vector<int32_t> by_load = group.senders;
  // Stable, here and in Give(): every rank has to compute the same shares.
  std::stable_sort(by_load.begin(), by_load.end(),
                   [&](int32_t a, int32_t b) { return loads_[a] < loads_[b]; });
  int64_t sum = group.elements;
  int64_t filled = 0;
  int64_t level = 0;
  for (const int32_t sender : by_load) {
    if (filled > 0 && loads_[sender] >= level) break;
    sum += loads_[sender];
    ++filled;
    level = sum / filled;
  }
  // The remainder goes to the first of them.
  int64_t rest = group.elements;
  std::vector<int64_t> quotas;
  for (const int32_t sender : group.senders) {
    quotas.push_back(std::max<int64_t>(0, level - loads_[sender]));
    rest -= quotas.back();
  }
  for (size_t i = 0; rest > 0; i = (i + 1) % quotas.size()) {
    if (quotas[i] == 0 && loads_[group.senders[i]] > level) continue;
    ++quotas[i];
    --rest;
  }
  return quotas;
}

void SenderShares::Give(
    absl::FunctionRef<void(int32_t sender, int32_t receiver, const MessagePiece&)> give) {
  std::stable_sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
    return a.senders.size() < b.senders.size();
  });
  for (Group& group : groups_) {
    const std::vector<int64_t> quotas = Quotas(group);
    size_t at = 0;
    int64_t quota = quotas[0];
    for (const Wanted& wanted : group.wanted) {
      PieceCutter cutter(wanted.piece.piece, wanted.piece.from, wanted.piece.to);
      while (cutter.left() > 0) {
        while (quota == 0) quota = quotas[++at];
        MessagePiece portion;
        cutter.Take(quota, portion.piece, portion.from, portion.to);
        portion.from = Shifted(portion.from, wanted.sources[at]);
        quota -= portion.piece.elements();
        give(group.senders[at], wanted.receiver, portion);
      }
    }
    for (size_t i = 0; i < quotas.size(); ++i) loads_[group.senders[i]] += quotas[i];
    group.wanted = {};
  }
}

}  // namespace tandem::weights
