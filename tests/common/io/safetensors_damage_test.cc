// Files that are cut short, damaged or made to mislead: an error that names the place, always.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "common/io/safetensors.h"
#include "tests/common/io/safetensors_bytes.h"
#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::LittleEndian64;
using ::tandem::testing::SafetensorsBytes;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& bytes) {
  TemporaryFolder folder;
  const std::string path = folder.Write("model.safetensors", bytes);
  const absl::Status status = SafetensorsFile::Open(path).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
  return std::string(status.message());
}

// The error of a file with this header and 8 bytes of data.
std::string ErrorOfHeader(const std::string& header) {
  return ErrorOf(SafetensorsBytes(header, "12345678"));
}

constexpr char kGood[] = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("b":{"dtype":"F16","shape":[2,1],"data_offsets":[4,8]}})";

TEST(DamagedSafetensors, IsNamedAtEveryLengthItCanBeCutTo) {
  const std::string whole = SafetensorsBytes(kGood, "12345678");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(ErrorOf(whole.substr(0, length)), "") << length;
  }
}

TEST(DamagedSafetensors, TellsTheTensorThatIsCutOff) {
  const std::string whole = SafetensorsBytes(kGood, "12345678");
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() - 1)),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("[4, 8)"), HasSubstr("7 bytes of data")));
  EXPECT_THAT(ErrorOf(whole + "9"), HasSubstr("expected 8 bytes of data"));
}

TEST(DamagedSafetensors, ClaimsNoMoreHeaderThanThereIs) {
  EXPECT_THAT(ErrorOf(LittleEndian64(~uint64_t{0}) + "{}"), HasSubstr("at most 100000000 bytes"));
  EXPECT_THAT(ErrorOf(LittleEndian64(uint64_t{1} << 63) + "{}"), HasSubstr("at most"));
  EXPECT_THAT(ErrorOf(LittleEndian64(99'000'000) + "{}"),
              HasSubstr("found 2; the file is truncated"));
  EXPECT_THAT(ErrorOf(LittleEndian64(0)), HasSubstr("header"));
}

TEST(DamagedSafetensors, HasRangesThatDoNotFit) {
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
                            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
              AllOf(HasSubstr("tensor \"b\""), HasSubstr("overlaps that of tensor \"a\"")));
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                            R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})"),
              HasSubstr("overlap"));
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
              AllOf(HasSubstr("tensor \"a\""), HasSubstr("gap after byte 0")));
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})"),
              HasSubstr("ends before it begins"));
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})"),
              HasSubstr("expected 8 bytes for F32 of shape [2]"));
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})"),
              HasSubstr("outside the file's 8 bytes"));
}

TEST(DamagedSafetensors, ClaimsSizesBeyondCounting) {
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"F32","shape":[4611686018427387905],)"
                            R"("data_offsets":[0,4]}})"),
              AllOf(HasSubstr("tensor \"a\""), HasSubstr("63 bits")));
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,8],)"
                            R"("data_offsets":[0,8]}})"),
              HasSubstr("63 bits"));
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[8],)"
                            R"("data_offsets":[18446744073709551608,18446744073709551615]}})"),
              HasSubstr("below 2^63"));
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[9223372036854775807],)"
                            R"("data_offsets":[0,9223372036854775807]}})"),
              HasSubstr("outside the file's 8 bytes"));
}

TEST(DamagedSafetensors, HasFieldsOfTheWrongKind) {
  const auto field = [](const std::string& fields) {
    return ErrorOfHeader("{\"w\":{" + fields + "}}");
  };
  const std::string dtype = R"("dtype":"U8")", shape = R"("shape":[8])",
                    offsets = R"("data_offsets":[0,8])";
  EXPECT_THAT(field(R"("dtype":"Q7",)" + shape + "," + offsets),
              AllOf(HasSubstr("tensor \"w\""), HasSubstr("found \"Q7\"")));
  EXPECT_THAT(field(R"("dtype":7,)" + shape + "," + offsets),
              HasSubstr("dtype: expected a string"));
  EXPECT_THAT(field(shape + "," + offsets), HasSubstr("expected a dtype"));
  EXPECT_THAT(field(dtype + "," + offsets), HasSubstr("expected a shape"));
  EXPECT_THAT(field(dtype + "," + shape), HasSubstr("expected data_offsets"));
  EXPECT_THAT(field(dtype + R"(,"shape":[-8],)" + offsets), HasSubstr("negative number -8"));
  EXPECT_THAT(field(dtype + R"(,"shape":[8.0],)" + offsets), HasSubstr("found the number 8.0"));
  EXPECT_THAT(field(dtype + R"(,"shape":8,)" + offsets), HasSubstr("shape: expected an array"));
  EXPECT_THAT(field(dtype + R"(,"shape":[[8]],)" + offsets), HasSubstr("found an array"));
  EXPECT_THAT(field(dtype + R"(,"shape":null,)" + offsets), HasSubstr("found null"));
  EXPECT_THAT(field(dtype + R"(,"shape":{},)" + offsets), HasSubstr("found an object"));
  EXPECT_THAT(field(dtype + "," + shape + R"(,"data_offsets":[0])"), HasSubstr("[begin, end]"));
  EXPECT_THAT(field(dtype + "," + shape + R"(,"data_offsets":[0,4,8])"), HasSubstr("at most 2"));
  EXPECT_THAT(field(dtype + "," + shape + "," + offsets + R"(,"extra":1)"),
              HasSubstr("found the field \"extra\""));
}

TEST(DamagedSafetensors, HasAHeaderThatIsNoTableOfTensors) {
  EXPECT_THAT(ErrorOfHeader("[]"), HasSubstr("expected an object of tensors"));
  EXPECT_THAT(ErrorOfHeader("7"), HasSubstr("expected an object of tensors"));
  EXPECT_THAT(ErrorOfHeader("{\"w\":[1]}"), HasSubstr("expected an object for each tensor"));
  EXPECT_THAT(ErrorOfHeader("{\"w\":"), HasSubstr("expected JSON"));
  EXPECT_THAT(ErrorOfHeader(std::string(kGood) + "{}"), HasSubstr("expected JSON"));
  EXPECT_THAT(ErrorOfHeader(std::string("{\"\xFF\":{}}")), HasSubstr("expected JSON"));
  EXPECT_THAT(ErrorOfHeader(R"({"__metadata__":{"format":1}})"), HasSubstr("expected a string"));
  EXPECT_THAT(ErrorOfHeader(R"({"__metadata__":{"format":{}}})"), HasSubstr("found an object"));
  EXPECT_THAT(ErrorOfHeader(std::string("{\"w\":") + std::string(1 << 20, '[')),
              HasSubstr("array"));
}

TEST(DamagedSafetensors, NamesATensorTwice) {
  EXPECT_THAT(ErrorOfHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})"),
              HasSubstr("named twice: \"a\""));
}

TEST(DamagedSafetensors, HasMoreDimensionsThanAnyTensor) {
  std::string shape = "1";
  for (int i = 0; i < 100; ++i) shape += ",1";
  EXPECT_THAT(
      ErrorOfHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[0,1]}}"),
      HasSubstr("at most 64 numbers"));
}

TEST(DamagedSafetensors, NeverCrashesTheReaderWhateverByteIsChanged) {
  const std::string whole = SafetensorsBytes(kGood, "12345678");
  TemporaryFolder folder;
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = whole;
    for (int changes = 1 + round % 3; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::Open(folder.Write("model.safetensors", bytes));
    if (!file.ok()) continue;
    size_t total = 0;
    for (const TensorView& tensor : file->tensors()) total += tensor.bytes.size();
    EXPECT_EQ(total, 8u) << bytes;
  }
}

TEST(DamagedSafetensors, AFolderOrNothingIsNamedToo) {
  TemporaryFolder folder;
  EXPECT_THAT(SafetensorsFile::Open(folder.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(folder.path())));
  EXPECT_THAT(SafetensorsFile::Open(folder / "no"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder / "no")));
}

}  // namespace
}  // namespace tandem::io
