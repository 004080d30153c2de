#include "common/http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/common/http/test_site.h"

namespace tandem::http {
namespace {

using ::tandem::testing::StatusIs;

absl::StatusOr<Response> PostTo(TestSite& site, const std::string& path, std::string body,
                                absl::Duration patience = absl::Seconds(60)) {
  return Post({.url = {.server = {"127.0.0.1", site.port()}, .path = path},
               .content_type = "text/plain",
               .body = std::move(body)},
              absl::Now() + patience);
}

TEST(HttpClient, TakesTheAnswerWhateverItsCode) {
  TestSite site;
  ASSERT_OK_AND_ASSIGN(const Response length, PostTo(site, "/length", std::string(300000, 'x')));
  EXPECT_EQ(length.code, 200);
  EXPECT_EQ(length.body, "300000");
  ASSERT_OK_AND_ASSIGN(const Response streamed, PostTo(site, "/events", ""));
  EXPECT_EQ(streamed.body, "one\ntwo\nthree\n");
  ASSERT_OK_AND_ASSIGN(const Response refused, PostTo(site, "/refused", std::string(1000, 'x')));
  EXPECT_EQ(refused.code, 401);
  EXPECT_EQ(refused.body, "who?");
  EXPECT_THAT(refused.headers, ::testing::Contains(::testing::Pair("Cache-Control", "no-store")));
}

TEST(HttpClient, GivesUpAtItsDeadline) {
  TestSite site({.slow = {.num_threads = 1}});
  EXPECT_THAT(PostTo(site, "/slow/hold", "", absl::Milliseconds(50)).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
}

TEST(HttpClient, GivesUpWhenItIsNoLongerNeeded) {
  TestSite site({.slow = {.num_threads = 1}});
  bool asked = false;
  const auto cancelled = [&asked] { return asked = true; };
  EXPECT_THAT(Post({.url = {.server = {"127.0.0.1", site.port()}, .path = "/slow/hold"}},
                   absl::Now() + absl::Seconds(60), cancelled)
                  .status(),
              StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  EXPECT_TRUE(asked);
}

TEST(HttpClient, TakesNoEndlessAnswer) {
  TestSite site;
  EXPECT_THAT(PostTo(site, "/big", "").status(),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  EXPECT_THAT(PostTo(site, "/stream-throws", "").status(),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
}

TEST(HttpClient, SaysThatNobodyIsThere) {
  const auto patience = absl::Now() + absl::Seconds(60);
  EXPECT_THAT(Post({.url = {.server = {"127.0.0.1", 1}}}, patience).status(),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("refused")));
}

}  // namespace
}  // namespace tandem::http
