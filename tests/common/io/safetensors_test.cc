#include "common/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/io/safetensors_writer.h"
#include "tests/common/io/safetensors_bytes.h"
#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::io {
namespace {

using ::tandem::testing::NamesIn;
using ::tandem::testing::SafetensorsBytes;
using ::tandem::testing::Slurp;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string Text(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(SafetensorsFile, ReadsTensorsInTheOrderOfTheirData) {
  TemporaryFolder folder;
  const std::string path = folder.Write(
      "a", SafetensorsBytes(R"({"__metadata__":{"format":"pt"},)"
                            R"("late":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
                            R"("early":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},)"
                            R"("none":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]},)"
                            R"("scalar":{"dtype":"I8","shape":[],"data_offsets":[7,8]}}  )",
                            "abcdefgh"));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  EXPECT_THAT(file.names(), ElementsAre("early", "none", "late", "scalar"));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
  ASSERT_OK_AND_ASSIGN(const TensorView early, file.Find("early"));
  EXPECT_EQ(early.dtype, DType::kBF16);
  EXPECT_THAT(early.shape, ElementsAre(2, 1));
  EXPECT_EQ(Text(early.bytes), "abcd");
  EXPECT_EQ(early.num_elements(), 2);
  EXPECT_EQ(Text(file.tensors()[2].bytes), "efg");
  EXPECT_EQ(Text(file.tensors()[3].bytes), "h");
}

TEST(SafetensorsFile, StaysReadableWhenMovedAndReplaced) {
  TemporaryFolder folder;
  const std::string header = R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  const std::string path = folder.Write("a", SafetensorsBytes(header, "ab"));
  ASSERT_OK_AND_ASSIGN(SafetensorsFile opened, SafetensorsFile::Open(path));
  const SafetensorsFile file = std::move(opened);
  ASSERT_OK(WriteFileAtomically(path, SafetensorsBytes(header, "cd")));
  EXPECT_EQ(Text(file.tensors()[0].bytes), "ab");
}

TEST(SafetensorsFile, AcceptsAFileWithoutTensors) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(folder.Write("a", SafetensorsBytes("{}", ""))));
  EXPECT_THAT(file.tensors(), IsEmpty());
}

TEST(SafetensorsFile, NamesTheTensorThatIsNotThere) {
  TemporaryFolder folder;
  const std::string path = folder.Write("a", SafetensorsBytes("{}", ""));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  EXPECT_THAT(file.Find("w"),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr(path), HasSubstr("\"w\""))));
}

TEST(SafetensorsFile, ReadsAPublishedModel) {
  SKIP_WITHOUT_DATA("models/stories260K-hf/model.safetensors");
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile file,
      SafetensorsFile::Open(tandem::testing::TestData("models/stories260K-hf/model.safetensors")));
  ASSERT_OK_AND_ASSIGN(const TensorView norm, file.Find("model.norm.weight"));
  EXPECT_EQ(norm.dtype, DType::kF32);
  EXPECT_THAT(norm.shape, ElementsAre(64));
  ASSERT_OK_AND_ASSIGN(const TensorView embedding, file.Find("model.embed_tokens.weight"));
  EXPECT_THAT(embedding.shape, ElementsAre(512, 64));
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  TemporaryFolder folder;
  const std::string path = folder / "a";
  ASSERT_OK_AND_ASSIGN(SafetensorsWriter writer,
                       SafetensorsWriter::Create(path, {{"first \"quoted\"", DType::kF32, {2}},
                                                        {"empty", DType::kF32, {0}},
                                                        {"second", DType::kU8, {1, 3}}}));
  ASSERT_OK(writer.Append("first \"quoted\"", Bytes("abc")));
  ASSERT_OK(writer.Append("first \"quoted\"", Bytes("defgh")));
  ASSERT_OK(writer.Append("empty", {}));
  ASSERT_OK(writer.Append("second", Bytes("ijk")));
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_OK(writer.Commit());

  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  EXPECT_THAT(file.names(), ElementsAre("first \"quoted\"", "empty", "second"));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(Text(file.tensors()[0].bytes), "abcdefgh");
  EXPECT_EQ(Text(file.tensors()[2].bytes), "ijk");
  EXPECT_EQ((Slurp(path).size() - 11) % 8, 0u) << "the data should begin at a multiple of 8";
}

TEST(SafetensorsWriter, RefusesBytesOutOfTurnOrTooMany) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(folder / "a", {{"a", DType::kU8, {2}}, {"b", DType::kU8, {1}}}));
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(writer.Append("b", Bytes("x")),
              StatusIs(bad, HasSubstr("expected bytes of tensor \"a\"")));
  EXPECT_THAT(writer.Append("a", Bytes("xyz")), StatusIs(bad, HasSubstr("expected 2 more bytes")));
  ASSERT_OK(writer.Append("a", Bytes("xy")));
  EXPECT_THAT(writer.Append("a", Bytes("z")), StatusIs(bad, HasSubstr("\"b\"")));
}

TEST(SafetensorsWriter, RefusesToCommitWithBytesMissing) {
  TemporaryFolder folder;
  {
    ASSERT_OK_AND_ASSIGN(SafetensorsWriter writer,
                         SafetensorsWriter::Create(folder / "a", {{"w", DType::kF32, {2}}}));
    ASSERT_OK(writer.Append("w", Bytes("1234")));
    EXPECT_THAT(writer.Commit(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("\"w\""), HasSubstr("expected 8 bytes, found 4"))));
  }
  EXPECT_THAT(NamesIn(folder.path()), IsEmpty());
}

TEST(SafetensorsWriter, RefusesDeclarationsThatMakeNoFile) {
  TemporaryFolder folder;
  const auto create = [&](std::vector<TensorDeclaration> tensors) {
    return SafetensorsWriter::Create(folder / "a", std::move(tensors)).status();
  };
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(create({{"w", DType::kU8, {1}}, {"w", DType::kU8, {1}}}),
              StatusIs(bad, HasSubstr("already declared")));
  EXPECT_THAT(create({{"__metadata__", DType::kU8, {1}}}), StatusIs(bad, HasSubstr("reserved")));
  EXPECT_THAT(create({{"w", DType::kF32, {-1}}}), StatusIs(bad, HasSubstr("found -1")));
  EXPECT_THAT(create({{"w", DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}}}),
              StatusIs(bad, HasSubstr("63 bits")));
  EXPECT_THAT(create({{"\xFF", DType::kU8, {1}}}), StatusIs(bad, HasSubstr("UTF-8")));
}

}  // namespace
}  // namespace tandem::io
