// GlooState: what the operations of a Gloo group share: its backend, whether it is broken, and who
// watches that an operation ends when its peer does.
//
// Gloo has no abort. What it has: when a wait for a buffer times out, every connection of the
// context is closed, which ends operations here and, by the closed sockets, on the peers. Break()
// makes that happen on purpose: it posts a receive that nobody sends to and lets it time out at
// once.
//
// Nor does it end all of them. An operation whose message was in the middle of a socket when the
// connection closed is told nothing, and waits for its own time-out (seen in Gloo as of PyTorch
// 2.11: a closing pair tells the buffers of its queues, not that of the message it was reading or
// writing). So nothing here waits inside of Gloo for longer than the group is whole:
// - a collective is waited for until it is done or the group broken, whichever comes first; one
//   that Gloo has kept is left to it, and its thread ends with its time-out, after the group;
// - sends and receives are called off;
// - of each peer a message is awaited that never comes, and a thread looks whether its connection
//   still stands. An operation that is under way for kGoneGrace after a peer has gone ends for it.
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

// Gloo's own timers run a little longer than ours, so that ours give the message.
inline constexpr absl::Duration kGlooSlack = absl::Seconds(2);

// Outlives the group while operations are under way. Any thread.
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
    bool is_message = false;  // sent or received: who waits for it waits inside of Gloo
    bool called_off = false;  // a message; guarded by the state's mutex
    bool is_done = false;     // a collective; guarded by the mutex of Shared
  };
  enum class Kind { kCollective, kSend, kReceive };
  // Issues an operation, and throws what Gloo throws. `tag`: of a message.
  using IssueCall = std::function<GlooBackendWork(c10d::ProcessGroupGloo&, int tag)>;
  absl::StatusOr<std::shared_ptr<Issued>> Issue(Operation op, Kind kind, const IssueCall& call);
  // Until it is done, the group broken or its deadline over.
  absl::Status Wait(const Issued& issued);
  void Forget(const std::shared_ptr<Issued>& issued);
  bool IsUnderWay() const;

  // Closes the connections. Answers the first reason.
  absl::Status Break(absl::Status reason);
  void SetTimeout(absl::Duration timeout);
  absl::Status status() const;

 private:
  // What is told of an operation, by threads of Gloo that may outlive the group.
  struct Shared {
    absl::Mutex mu;
    int unfinished ABSL_GUARDED_BY(mu) = 0;  // collectives
    bool broken ABSL_GUARDED_BY(mu) = false;
  };
  struct Peer {
    int rank = 0;
    GlooBackendWork work;  // receives what never comes
    std::string why;       // it is gone, since then; empty while it is not known to be
    absl::Time gone;
  };

  absl::Status BreakLocked(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Explain(const Operation& op, const std::string& what);
  // Of a collective: waits for it as Wait() does, and answers whether it is done.
  bool AwaitCollective(const Issued& issued) const;
  // The messages from and to a peer.
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
