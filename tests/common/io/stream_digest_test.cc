#include "common/io/stream_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::TemporaryFolder;

TEST(StreamDigest, IsTheSameHoweverTheBytesAreCut) {
  const std::string bytes(3 << 20, 'x');
  StreamDigest whole, pieces;
  whole.Update(bytes);
  for (size_t begin = 0; begin < bytes.size(); begin += 12345) {
    pieces.Update(absl::string_view(bytes).substr(begin, 12345));
  }
  EXPECT_EQ(whole.Hex(), pieces.Hex());
  pieces.Update("y");
  EXPECT_NE(whole.Hex(), pieces.Hex());
}

TEST(StreamDigest, OfAFileIsThatOfItsBytes) {
  const TemporaryFolder folder;
  const std::string bytes((2 << 20) + 7, 'z');
  StreamDigest digest;
  digest.Update(bytes);
  EXPECT_THAT(DigestFile(folder.Write("a", bytes)), IsOkAndHolds(digest.Hex()));
  // Known from xxhsum -H2.
  EXPECT_THAT(DigestFile(folder.Write("none", "")),
              IsOkAndHolds(std::string("99aa06d3014798d86001c324468d497f")));
}

}  // namespace
}  // namespace tandem::io
