#include "common/net/global_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::net {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status Check(const std::string& host) {
  auto addresses = Resolve({host, 80});
  if (!addresses.ok()) return addresses.status();
  EXPECT_EQ(addresses->size(), 1u) << host;
  return CheckGlobal(addresses->front());
}

TEST(GlobalAddress, TakesThoseOfThePublicInternet) {
  for (const char* host :
       {"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.0",
        "172.15.255.255", "172.32.0.0", "192.167.1.1", "192.169.0.1", "198.17.255.255",
        "198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e",
        "2001:200::1", "2400:cb00::1"}) {
    EXPECT_OK(Check(host)) << host;
  }
}

TEST(GlobalAddress, RefusesTheOthersByWhatTheyAre) {
  const std::pair<const char*, const char*> cases[] = {
      {"0.0.0.0", "this network"},
      {"0.1.2.3", "this network"},
      {"10.0.0.1", "private"},
      {"10.255.255.255", "private"},
      {"100.64.0.1", "shared"},
      {"100.127.255.255", "shared"},
      {"127.0.0.1", "loopback"},
      {"127.255.0.1", "loopback"},
      {"169.254.169.254", "link-local"},
      {"172.16.0.1", "private"},
      {"172.31.255.255", "private"},
      {"192.0.0.8", "protocols"},
      {"192.0.2.1", "documentation"},
      {"192.88.99.1", "6to4"},
      {"192.168.255.1", "private"},
      {"198.18.0.1", "benchmarks"},
      {"198.19.255.255", "benchmarks"},
      {"198.51.100.7", "documentation"},
      {"203.0.113.7", "documentation"},
      {"224.0.0.1", "multicast"},
      {"239.255.255.255", "multicast"},
      {"240.0.0.1", "reserved"},
      {"255.255.255.255", "reserved"},
      {"::", "unspecified"},
      {"::1", "loopback"},
      {"::ffff:127.0.0.1", "mapped"},
      {"::ffff:8.8.8.8", "mapped"},
      {"::8.8.8.8", "not given out"},
      {"64:ff9b::8.8.8.8", "NAT64"},
      {"64:ff9b:1::1", "NAT64"},
      {"100::1", "not given out"},
      {"fc00::1", "unique-local"},
      {"fdff::1", "unique-local"},
      {"fe80::1", "link-local"},
      {"febf::1", "link-local"},
      {"fec0::1", "not given out"},
      {"ff02::1", "multicast"},
      {"2001::1", "protocols"},
      {"2001:10::1", "protocols"},
      {"2001:db8::1", "documentation"},
      {"2002:7f00:1::", "6to4"},
      {"3fff::1", "documentation"},
      {"4000::1", "not given out"},
  };
  for (const auto& [host, what] : cases) {
    EXPECT_THAT(Check(host), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(what)))
        << host;
  }
}

TEST(GlobalAddress, NamesTheAddress) {
  EXPECT_THAT(Check("2130706433"), StatusIs(absl::StatusCode::kPermissionDenied,
                                            AllOf(HasSubstr("127.0.0.1"), HasSubstr("loopback"))));
  EXPECT_THAT(Check("fe80::1"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("fe80::1")));
}

}  // namespace
}  // namespace tandem::net
