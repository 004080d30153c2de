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

// Ends a wait early when it answers true; asked every few milliseconds. May be null.
using Cancelled = std::function<bool()>;

// One thread at a time. After an error the connection is closed and every call answers UNAVAILABLE.
// One that the store closed because it was idle is made again by the next call.
// Errors: DEADLINE_EXCEEDED, CANCELLED, UNAVAILABLE where the store is gone; of Open() also
// PERMISSION_DENIED (the store refuses the rendezvous's secret, or does not know it itself),
// FAILED_PRECONDITION (no rendezvous store listens there) and RESOURCE_EXHAUSTED (descriptors).
class StoreConnection {
 public:
  // Tries until the deadline: the store may not be up yet, or evict this connection among
  // strangers' before it has proven the secret.
  static absl::StatusOr<std::unique_ptr<StoreConnection>> Open(const Rendezvous& rendezvous,
                                                               absl::Time deadline,
                                                               const Cancelled& cancelled);
  ~StoreConnection();
  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;

  absl::Status Set(const std::string& key, const std::string& value, absl::Time deadline);
  // Whether the key is there.
  absl::StatusOr<bool> Check(const std::string& key, absl::Time deadline,
                             const Cancelled& cancelled);
  // Waits until the key is there. The connection stays usable after a deadline or a cancellation,
  // unless the store did not answer either.
  absl::Status WaitFor(const std::string& key, absl::Time deadline, const Cancelled& cancelled);
  // Ends with CANCELLED a WaitFor() that is under way or the next one. Any thread.
  void StopWaiting();
  // The value of a key that is there.
  absl::StatusOr<std::string> Read(const std::string& key, absl::Time deadline,
                                   const Cancelled& cancelled);
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t delta, absl::Time deadline);

  // That of the rendezvous.
  const std::string& secret() const { return rendezvous_.secret; }

 private:
  StoreConnection(int stop_fd, std::string place, const Rendezvous& rendezvous)
      : stop_fd_(stop_fd), place_(std::move(place)), rendezvous_(rendezvous) {}

  // Connects and says hello.
  absl::Status Establish(absl::Time deadline, const Cancelled& cancelled);
  // Connects again where the store has closed the connection since the last call.
  absl::Status Reopen(absl::Time deadline, const Cancelled& cancelled);
  // WaitFor() for no longer than the store keeps who only waits.
  absl::Status WaitOnce(const std::string& key, absl::Time deadline, const Cancelled& cancelled);
  // Says hello, and where there is a secret proves it and has it proven.
  absl::Status Greet(absl::Time deadline, const Cancelled& cancelled);
  absl::Status Prove(absl::Time deadline, const Cancelled& cancelled);

  std::string Full(const std::string& key) const { return "/" + rendezvous_.prefix + "/" + key; }
  absl::Status WriteBytes(const std::string& bytes, absl::Time deadline,
                          const Cancelled& cancelled);
  absl::Status ReadBytes(void* data, size_t size, absl::Time deadline, const Cancelled& cancelled);
  absl::StatusOr<uint8_t> ReadByte(absl::Time deadline, const Cancelled& cancelled);
  // Takes the wait that was asked for back. Answers whether the key came meanwhile.
  absl::StatusOr<bool> CancelWait();
  absl::Status Poll(short events, absl::Time deadline, const Cancelled& cancelled);
  absl::Status Close(absl::Status why);
  // With the place.
  absl::Status Described(const absl::Status& why) const;

  int fd_ = -1;
  const int stop_fd_;        // an eventfd
  const std::string place_;  // "store 127.0.0.1:4711"
  const Rendezvous rendezvous_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_STORE_CONNECTION_H_
