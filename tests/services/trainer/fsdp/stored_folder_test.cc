// Ranks take their parts of a folder that fuses and transposes its tensors, and write the same
// folder.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/io/model_folder.h"
#include "common/model/segment_box.h"
#include "services/trainer/checkpoint/hugging_face_export.h"
#include "tests/common/model/tensor_files.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::trainer {
namespace {

using model::NamedTensors;
using model::StoredFusion;

constexpr char kPrefix[] = "model.layers.{layer}.";

// q, k and v by key-value group; gate and up one after another, transposed.
model::ModelSpec FusedSpec() {
  model::ModelSpec spec = SmallSpec();
  const auto add = [&](std::vector<std::string> parts, const std::string& tensor,
                       StoredFusion fusion, bool transposed) {
    for (std::string& part : parts) part.insert(0, kPrefix);
    for (const std::string& part : parts) {
      spec.stored_rules.push_back({part, kPrefix + tensor, fusion, parts, transposed});
    }
  };
  for (const std::string suffix : {".weight", ".bias"}) {
    add({"self_attn.q_proj" + suffix, "self_attn.k_proj" + suffix, "self_attn.v_proj" + suffix},
        "query_key_value" + suffix, StoredFusion::kPerGroup, false);
  }
  add({"mlp.gate_proj.weight", "mlp.up_proj.weight"}, "gate_up", StoredFusion::kStacked, true);
  return spec;
}

NamedTensors LogicalTensors(const model::ModelSpec& spec) {
  at::manual_seed(5);
  const model::ParameterTable table(spec);
  NamedTensors tensors;
  for (const auto ref : table.segments()) {
    tensors[table.segment(ref).name] = at::randn(table.segment(ref).global_shape);
  }
  return tensors;
}

NamedTensors StoredTensors(const model::ModelSpec& spec, NamedTensors tensors) {
  const auto take = [&](const std::string& name) {
    const at::Tensor tensor = tensors.at(name);
    tensors.erase(name);
    return tensor;
  };
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const int64_t groups = spec.layers[static_cast<size_t>(i)].attention.num_kv_heads;
    for (const std::string suffix : {".weight", ".bias"}) {
      std::vector<at::Tensor> parts;
      for (const std::string part : {"q", "k", "v"}) {
        const at::Tensor rows = take(layer + "self_attn." + part + "_proj" + suffix);
        parts.push_back(rows.reshape({groups, rows.size(0) / groups, -1}));
      }
      const at::Tensor fused = at::cat(parts, 1).flatten(0, 1);
      tensors[layer + "query_key_value" + suffix] = suffix == ".bias" ? fused.flatten() : fused;
    }
    const at::Tensor gate = take(layer + "mlp.gate_proj.weight");
    tensors[layer + "gate_up"] = at::cat({gate, take(layer + "mlp.up_proj.weight")}).t();
  }
  return tensors;
}

// Expects that the rank's shards hold its elements of the logical tensors.
void ExpectShards(ShardedModel& model, const NamedTensors& logical) {
  const model::ParameterTable& table = model.transformer().table();
  for (const auto ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    const UnitShard& shard = model.shards()[table.parameter(ref.parameter).unit];
    const at::Tensor flat = logical.at(segment.name).flatten();
    const int64_t begin = std::max(segment.offset, shard.offset);
    const int64_t end =
        std::min(segment.offset + segment.numel, shard.offset + shard.master.numel());
    if (begin >= end) continue;
    EXPECT_OK(model::ForRunsOfBox(
        segment, begin - segment.offset, end - begin, [&](const model::BoxRun& run) {
          const at::Tensor held =
              shard.master.narrow(0, segment.offset + run.local - shard.offset, run.count);
          EXPECT_TRUE(at::equal(held, flat.narrow(0, run.logical, run.count))) << segment.name;
          return absl::OkStatus();
        }));
  }
}

class StoredFolder : public ::testing::TestWithParam<comm::MeshShape> {};

TEST_P(StoredFolder, LoadsAndIsWrittenByteForByte) {
  const model::ModelSpec spec = FusedSpec();
  const NamedTensors logical = LogicalTensors(spec);
  const NamedTensors stored = StoredTensors(spec, logical);
  const testing::TempFolder temp;
  temp.Write("config.json", "{}");
  ASSERT_OK(model::WriteTensors(temp.path(), stored));
  ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder, io::ModelFolder::Open(temp.path()));
  const testing::TempFolder out;

  testing::LocalMesh world(GetParam());
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = spec;
    options.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    ASSERT_OK(model->Load(folder));
    ExpectShards(*model, logical);
    ASSERT_OK_AND_ASSIGN(const ExportResult result,
                         ExportHuggingFace(*model, mesh, {out / "model", temp.path(), at::kFloat}));
    ASSERT_OK(result.written);
    if (mesh.rank() == 0) {
      EXPECT_EQ(result.size_bytes, folder.size_bytes());
    }
  });

  ASSERT_OK_AND_ASSIGN(const io::ModelFolder exported, io::ModelFolder::Open(out / "model"));
  EXPECT_EQ(exported.names().size(), stored.size());
  for (const auto& [name, tensor] : stored) {
    ASSERT_OK_AND_ASSIGN(const io::TensorView written, exported.Find(name));
    EXPECT_EQ(written.shape, tensor.sizes().vec()) << name;
    EXPECT_TRUE(at::equal(model::ToTensor(written), tensor)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, StoredFolder,
                         ::testing::Values(comm::MeshShape{}, comm::MeshShape{.dp_shard = 2},
                                           comm::MeshShape{.tp = 2},
                                           comm::MeshShape{.dp_shard = 2, .tp = 2}),
                         [](const auto& info) {
                           return "Shard" + std::to_string(info.param.dp_shard) + "Tensor" +
                                  std::to_string(info.param.tp);
                         });

}  // namespace
}  // namespace tandem::trainer
