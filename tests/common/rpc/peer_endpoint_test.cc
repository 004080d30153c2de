#include "common/rpc/peer_endpoint.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/host/file_descriptor.h"

namespace tandem::rpc {
namespace {

PeerEndpoint PeerOf(const std::string& peer) { return PeerEndpoint::Parse(peer).value(); }

TEST(PeerEndpoint, IsReadAsGrpcWritesIt) {
  EXPECT_EQ(PeerOf("ipv4:10.0.0.1:4711"), PeerOf("ipv6:%5B::ffff:10.0.0.1%5D:4711"));
  EXPECT_EQ(PeerOf("ipv6:%5Bfe80::1%25eth0%5D:7").port, 7);
  for (const char* peer :
       {"", "unix:", "ipv4:", "ipv4:x:1", "ipv6:%5B::1%5D", "ipv6:%5B::1%5D:x"}) {
    EXPECT_FALSE(PeerEndpoint::Parse(peer).has_value()) << peer;
  }
}

// A connection to a listener of this process, and what gRPC would call its client.
class EndConnectionTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const host::FileDescriptor listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    if (!GetParam()) inet_pton(AF_INET6, "::1", &address.sin6_addr);  // else every address
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener.get(), any, size) != 0) GTEST_SKIP() << "no IPv6 here";
    ASSERT_EQ(listen(listener.get(), 1), 0);
    ASSERT_EQ(getsockname(listener.get(), any, &size), 0);
    port_ = ntohs(address.sin6_port);
    sockaddr_in v4{};
    if (GetParam()) {
      v4.sin_family = AF_INET;
      v4.sin_port = address.sin6_port;
      v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      any = reinterpret_cast<sockaddr*>(&v4);
      size = sizeof(v4);
    }
    client_ = host::FileDescriptor(socket(any->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(client_.get(), any, size), 0);
    accepted_ = host::FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(accepted_.is_open());
    ASSERT_EQ(getsockname(client_.get(), any, &size), 0);
    peer_ = GetParam() ? absl::StrCat("ipv4:127.0.0.1:", ntohs(v4.sin_port))
                       : absl::StrCat("ipv6:%5B::1%5D:", ntohs(address.sin6_port));
  }

  host::FileDescriptor client_, accepted_;
  int port_ = 0;
  std::string peer_;
};

TEST_P(EndConnectionTest, EndsTheOneAndDropsWhatItSent) {
  ASSERT_EQ(send(client_.get(), "bytes", 5, 0), 5);
  EXPECT_TRUE(EndConnection(accepted_.get(), PeerOf(peer_), port_));
  char byte;
  EXPECT_LE(recv(accepted_.get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_LE(recv(client_.get(), &byte, 1, 0), 0);
  EXPECT_FALSE(EndConnection(accepted_.get(), PeerOf(peer_), port_));
}

TEST_P(EndConnectionTest, LeavesOthersAlone) {
  EXPECT_FALSE(EndConnection(accepted_.get(), PeerOf(peer_), port_ + 1));
  EXPECT_FALSE(EndConnection(accepted_.get(), PeerOf("ipv4:127.0.0.2:1"), port_));
  EXPECT_FALSE(EndConnection(client_.get(), PeerOf(peer_), port_));
  EXPECT_FALSE(EndConnection(-1, PeerOf(peer_), port_));
  EXPECT_EQ(send(client_.get(), "b", 1, MSG_NOSIGNAL), 1);
  char byte;
  EXPECT_EQ(recv(accepted_.get(), &byte, 1, 0), 1);
}

INSTANTIATE_TEST_SUITE_P(Families, EndConnectionTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "V4OfAListenerOfBoth" : "V6";
});

}  // namespace
}  // namespace tandem::rpc
