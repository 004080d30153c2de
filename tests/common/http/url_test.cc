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

TEST(FileUrl, KeepsPathAndQuery) {
  ASSERT_OK_AND_ASSIGN(const Url url, ParseFileUrl("HTTPS://host:8443/a/b/?size=2&at=x/y#top"));
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(url.server, (net::HostPort{"host", 8443}));
  EXPECT_EQ(url.path, "/a/b/");
  EXPECT_EQ(url.query, "?size=2&at=x/y");
  EXPECT_EQ(url.ToString(), "https://host:8443/a/b/?size=2&at=x/y");
  EXPECT_EQ(url.WithoutQuery(), "https://host:8443/a/b/");
  ASSERT_OK_AND_ASSIGN(const Url bare, ParseFileUrl("http://host?a"));
  EXPECT_EQ(bare.path, "");
  EXPECT_EQ(bare.query, "?a");
}

TEST(FileUrl, RefusesWhatIsNone) {
  for (const std::string& text :
       {std::string("ftp://host/a"), std::string("http:///a"), std::string("http://host/a b"),
        std::string("http://host/\r\nX-Header: 1"), std::string("http://host/\xc3\xa4"),
        std::string("http://ho\\st/"), "http://host/" + std::string(9000, 'a')}) {
    EXPECT_THAT(ParseFileUrl(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected http://")))
        << text;
  }
  EXPECT_THAT(ParseFileUrl("http://me:secret@host/").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("secret"))));
  EXPECT_THAT(ParseFileUrl("http://host/a b?signature=secret").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("secret"))));
}

TEST(FileUrl, RedirectsLeadToUrlsAndPaths) {
  ASSERT_OK_AND_ASSIGN(const Url from, ParseFileUrl("https://host:8443/a/b?c"));
  const auto follow = [&from](const char* to) {
    const absl::StatusOr<Url> url = FollowRedirect(from, to);
    return url.ok() ? url->ToString() : std::string(url.status().message());
  };
  EXPECT_EQ(follow("/x?y"), "https://host:8443/x?y");
  EXPECT_EQ(follow(" https://other/x "), "https://other/x");
  EXPECT_EQ(follow("//other/x"), "https://other/x");
  EXPECT_THAT(FollowRedirect(from, "http://other/x").status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("not encrypted")));
  for (const char* to : {"x", "", "?y", "file:///etc/passwd"}) {
    EXPECT_THAT(FollowRedirect(from, to).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected http://")))
        << to;
  }
}

TEST(Url, ShowsNoPassword) {
  EXPECT_THAT(ParseUrl("https://me:secret@host/v1").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("secret"))));
}

}  // namespace
}  // namespace tandem::http
