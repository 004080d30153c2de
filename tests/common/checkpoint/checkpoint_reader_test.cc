#include "common/checkpoint/checkpoint_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/common/checkpoint/checkpoint_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::checkpoint {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Change {
  SmallLayout from, to;
};

class ReshardTest : public ::testing::TestWithParam<Change> {};

TEST_P(ReshardTest, GivesEveryRankItsElements) {
  const TempFolder folder;
  const auto& [from, to] = GetParam();
  ASSERT_OK(WriteSmallCheckpoint(folder / "c", from));
  ASSERT_OK_AND_ASSIGN(CheckpointReader reader, CheckpointReader::Open(folder / "c"));

  for (int rank = 0; rank < to.ranks(); ++rank) {
    for (const auto& [tensor, run] : to.RunsOf(rank)) {
      for (const std::string kind : {"master", "exp_avg"}) {
        std::vector<float> out(static_cast<size_t>(run.count), -1);
        ASSERT_OK(reader.ReadRun("policy", kind, run, absl::MakeSpan(out)));
        EXPECT_EQ(out, ElementsOf(tensor, kind, run));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ReshardTest,
                         ::testing::Values(Change{{1, 1}, {1, 1}}, Change{{2, 1}, {3, 1}},
                                           Change{{3, 1}, {2, 1}}, Change{{4, 1}, {2, 2}},
                                           Change{{2, 2}, {4, 1}}, Change{{1, 3}, {2, 2}},
                                           Change{{5, 2}, {1, 1}}, Change{{1, 1}, {3, 4}}),
                         [](const auto& info) {
                           const Change& change = info.param;
                           return "dp" + std::to_string(change.from.dp) + "tp" +
                                  std::to_string(change.from.tp) + "to_dp" +
                                  std::to_string(change.to.dp) + "tp" +
                                  std::to_string(change.to.tp);
                         });

TEST(CheckpointReader, KnowsWhatWasSaved) {
  const TempFolder folder;
  ASSERT_OK(WriteSmallCheckpoint(folder / "c", {2, 1}));

  ASSERT_OK_AND_ASSIGN(const CheckpointReader reader, CheckpointReader::Open(folder / "c"));

  EXPECT_EQ(reader.manifest().step, 3);
  EXPECT_EQ(reader.manifest().policy_version, 4);
  EXPECT_EQ(reader.manifest().scalars.at("kl_coef"), 0.1);
  EXPECT_EQ(reader.manifest().FindModel("policy")->optimizer_steps, 17);
  EXPECT_EQ(reader.manifest().FindModel("critic"), nullptr);
  ASSERT_OK_AND_ASSIGN(const std::string state,
                       ReadSideFile(folder / "c", kDriverStateFile, reader.manifest()));
  EXPECT_EQ(state, "driver");
}

// Flips one bit of a file.
void FlipBit(const std::string& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const char old = static_cast<char>(file.get());
  file.seekp(offset);
  file.put(static_cast<char>(old ^ 4));
}

absl::Status ReadAll(const std::string& folder) {
  ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(folder));
  for (const std::string name : {kDriverStateFile, kLastResponseFile}) {
    RETURN_IF_ERROR(ReadSideFile(folder, name, reader.manifest()).status());
  }
  for (const LogicalTensor& tensor : SmallTensors()) {
    for (const std::string kind : {"master", "exp_avg"}) {
      std::vector<float> out(static_cast<size_t>(NumElements(tensor.shape)));
      RETURN_IF_ERROR(reader.Read("policy", tensor.name, kind, 0, absl::MakeSpan(out)));
    }
  }
  return absl::OkStatus();
}

TEST(DamagedCheckpoint, IsFoundWhicheverBitOfWhicheverFileIsFlipped) {
  const TempFolder folder;
  ASSERT_OK(WriteSmallCheckpoint(folder / "c", {2, 1}));
  ASSERT_OK(ReadAll(folder / "c"));
  for (const auto& entry : std::filesystem::directory_iterator(folder / "c")) {
    const auto size = static_cast<int64_t>(entry.file_size());
    for (int64_t offset = 0; offset < size; offset += 7) {
      FlipBit(entry.path(), offset);
      EXPECT_FALSE(ReadAll(folder / "c").ok()) << entry.path() << " at " << offset;
      FlipBit(entry.path(), offset);
    }
  }
  EXPECT_THAT(ReadAll(folder / "c"), IsOk());
}

TEST(DamagedCheckpoint, IsNamedWithFileAndTensor) {
  const TempFolder folder;
  ASSERT_OK(WriteSmallCheckpoint(folder / "c", {2, 1}));
  FlipBit(folder / "c/rank-1-of-2.bin", 5);

  EXPECT_THAT(ReadAll(folder / "c"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("rank-1-of-2.bin is damaged"), HasSubstr("embed.weight"))));
}

TEST(DamagedCheckpoint, IsRefusedWhereAFileIsCutShortOrMissing) {
  const TempFolder folder;
  ASSERT_OK(WriteSmallCheckpoint(folder / "c", {2, 1}));
  const std::string data = folder / "c/rank-1-of-2.bin";
  std::filesystem::resize_file(data, std::filesystem::file_size(data) - 4);
  EXPECT_THAT(CheckpointReader::Open(folder / "c").status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank-1-of-2.bin is damaged")));
  std::filesystem::remove(data);
  EXPECT_THAT(CheckpointReader::Open(folder / "c").status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank-1-of-2.bin is missing")));
  std::filesystem::remove(folder / "c/rank-0-of-2.json");
  EXPECT_THAT(CheckpointReader::Open(folder / "c").status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank-0-of-2.json is missing")));
  EXPECT_THAT(CheckpointReader::Open(folder / "nowhere").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("manifest.json")));
}

TEST(CheckpointReader, RefusesShardsThatDoNotHoldEveryElement) {
  const TempFolder folder;
  ASSERT_OK(WriteSmallCheckpoint(folder / "c", {2, 1}));
  ASSERT_OK_AND_ASSIGN(Manifest manifest, ReadManifest(folder / "c"));
  manifest.shards.pop_back();
  ASSERT_OK(WriteManifest(folder / "c", manifest));

  EXPECT_THAT(CheckpointReader::Open(folder / "c").status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("hold 21 elements of policy embed.weight (master), expected 42")));
}

TEST(BlockFile, VerifiesOnlyTheBlocksThatAreRead) {
  const TempFolder folder;
  const std::string path = folder / "data";
  std::vector<std::byte> bytes(3 * kBlockBytes + 17);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  ASSERT_OK_AND_ASSIGN(BlockFileWriter writer, BlockFileWriter::Create(path));
  ASSERT_OK(writer.Append(absl::MakeConstSpan(bytes).subspan(0, 1000)));
  ASSERT_OK(writer.Append(absl::MakeConstSpan(bytes).subspan(1000)));
  ASSERT_OK_AND_ASSIGN(const BlockDigests digests, writer.Commit());
  EXPECT_EQ(digests.digests.size(), 4);
  FlipBit(path, 2 * kBlockBytes + 3);
  ASSERT_OK_AND_ASSIGN(BlockFileReader reader, BlockFileReader::Open(path, digests));

  std::vector<std::byte> out(static_cast<size_t>(kBlockBytes));
  ASSERT_OK(reader.Read(kBlockBytes - 100, absl::MakeSpan(out)));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin() + kBlockBytes - 100));
  EXPECT_THAT(reader.Read(kBlockBytes, absl::MakeSpan(out)), IsOk());
  EXPECT_THAT(reader.Read(kBlockBytes + 1, absl::MakeSpan(out)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bytes 2097152 to 3145728")));
}

}  // namespace
}  // namespace tandem::checkpoint
