// Tokens: how they are read, and that no error says one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "common/security/token_file.h"
#include "common/security/token_table.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::security {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDriverToken[] = "driver-0123456789abcdef";
constexpr char kOtherToken[] = "observer-0123456789abcdef";
constexpr absl::Duration kTimeout = absl::Seconds(30);

TEST(TokenTable, GivesEachTokenItsRole) {
  const TempFolder folder;
  const auto table = TokenTable::Open(
      folder.Write("tokens", std::string("# who may call\n\n  driver ") + kDriverToken +
                                 "\nobserver\t" + kOtherToken + "\n"));
  ASSERT_OK(table.status());
  EXPECT_EQ((*table)->Find(kDriverToken), Role::kDriver);
  EXPECT_EQ((*table)->Find(kOtherToken), Role::kObserver);
  EXPECT_EQ((*table)->Find("driver-0123456789abcdee"), std::nullopt);
  EXPECT_EQ((*table)->Find(""), std::nullopt);
}

TEST(TokenTable, AnErrorNamesTheLineAndNoToken) {
  const TempFolder folder;
  for (const std::string& text :
       {std::string(kDriverToken) + " driver", std::string("driver ") + kDriverToken + " more",
        std::string("driver short"), std::string("driver ") + kDriverToken + "\x01"}) {
    EXPECT_THAT(TokenTable::Open(folder.Write("tokens", "# one\n" + text)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("tokens"), HasSubstr("line 2"), Not(HasSubstr("0123456")),
                               Not(HasSubstr("short")))));
  }
  EXPECT_THAT(TokenTable::Open(folder.Write("tokens", "# nobody\n")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ROLE TOKEN")));
  EXPECT_THAT(TokenTable::Open(folder / "none").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(TokenTable, IsReadAgainAndKeepsWhatWasGood) {
  const TempFolder folder;
  const std::string path = folder.Write("tokens", std::string("driver ") + kDriverToken);
  const auto table = TokenTable::Open(path);
  ASSERT_OK(table.status());

  folder.Write("tokens", std::string("observer ") + kOtherToken);
  const absl::Time deadline = absl::Now() + kTimeout;
  while ((*table)->Find(kOtherToken) != Role::kObserver && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ((*table)->Find(kOtherToken), Role::kObserver);
  EXPECT_EQ((*table)->Find(kDriverToken), std::nullopt);

  folder.Write("tokens", "nonsense");
  absl::SleepFor(absl::Milliseconds(1100));  // past the next look
  EXPECT_EQ((*table)->Find(kOtherToken), Role::kObserver);
}

TEST(TokenFile, AnswersTheTokenOfNow) {
  const TempFolder folder;
  const auto file = TokenFile::Open(folder.Write("token", std::string(kDriverToken) + "\n"));
  ASSERT_OK(file.status());
  EXPECT_EQ((*file)->Get(), kDriverToken);
  folder.Write("token", kOtherToken);
  const absl::Time deadline = absl::Now() + kTimeout;
  while ((*file)->Get() != kOtherToken && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ((*file)->Get(), kOtherToken);
  EXPECT_THAT(TokenFile::Open(folder.Write("bad", "two words here, long enough")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bad")));
}

}  // namespace
}  // namespace tandem::security
