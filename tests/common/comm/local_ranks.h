// Ranks of a group as threads of one process, each with its own connections.
#ifndef TANDEM_TESTS_COMMON_COMM_LOCAL_RANKS_H_
#define TANDEM_TESTS_COMMON_COMM_LOCAL_RANKS_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/comm/shared_message_group.h"
#include "tests/common/comm/encrypted_groups.h"

namespace tandem::comm {

inline GroupOptions LocalOptions(int port, int rank, int size,
                                 absl::Duration timeout = absl::Seconds(30)) {
  GroupOptions options;
  options.name = "test";
  options.rank = rank;
  options.size = size;
  options.timeout = timeout;
  options.rendezvous.port = port;
  options.rendezvous.prefix = "test";
  return options;
}

// A way to make a group, and its name for the command line of comm_peer and the names of tests.
struct Backend {
  const char* name;
  absl::StatusOr<std::unique_ptr<ProcessGroup>> (*create)(const GroupOptions& options);
};
inline constexpr Backend kGloo = {"Gloo", &CreateGlooGroup};
inline constexpr Backend kSharedMemory = {"SharedMemory", &CreateSharedMemoryGroup};
inline constexpr Backend kSharedMessages = {"SharedMessages", &CreateSharedMessageGroup};
inline constexpr Backend kSocket = {"Socket", &CreateSocketGroup};
inline constexpr Backend kLocalSocket = {"LocalSocket", &CreateLocalSocketGroup};

inline constexpr Backend kTls = {"Tls", &CreateTlsGroup};
inline constexpr Backend kTlsSocket = {"TlsSocket", &CreateTlsSocketGroup};

inline std::string BackendName(const ::testing::TestParamInfo<Backend>& info) {
  return info.param.name;
}

// Calls `body` on every rank, on threads; answers each rank's status.
inline std::vector<absl::Status> RunRanks(int size, const Backend& backend,
                                          const std::function<absl::Status(ProcessGroup&)>& body,
                                          absl::Duration timeout = absl::Seconds(30)) {
  auto store = StoreServer::Start();
  if (!store.ok()) return {store.status()};
  std::vector<absl::Status> results(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = backend.create(LocalOptions((*store)->port(), rank, size, timeout));
      results[rank] = group.ok() ? body(**group) : group.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace tandem::comm

#endif  // TANDEM_TESTS_COMMON_COMM_LOCAL_RANKS_H_
