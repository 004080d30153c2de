#include "common/comm/acceptor.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <vector>

#include "absl/time/clock.h"

namespace tandem::comm {
namespace {

// A listener with `num_waiting` connections, whose other ends are kept open.
class Knocked {
 public:
  explicit Knocked(int num_waiting)
      : listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const bytes = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), bytes, length), 0);
    EXPECT_EQ(listen(listener.get(), kListenBacklog), 0);
    EXPECT_EQ(getsockname(listener.get(), bytes, &length), 0);
    for (int i = 0; i < num_waiting; ++i) {
      clients.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(connect(clients.back().get(), bytes, length), 0);
    }
  }

  const host::FileDescriptor listener;
  std::vector<host::FileDescriptor> clients;
};

// No descriptor above those that are open can be had until the end of the scope.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    // The lowest that is free.
    none.rlim_cur = static_cast<rlim_t>(host::FileDescriptor(dup(0)).get());
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(Acceptor, TakesWhatWaits) {
  const Knocked knocked(3);
  Acceptor acceptor;
  int taken = 0;
  acceptor.Accept(
      knocked.listener, [&](host::FileDescriptor, const sockaddr_storage&, socklen_t) { ++taken; },
      [] { return false; });
  EXPECT_EQ(taken, 3);
  EXPECT_FALSE(acceptor.is_paused(absl::Now()));
}

TEST(Acceptor, PausesWhereThereIsNoDescriptorAndNoRoomCanBeMade) {
  const Knocked knocked(1);
  Acceptor acceptor;
  int taken = 0;
  const auto take = [&](host::FileDescriptor, const sockaddr_storage&, socklen_t) { ++taken; };
  const absl::Time before = absl::Now();
  {
    const NoMoreDescriptors scarce;
    acceptor.Accept(knocked.listener, take, [] { return false; });
  }
  EXPECT_EQ(taken, 0);
  EXPECT_TRUE(acceptor.is_paused(before));
  EXPECT_GT(acceptor.paused_until(), before);
  acceptor.Accept(knocked.listener, take, [] { return false; });
  EXPECT_EQ(taken, 1);
}

TEST(Acceptor, TakesTheDescriptorOfOneThatMakesRoom) {
  Knocked knocked(2);
  host::FileDescriptor oldest(dup(0));
  Acceptor acceptor;
  std::vector<host::FileDescriptor> taken;
  const NoMoreDescriptors scarce;
  acceptor.Accept(
      knocked.listener,
      [&](host::FileDescriptor fd, const sockaddr_storage&, socklen_t) {
        taken.push_back(std::move(fd));
      },
      [&] {
        const bool has_room = oldest.is_open();
        oldest = host::FileDescriptor();
        return has_room;
      });
  EXPECT_EQ(taken.size(), 1u);
}

}  // namespace
}  // namespace tandem::comm
