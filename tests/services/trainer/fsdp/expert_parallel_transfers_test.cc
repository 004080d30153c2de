// The weights of a model whose experts are split over ranks reach folders, buckets and checkpoints
// as those of the whole model.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/io/model_folder.h"
#include "services/trainer/checkpoint/hugging_face_export.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/bucket_stream.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::LocalMesh;

constexpr uint64_t kSeed = 11;

model::ModelSpec WithBiases() {
  model::ModelSpec spec = SmallSpec();
  spec.tie_word_embeddings = true;
  for (model::LayerSpec& layer : spec.layers) {
    layer.experts = {.num_experts = 4,
                     .intermediate_size = 6,
                     .routing = {.top_k = 2, .bias = true, .correction_bias = true},
                     .bias = true,
                     .shared_intermediate_size = 8};
  }
  return spec;
}

ShardedModelOptions OptionsOf(const model::ModelSpec& spec, const comm::DeviceMesh& mesh) {
  ShardedModelOptions options;
  options.spec = spec;
  options.mesh = &mesh;
  return options;
}

TEST(ExpertParallelTransfers, BucketsHoldTheLogicalTensors) {
  const model::ModelSpec spec = WithBiases();
  const std::string expected = WholeStream(spec, kSeed);
  for (const comm::MeshShape& shape :
       {comm::MeshShape{.dp_shard = 2, .ep = 2}, comm::MeshShape{.tp = 2, .ep = 2}}) {
    LocalMesh world(shape);
    world.Run([&](const comm::DeviceMesh& mesh) {
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf(spec, mesh)));
      SetParameters(*model, kSeed);
      ASSERT_OK_AND_ASSIGN(const std::string found,
                           BucketStream(*model, spec, shape, mesh, /*bucket_bytes=*/5000));
      if (mesh.rank() == 0) EXPECT_TRUE(found == expected);
    });
  }
}

TEST(ExpertParallelTransfers, LoadsWhatItExports) {
  const char* source = std::getenv("TANDEM_SOURCE");
  const std::string root =
      std::string(source == nullptr ? "." : source) + "/tests/common/model/golden/";
  const std::string path = ::testing::TempDir() + "/expert_parallel_export";
  for (const char* name : {"qwen3-moe", "mixtral"}) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder, io::ModelFolder::Open(root + name));
    ASSERT_OK_AND_ASSIGN(const model::ModelSpec spec,
                         model::ParseModelSpec(folder.config().json, folder.config().path));
    std::filesystem::remove_all(path);
    LocalMesh world({.dp_shard = 2, .ep = 2});
    world.Run([&](const comm::DeviceMesh& mesh) {
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(OptionsOf(spec, mesh)));
      ASSERT_OK(model->Load(folder));
      ASSERT_OK_AND_ASSIGN(const ExportResult result,
                           ExportHuggingFace(*model, mesh, {path, root + name, at::kFloat}));
      ASSERT_OK(result.written);
    });
    ASSERT_OK_AND_ASSIGN(const io::ModelFolder exported, io::ModelFolder::Open(path));
    for (const std::string& tensor : folder.names()) {
      ASSERT_OK_AND_ASSIGN(const io::TensorView written, exported.Find(tensor));
      ASSERT_OK_AND_ASSIGN(const io::TensorView read, folder.Find(tensor));
      EXPECT_TRUE(written.bytes == read.bytes) << tensor;
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
