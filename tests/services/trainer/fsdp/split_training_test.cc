// A model split over tensor-parallel ranks, or its tokens over sequence-parallel ones, trains as
// one rank does: norms, weights, and the folders and buckets that its weights go into.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/io/model_folder.h"
#include "services/trainer/checkpoint/hugging_face_export.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/bucket_stream.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 11;

model::ModelSpec Spec() {
  model::ModelSpec spec = SmallSpec();
  spec.tie_word_embeddings = true;
  for (model::LayerSpec& layer : spec.layers) layer.attention.qk_norm.emplace();
  return spec;
}

ShardedModelOptions Options(const comm::DeviceMesh& mesh) {
  ShardedModelOptions options;
  options.spec = Spec();
  options.mesh = &mesh;
  return options;
}

struct Trained {
  std::vector<double> norms;
  std::vector<at::Tensor> parameters;  // whole, flat
};

// Three optimizer steps. Every rank must see the same norms; the first's parts are put together.
Trained Train(const comm::MeshShape& shape, const model::ModelSpec& spec = Spec()) {
  const std::vector<TokenSequence> sequences = RandomSequences(7, 12, spec.vocab_size, 3);
  std::vector<Trained> of_rank(shape.size());
  testing::LocalMesh world(shape);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options = Options(mesh);
    options.spec = spec;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    SetParameters(*model, kSeed);
    AdamW optimizer({.grad_clip = 0.1}, *model, mesh);
    for (int step = 0; step < 3; ++step) {
      for (const PackedBatch& batch :
           Deal(sequences, mesh.data_rank(), mesh.num_data_ranks(), 1, 2)) {
        ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
      }
      ASSERT_OK_AND_ASSIGN(const AdamW::StepResult result, optimizer.Step(0.01));
      of_rank[mesh.rank()].norms.push_back(result.grad_norm);
    }
    of_rank[mesh.rank()].parameters = GatherParameters(*model, mesh.shard(), &UnitShard::master);
  });
  for (const Trained& other : of_rank) EXPECT_EQ(other.norms, of_rank[0].norms);
  return of_rank[0];
}

void ExpectTheNormsAndWeightsOfOneRank(const model::ModelSpec& spec,
                                       const std::vector<comm::MeshShape>& shapes) {
  const Trained expected = Train({}, spec);
  for (const comm::MeshShape& shape : shapes) {
    SCOPED_TRACE(::testing::Message()
                 << "replicate " << shape.dp_replicate << ", shard " << shape.dp_shard
                 << ", tensor " << shape.tp << ", sequence " << shape.sequence);
    const Trained found = Train(shape, spec);
    for (size_t step = 0; step < expected.norms.size(); ++step) {
      EXPECT_NEAR(found.norms[step], expected.norms[step], 1e-5 * expected.norms[step]);
    }
    const model::ParameterTable table(spec, {}, {0, shape.tp});
    const std::vector<at::Tensor> parts = PartOfParameters(spec, table, expected.parameters);
    for (size_t p = 0; p < parts.size(); ++p) {
      EXPECT_LT(RelativeDifference(found.parameters[p], parts[p]), 1e-4)
          << table.parameter(static_cast<int>(p)).name;
    }
  }
}

TEST(SplitTraining, HasTheNormsAndWeightsOfOneRank) {
  ExpectTheNormsAndWeightsOfOneRank(Spec(), {{.tp = 2},
                                             {.dp_shard = 2, .tp = 2},
                                             {.dp_replicate = 2, .tp = 2},
                                             {.dp_shard = 2, .sequence = 2},
                                             {.dp_shard = 4, .sequence = 2},
                                             {.dp_replicate = 2, .dp_shard = 2, .sequence = 2}});
}

TEST(SplitTraining, ASlidingWindowIsThatOfOneRank) {
  model::ModelSpec spec = Spec();
  spec.layers.back().attention.window = 4;
  EXPECT_NE(Train({}, spec).norms, Train({}).norms) << "some sequences exceed the window";
  ExpectTheNormsAndWeightsOfOneRank(spec, {{.tp = 2}, {.dp_shard = 2, .sequence = 2}});
}

TEST(SplitTraining, RefusesRanksThatHeadsCannotBeSplitOver) {
  testing::LocalMesh tensor({.tp = 3});
  tensor.Run([](const comm::DeviceMesh& mesh) {
    EXPECT_THAT(ShardedModel::Create(Options(mesh)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("3 ranks"), HasSubstr("2 key-value heads"))));
  });
  testing::LocalMesh sequence({.dp_shard = 3, .sequence = 3});
  sequence.Run([](const comm::DeviceMesh& mesh) {
    EXPECT_THAT(ShardedModel::Create(Options(mesh)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("3 ranks"), HasSubstr("4 query heads"))));
  });
}

TEST(SplitTraining, BucketsHoldTheLogicalTensors) {
  const std::string expected = WholeStream(Spec(), kSeed);
  const comm::MeshShape shape{.dp_shard = 2, .tp = 2};
  for (const int64_t bucket_bytes : {100, 5000, 1 << 20}) {
    testing::LocalMesh world(shape);
    world.Run([&](const comm::DeviceMesh& mesh) {
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(Options(mesh)));
      SetParameters(*model, kSeed);
      ASSERT_OK_AND_ASSIGN(const std::string found,
                           BucketStream(*model, Spec(), shape, mesh, bucket_bytes));
      if (mesh.rank() == 0) {
        EXPECT_TRUE(found == expected) << "buckets of " << bucket_bytes << " bytes";
      }
    });
  }
}

TEST(SplitTraining, LoadsWhatItExports) {
  const char* source = std::getenv("TANDEM_SOURCE");
  const std::string golden =
      std::string(source == nullptr ? "." : source) + "/tests/common/model/golden/qwen2-tied";
  ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder, io::ModelFolder::Open(golden));
  ASSERT_OK_AND_ASSIGN(const model::ModelSpec spec,
                       model::ParseModelSpec(folder.config().json, folder.config().path));
  const std::string path = ::testing::TempDir() + "/split_export";
  const std::vector<comm::MeshShape> shapes = {{.dp_shard = 2, .tp = 2},
                                               {.dp_replicate = 2, .tp = 2}};
  for (const comm::MeshShape& shape : shapes) {
    std::filesystem::remove_all(path);
    testing::LocalMesh world(shape);
    world.Run([&](const comm::DeviceMesh& mesh) {
      ShardedModelOptions options = Options(mesh);
      options.spec = spec;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      ASSERT_OK(model->Load(folder));
      ASSERT_OK_AND_ASSIGN(const ExportResult result,
                           ExportHuggingFace(*model, mesh, {path, golden, at::kFloat}));
      ASSERT_OK(result.written);
    });
    ASSERT_OK_AND_ASSIGN(const io::ModelFolder exported, io::ModelFolder::Open(path));
    const model::ParameterTable table(spec);
    for (const model::ParameterTable::SegmentRef ref : table.segments()) {
      const std::string& name = table.segment(ref).name;
      ASSERT_OK_AND_ASSIGN(const io::TensorView written, exported.Find(name));
      ASSERT_OK_AND_ASSIGN(const io::TensorView read, folder.Find(name));
      EXPECT_EQ(written.shape, read.shape) << name;
      EXPECT_TRUE(written.bytes == read.bytes) << name;
    }
  }
}

}  // namespace
}  // namespace tandem::trainer
