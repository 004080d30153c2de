// GlooState: state shared by the operations of a Gloo group: its backend, whether it is broken, and
// the thread that watches for lost peers.
//
// Gloo has no abort, but when a wait for a buffer times out it closes every connection of the
// context. That ends operations here and, through the closed sockets, on the peers. Break() does
// this on purpose: it posts a receive that nobody sends to and lets it time out at once.
//
// Even that does not end all operations. One whose message was partly through a socket when the
// connection closed is not notified and waits for its own timeout (seen in Gloo as of PyTorch 2.11:
// a closing pair notifies its queued buffers, but not that of the message in transfer). So nothing
// here blocks inside Gloo after the group breaks:
// - Wait() for a collective returns once it is done or the group is broken. Gloo may keep the
//   collective; its thread then ends with its timeout, possibly after the group.
// - Break() aborts sends and receives.
// - A pending receive from each peer, which nothing ever matches, shows a watch thread whether the
//   connection is alive. Operations still running kGoneGrace after a peer is lost fail.
#ifndef TANDEM_COMMON_COMM_GLOO_STATE_H_
#define TANDEM_COMMON_COMM_GLOO_STATE_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/comm/operation.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

using GlooBackend = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using GlooBackendWork = c10::intrusive_ptr<c10d::Work>;

// Gloo's own timers run a little longer than ours, so that the error message is ours.
inline constexpr absl::Duration kGlooSlack = absl::Seconds(2);

// Outlives the group while operations are in flight. Any thread.
class GlooState {
 public:
  GlooState(const GroupOptions& options, GlooBackend backend);
  ~GlooState();

  const std::string name;
  const int rank;
  const int size;

  std::string Describe(const Operation& op) const {
    return DescribeOperation(name, rank, size, op);
  }

  // An operation on the backend, from its issue until Forget().
  struct Issued {
    Operation op;
    GlooBackendWork work;
    bool is_message = false;  // send or receive: Wait() blocks inside Gloo
    bool called_off = false;  // messages only: aborted; guarded by the state's mutex
    bool is_done = false;     // collectives only; guarded by Shared::mu
  };
  enum class Kind { kCollective, kSend, kReceive };
  // Issues an operation on the backend; throws what Gloo throws. `tag` is for messages only.
  using IssueCall = std::function<GlooBackendWork(c10d::ProcessGroupGloo&, int tag)>;
  absl::StatusOr<std::shared_ptr<Issued>> Issue(Operation op, Kind kind, const IssueCall& call);
  // Blocks until the operation is done, the group is broken or the deadline has passed.
  absl::Status Wait(const Issued& issued);
  void Forget(const std::shared_ptr<Issued>& issued);
  bool IsUnderWay() const;

  // Closes the connections. Returns the first reason given.
  absl::Status Break(absl::Status reason);
  void SetTimeout(absl::Duration timeout);
  absl::Status status() const;

 private:
  // Completion state, updated by Gloo's threads, which may outlive the group. Lock order: the
  // state's mu_ before this mu.
  struct Shared {
    absl::Mutex mu;
    int unfinished ABSL_GUARDED_BY(mu) = 0;  // collectives
    bool broken ABSL_GUARDED_BY(mu) = false;
  };
  struct Peer {
    int rank = 0;
    GlooBackendWork work;  // a receive that nothing ever matches
    std::string why;       // why the peer is lost; empty while it is alive as far as known
    absl::Time gone;       // when it was lost
  };

  absl::Status BreakLocked(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Explain(const Operation& op, const std::string& what);
  // Waits for a collective as Wait() does; returns whether it is done.
  bool AwaitCollective(const Issued& issued) const;
  // Aborts the messages from and to a peer.
  void CallOff(int peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Watch();
  void LookAt(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndWhatNeeds(const Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  mutable absl::Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  GlooBackend backend_;
  std::vector<uint32_t> sent_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> received_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Issued>> under_way_ ABSL_GUARDED_BY(mu_);
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watch_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_GLOO_STATE_H_
