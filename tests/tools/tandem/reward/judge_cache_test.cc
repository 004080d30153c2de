#include "tools/tandem/reward/judge_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/jsonl.h"
#include "common/io/read_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(JudgeCache, KeysAreDigests) {
  EXPECT_THAT(JudgeCache::KeyOf("a"), SizeIs(64));
  EXPECT_NE(JudgeCache::KeyOf("a"), JudgeCache::KeyOf("b"));
}

TEST(JudgeCache, FindsWhatIsThere) {
  JudgeCache cache("");
  ASSERT_OK(cache.Load());
  EXPECT_EQ(cache.Find("k"), std::nullopt);
  ASSERT_OK(cache.Add("k", "one"));
  EXPECT_EQ(cache.Find("k"), "one");
  ASSERT_OK(cache.Add("k", "two"));
  EXPECT_EQ(cache.Find("k"), "two");
}

TEST(JudgeCache, ForgetsTheOldestBeyondItsBound) {
  JudgeCache cache("", /*max_bytes=*/30);  // two entries of 12
  for (const char* key : {"a", "b", "c"}) ASSERT_OK(cache.Add(key, "0123456789"));
  EXPECT_EQ(cache.Find("a"), std::nullopt);
  EXPECT_EQ(cache.Find("c"), "0123456789");
  ASSERT_OK(cache.Add("d", std::string(100, 'x')));  // larger than all of it
  EXPECT_EQ(cache.Find("d"), std::nullopt);
  EXPECT_EQ(cache.Find("c"), "0123456789");
}

TEST(JudgeCache, AFileKeepsTheEntries) {
  const TempFolder folder;
  const std::string path = folder / "judge.jsonl";
  {
    JudgeCache cache(path);
    ASSERT_OK(cache.Load());
    ASSERT_OK(cache.Add("k", "a\nb \xff"));
  }
  JudgeCache again(path);
  ASSERT_OK(again.Load());
  EXPECT_EQ(again.Find("k"), "a\nb \xef\xbf\xbd");
}

TEST(JudgeCache, AFileOfACrashIsRead) {
  const TempFolder folder;
  const std::string path =
      folder.Write("judge.jsonl", "{\"key\":\"a\",\"answer\":\"1\"}\n{\"key\":\"b\",\"ans");
  JudgeCache cache(path);
  ASSERT_OK(cache.Load());
  EXPECT_EQ(cache.Find("a"), "1");
  EXPECT_EQ(cache.Find("b"), std::nullopt);
  ASSERT_OK(cache.Add("b", "2"));
  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(path));
  EXPECT_THAT(rows, SizeIs(2));
}

TEST(JudgeCache, ADamagedLineIsNamed) {
  const TempFolder folder;
  const std::string path = folder.Write("judge.jsonl", "{\"key\":\"a\"}\n");
  EXPECT_THAT(JudgeCache(path).Load(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path + ":1: answer")));
}

TEST(JudgeCache, AFolderThatIsMissingIsNamed) {
  const TempFolder folder;
  EXPECT_THAT(JudgeCache(folder / "none/judge.jsonl").Load(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no folder")));
}

// As several runs that share a file.
TEST(JudgeCache, WritersTearNoLines) {
  const TempFolder folder;
  const std::string path = folder / "judge.jsonl";
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 4; ++writer) {
    threads.emplace_back([&path, writer] {
      JudgeCache cache(path);
      ASSERT_OK(cache.Load());
      for (int i = 0; i < 25; ++i) {
        ASSERT_OK(cache.Add(absl::StrCat(writer, "-", i), std::string(5000, 'x')));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK_AND_ASSIGN(const auto rows, io::ReadJsonLines(path));
  EXPECT_THAT(rows, SizeIs(100));
}

}  // namespace
}  // namespace tandem::reward
