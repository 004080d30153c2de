// RendezvousStore: adapts the rendezvous store to c10d. Internal to common/comm: c10d's headers are
// heavy.
#ifndef TANDEM_COMMON_COMM_RENDEZVOUS_STORE_H_
#define TANDEM_COMMON_COMM_RENDEZVOUS_STORE_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/process_group.h"
#include "common/comm/store_connection.h"

namespace tandem::comm {

// Waits end soon after `stop` is set, so that an abandoned thread does not stay in one. Throws
// exceptions on errors, as c10d expects. Any thread.
class RendezvousStore : public c10d::Store {
 public:
  static c10::intrusive_ptr<RendezvousStore> Connect(const Rendezvous& rendezvous,
                                                     absl::Duration timeout,
                                                     std::shared_ptr<std::atomic<bool>> stop);

  RendezvousStore(Rendezvous rendezvous, std::unique_ptr<StoreConnection> connection,
                  absl::Duration timeout, std::shared_ptr<std::atomic<bool>> stop);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  absl::Time Deadline() const;
  Cancelled Stopped() const;

  const Rendezvous rendezvous_;
  const std::shared_ptr<std::atomic<bool>> stop_;
  absl::Mutex mu_;
  const std::unique_ptr<StoreConnection> connection_ ABSL_PT_GUARDED_BY(mu_);
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_RENDEZVOUS_STORE_H_
