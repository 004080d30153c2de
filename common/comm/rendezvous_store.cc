#include "common/comm/rendezvous_store.h"

#include <c10/util/Exception.h>

#include <utility>

#include "absl/time/clock.h"
#include "common/comm/run_with_deadline.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;

void ThrowUnless(const absl::Status& status) {
  if (!status.ok()) C10_THROW_ERROR(DistStoreError, std::string(status.message()));
}

}  // namespace

c10::intrusive_ptr<RendezvousStore> RendezvousStore::Connect(
    const Rendezvous& rendezvous, absl::Duration timeout, std::shared_ptr<std::atomic<bool>> stop) {
  auto connection =
      StoreConnection::Open(rendezvous, absl::Now() + timeout, [stop] { return stop->load(); });
  ThrowUnless(connection.status());
  return c10::make_intrusive<RendezvousStore>(rendezvous, *std::move(connection), timeout,
                                              std::move(stop));
}

RendezvousStore::RendezvousStore(Rendezvous rendezvous, std::unique_ptr<StoreConnection> connection,
                                 absl::Duration timeout, std::shared_ptr<std::atomic<bool>> stop)
    : Store(ToMilliseconds(timeout)),
      rendezvous_(std::move(rendezvous)),
      stop_(std::move(stop)),
      connection_(std::move(connection)) {}

absl::Time RendezvousStore::Deadline() const {
  return absl::Now() + absl::Milliseconds(timeout_.count());
}

Cancelled RendezvousStore::Stopped() const {
  return [stop = stop_] { return stop->load(); };
}

c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() {
  return Connect(rendezvous_, absl::Milliseconds(timeout_.count()), stop_);
}

void RendezvousStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  absl::MutexLock lock(&mu_);
  ThrowUnless(connection_->Set(key, std::string(value.begin(), value.end()), Deadline()));
}

std::vector<uint8_t> RendezvousStore::get(const std::string& key) {
  wait({key});
  absl::MutexLock lock(&mu_);
  const auto value = connection_->Read(key, Deadline(), Stopped());
  ThrowUnless(value.status());
  return std::vector<uint8_t>(value->begin(), value->end());
}

int64_t RendezvousStore::add(const std::string& key, int64_t delta) {
  absl::MutexLock lock(&mu_);
  const auto value = connection_->Add(key, delta, Deadline());
  ThrowUnless(value.status());
  return *value;
}

bool RendezvousStore::deleteKey(const std::string&) {
  C10_THROW_ERROR(NotImplementedError, "the rendezvous store cannot delete keys");
}

bool RendezvousStore::check(const std::vector<std::string>& keys) {
  absl::MutexLock lock(&mu_);
  for (const std::string& key : keys) {
    const auto there = connection_->Check(key, Deadline(), Stopped());
    ThrowUnless(there.status());
    if (!*there) return false;
  }
  return true;
}

int64_t RendezvousStore::getNumKeys() {
  C10_THROW_ERROR(NotImplementedError, "the rendezvous store cannot count keys");
}

void RendezvousStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void RendezvousStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const absl::Time deadline = absl::Now() + absl::Milliseconds(timeout.count());
  for (const std::string& key : keys) {
    absl::MutexLock lock(&mu_);
    ThrowUnless(connection_->WaitFor(key, deadline, Stopped()));
  }
}

}  // namespace tandem::comm
