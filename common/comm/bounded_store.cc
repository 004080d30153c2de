#include "common/comm/bounded_store.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLongestPause(16);

}  // namespace

c10::intrusive_ptr<BoundedStore> BoundedStore::Connect(const Rendezvous& rendezvous,
                                                       absl::Duration timeout,
                                                       std::shared_ptr<std::atomic<bool>> stop) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.port);
  options.isServer = false;
  options.waitWorkers = false;
  options.timeout = milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout)));
  auto store = c10::make_intrusive<c10d::TCPStore>(rendezvous.host, options);
  return c10::make_intrusive<BoundedStore>(std::move(store), rendezvous.prefix, options.timeout,
                                           std::move(stop));
}

BoundedStore::BoundedStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix,
                           milliseconds timeout, std::shared_ptr<std::atomic<bool>> stop)
    : Store(timeout), store_(std::move(store)), prefix_(std::move(prefix)), stop_(std::move(stop)) {}

c10::intrusive_ptr<c10d::Store> BoundedStore::clone() {
  return c10::make_intrusive<BoundedStore>(store_->clone(), prefix_, timeout_, stop_);
}

void BoundedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  store_->set(Full(key), value);
}

std::vector<uint8_t> BoundedStore::get(const std::string& key) {
  wait({key}, timeout_);
  return store_->get(Full(key));
}

int64_t BoundedStore::add(const std::string& key, int64_t value) {
  return store_->add(Full(key), value);
}

bool BoundedStore::deleteKey(const std::string& key) { return store_->deleteKey(Full(key)); }

bool BoundedStore::check(const std::vector<std::string>& keys) {
  std::vector<std::string> full;
  for (const std::string& key : keys) full.push_back(Full(key));
  return store_->check(full);
}

int64_t BoundedStore::getNumKeys() { return store_->getNumKeys(); }

void BoundedStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void BoundedStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  for (const std::string& key : keys) Wait(key, timeout, *stop_);
}

void BoundedStore::Wait(const std::string& key, milliseconds timeout, const std::atomic<bool>& stop) {
  // Asks now and then instead of waiting at the server: TCPStore's own wait cannot be stopped, and logs
  // a slice that passed as a failure.
  const auto deadline = steady_clock::now() + timeout;
  milliseconds pause(1);
  while (!check({key})) {
    if (stop.load() || steady_clock::now() >= deadline) {
      C10_THROW_ERROR(DistStoreError, "timed out waiting for key " + Full(key));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace tandem::comm
