// StoreServer and StoreClient over c10d's TCPStore.
#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/strings/str_cat.h"
#include "common/comm/bounded_store.h"
#include "common/comm/process_group.h"
#include "common/comm/run_with_deadline.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

using StorePtr = c10::intrusive_ptr<BoundedStore>;

class TcpStoreServer : public StoreServer {
 public:
  explicit TcpStoreServer(c10::intrusive_ptr<c10d::TCPStore> store) : store_(std::move(store)) {}
  int port() const override { return store_->getPort(); }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

class TcpStoreClient : public StoreClient {
 public:
  TcpStoreClient(StorePtr store, Rendezvous rendezvous, absl::Duration timeout)
      : store_(std::move(store)), rendezvous_(std::move(rendezvous)), timeout_(timeout) {}

  absl::Status Set(const std::string& key, const std::string& value) override {
    auto abandoned = std::make_shared<std::atomic<bool>>(false);
    std::function<bool()> call = [store = store_, key, value] {
      store->set(key, std::vector<uint8_t>(value.begin(), value.end()));
      return true;
    };
    return RunWithDeadline<bool>(std::move(call), absl::Now() + timeout_, nullptr, abandoned,
                                 What("set", key))
        .status();
  }

  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout,
                                  const absl::Notification* cancel) override {
    auto abandoned = std::make_shared<std::atomic<bool>>(false);
    const auto limit = std::chrono::milliseconds(absl::ToInt64Milliseconds(timeout) + 1000);
    std::function<std::string()> call = [store = store_, key, limit, abandoned] {
      store->Wait(key, limit, *abandoned);
      const std::vector<uint8_t> value = store->Read(key);
      return std::string(value.begin(), value.end());
    };
    return RunWithDeadline<std::string>(std::move(call), absl::Now() + timeout, cancel, abandoned,
                                        What("wait for", key));
  }

 private:
  std::string What(absl::string_view verb, const std::string& key) const {
    return absl::StrCat("store ", rendezvous_.host, ":", rendezvous_.port, ": ", verb, " key ",
                        rendezvous_.prefix, "/", key);
  }

  const StorePtr store_;
  const Rendezvous rendezvous_;
  const absl::Duration timeout_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(int port) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("store port: expected 0 to 65535, found ", port));
  }
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port);
    options.isServer = true;
    options.waitWorkers = false;
    options.timeout = std::chrono::seconds(10);
    return std::make_unique<TcpStoreServer>(
        c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("store: cannot listen on port ", port, ": ", FirstLine(error.what())));
  }
}

absl::StatusOr<std::unique_ptr<StoreClient>> StoreClient::Connect(const Rendezvous& rendezvous,
                                                                  absl::Duration timeout,
                                                                  const absl::Notification* cancel) {
  if (rendezvous.port <= 0 || rendezvous.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous port: expected 1 to 65535, found ", rendezvous.port));
  }
  auto abandoned = std::make_shared<std::atomic<bool>>(false);
  std::function<StorePtr()> call = [rendezvous, timeout, abandoned] {
    return BoundedStore::Connect(rendezvous, timeout, abandoned);
  };
  ASSIGN_OR_RETURN(
      StorePtr store,
      RunWithDeadline<StorePtr>(std::move(call), absl::Now() + timeout, cancel, abandoned,
                                absl::StrCat("connect to store ", rendezvous.host, ":",
                                             rendezvous.port)));
  return std::make_unique<TcpStoreClient>(std::move(store), rendezvous, timeout);
}

}  // namespace tandem::comm
