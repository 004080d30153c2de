#include "common/net/reserved_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "common/host/file_descriptor.h"
#include "tests/support/status_matchers.h"

namespace tandem::net {
namespace {

TEST(ReservedPort, IsFreeAndNeverGivenTwice) {
  std::set<int> ports;
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK_AND_ASSIGN(const int port, ReservePort());
    EXPECT_TRUE(ports.insert(port).second) << port;
    const host::FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << port;
  }
}

TEST(ReservedPort, IsNoneOfThoseThatTheSystemHandsOut) {
  int first = 0;
  int last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first < 20000 && last > 60999) GTEST_SKIP() << "the system hands out nearly all ports";
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK_AND_ASSIGN(const int port, ReservePort());
    EXPECT_TRUE(port < first || port > last) << port;
  }
}

TEST(ReservedPort, AnotherProcessIsGivenOthers) {
  // Both take as many as there is a fair chance that they meet, were they not kept apart.
  constexpr int kPorts = 300;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (int i = 0; i < kPorts; ++i) {
      const int port = ReservePort().value_or(0);
      if (write(ends[1], &port, sizeof(port)) != sizeof(port)) _exit(1);
    }
    close(ends[1]);
    for (;;) pause();  // holds them
  }
  close(ends[1]);
  std::set<int> ports;
  for (int i = 0; i < kPorts; ++i) {
    ASSERT_OK_AND_ASSIGN(const int port, ReservePort());
    ports.insert(port);
    int other = 0;
    ASSERT_EQ(read(ends[0], &other, sizeof(other)), static_cast<ssize_t>(sizeof(other)));
    ASSERT_GT(other, 0);
    EXPECT_TRUE(ports.insert(other).second) << other;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
}

}  // namespace
}  // namespace tandem::net
