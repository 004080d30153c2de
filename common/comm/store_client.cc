#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/process_group.h"
#include "common/comm/store_connection.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

Cancelled WhenNotified(const absl::Notification* cancel) {
  if (cancel == nullptr) return nullptr;
  return [cancel] { return cancel->HasBeenNotified(); };
}

class ConnectedStoreClient : public StoreClient {
 public:
  ConnectedStoreClient(std::unique_ptr<StoreConnection> connection, absl::Duration timeout)
      : connection_(std::move(connection)), timeout_(timeout) {}

  absl::Status Set(const std::string& key, const std::string& value) override {
    absl::MutexLock lock(&mu_);
    return connection_->Set(key, value, absl::Now() + timeout_);
  }

  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout,
                                  const absl::Notification* cancel) override {
    absl::MutexLock lock(&mu_);
    const absl::Time deadline = absl::Now() + timeout;
    RETURN_IF_ERROR(connection_->WaitFor(key, deadline, WhenNotified(cancel)));
    return connection_->Read(key, absl::Now() + timeout_, WhenNotified(cancel));
  }

  void StopWaiting() override { connection_->StopWaiting(); }

 private:
  absl::Mutex mu_;  // held while a call waits
  const std::unique_ptr<StoreConnection> connection_;
  const absl::Duration timeout_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreClient>> StoreClient::Connect(
    const Rendezvous& rendezvous, absl::Duration timeout, const absl::Notification* cancel) {
  if (rendezvous.port <= 0 || rendezvous.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous port: expected 1 to 65535, found ", rendezvous.port));
  }
  ASSIGN_OR_RETURN(auto connection,
                   StoreConnection::Open(rendezvous, absl::Now() + timeout, WhenNotified(cancel)));
  return std::make_unique<ConnectedStoreClient>(std::move(connection), timeout);
}

}  // namespace tandem::comm
