// NcclConnection: one communicator, the operations in flight on it, and their deadlines.
//
// A communicator is non-blocking: a call that has to connect to peers returns at once and is
// polled. Nothing relies on that: no lock is held across a call to NCCL, and an abort waits for a
// call only a moment. NcclWatchdog looks at every connection of the process and breaks those with an
// operation that failed or is past its deadline, so a thread that waits on the device (for a
// tensor's value, say) is released too.
//
// Breaking a connection breaks all of its family in this process, and their communicators are
// aborted in one NCCL group: aborted one by one, the first could wait for a kernel of the second
// (nccl#549).
//
// Operations that are issued while a graph is captured become part of it and are not watched: only a
// replay runs them, for which WatchQueued() is called.
//
// Threads: one thread issues operations; any thread may call the rest. `mu_` is held for bookkeeping
// only.
#ifndef TANDEM_COMMON_COMM_NCCL_CONNECTION_H_
#define TANDEM_COMMON_COMM_NCCL_CONNECTION_H_

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/comm/nccl_api.h"

namespace tandem::comm {

class NcclConnection : public std::enable_shared_from_this<NcclConnection> {
 public:
  class Operation;
  // Calls NCCL; returns its result.
  using Call = absl::FunctionRef<int(NcclApi&, NcclCommunicator*, const device::Stream&)>;

  // Takes over `comm`, and gives the connection to the watchdog. Throws if the device makes no
  // stream.
  static std::shared_ptr<NcclConnection> Create(std::string name, std::string family,
                                                absl::Duration timeout,
                                                std::shared_ptr<NcclApi> api,
                                                NcclCommunicator* comm);

  const std::string& name() const { return name_; }
  const std::string& family() const { return family_; }
  NcclApi& api() { return *api_; }

  // Issues an operation, after the current stream's work, on the connection's stream. Keeps
  // `tensors` until the operation is done or Wait() has ordered the current stream after it.
  // Returns by the operation's deadline.
  absl::StatusOr<std::shared_ptr<Operation>> Issue(std::string what,
                                                   std::vector<at::Tensor> tensors, Call call);
  // Watches what is queued on the current stream until now, like an operation that is issued now.
  absl::Status WatchQueued(std::string what);
  // Makes the current stream wait for the operation. Returns at once.
  absl::Status Wait(Operation& operation);
  // Whether the device has finished the operation. True also once the connection is broken.
  bool IsCompleted(Operation& operation);

  // Breaks the connection if an operation has failed or is past its deadline.
  absl::Status Look();
  // The same, and asks NCCL for asynchronous errors unless a call is under way.
  absl::Status LookAtCommunicator();
  // Returns the reason for which the connection is broken: `reason`, or an earlier one. Starts the
  // abort and does not wait for it.
  absl::Status Break(absl::Status reason);
  absl::Status status() const;
  void SetTimeout(absl::Duration timeout);
  // Ends the connection: closes an idle communicator, aborts a busy one.
  void Close();

  // For the abort of a family. ClaimAbort() breaks the connection if it is not broken and returns
  // whether the caller has to abort it: true once.
  bool ClaimAbort(const absl::Status& reason);
  // Waits a moment for the call under way to notice the break; then returns the communicator.
  NcclCommunicator* AwaitIdle();
  // Releases the operations' tensors once their kernels have ended.
  void Aborted();

 private:
  NcclConnection(std::string name, std::string family, absl::Duration timeout,
                 std::shared_ptr<NcclApi> api, NcclCommunicator* comm);

  // Polls until the communicator's call is done or the connection is broken.
  int AwaitProgress(int result);
  absl::Status ErrorOf(const std::string& what, int result);
  void FinalizeAndDestroy();
  bool HasEnded(const Operation& operation) const;

  const std::string name_;
  const std::string family_;
  const std::shared_ptr<NcclApi> api_;
  const std::unique_ptr<device::Stream> stream_;
  NcclCommunicator* const comm_;

  mutable absl::Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
  absl::Duration timeout_ ABSL_GUARDED_BY(mu_);
  bool in_call_ ABSL_GUARDED_BY(mu_) = false;
  bool abort_claimed_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // In order of issue, which is the stream's: the first is the oldest unfinished.
  std::deque<std::shared_ptr<Operation>> under_way_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_NCCL_CONNECTION_H_
