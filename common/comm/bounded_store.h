// A c10d store over TCP whose waits end soon after `stop` is set, so that a thread that was left behind
// in one does not stay. Internal to common/comm: c10d's headers are heavy.
#ifndef TANDEM_COMMON_COMM_BOUNDED_STORE_H_
#define TANDEM_COMMON_COMM_BOUNDED_STORE_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "common/comm/process_group.h"

namespace tandem::comm {

class BoundedStore : public c10d::Store {
 public:
  // Connects to rendezvous.host:port; keys get rendezvous.prefix. Throws like TCPStore. May block for
  // longer than `timeout` where the server's host accepts but its process stands still.
  static c10::intrusive_ptr<BoundedStore> Connect(const Rendezvous& rendezvous, absl::Duration timeout,
                                                  std::shared_ptr<std::atomic<bool>> stop);

  BoundedStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix,
               std::chrono::milliseconds timeout, std::shared_ptr<std::atomic<bool>> stop);

  // Waits for a key; throws after `timeout` or once `stop` is set.
  void Wait(const std::string& key, std::chrono::milliseconds timeout, const std::atomic<bool>& stop);
  // The value of a key that is there.
  std::vector<uint8_t> Read(const std::string& key) { return store_->get(Full(key)); }

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  std::string Full(const std::string& key) const { return prefix_ + "/" + key; }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  std::shared_ptr<std::atomic<bool>> stop_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_BOUNDED_STORE_H_
