// Files that end early, lie, or ask for too much.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/images/decode.h"
#include "tests/common/images/golden_rows.h"
#include "tests/support/make_png.h"
#include "tests/support/status_matchers.h"

namespace tandem::images {
namespace {

using ::tandem::testing::BigEndian;
using ::tandem::testing::IsOk;
using ::tandem::testing::PngChunk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kKinds[] = {
    "png_2_8.png",       "png_3_4_interlaced.png", "jpeg_420.jpg",    "jpeg_progressive.jpg",
    "jpeg_restarts.jpg", "webp_lossy.webp",        "webp_alpha.webp", "webp_lossless.webp"};

absl::StatusOr<Image> Decode(const std::string& bytes, const ImageLimits& limits = {}) {
  return DecodeImage(bytes, "cat", limits);
}

auto Refused(const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, AllOf(StartsWith("cat: "), HasSubstr(text)));
}

// A PNG with IHDR of the size, and `rest`.
std::string Png(uint32_t width, uint32_t height, const std::string& rest) {
  const std::string header =
      BigEndian(width) + BigEndian(height) + std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + PngChunk("IHDR", header) + rest;
}

// Where SOF0 or SOF2 begins.
size_t FrameOf(const std::string& jpeg) {
  const size_t baseline = jpeg.find("\xFF\xC0");
  return baseline != std::string::npos ? baseline : jpeg.find("\xFF\xC2");
}

TEST(DecodeDamage, RefusesEveryTruncation) {
  for (const char* kind : kKinds) {
    const std::string whole = GoldenFile(kind);
    ASSERT_THAT(Decode(whole), IsOk()) << kind;
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THAT(Decode(whole.substr(0, size)), Refused("")) << kind << " cut to " << size;
    }
  }
}

TEST(DecodeDamage, NamesWhereATruncatedFileEnds) {
  const std::string png = GoldenFile("png_2_8.png");
  EXPECT_THAT(Decode(png.substr(0, 100)), Refused("PNG: chunk IDAT at byte 33 says that it has"));
  EXPECT_THAT(Decode(png.substr(0, png.size() - 12)),
              Refused(absl::StrCat("PNG: the file ends at byte ", png.size() - 12,
                                   " without a chunk IEND")));
  const std::string jpeg = GoldenFile("jpeg_420.jpg");
  EXPECT_THAT(Decode(jpeg.substr(0, jpeg.size() - 2)),
              Refused(absl::StrCat("JPEG: the file ends at byte ", jpeg.size() - 2,
                                   " without an end-of-image marker")));
  const std::string webp = GoldenFile("webp_lossy.webp");
  EXPECT_THAT(Decode(webp.substr(0, 200)), Refused("WebP: the header says "));
}

// No crash, no endless loop, no image of another size than the header's; pixels may be other ones.
TEST(DecodeDamage, SurvivesChangedBytes) {
  std::mt19937_64 random(3);
  for (const char* kind : kKinds) {
    const std::string whole = GoldenFile(kind);
    for (int i = 0; i < 300; ++i) {
      std::string bytes = whole;
      for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
      const auto image = Decode(bytes, {.max_pixels = 1 << 16});
      if (!image.ok()) continue;
      EXPECT_EQ(static_cast<int64_t>(image->rgb.size()), 3 * image->height * image->width);
    }
  }
}

TEST(DecodeDamage, ChecksTheHeaderBeforeAnythingIsAllocated) {
  // Sizes of which nobody could allocate the pixels.
  EXPECT_THAT(Decode(Png(0x7fffffff, 0x7fffffff, PngChunk("IEND", ""))),
              Refused("a side has at most 65535"));
  EXPECT_THAT(
      Decode(Png(60000, 60000, PngChunk("IEND", ""))),
      Refused("the header says 60000 x 60000 = 3600000000 pixels; an image has at most 89478485"));
  EXPECT_THAT(Decode(Png(0, 5, PngChunk("IEND", ""))), Refused("there is no picture"));
  std::string jpeg = GoldenFile("jpeg_420.jpg");
  jpeg.replace(FrameOf(jpeg) + 5, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(Decode(jpeg), Refused("JPEG: the header says 65535 x 65535"));
  EXPECT_THAT(Decode(GoldenFile("webp_lossy.webp"), {.max_pixels = 944}),
              Refused("WebP: the header says 35 x 27 = 945 pixels; an image has at most 944"));
  EXPECT_THAT(Decode(GoldenFile("png_2_8.png"), {.max_side = 18}),
              Refused("19 x 11 pixels; a side has at most 18"));
  EXPECT_THAT(Decode(GoldenFile("png_2_8.png"), {.max_bytes = 99}), Refused("bytes, more than 99"));
}

TEST(DecodeDamage, BoundsTheScansOfAJpeg) {
  const std::string progressive = GoldenFile("jpeg_progressive.jpg");
  EXPECT_THAT(Decode(progressive, {.max_scanned_pixels = 3 * 945}),
              Refused("JPEG: scan 4 at byte "));
  EXPECT_THAT(Decode(GoldenFile("jpeg_420.jpg"), {.max_scanned_pixels = 945}), IsOk());
}

TEST(DecodeDamage, RefusesAnimations) {
  EXPECT_THAT(Decode(Png(2, 2, PngChunk("acTL", std::string(8, '\1')) + PngChunk("IEND", ""))),
              Refused("PNG: animated PNG (chunk acTL at byte 33)"));
  // VP8X with the animation flag, and a frame that nobody looks at.
  std::string webp = "RIFF....WEBPVP8X" + std::string("\x0a\0\0\0\x02\0\0\0\x01\0\0\x01\0\0", 14) +
                     "ANIM" + std::string("\x06\0\0\0\0\0\0\0\0\0", 10);
  webp[4] = static_cast<char>(webp.size() - 8);
  webp[5] = webp[6] = webp[7] = 0;
  EXPECT_THAT(Decode(webp), Refused("animated WebP: expected a still picture"));
}

TEST(DecodeDamage, NamesTheFormatsThatItDoesNotRead) {
  EXPECT_THAT(Decode(""), Refused("expected an image, found no bytes"));
  EXPECT_THAT(Decode("GIF89a......"), Refused("expected a PNG, JPEG or WebP image, found GIF"));
  EXPECT_THAT(Decode("BM123456"), Refused("found BMP"));
  EXPECT_THAT(Decode(std::string("II*\0\x08\0\0\0", 8)), Refused("found TIFF"));
  EXPECT_THAT(Decode(std::string("\0\0\0\x1c"
                                 "ftypavif",
                                 12)),
              Refused("found HEIF, AVIF"));
  EXPECT_THAT(Decode("<svg/>"), Refused("found SVG, XML or HTML"));
  EXPECT_THAT(Decode("version https://git-lfs.github.com/spec/v1\n"), Refused("Git LFS"));
  EXPECT_THAT(Decode("hello world"), Refused("bytes that begin with 68656c6c6f20776f"));
}

TEST(DecodeDamage, FindsTheFormatByItsContent) {
  EXPECT_THAT(DecodeImage(GoldenFile("jpeg_420.jpg"), "picture.png", {}), IsOk());
}

TEST(DecodeDamage, RefusesAPngWhosePartsContradict) {
  const std::string end = PngChunk("IEND", "");
  EXPECT_THAT(Decode(Png(2, 2, end)), Refused("PNG: no chunk IDAT"));
  EXPECT_THAT(Decode("\x89PNG\r\n\x1a\n" + PngChunk("IDAT", "") + end),
              Refused("chunk IDAT at byte 8: the first chunk"));
  EXPECT_THAT(Decode(Png(2, 2, PngChunk("IHDR", std::string(13, '\1')) + end)),
              Refused("chunk IHDR at byte 33"));
  // Pixels for one row of two.
  std::string packed(64, '\0');
  uLongf size = packed.size();
  const std::string raw(7, '\0');
  ASSERT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>(raw.data()), raw.size()),
            Z_OK);
  packed.resize(size);
  EXPECT_THAT(Decode(Png(2, 2, PngChunk("IDAT", packed) + end)), Refused("PNG: row 1 of 2: "));
  EXPECT_THAT(Decode(Png(2, 1, PngChunk("IDAT", packed) + end)), IsOk());
  std::string damaged = Png(2, 1, PngChunk("IDAT", packed) + end);
  damaged[33 + 8 + 3] ^= 1;
  EXPECT_THAT(Decode(damaged), Not(IsOk()));
}

// Pillow compares other bits than the standard says; the README names the difference.
TEST(DecodeDamage, AColorKeyOfFewBitsIsComparedAsStored) {
  std::string png = GoldenFile("png_0_2.png");
  ASSERT_OK_AND_ASSIGN(const Image opaque, Decode(png));
  png.insert(33, PngChunk("tRNS", std::string("\0\1", 2)));  // after IHDR: samples of 1, grey 85
  ASSERT_OK_AND_ASSIGN(const Image keyed, Decode(png));
  int64_t changed = 0;
  for (size_t i = 0; i < opaque.rgb.size(); ++i) {
    EXPECT_EQ(keyed.rgb[i], opaque.rgb[i] == 85 ? 255 : opaque.rgb[i]);
    changed += opaque.rgb[i] == 85 ? 1 : 0;
  }
  EXPECT_GT(changed, 0);
}

TEST(DecodeDamage, RefusesAPaletteWithTooFewColors) {
  std::string png = GoldenFile("png_3_4.png");
  const size_t palette = png.find("PLTE") - 4;
  png.replace(palette, 12 + 48, PngChunk("PLTE", std::string(3, '\x40')));
  EXPECT_THAT(Decode(png), Refused("of a palette of 1"));
}

TEST(DecodeDamage, RefusesJpegsThatItCannotDecode) {
  std::string jpeg = GoldenFile("jpeg_420.jpg");
  const size_t frame = FrameOf(jpeg);
  jpeg[frame + 4] = 12;
  EXPECT_THAT(Decode(jpeg), Refused("a color has 12 bits, expected 8"));
  jpeg[frame + 4] = 8;
  jpeg[frame + 9] = 2;
  EXPECT_THAT(Decode(jpeg), Refused("a pixel has 2 components"));
  jpeg[frame + 9] = 3;
  jpeg[frame + 1] = '\xC3';
  EXPECT_THAT(Decode(jpeg), Refused("is of type SOF3, lossless or hierarchical"));
  EXPECT_THAT(Decode("\xFF\xD8\xFF\xD9"), Refused("no scan: the file has no pixels"));
}

// libjpeg warns and guesses; a picture that is partly guessed is no picture.
TEST(DecodeDamage, RefusesDamagedJpegDataWithItsRow) {
  std::string jpeg = GoldenFile("jpeg_444.jpg");
  const size_t scan = jpeg.find("\xFF\xDA");
  jpeg.erase(scan + 200, jpeg.size() - scan - 202);
  EXPECT_THAT(Decode(jpeg), Refused("of 27: Corrupt JPEG data"));
}

}  // namespace
}  // namespace tandem::images
