#include "common/net/host_port.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace tandem::net {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostPort, IsReadAndWrittenBack) {
  for (const std::string text : {"localhost:1", "127.0.0.1:65535", "trainer-0.tandem_net.svc:5000",
                                 "[::1]:80", "[fe80::1%eth0]:443", "[::ffff:10.0.0.1]:5000"}) {
    ASSERT_OK_AND_ASSIGN(const HostPort parsed, ParseHostPort(text));
    EXPECT_EQ(parsed.ToString(), text);
  }
  EXPECT_EQ(ParseHostPort("[::1]:80")->host, "::1");
  EXPECT_EQ(ParseHostPort("a:080")->port, 80);
}

TEST(HostPort, TellsWhatIsWrong) {
  const struct {
    std::string text, why;
  } cases[] = {
      {"", "host is missing"},
      {":80", "host is missing"},
      {"host", "port is missing"},
      {"[::1]", "port is missing"},
      {"host:", "from 1 to 65535"},
      {"host:0", "from 1 to 65535"},
      {"host:65536", "from 1 to 65535"},
      {"host:99999999999999999999", "from 1 to 65535"},
      {"host:-1", "from 1 to 65535"},
      {"host:+80", "from 1 to 65535"},
      {"host: 80", "from 1 to 65535"},
      {"host:80 ", "from 1 to 65535"},
      {"host:0x50", "from 1 to 65535"},
      {"host:80/path", "from 1 to 65535"},
      {"a b:80", "a host consists of letters"},
      {"a/b:80", "a host consists of letters"},
      {"user@host:80", "a host consists of letters"},
      {std::string("a\0b:80", 6), "a host consists of letters"},
      {"http://host:80", "before the host"},
      {"dns:///host:80", "before the host"},
      {"::1:80", "in brackets, [::1]"},
      {"fe80::1", "in brackets, [::1]"},
      {"a:b:80", "expected HOST:PORT"},
      {"[::1:80", "a ] is missing"},
      {"[::1]x:80", "expected :PORT"},
      {"[::1]80", "expected :PORT"},
      {"[]:80", "an IPv6 address"},
      {"[host]:80", "an IPv6 address"},
      {"[127.0.0.1]:80", "an IPv6 address"},
      {"[::1%]:80", "an IPv6 address"},
      {"[[::1]]:80", "expected :PORT"},
      {std::string(254, 'a') + ":80", "too long"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ParseHostPort(c.text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("expected HOST:PORT"), HasSubstr(c.why))))
        << c.text;
  }
}

TEST(HostPort, ListensOnAnyFreePortToo) {
  EXPECT_EQ(*ParseListenAddress("127.0.0.1:0"), (HostPort{"127.0.0.1", 0}));
  EXPECT_TRUE(IsAnyAddress(*ParseListenAddress("0.0.0.0:5000")));
  EXPECT_TRUE(IsAnyAddress(*ParseListenAddress("[::]:0")));
  EXPECT_FALSE(IsAnyAddress(*ParseListenAddress("127.0.0.1:0")));
  EXPECT_THAT(ParseListenAddress("127.0.0.1").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("port is missing")));
  EXPECT_THAT(ParseListenAddress("127.0.0.1:-0").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("from 0 to 65535")));
}

TEST(HostPort, APortThatMayBeLeftOut) {
  EXPECT_EQ(*ParseHostPort("collector", 80), (HostPort{"collector", 80}));
  EXPECT_EQ(*ParseHostPort("[::1]", 80), (HostPort{"::1", 80}));
  EXPECT_EQ(*ParseHostPort("collector:4318", 80), (HostPort{"collector", 4318}));
  EXPECT_THAT(ParseHostPort("collector:", 80).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("from 1 to 65535")));
}

}  // namespace
}  // namespace tandem::net
