#include "common/images/orientation.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::images {
namespace {

// A little-endian directory with one entry: tag, type, count, value.
std::string Exif(const std::string& entry) {
  return std::string("II*\0\x08\0\0\0\x01\0", 10) + entry + std::string(4, '\0');
}
std::string Entry(char tag_low, char type, char count, char value) {
  return {tag_low, '\1', type, '\0', count, '\0', '\0', '\0', value, '\0', '\0', '\0'};
}

TEST(ReadOrientation, ReadsExif) {
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x12', 3, 1, 6)), ""), 6);
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x12', 4, 1, 8)), ""), 8);
  EXPECT_EQ(ReadOrientation(std::string("Exif\0\0", 6) + Exif(Entry('\x12', 3, 1, 5)), ""), 5);
}

TEST(ReadOrientation, TakesWhatIsNotAnOrientationForNone) {
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x12', 3, 1, 9)), ""), 1);
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x12', 3, 1, 0)), ""), 1);
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x12', 3, 2, 6)), ""), 1);  // two values
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x12', 2, 1, 6)), ""), 1);  // a text
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x10', 3, 1, 6)), ""), 1);  // another tag
  EXPECT_EQ(ReadOrientation("", ""), 1);
}

TEST(ReadOrientation, SurvivesADirectoryThatIsCutOff) {
  const std::string whole = Exif(Entry('\x12', 3, 1, 6));
  for (size_t size = 0; size < whole.size(); ++size) {
    const int found = ReadOrientation(whole.substr(0, size), "");
    EXPECT_EQ(found, size < 20 ? 1 : 6) << size;
  }
  std::string far = whole;
  far.replace(4, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(ReadOrientation(far, ""), 1);
}

TEST(ReadOrientation, FallsBackToXmp) {
  EXPECT_EQ(ReadOrientation("", "<a tiff:Orientation=\"3\"/>"), 3);
  EXPECT_EQ(ReadOrientation("", "<tiff:Orientation>7</tiff:Orientation>"), 7);
  EXPECT_EQ(ReadOrientation("", "tiff:Orientation tiff:Orientation=\"4"), 4);
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x12', 3, 1, 2)), "tiff:Orientation=\"3\""), 2);
  EXPECT_EQ(ReadOrientation(Exif(Entry('\x10', 3, 1, 2)), "tiff:Orientation=\"3\""), 3);
  EXPECT_EQ(ReadOrientation("", "tiff:Orientation=\""), 1);
}

}  // namespace
}  // namespace tandem::images
