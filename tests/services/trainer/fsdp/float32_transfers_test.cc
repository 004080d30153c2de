// Correction biases of a bfloat16 model on the wire: float32, by the gather of a broadcast and by the
// plan of a reshard.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/holdings.h"
#include "common/weights/manifest.h"
#include "common/weights/model_layout.h"
#include "services/trainer/publish/rank_shards.h"
#include "services/trainer/publish/shard_gather_source.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kExperts = 6;
constexpr char kName[] = "model.layers.1.mlp.gate.e_score_correction_bias";
constexpr int64_t kPerFloat = 2;  // wire elements

model::ModelSpec CorrectedSpec() {
  model::ModelSpec spec = SmallSpec();
  for (size_t i = 1; i < spec.layers.size(); ++i) {
    spec.layers[i].experts = {
        .num_experts = kExperts,
        .intermediate_size = 8,
        .routing = {
            .top_k = 2, .score = model::RoutingSpec::Score::kSigmoid, .correction_bias = true}};
  }
  return spec;
}

// What bfloat16 rounds.
float ValueOf(int64_t element) { return 0.001f * static_cast<float>(element + 1); }

// Writes the biases of all layers, which are a unit of their own, and returns the first of kName.
int64_t SetBiases(ShardedModel& model) {
  const model::ParameterTable& table = model.transformer().table();
  int64_t first = -1;
  for (size_t u = 0; u < table.units().size(); ++u) {
    if (!table.units()[u].in_float32) continue;
    for (const int index : table.units()[u].parameters) {
      if (table.parameter(index).name == kName) first = table.parameter(index).offset;
    }
    const UnitShard& shard = model.shards()[u];
    EXPECT_EQ(shard.computed.scalar_type(), at::kFloat);
    for (int64_t i = 0; i < shard.master.numel(); ++i) {
      shard.master[i].fill_(ValueOf(shard.offset + i));
    }
    model.MasterChanged(static_cast<int>(u), 0, shard.master.numel());
  }
  return first;
}

RankShards ShardsOf(ShardedModel& model, const comm::DeviceMesh& mesh,
                    const comm::MeshShape& shape) {
  RankShards shards;
  shards.ranks = mesh.size();
  shards.rank = mesh.rank();
  shards.units = model.shards();
  const std::vector<model::Unit>& units = model.transformer().table().units();
  for (size_t u = 0; u < units.size(); ++u) {
    if (units[u].in_float32) {
      shards.units[u] = InWireElements(std::move(shards.units[u]), at::kBFloat16);
    }
  }
  shards.layout = std::make_shared<ShardLayout>(model.transformer(), shape, kPerFloat);
  return shards;
}

std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

std::vector<float> Expected(int64_t first) {
  std::vector<float> out;
  for (int64_t e = 0; e < kExperts; ++e) out.push_back(ValueOf(first + e));
  return out;
}

// The tensor's bytes in the leader's buckets.
std::string Gathered(ShardedModel& model, const comm::DeviceMesh& mesh,
                     const comm::MeshShape& shape, const weights::Manifest& manifest, int tensor) {
  // Buckets that cut the tensor, also within a float.
  const auto plan = weights::MakeTransferPlan(manifest, /*bucket_bytes=*/24);
  EXPECT_OK(plan.status());
  auto source = ShardGatherSource::Create(*plan, ShardsOf(model, mesh, shape), &mesh.world());
  EXPECT_OK(source.status());
  if (mesh.rank() > 0) {
    EXPECT_OK((*source)->Follow());
    return "";
  }
  std::string out(plan->tensor_bytes[tensor], '\0');
  weights::PhaseTimes times;
  for (int b = 0; b < static_cast<int>(plan->buckets.size()); ++b) {
    const at::Tensor buffer = at::zeros({plan->buckets[b].size_bytes()}, at::kByte);
    EXPECT_OK((*source)->Start(b, buffer, times));
    EXPECT_OK((*source)->Finish(b));
    for (const auto& piece : plan->buckets[b].pieces()) {
      if (piece.tensor() != tensor) continue;
      std::memcpy(out.data() + piece.tensor_offset(),
                  static_cast<const char*>(buffer.const_data_ptr()) + piece.bucket_offset(),
                  piece.size_bytes());
    }
  }
  EXPECT_OK((*source)->End());
  return out;
}

TEST(Float32Transfers, BiasesArriveAsTheyAre) {
  const model::ModelSpec spec = CorrectedSpec();
  for (const comm::MeshShape& shape :
       {comm::MeshShape{}, comm::MeshShape{.dp_shard = 3}, comm::MeshShape{.ep = 2},
        comm::MeshShape{.tp = 2}, comm::MeshShape{.dp_shard = 2, .ep = 2}}) {
    SCOPED_TRACE(absl::StrCat("shard ", shape.dp_shard, ", ep ", shape.ep, ", tp ", shape.tp));
    absl::Mutex mu;
    int64_t first = -1;
    int tensor = -1;
    std::string gathered;
    std::string planned(kExperts * sizeof(float), '\0');
    testing::LocalMesh world(shape);
    world.Run([&](const comm::DeviceMesh& mesh) {
      ShardedModelOptions options;
      options.spec = spec;
      options.mesh = &mesh;
      options.compute_dtype = at::kBFloat16;
      options.unit_limits.moves_correction_biases = shape.dp_shard > 1;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      SetParameters(*model, 5);
      const int64_t of_name = SetBiases(*model);
      ASSERT_OK_AND_ASSIGN(
          const weights::Manifest manifest,
          weights::MakeManifest(model::ParameterTable(spec, {.moves_correction_biases = true}),
                                io::DType::kBF16));
      int index = 0;
      while (manifest.tensors(index).name() != kName) ++index;
      const std::string stream = Gathered(*model, mesh, shape, manifest, index);

      // The pieces that this rank sends in a reshard.
      const RankShards shards = ShardsOf(*model, mesh, shape);
      ASSERT_OK_AND_ASSIGN(const weights::ModelLayout layout,
                           weights::LayoutOf(spec, model->transformer().table().unit_limits(),
                                             shape.tp, shape.ep, {.float32_elements = kPerFloat}));
      EXPECT_EQ(layout.tensors[index].elements(), kPerFloat * kExperts);
      const weights::Holdings held = weights::TrainerHoldings(layout, shape);
      absl::MutexLock lock(&mu);
      for (const weights::Holding& holding : held.ranks[mesh.rank()]) {
        if (holding.piece.tensor != index) continue;
        const UnitShard& shard = shards.units[holding.block];
        ASSERT_EQ(shard.computed.scalar_type(), at::kBFloat16);
        ASSERT_LE(holding.offset + holding.piece.length, shard.computed.numel());
        std::memcpy(planned.data() + 2 * holding.piece.first,
                    static_cast<const char*>(shard.computed.const_data_ptr()) + 2 * holding.offset,
                    2 * holding.piece.length);
      }
      if (mesh.rank() > 0) return;
      gathered = stream;
      first = of_name;
      tensor = index;
    });
    ASSERT_GE(tensor, 0);
    EXPECT_EQ(Floats(gathered), Expected(first));
    EXPECT_EQ(Floats(planned), Expected(first));
  }
}

}  // namespace
}  // namespace tandem::trainer
