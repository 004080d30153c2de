// A rank takes its part of a model that is larger than its memory.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <fstream>

#include "common/host/process_memory.h"
#include "common/io/model_folder.h"
#include "common/io/model_folder_writer.h"
#include "services/trainer/fsdp/shard_init.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::trainer {
namespace {

constexpr int kRanks = 2;
constexpr int kRank = 1;
constexpr int64_t kAllowedGrowth = 12 << 20;

// 50M parameters: 100 MB of bfloat16, of which one tensor is a third.
model::ModelSpec LargeSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.vocab_size = 64000;
  spec.hidden_size = 256;
  model::LayerSpec layer = spec.layers.front();
  layer.feed_forward.intermediate_size = 2048;
  layer.attention.head_dim = 64;
  spec.layers.assign(8, layer);
  return spec;
}

// Element i of every tensor is i mod 251.
void WriteFolder(const model::ParameterTable& table, const std::string& path) {
  std::vector<io::TensorDeclaration> declarations;
  for (const auto ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    declarations.push_back({segment.name, io::DType::kBF16, segment.shape});
  }
  io::ModelFolderWriter::Options options;
  options.config = {{"architectures", {"Qwen2ForCausalLM"}}};
  ASSERT_OK_AND_ASSIGN(auto writer, io::ModelFolderWriter::Create(path, declarations, options));
  constexpr int64_t kPiece = 251 << 12;
  const at::Tensor values = at::arange(kPiece, at::kLong).remainder(251).to(at::kBFloat16);
  for (const auto ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    for (int64_t done = 0; done < segment.numel; done += kPiece) {
      const size_t size = 2 * static_cast<size_t>(std::min(kPiece, segment.numel - done));
      ASSERT_OK(
          writer.Append(segment.name, {static_cast<const std::byte*>(values.data_ptr()), size}));
    }
  }
  ASSERT_OK(writer.Commit());
}

std::vector<UnitShard> ShardsOfRank(const model::ParameterTable& table) {
  std::vector<UnitShard> shards;
  for (const model::Unit& unit : table.units()) {
    UnitShard shard;
    const int64_t owned = (unit.numel + kRanks - 1) / kRanks;
    shard.numel = unit.numel;
    shard.padded_numel = owned * kRanks;
    shard.offset = owned * kRank;
    shard.master = at::full({owned}, -1.0f);  // touched, so that it is resident already
    shards.push_back(std::move(shard));
  }
  return shards;
}

// By how much `load` lets the resident set grow at most.
template <typename Load>
int64_t PeakGrowth(Load load) {
  const int64_t resident = host::ResidentBytes();
  // The peak is counted from here on (proc(5)).
  EXPECT_TRUE(std::ofstream("/proc/self/clear_refs") << "5" << std::flush);
  load();
  return host::PeakResidentBytes() - resident;
}

TEST(StreamingLoad, OfARanksPartKeepsLittleOfTheFilesResident) {
  at::set_num_threads(1);
  const testing::TempFolder folder;
  const model::ParameterTable table(LargeSpec());
  ASSERT_NO_FATAL_FAILURE(WriteFolder(table, folder / "model"));
  std::vector<UnitShard> shards = ShardsOfRank(table);
  ASSERT_OK_AND_ASSIGN(const io::ModelFolder model, io::ModelFolder::Open(folder / "model"));
  ASSERT_GT(model.size_bytes(), 80 << 20);
  ASSERT_GT(model.size_bytes() / kRanks, 3 * kAllowedGrowth);

  const int64_t growth = PeakGrowth([&] { ASSERT_OK(LoadShards(model, table, shards)); });

  EXPECT_LT(growth, kAllowedGrowth);
  for (const auto ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    const UnitShard& shard = shards[table.parameter(ref.parameter).unit];
    const int64_t begin = std::max(segment.offset, shard.offset);
    const int64_t end =
        std::min(segment.offset + segment.numel, shard.offset + shard.master.numel());
    if (begin >= end) continue;
    const at::Tensor expected =
        at::arange(begin - segment.offset, end - segment.offset, at::kLong).remainder(251);
    EXPECT_TRUE(
        shard.master.narrow(0, begin - shard.offset, end - begin).equal(expected.to(at::kFloat)))
        << segment.name;
  }
}

TEST(StreamingLoad, OfDrawnParametersNeedsNoMemoryBesideTheShards) {
  at::set_num_threads(1);
  const model::ModelSpec spec = LargeSpec();
  const model::ParameterTable table(spec);
  std::vector<UnitShard> shards = ShardsOfRank(table);

  const int64_t growth = PeakGrowth([&] { DrawShards(spec, 3, table, shards); });

  EXPECT_LT(growth, kAllowedGrowth);
}

}  // namespace
}  // namespace tandem::trainer
