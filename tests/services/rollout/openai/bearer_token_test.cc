#include "services/rollout/openai/bearer_token.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::rollout::openai {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

TEST(BearerToken, IsReadFromTheFileBeforeTheEnvironment) {
  const testing::TempFolder folder;
  folder.Write("token", "  secret-1\n");
  folder.Write("empty", "\n");
  folder.Write("two", "one two\n");
  setenv(kTokenVariable, "secret-2", 1);

  EXPECT_THAT(ReadToken(folder / "token"), IsOkAndHolds("secret-1"));
  EXPECT_THAT(ReadToken(""), IsOkAndHolds("secret-2"));
  EXPECT_THAT(ReadToken(folder / "empty"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found none")));
  EXPECT_THAT(ReadToken(folder / "two"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one token")));
  EXPECT_THAT(ReadToken(folder / "absent"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("")));
  unsetenv(kTokenVariable);
  EXPECT_THAT(ReadToken(""), IsOkAndHolds(""));
}

TEST(BearerToken, PassesTheWholeTokenAndNothingElse) {
  EXPECT_OK(CheckToken("secret", "Bearer secret"));
  EXPECT_OK(CheckToken("secret", "bearer secret"));
  EXPECT_OK(CheckToken("", nullptr));
  for (const char* wrong : {"Bearer secre", "Bearer secrets", "Bearer Secret", "Bearer ", "secret",
                            "Basic secret", "Bearer secretsecret", ""}) {
    EXPECT_THAT(CheckToken("secret", wrong),
                StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("")))
        << wrong;
  }
  EXPECT_THAT(CheckToken("secret", nullptr),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("Bearer TOKEN")));
}

TEST(BearerToken, IsNeededWhereOtherMachinesReachTheAddress) {
  for (const char* loopback : {"127.0.0.1:0", "127.8.8.8:8000", "localhost:8000", "[::1]:8000"}) {
    EXPECT_OK(CheckListen(loopback, /*has_token=*/false, /*allow_anyone=*/false)) << loopback;
  }
  for (const char* open :
       {"0.0.0.0:8000", "10.0.0.2:8000", "[::]:8000", "host:8000", "127.example.org:8000"}) {
    EXPECT_THAT(CheckListen(open, false, false),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--openai-insecure")));
    EXPECT_OK(CheckListen(open, /*has_token=*/true, false));
    EXPECT_OK(CheckListen(open, false, /*allow_anyone=*/true));
  }
  for (const char* none : {"8000", ":8000", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:http"}) {
    EXPECT_THAT(CheckListen(none, true, true),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("HOST:PORT")));
  }
}

}  // namespace
}  // namespace tandem::rollout::openai
