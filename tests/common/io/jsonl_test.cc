#include "common/io/jsonl.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/status/status_macros.h"
#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::Slurp;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr auto kInvalidLine = absl::StatusCode::kInvalidArgument;

// The field "x" of each row.
absl::StatusOr<std::vector<int64_t>> ReadX(const std::string& path,
                                           const JsonlOptions& options = {}) {
  std::vector<int64_t> values;
  RETURN_IF_ERROR(ForEachJsonLine(
      path,
      [&](const JsonFields& row) -> absl::Status {
        ASSIGN_OR_RETURN(const int64_t x, row.Int("x"));
        values.push_back(x);
        return absl::OkStatus();
      },
      options));
  return values;
}

TEST(ForEachJsonLine, ReadsObjectsInOrder) {
  TemporaryFolder folder;
  folder.Write("a", "\xEF\xBB\xBF{\"x\": 1}\r\n\n  {\"x\": 2}\n{\"x\": 3}");
  ASSERT_OK_AND_ASSIGN(const auto values, ReadX(folder / "a"));
  EXPECT_THAT(values, ElementsAre(1, 2, 3));
}

TEST(ForEachJsonLine, ReadsAnEmptyFileAsNoRows) {
  TemporaryFolder folder;
  folder.Write("a", "");
  ASSERT_OK_AND_ASSIGN(const auto values, ReadX(folder / "a"));
  EXPECT_THAT(values, SizeIs(0));
}

TEST(ForEachJsonLine, JoinsLinesThatSpanManyReads) {
  TemporaryFolder folder;
  const std::string padding(700'000, ' ');
  folder.Write("a", "{\"x\":" + padding + "1}\n{\"x\":2}\n{\"x\":" + padding + "3}\n");
  ASSERT_OK_AND_ASSIGN(const auto values, ReadX(folder / "a"));
  EXPECT_THAT(values, ElementsAre(1, 2, 3));
}

TEST(ForEachJsonLine, NamesFileLineAndWhatWasExpected) {
  TemporaryFolder folder;
  const std::string place = (folder / "a") + ":3: ";
  folder.Write("a", "{\"x\":1}\n\nnope\n{\"x\":2}\n");
  EXPECT_THAT(ReadX(folder / "a"),
              StatusIs(kInvalidLine, StartsWith(place + "expected a JSON object")));
  folder.Write("a", "{\"x\":1}\n\n[1]\n");
  EXPECT_THAT(ReadX(folder / "a"),
              StatusIs(kInvalidLine, place + "expected a JSON object, found an array of 1"));
  folder.Write("a", "{\"x\":1}\n\n{\"x\":\"1\"}\n");
  EXPECT_THAT(ReadX(folder / "a"),
              StatusIs(kInvalidLine, place + "x: expected an integer, found the string \"1\""));
}

TEST(ForEachJsonLine, PutsThePlaceBeforeTheCallersErrors) {
  TemporaryFolder folder;
  folder.Write("a", "{}\n");
  const absl::Status status = ForEachJsonLine(
      folder / "a", [](const JsonFields&) { return absl::OutOfRangeError("too many"); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange, (folder / "a") + ":1: too many"));
}

TEST(ForEachJsonLine, RefusesALineThatIsTooLongWithoutReadingAllOfIt) {
  JsonlOptions options;
  options.max_line_bytes = 1 << 20;
  EXPECT_THAT(ReadX("/dev/zero", options),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("/dev/zero:1: ")));
}

TEST(ForEachJsonLine, SurvivesDeepNesting) {
  TemporaryFolder folder;
  folder.Write("a", "{\"y\":" + std::string(1'000'000, '[') + "\n");
  EXPECT_THAT(ReadX(folder / "a"), StatusIs(kInvalidLine, HasSubstr(":1: ")));
}

TEST(ForEachJsonLine, PassesOverATornTailOnlyWhenAskedTo) {
  TemporaryFolder folder;
  folder.Write("a", "{\"x\":1}\n{\"x\":2}\n{\"x\":");
  EXPECT_THAT(ReadX(folder / "a"), StatusIs(kInvalidLine, HasSubstr(":3: ")));
  ASSERT_OK_AND_ASSIGN(const auto values, ReadX(folder / "a", {.ignore_torn_tail = true}));
  EXPECT_THAT(values, ElementsAre(1, 2));
  // A bad line that is complete is no torn tail.
  folder.Write("a", "{\"x\":1}\n{\"x\":\n");
  EXPECT_THAT(ReadX(folder / "a", {.ignore_torn_tail = true}),
              StatusIs(kInvalidLine, HasSubstr(":2: ")));
}

TEST(ForEachJsonLine, NamesTheFileThatIsMissing) {
  EXPECT_THAT(ReadX("/nowhere/a.jsonl"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/a.jsonl")));
}

TEST(JsonlWriter, AppendsLinesThatAreReadableAtOnce) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(JsonlWriter writer, JsonlWriter::Open(folder / "a"));
  ASSERT_OK(writer.Append({{"x", 1}, {"text", "two\nlines"}}));
  ASSERT_OK(writer.Append({{"x", 2}}));
  ASSERT_OK_AND_ASSIGN(const auto rows, ReadJsonLines(folder / "a"));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0]["text"], "two\nlines");
  EXPECT_THAT(writer.Sync(), IsOk());
}

TEST(JsonlWriter, GoesOnAfterTheLastWholeLine) {
  TemporaryFolder folder;
  folder.Write("a", "{\"x\":1}\n{\"x\":2}\n{\"x\":" + std::string(10'000, ' '));
  ASSERT_OK_AND_ASSIGN(JsonlWriter writer, JsonlWriter::Open(folder / "a"));
  ASSERT_OK(writer.Append({{"x", 3}}));
  EXPECT_EQ(Slurp(folder / "a"), "{\"x\":1}\n{\"x\":2}\n{\"x\":3}\n");
}

TEST(JsonlWriter, WritesValidJsonForAnyTextAndNumber) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(JsonlWriter writer, JsonlWriter::Open(folder / "a"));
  ASSERT_OK(writer.Append({{"text", "a\xC3"}, {"loss", std::nan("")}}));
  EXPECT_EQ(Slurp(folder / "a"), "{\"loss\":null,\"text\":\"a\xEF\xBF\xBD\"}\n");
}

}  // namespace
}  // namespace tandem::io
