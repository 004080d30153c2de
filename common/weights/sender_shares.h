// SenderShares: divides data with several holders among the senders to balance their load. The
// second step of a reshard plan (reshard_plan.h).
#ifndef TANDEM_COMMON_WEIGHTS_SENDER_SHARES_H_
#define TANDEM_COMMON_WEIGHTS_SENDER_SHARES_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "common/weights/reshard_plan.h"
#include "common/weights/reshard_regions.h"

namespace tandem::weights {

class SenderShares {
 public:
  explicit SenderShares(int num_senders) : loads_(num_senders) {}

  // `receiver` wants `match.piece` (b) of `region` (a) and stores it at `to`.
  void Add(const Region& region, const PieceMatch& match, int32_t receiver, const Place& to);

  // Calls `give` for every portion with its sender. Smaller groups of senders come first; data with
  // a single holder is passed uncut. Within a group, fills each sender up to a common load, in the
  // order of Add(), so a group of n makes at most n - 1 cuts.
  void Give(absl::FunctionRef<void(int32_t sender, int32_t receiver, const MessagePiece&)> give);

 private:
  struct Wanted {
    MessagePiece piece;  // `from`: no block; offset is relative to the region
    int32_t receiver = 0;
    std::vector<Region::Source> sources;
  };
  struct Group {
    std::vector<int32_t> senders;
    std::vector<Wanted> wanted;
    int64_t elements = 0;
  };

  // Number of elements that each of the group's senders gives.
  std::vector<int64_t> Quotas(const Group& group) const;

  std::vector<int64_t> loads_;  // elements, by sender
  std::vector<Group> groups_;   // in order of first Add()
  absl::flat_hash_map<std::vector<int32_t>, size_t> group_index_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_SENDER_SHARES_H_
