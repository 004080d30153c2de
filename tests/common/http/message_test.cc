#include "common/http/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HttpMessage, DecodesTheQuery) {
  const Request request{.query = "a=1&step=%2B7+x&b&c=%zz&d=%0a"};
  EXPECT_EQ(request.QueryValue("a"), "1");
  EXPECT_EQ(request.QueryValue("step"), "+7 x");
  EXPECT_EQ(request.QueryValue("b"), "");
  EXPECT_EQ(request.QueryValue("c"), std::nullopt);
  EXPECT_EQ(request.QueryValue("d"), std::nullopt) << "a line feed";
  EXPECT_EQ(request.QueryValue("tep"), std::nullopt);
}

TEST(HttpMessage, DecodesEscapesUpToTheLastCharacter) {
  EXPECT_EQ(PercentDecode("%41", false), "A");
  EXPECT_EQ(PercentDecode("a+b", false), "a+b");
  for (const char* malformed : {"%", "%4", "a%4", "%g1", "%00", "\x7f"}) {
    EXPECT_EQ(PercentDecode(malformed, false), std::nullopt) << malformed;
  }
}

TEST(HttpMessage, LetsNoOtherSiteUseAnAnswer) {
  const std::string head = SerializeHead({.code = 404, .body = "x"}, {{"Content-Length", "1"}});
  EXPECT_THAT(head, HasSubstr("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(head, HasSubstr("Cross-Origin-Resource-Policy: same-origin\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Access-Control")));
}

}  // namespace
}  // namespace tandem::http
