// Route: who feeds whom in an update. It tells every rank where its bytes come from and where they
// go next, and reads the ranks' reports of a failure accordingly.
//
//   StarRoute     broadcast        the leader and all replicas are in one group. Bytes that not all
//                                  ranks hold pass from rank r of a replica to rank r of the next
//                                  one with as many ranks; the leader feeds the first of them
//   ChainRoute    reshard, delta   the trainer feeds the first replica, each replica the next; every
//                                  link is a group of its own
//   StreamRoute   stream           one replica reads from another; there is no group
//
// Immutable, so thread-safe.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_ROUTE_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_ROUTE_H_

#include <optional>
#include <string>
#include <vector>

#include "services/trainer/publish/replica_client.h"
#include "services/trainer/publish/transfer_blame.h"
#include "tandem/common/v1/weights.pb.h"
#include "tandem/rollout/v1/weight_service.pb.h"

namespace tandem::trainer {

class Route {
 public:
  using Replicas = std::vector<ReplicaClient*>;  // of an attempt, in feeding order
  // One rank of a replica, by number.
  struct Receiver {
    int replica = 0;
    int rank = 0;
  };

  virtual ~Route() = default;

  // Fills in how the bytes reach the receiver, and whom it feeds. `rendezvous` has the host, the
  // port and the backend, and the prefix of the leader's group.
  virtual void Fill(const Replicas& replicas, Receiver receiver, bool delta,
                    const common::v1::GroupRendezvous& rendezvous,
                    rollout::v1::BeginUpdateRequest& request) const = 0;
  // Name of the sender that the receiver reports as `from`: "trainer/RANK" or "REPLICA/RANK".
  virtual std::string SenderName(const Replicas& replicas, Receiver receiver, int from) const = 0;
  // After a failed transfer: the replica whose incoming link broke, if the ranks' reports tell.
  // `reports` are in order of arrival, none of a rank that did not reach the rendezvous.
  virtual std::optional<int> BrokenLink(const std::vector<TransferReport>& reports,
                                        int num_replicas) const = 0;
};

// The number of ranks of each.
std::vector<int> RanksOf(const Route::Replicas& replicas);

// A route over groups, of which the leader is in the first.
class GroupRoute : public Route {
 public:
  // Whether a replica must be fed before another; equal ones may come in any order.
  // `feeds_nobody`: the replica could not feed another lately.
  struct Candidate {
    int num_ranks = 0;
    bool feeds_nobody = false;
  };
  virtual bool FeedsBefore(const Candidate& a, const Candidate& b) const = 0;
  // Prefixes of the groups in the rendezvous store, the leader's first.
  virtual std::vector<std::string> GroupPrefixes(const std::string& prefix,
                                                 int num_replicas) const = 0;
  // Number of ranks in the leader's group.
  virtual int LeaderGroupSize(const Replicas& replicas) const = 0;
};

class StarRoute : public GroupRoute {
 public:
  // The replicas' first ranks in the group of a fleet of replicas with these numbers of ranks.
  static std::vector<int> FirstRanks(const std::vector<int>& fleet);

  void Fill(const Replicas& replicas, Receiver receiver, bool delta,
            const common::v1::GroupRendezvous& rendezvous,
            rollout::v1::BeginUpdateRequest& request) const override;
  std::string SenderName(const Replicas& replicas, Receiver receiver, int from) const override;
  std::optional<int> BrokenLink(const std::vector<TransferReport>& reports,
                                int num_replicas) const override;
  bool FeedsBefore(const Candidate&, const Candidate&) const override { return false; }
  std::vector<std::string> GroupPrefixes(const std::string& prefix, int) const override {
    return {prefix};
  }
  int LeaderGroupSize(const Replicas& replicas) const override;
};

class ChainRoute : public GroupRoute {
 public:
  // `num_senders`: ranks of the trainer, all of which send.
  explicit ChainRoute(int num_senders) : num_senders_(num_senders) {}

  void Fill(const Replicas& replicas, Receiver receiver, bool delta,
            const common::v1::GroupRendezvous& rendezvous,
            rollout::v1::BeginUpdateRequest& request) const override;
  std::string SenderName(const Replicas& replicas, Receiver receiver, int from) const override;
  std::optional<int> BrokenLink(const std::vector<TransferReport>& reports,
                                int num_replicas) const override;
  // Replicas with more ranks feed those with fewer; one that could not feed comes last.
  bool FeedsBefore(const Candidate& a, const Candidate& b) const override;
  std::vector<std::string> GroupPrefixes(const std::string& prefix,
                                         int num_replicas) const override;
  int LeaderGroupSize(const Replicas& replicas) const override;

 private:
  const int num_senders_;
};

class StreamRoute : public Route {
 public:
  // The reader has as many ranks as the source; rank r reads from rank r.
  explicit StreamRoute(const ReplicaEndpoint& source) : source_(source) {}

  void Fill(const Replicas& replicas, Receiver receiver, bool delta,
            const common::v1::GroupRendezvous& rendezvous,
            rollout::v1::BeginUpdateRequest& request) const override;
  std::string SenderName(const Replicas& replicas, Receiver receiver, int from) const override;
  // The only link.
  std::optional<int> BrokenLink(const std::vector<TransferReport>&, int) const override {
    return 0;
  }

 private:
  const ReplicaEndpoint source_;
};

// The group at `prefix` of a rendezvous, for one of its ranks.
common::v1::GroupRendezvous GroupOf(common::v1::GroupRendezvous rendezvous,
                                    const std::string& prefix, int rank, int size);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_ROUTE_H_
