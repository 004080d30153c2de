// ProcessGroup: collectives and point-to-point transfers among the ranks of one group, over Gloo on
// CPUs and NCCL on GPUs behind one interface, with deadlines and errors that name the culprit.
//
//   ASSIGN_OR_RETURN(auto group, CreateGlooGroup({.name = "fsdp", .rank = 0, .size = 2}));
//   ASSIGN_OR_RETURN(auto work, group->AllGather(full, shard, "layers.3"));   // returns at once
//   RETURN_IF_ERROR(work->Wait());                                            // by the timeout
//
// Threads: one thread per rank issues the operations of all its groups, in the same order on every
// rank; only that thread may wait for results. Any thread may call Abort().
// Errors: DEADLINE_EXCEEDED when an operation outlasts the group's timeout, UNAVAILABLE when a peer
// is gone; both name group, operation, tag, bytes, rank and, if known, the peer. After an error the
// group is broken: further operations return FAILED_PRECONDITION; create a new group.
#ifndef TANDEM_COMMON_COMM_PROCESS_GROUP_H_
#define TANDEM_COMMON_COMM_PROCESS_GROUP_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/security/data_plane.h"

namespace tandem::comm {

// An operation in flight. It holds the tensors that it reads and writes; do not touch them until
// Wait() has returned OK.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until the operation is done on this rank, at most until its deadline. On NCCL it makes
  // the current stream wait and returns; errors surface at the next operation, or in WaitOnHost().
  virtual absl::Status Wait() = 0;
  // True once Wait() would not block. Gloo's sends and receives say so only after Wait().
  virtual bool IsCompleted() = 0;
};

enum class ReduceOp { kSum, kMax, kMin };

class ProcessGroup {
 public:
  using WorkOr = absl::StatusOr<std::unique_ptr<Work>>;
  virtual ~ProcessGroup() = default;

  virtual const std::string& name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // `tag` says what the operation is for ("layers.3", "bucket 7"); it appears in errors and traces.
  // Tensors are contiguous and on the group's device.

  // full [size * n] = every rank's shard [n], in rank order; same dtype. `shard` may be the rank's
  // own slice of `full`.
  virtual WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) = 0;
  // shard [n] = sum over ranks of full[rank * n : (rank + 1) * n]. `full` may be overwritten.
  virtual WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) = 0;
  // Slice r of `out` [size * n] = slice `rank` of rank r's `in` [size * n]; same dtype. A sum of
  // these slices in a wider type than the one that travels is a ReduceScatter at half the traffic.
  virtual WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) = 0;
  virtual WorkOr AllReduce(at::Tensor tensor, ReduceOp op, absl::string_view tag) = 0;
  virtual WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) = 0;
  // Point to point; messages between a pair of ranks arrive in the order in which they were sent.
  virtual WorkOr Send(at::Tensor tensor, int to, absl::string_view tag) = 0;
  virtual WorkOr Receive(at::Tensor tensor, int from, absl::string_view tag) = 0;
  // Returns when every rank has entered. Blocks.
  virtual absl::Status Barrier(absl::string_view tag) = 0;

  // Sets the timeout of operations issued from now on, counted from their issue.
  virtual void SetTimeout(absl::Duration timeout) = 0;

  // OK, or the reason why the group is broken. Any thread.
  virtual absl::Status status() const = 0;

  // Fails all operations in flight, here and (through the closed connections) on the peers.
  // Idempotent; safe from any thread.
  virtual void Abort(absl::string_view reason) = 0;
};

// Where the ranks of a group rendezvous: a TCP store that one of them (or another process) serves.
// `prefix` separates groups, and incarnations of a group, in one store.
struct Rendezvous {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string prefix;
  // Secret shared by the members, who prove to the store and to each other that they know it.
  // Empty: anyone who reaches the store may join.
  std::string secret;
  // False for a store without a secret, such as torchrun's: members prove it only to each other.
  bool store_has_secret = true;
  // How long a store that nobody can connect to is tried again, within the deadline; after that
  // UNAVAILABLE. See AfterRollCall() in roll_call.h.
  absl::Duration unreachable_limit = absl::InfiniteDuration();
};

struct GroupOptions {
  std::string name;  // for errors and traces: "fsdp", "update"
  int rank = 0;
  int size = 1;
  Rendezvous rendezvous;
  absl::Duration timeout = absl::Minutes(5);  // for the rendezvous and for each operation
  // Address at which peers reach this rank; empty: the interface that routes to the rendezvous
  // host.
  std::string advertise_host;
  // Ends the rendezvous with CANCELLED when notified; may be null. Unused once the group exists.
  const absl::Notification* cancel = nullptr;
  // Whether links are encrypted; must be the same on all ranks. See choose_group.h.
  security::DataPlaneSecurity data_plane = security::DataPlaneOfProcess();
  // NCCL groups of a process that have one family break together: after an error in one, none of them
  // is of use, and aborted one by one they could wait for each other. A group that may fail alone,
  // such as that of an update, has a family of its own.
  std::string family;
  // Where this rank runs: ranks with equal values are on one host. Empty: LocalLinks::Place().
  std::string place;
};

// Joins a group over Gloo; returns when all ranks have joined. Blocks for at most options.timeout,
// so never call it on an RPC thread. A group of size 1 needs no rendezvous. This function and the
// next ignore options.data_plane and send plaintext: CreateGroupOf() (choose_group.h) handles it.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateGlooGroup(const GroupOptions& options);

// Joins a group over NCCL on the current CUDA device. UNIMPLEMENTED in a build without TANDEM_CUDA.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateNcclGroup(const GroupOptions& options);

struct StoreServerOptions {
  // Address that clients use, a name or a number. If it is this host's, the store listens only
  // there (see ListenForStore()).
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any
  // If set, the store serves only clients that prove they know it; it refuses others, logs their
  // address and counts them (telemetry::RefusedAt::kRendezvous).
  std::string secret;
};

// A rendezvous store that this process serves until destruction. Its contents and connections are
// bounded (StoreLimits).
class StoreServer {
 public:
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const StoreServerOptions& options = {});
  virtual ~StoreServer() = default;
  // Replaces the secret, closes the connections that had proven the old one, and drops the store's
  // contents. Any thread.
  virtual void SetSecret(std::string secret) = 0;
  virtual int port() const = 0;
  // Host at which this process reaches the store.
  virtual const std::string& local_host() const = 0;
};

// A client of a rendezvous store, for small coordination outside groups (go, abort, addresses).
class StoreClient {
 public:
  static absl::StatusOr<std::unique_ptr<StoreClient>> Connect(
      const Rendezvous& rendezvous, absl::Duration timeout,
      const absl::Notification* cancel = nullptr);
  virtual ~StoreClient() = default;
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key for at most `timeout`. Errors: DEADLINE_EXCEEDED, which names the key;
  // UNAVAILABLE if the store is gone; CANCELLED once `cancel`, if given, is notified.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout,
                                          const absl::Notification* cancel = nullptr) = 0;
  // Ends the waiting Get(), or the next one that would wait, at once with CANCELLED. Any thread.
  virtual void StopWaiting() = 0;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_PROCESS_GROUP_H_
