#include "common/http/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::http {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Url, HasServerPortAndPath) {
  ASSERT_OK_AND_ASSIGN(const Url plain, ParseUrl("http://127.0.0.1:8000/v1/"));
  EXPECT_FALSE(plain.tls);
  EXPECT_EQ(plain.server, (net::HostPort{"127.0.0.1", 8000}));
  EXPECT_EQ(plain.path, "/v1");
  EXPECT_EQ(plain.Host(), "127.0.0.1:8000");
  EXPECT_EQ(plain.ToString(), "http://127.0.0.1:8000/v1");
  ASSERT_OK_AND_ASSIGN(const Url secure, ParseUrl("https://api.example.com"));
  EXPECT_TRUE(secure.tls);
  EXPECT_EQ(secure.server, (net::HostPort{"api.example.com", 443}));
  EXPECT_EQ(secure.path, "");
  EXPECT_EQ(secure.Host(), "api.example.com");
}

TEST(Url, KeepsTheBracketsOfAnIpv6Address) {
  ASSERT_OK_AND_ASSIGN(const Url url, ParseUrl("http://[::1]/v1"));
  EXPECT_EQ(url.server, (net::HostPort{"::1", 80}));
  EXPECT_EQ(url.Host(), "[::1]");
  ASSERT_OK_AND_ASSIGN(const Url other, ParseUrl("http://[::1]:8080"));
  EXPECT_EQ(other.Host(), "[::1]:8080");
}

TEST(Url, RefusesWhatIsNone) {
  for (const char* text :
       {"", "localhost:8000", "ftp://host", "http://", "http://host:0/", "http://host:70000",
        "http://host/v1?key=1", "http://host/a b", "http://host/#top", "https:///v1"}) {
    EXPECT_THAT(ParseUrl(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected http://")))
        << text;
  }
}

TEST(Url, ShowsNoPassword) {
  EXPECT_THAT(ParseUrl("https://me:secret@host/v1").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("secret"))));
}

}  // namespace
}  // namespace tandem::http
