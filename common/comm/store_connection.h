// StoreConnection: a client's connection to a rendezvous store, with a deadline for every call.
#ifndef TANDEM_COMMON_COMM_STORE_CONNECTION_H_
#define TANDEM_COMMON_COMM_STORE_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Ends a wait early when it returns true; polled every few milliseconds. May be null.
using Cancelled = std::function<bool()>;

// One thread at a time. After an error the connection is closed and every call returns UNAVAILABLE.
// If the store closed the connection because it was idle, the next call reconnects.
// Errors: DEADLINE_EXCEEDED, CANCELLED, UNAVAILABLE if the store is gone; Open() also returns
// PERMISSION_DENIED (the store refuses the rendezvous's secret, or does not know it itself),
// FAILED_PRECONDITION (no rendezvous store listens there) and RESOURCE_EXHAUSTED (descriptors).
class StoreConnection {
 public:
  // Retries until the deadline: the store may not be up yet, or may evict this connection among
  // strangers' before it has proven the secret. UNAVAILABLE once the rendezvous's unreachable_limit
  // has passed without a connection.
  static absl::StatusOr<std::unique_ptr<StoreConnection>> Open(const Rendezvous& rendezvous,
                                                               absl::Time deadline,
                                                               const Cancelled& cancelled);
  ~StoreConnection();
  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;

  absl::Status Set(const std::string& key, const std::string& value, absl::Time deadline);
  // Returns whether the key exists.
  absl::StatusOr<bool> Check(const std::string& key, absl::Time deadline,
                             const Cancelled& cancelled);
  // Waits until the key exists. The connection stays usable after a deadline or a cancellation,
  // unless the store does not respond to the cancelled wait.
  absl::Status WaitFor(const std::string& key, absl::Time deadline, const Cancelled& cancelled);
  // Ends the running WaitFor(), or the next one, with CANCELLED. Any thread.
  void StopWaiting();
  // Returns the value of a key that exists.
  absl::StatusOr<std::string> Read(const std::string& key, absl::Time deadline,
                                   const Cancelled& cancelled);
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t delta, absl::Time deadline);

  // The rendezvous's secret.
  const std::string& secret() const { return rendezvous_.secret; }

 private:
  StoreConnection(int stop_fd, std::string place, const Rendezvous& rendezvous)
      : stop_fd_(stop_fd), place_(std::move(place)), rendezvous_(rendezvous) {}

  // Connects and greets the store.
  absl::Status Establish(absl::Time deadline, const Cancelled& cancelled);
  // Reconnects if the store has closed the connection since the last call.
  absl::Status Reopen(absl::Time deadline, const Cancelled& cancelled);
  // Like WaitFor(), but no longer than the store keeps a connection that only waits.
  absl::Status WaitOnce(const std::string& key, absl::Time deadline, const Cancelled& cancelled);
  // Sends the greeting; if there is a secret, both sides prove that they know it.
  absl::Status Greet(absl::Time deadline, const Cancelled& cancelled);
  absl::Status Prove(absl::Time deadline, const Cancelled& cancelled);

  std::string Full(const std::string& key) const { return "/" + rendezvous_.prefix + "/" + key; }
  absl::Status WriteBytes(const std::string& bytes, absl::Time deadline,
                          const Cancelled& cancelled);
  absl::Status ReadBytes(void* data, size_t size, absl::Time deadline, const Cancelled& cancelled);
  absl::StatusOr<uint8_t> ReadByte(absl::Time deadline, const Cancelled& cancelled);
  // Cancels the pending wait. Returns whether the key arrived meanwhile.
  absl::StatusOr<bool> CancelWait();
  absl::Status Poll(short events, absl::Time deadline, const Cancelled& cancelled);
  absl::Status Close(absl::Status why);
  // Adds the store's address to an error.
  absl::Status Described(const absl::Status& why) const;

  int fd_ = -1;
  const int stop_fd_;        // an eventfd
  const std::string place_;  // "store 127.0.0.1:4711"
  const Rendezvous rendezvous_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_STORE_CONNECTION_H_
