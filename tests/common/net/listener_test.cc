#include "common/net/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/support/status_matchers.h"

namespace tandem::net {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Property;

SocketAddress AddressOf(const std::string& host, int port = 0) {
  return Resolve({host, port}).value().front();
}

bool CanConnect(const SocketAddress& to) {
  const host::FileDescriptor fd(socket(to.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), to.get(), to.length) == 0;
}

TEST(SocketAddress, AreThoseOfNamesAndNumbersWithTheirPort) {
  EXPECT_EQ(AddressOf("127.0.0.1", 5000).port(), 5000);
  EXPECT_FALSE(AddressOf("127.0.0.1").is_ipv6());
  EXPECT_TRUE(AddressOf("::1").is_ipv6());
  EXPECT_THAT(Resolve({"localhost", 1}).value(), Each(Property(&SocketAddress::is_loopback, true)));
  EXPECT_FALSE(AddressOf("10.0.0.7").is_loopback());
  EXPECT_THAT(Resolve({"no-such-host.invalid", 1}).status(),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  EXPECT_TRUE(IsNumber({"fe80::1%eth0", 0}));
  EXPECT_FALSE(IsNumber({"localhost", 0}));
}

TEST(Listen, TakesAFreePortAndSaysWhich) {
  ASSERT_OK_AND_ASSIGN(const Listener listener, Listen(AddressOf("127.0.0.1"), /*backlog=*/4));
  EXPECT_GT(listener.address.port(), 0);
  EXPECT_TRUE(CanConnect(listener.address));
  EXPECT_THAT(Listen(listener.address, /*backlog=*/4).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("in use")));
}

TEST(Listen, TellsAnAddressOfAnotherHost) {
  EXPECT_THAT(Listen(AddressOf("192.0.2.1"), /*backlog=*/4).status(),
              StatusIs(absl::StatusCode::kNotFound, ::testing::_));
}

TEST(ListenAtAll, TakesOnePortAtEveryAddressOfAName) {
  ASSERT_OK_AND_ASSIGN(const std::vector<Listener> listeners,
                       ListenAtAll({"localhost", 0}, /*backlog=*/4));
  for (const Listener& listener : listeners) {
    EXPECT_EQ(listener.address.port(), listeners.front().address.port());
    EXPECT_TRUE(CanConnect(listener.address));
  }
  EXPECT_THAT(ListenAtAll({"192.0.2.1", 0}, /*backlog=*/4).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("assign")));
}

TEST(ListenEverywhere, IsReachedByWhateverFamilyTheHostHas) {
  ASSERT_OK_AND_ASSIGN(const Listener listener, ListenEverywhere(/*port=*/0, /*backlog=*/4));
  EXPECT_TRUE(CanConnect(AddressOf("127.0.0.1", listener.address.port())));
  if (listener.address.is_ipv6()) {
    EXPECT_TRUE(CanConnect(AddressOf("::1", listener.address.port())));
  }
}

}  // namespace
}  // namespace tandem::net
