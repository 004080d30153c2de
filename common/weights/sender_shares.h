// SenderShares: shares out among senders what several of them hold, so that all send alike. The
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

  // `receiver` wants `match.piece` (b) of `region` (a), which lies at `to` there.
  void Add(const Region& region, const PieceMatch& match, int32_t receiver, const Place& to);

  // Calls `give` for every portion with its sender. What one sender alone holds is given as it was
  // added; then group by group of senders that hold the same, smaller groups first: each sender is
  // filled up to the level at which all of the group have sent the same, in the order of Add(), so
  // that a group of n cuts n - 1 pieces.
  void Give(absl::FunctionRef<void(int32_t sender, int32_t receiver, const MessagePiece&)> give);

 private:
  struct Wanted {
    MessagePiece piece;  // `from` without block, and with the offset within the region
    int32_t receiver = 0;
    std::vector<Region::Source> sources;
  };
  struct Group {
    std::vector<int32_t> senders;
    std::vector<Wanted> wanted;
    int64_t elements = 0;
  };

  // How many elements each of the group's senders is to give.
  std::vector<int64_t> Quotas(const Group& group) const;

  std::vector<int64_t> loads_;  // elements, by sender
  std::vector<Group> groups_;   // in order of first mention
  absl::flat_hash_map<std::vector<int32_t>, size_t> group_index_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_SENDER_SHARES_H_
