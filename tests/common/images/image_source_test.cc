#include "common/images/image_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::images {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ReadImageSource, ReadsPathsRelativeToTheFolder) {
  const testing::TempFolder folder;
  const std::string path = folder.Write("a/b.png", "pixels");
  ASSERT_OK_AND_ASSIGN(const ImageBytes relative, ReadImageSource("a/b.png", folder.path(), {}));
  EXPECT_EQ(relative.bytes, "pixels");
  EXPECT_EQ(relative.place, path);
  ASSERT_OK_AND_ASSIGN(const ImageBytes absolute, ReadImageSource(path, "/elsewhere", {}));
  EXPECT_EQ(absolute.bytes, "pixels");
}

TEST(ReadImageSource, RefusesFilesThatAreMissingTooLargeOrNoFiles) {
  const testing::TempFolder folder;
  folder.Write("large", "12345");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(ReadImageSource("none.png", folder.path(), {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.png")));
  EXPECT_THAT(ReadImageSource("large", folder.path(), {.max_bytes = 4}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("large")));
  EXPECT_THAT(ReadImageSource("pipe", folder.path(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("FIFO")));
  EXPECT_THAT(ReadImageSource("", folder.path(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found no text")));
}

TEST(ReadImageSource, FetchesNothing) {
  for (const char* url : {"http://10.0.0.1/a.png", "HTTPS://example.org/a.png"}) {
    EXPECT_THAT(ReadImageSource(url, ".", {}), StatusIs(absl::StatusCode::kPermissionDenied,
                                                        HasSubstr("not fetched over the network")));
  }
  EXPECT_THAT(ReadImageSource("file:///etc/passwd", ".", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a URL of scheme file")));
}

TEST(ReadImageSource, DecodesDataUrls) {
  EXPECT_THAT(DecodeDataUrl("data:image/png;base64,aGVsbG8="), IsOkAndHolds("hello"));
  EXPECT_THAT(DecodeDataUrl("DATA:;BASE64,aGVsbG8"), IsOkAndHolds("hello"));
  EXPECT_THAT(DecodeDataUrl("data:image/png;base64,aGVsbG8%3D"), IsOkAndHolds("hello"));
  EXPECT_THAT(DecodeDataUrl("data:,a%20b%2Cc"), IsOkAndHolds("a b,c"));
  EXPECT_THAT(DecodeDataUrl("data:image/png,"), IsOkAndHolds(""));
}

TEST(ReadImageSource, RefusesDamagedDataUrlsWithoutRepeatingThem) {
  const auto refused = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(StartsWith("data URL: "), HasSubstr(text), Not(HasSubstr("SECRET"))));
  };
  EXPECT_THAT(ReadImageSource("data:image/png;base64;SECRET", ".", {}), refused("found no comma"));
  EXPECT_THAT(ReadImageSource("data:image/png;base64,SECRET!!", ".", {}), refused("not base64"));
  EXPECT_THAT(ReadImageSource("data:image/png,SECRET%2", ".", {}),
              refused("character 6 of the data"));
  EXPECT_THAT(ReadImageSource("data:image/png,SECRET%zz", ".", {}),
              refused("two hexadecimal digits"));
}

}  // namespace
}  // namespace tandem::images
