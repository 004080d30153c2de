#include "tools/tandem/dataset/row_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::dataset {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The rows as JSON.
absl::StatusOr<std::vector<std::string>> Rows(const std::string& path) {
  std::vector<std::string> rows;
  const absl::Status status = ForEachRow(path, [&rows](const io::JsonFields& row) {
    rows.push_back(row.json().dump());
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return rows;
}

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

constexpr char kLines[] = "{\"a\":1}\n{\"a\":2}\n";

TEST(RowReader, ReadsLinesAndLists) {
  const TempFolder folder;
  const auto expected = ElementsAre("{\"a\":1}", "{\"a\":2}");
  EXPECT_THAT(Rows(folder.Write("a.jsonl", kLines)), IsOkAndHolds(expected));
  EXPECT_THAT(Rows(folder.Write("lines.json", kLines)), IsOkAndHolds(expected));
  EXPECT_THAT(Rows(folder.Write("list.json", "\xEF\xBB\xBF\n [ {\"a\": 1},\n{\"a\": 2}]\n")),
              IsOkAndHolds(expected));
}

TEST(RowReader, DecompressesWhatTheNameSays) {
  const TempFolder folder;
  const auto expected = ElementsAre("{\"a\":1}", "{\"a\":2}");
  EXPECT_THAT(Rows(folder.Write("a.jsonl.gz", Gzip(kLines))), IsOkAndHolds(expected));
  EXPECT_THAT(Rows(folder.Write("a.jsonl.zst", Zstd(kLines))), IsOkAndHolds(expected));
  EXPECT_THAT(Rows(folder.Write("a.json.gz", Gzip("[{\"a\": 1}, {\"a\": 2}]"))),
              IsOkAndHolds(expected));
  // Several members, as `cat a.gz b.gz` makes them.
  EXPECT_THAT(Rows(folder.Write("two.jsonl.gz", Gzip("{\"a\":1}\n") + Gzip("{\"a\":2}\n"))),
              IsOkAndHolds(expected));
  EXPECT_THAT(Rows(folder.Write("two.jsonl.zst", Zstd("{\"a\":1}\n") + Zstd("{\"a\":2}\n"))),
              IsOkAndHolds(expected));
}

TEST(RowReader, RefusesAFileThatBeginsWithWhiteSpaceWithoutEnd) {
  const TempFolder folder;
  // A few hundred kilobytes; 65 blocks of 1 MiB are read.
  EXPECT_THAT(Rows(folder.Write("blank.json.gz", Gzip(std::string(size_t{200} << 20, ' ') + "[]"))),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("blank.json.gz"), HasSubstr("only white space"))));
  EXPECT_THAT(Rows(folder.Write("some.json", std::string(3 << 20, '\n') + "[{\"a\":1}]")),
              IsOkAndHolds(ElementsAre("{\"a\":1}")));
}

TEST(RowReader, ARowOfAListMayHaveManyKeys) {
  const TempFolder folder;
  std::string list = "[{";
  for (int i = 0; i < 100000; ++i) list += "\"key " + std::to_string(i) + "\":1,";
  list.back() = '}';
  const absl::Time start = absl::Now();

  ASSERT_OK_AND_ASSIGN(const auto rows, Rows(folder.Write("wide.json", list + "]")));

  EXPECT_EQ(rows.size(), 1u);
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));  // minutes where each key searches all others
}

TEST(RowReader, ReadsMoreThanABuffer) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200'000; ++i)
    text += "{\"number\":" + std::to_string(i * 7919 % 100003) + "}\n";
  for (const std::string& path :
       {folder.Write("a.jsonl.gz", Gzip(text)), folder.Write("a.jsonl.zst", Zstd(text))}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<std::string> rows, Rows(path));
    ASSERT_EQ(rows.size(), 200'000u) << path;
    EXPECT_EQ(rows[199'999], "{\"number\":" + std::to_string(199'999LL * 7919 % 100003) + "}");
  }
}

TEST(RowReader, RefusesDamagedCompression) {
  const TempFolder folder;
  for (const std::string& ending : {std::string(".gz"), std::string(".zst")}) {
    const std::string packed = ending == ".gz" ? Gzip(kLines) : Zstd(kLines);
    EXPECT_THAT(Rows(folder.Write("early.jsonl" + ending, packed.substr(0, packed.size() - 3))),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ends early")));
    EXPECT_THAT(Rows(folder.Write("plain.jsonl" + ending, kLines)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("format")));
  }
}

TEST(RowReader, NamesFileAndRow) {
  const TempFolder folder;
  const std::string list = folder.Write("list.json", "[{\"a\": 1}, 2]");
  EXPECT_THAT(Rows(list), StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr(list + ": row 2"), HasSubstr("JSON object"))));
  const std::string lines = folder.Write("lines.jsonl.gz", Gzip("{\"a\":1}\nno\n"));
  EXPECT_THAT(Rows(lines), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(lines + ":2")));
}

}  // namespace
}  // namespace tandem::dataset
