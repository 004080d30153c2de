// Checkpoints of sharded models: written by one mesh, read by another.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "absl/synchronization/mutex.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/shard_writer.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/trainer/checkpoint/load_shard.h"
#include "services/trainer/checkpoint/snapshot_writer.h"
#include "services/trainer/optim/muon.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::LocalMesh;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Setting {
  comm::MeshShape shape;
  model::UnitLimits limits;
  bool experts = false;
};

model::ModelSpec SpecOf(const Setting& setting) {
  model::ModelSpec spec = SmallSpec();
  if (!setting.experts) return spec;
  for (model::LayerSpec& layer : spec.layers) {
    layer.experts = {.num_experts = 4,
                     .intermediate_size = 6,
                     .routing = {.top_k = 2, .correction_bias = true},
                     .bias = true,
                     .shared_intermediate_size = 8};
  }
  return spec;
}

constexpr uint64_t kSeed = 7;
constexpr int64_t kOptimizerSteps = 12;

// A model with its optimizer on one rank.
struct Rank {
  std::unique_ptr<ShardedModel> model;
  std::unique_ptr<AdamW> optimizer;
  std::vector<CheckpointedModel> models;
};

absl::StatusOr<Rank> MakeRank(const comm::DeviceMesh& mesh, const Setting& setting,
                              const model::ModelSpec& spec, uint64_t seed) {
  ShardedModelOptions options;
  options.spec = spec;
  options.mesh = &mesh;
  options.unit_limits = setting.limits;
  Rank out;
  ASSIGN_OR_RETURN(out.model, ShardedModel::Create(options));
  SetParameters(*out.model, seed);
  out.optimizer = std::make_unique<AdamW>(AdamWOptions{}, *out.model, mesh);
  out.models = {{"policy", out.model.get(), out.optimizer.get()}};
  return out;
}

// Moments that follow from the parameters, so that what was loaded can be checked element by
// element.
void SetMoments(Rank& rank) {
  for (size_t u = 0; u < rank.model->shards().size(); ++u) {
    if (!rank.optimizer->first_moments()[u].defined()) continue;  // frozen
    const at::Tensor& master = rank.model->shards()[u].master;
    rank.optimizer->first_moments()[u].copy_(master * 2 + 1);
    rank.optimizer->second_moments()[u].copy_(master.square());
  }
  rank.optimizer->set_num_steps(kOptimizerSteps);
}

// Saves as CheckpointSaver has the ranks do.
void Save(const std::string& folder, const Setting& setting) {
  std::filesystem::create_directories(folder);
  LocalMesh world(setting.shape);
  absl::Mutex mu;
  checkpoint::Manifest manifest;
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(Rank rank, MakeRank(mesh, setting, SpecOf(setting), kSeed));
    SetMoments(rank);
    if (mesh.replicate().rank() != 0) return;
    SnapshotOptions options;
    options.folder = folder;
    options.name = checkpoint::ShardName(mesh.rank(), mesh.size());
    options.writes_whole_tensors = mesh.tensor().rank() == 0;
    SnapshotWriter writer;
    ASSERT_OK(writer.Start(options, rank.models));
    // Training goes on; what is written is what was there.
    for (UnitShard& shard : rank.model->shards()) shard.master.fill_(-5);
    for (at::Tensor& moments : rank.optimizer->first_moments()) {
      if (moments.defined()) moments.zero_();
    }
    ASSERT_OK(writer.Wait());
    absl::MutexLock lock(&mu);
    manifest.shards.push_back(options.name);
    if (mesh.rank() == 0) manifest.models = {DescribeModel(rank.models[0])};
  });
  for (const std::string& shard : manifest.shards) {
    ASSERT_OK_AND_ASSIGN(manifest.files.emplace_back(),
                         checkpoint::DescribeFile(folder, shard + ".json"));
  }
  ASSERT_OK(checkpoint::WriteManifest(folder, manifest));
}

void ExpectLoads(const std::string& folder, const Setting& setting) {
  LocalMesh world(setting.shape);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(Rank rank, MakeRank(mesh, setting, SpecOf(setting), kSeed + 1));
    ASSERT_OK_AND_ASSIGN(auto reader, checkpoint::CheckpointReader::Open(folder));
    ASSERT_OK(VerifyShards(reader, rank.models));
    ASSERT_OK(ReadShards(reader, rank.models));

    EXPECT_EQ(rank.optimizer->num_steps(), kOptimizerSteps);
    for (size_t u = 0; u < rank.model->shards().size(); ++u) {
      const UnitShard& shard = rank.model->shards()[u];
      if (!rank.optimizer->first_moments()[u].defined()) continue;
      for (const checkpoint::Run& run :
           checkpoint::RunsOfRange(rank.model->transformer().table(), static_cast<int>(u),
                                   shard.offset, shard.offset + shard.master.numel())) {
        const auto part = [&run](const at::Tensor& x) {
          return x.narrow(0, run.offset, run.count);
        };
        EXPECT_TRUE(
            at::equal(part(rank.optimizer->first_moments()[u]), part(shard.master) * 2 + 1));
        EXPECT_TRUE(
            at::equal(part(rank.optimizer->second_moments()[u]), part(shard.master).square()));
      }
    }
    // Every rank's own parts of the parameters that were saved.
    ASSERT_OK_AND_ASSIGN(Rank expected, MakeRank(mesh, setting, SpecOf(setting), kSeed));
    for (size_t u = 0; u < rank.model->shards().size(); ++u) {
      EXPECT_TRUE(at::equal(rank.model->shards()[u].master, expected.model->shards()[u].master))
          << "unit " << u;
    }
  });
}

struct Change {
  const char* name;
  Setting from, to;
};

const model::UnitLimits kFrozen = {
    .frozen_parameters = {"model.embed_tokens.weight", "*norm.weight"}};

class ReshardTest : public ::testing::TestWithParam<Change> {};

TEST_P(ReshardTest, LoadsMastersAndMomentsIntoAnotherMesh) {
  const TempFolder folder;
  Save(folder / "c", GetParam().from);

  ExpectLoads(folder / "c", GetParam().to);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ReshardTest,
    ::testing::Values(Change{"same", {{1, 2}, {}}, {{1, 2}, {}}},
                      Change{"more", {{1, 2}, {}}, {{1, 3}, {}}},
                      Change{"fewer", {{1, 4}, {}}, {{1, 1}, {}}},
                      Change{"toHybrid", {{1, 3}, {}}, {{2, 2}, {}}},
                      Change{"fromHybrid", {{2, 2}, {}}, {{1, 3}, {}}},
                      Change{"fromReplicas", {{3, 1}, {}}, {{1, 2}, {}}},
                      Change{"otherUnits", {{1, 2}, {1 << 30, 0}}, {{1, 3}, {0, 100}}},
                      Change{"toTensorParallel", {{1, 2}, {}}, {{1, 2, 2}, {}}},
                      Change{"fromTensorParallel", {{1, 2, 2}, {}}, {{1, 3}, {0, 100}}},
                      Change{"fromHybridTensorParallel", {{2, 1, 2}, {}}, {{1, 2, 2}, {}}},
                      Change{"splitUnits", {{1, 3}, {0, 64}}, {{2, 2}, {4000, 0}}},
                      Change{"frozen", {{1, 3}, kFrozen}, {{1, 2, 2}, kFrozen}},
                      Change{"frozenLater", {{1, 2}, {}}, {{2, 2}, kFrozen}},
                      Change{"expertsToOneRank", {{.ep = 2}, {}, true}, {{}, {}, true}},
                      Change{"expertsToShards", {{.ep = 2}, {}, true}, {{1, 2}, {}, true}},
                      Change{"expertsFromOneRank", {{}, {}, true}, {{.ep = 2}, {}, true}},
                      Change{"expertsToMoreRanks",
                             {{.dp_shard = 2, .ep = 2}, {0, 100}, true},
                             {{.ep = 4}, {}, true}},
                      Change{"expertsAndTensorParallel",
                             {{.dp_shard = 2, .tp = 2, .ep = 2}, {}, true},
                             {{.dp_replicate = 2, .ep = 2}, {}, true}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ShardedCheckpoint, HasNoMomentsOfFrozenParametersAndIsRefusedWhereTheyTrain) {
  const TempFolder folder;
  Save(folder / "c", {{1, 2}, kFrozen});
  ASSERT_OK_AND_ASSIGN(auto reader, checkpoint::CheckpointReader::Open(folder / "c"));
  std::vector<float> element(1);
  EXPECT_OK(reader.Read("policy", "model.norm.weight", "master", 0, absl::MakeSpan(element)));
  EXPECT_THAT(reader.Read("policy", "model.norm.weight", "exp_avg", 0, absl::MakeSpan(element)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("exp_avg")));
  LocalMesh world(comm::MeshShape{});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(Rank rank, MakeRank(mesh, {}, SmallSpec(), kSeed));

    EXPECT_THAT(VerifyShards(reader, rank.models),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("model.embed_tokens.weight"),
                               HasSubstr("trainer.frozen_parameters"))));
  });
}

// Muon's state has other elements for each kind; other ranks cut them elsewhere.
void ExpectMuonLoads(const Setting& from, const comm::MeshShape& to) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "c");
  const auto value = [](const checkpoint::Run& run, const std::string& kind) {
    return static_cast<float>(run.begin % 97) + static_cast<float>(run.tensor.size()) +
           static_cast<float>(kind.size());
  };
  // Calls `visit` with the name, kind and elements of every part of the optimizer's state.
  const auto for_each_run = [](const CheckpointedModel& model, const auto& visit) {
    for (const ShardPart& part : ShardParts(model)) {
      if (part.kind == checkpoint::kMasterKind) continue;
      for (const checkpoint::Run& run : part.runs) {
        visit(run, part.kind, part.tensor.narrow(0, run.offset, run.count));
      }
    }
  };
  const auto make = [&from](const comm::DeviceMesh& mesh) {
    ShardedModelOptions options;
    options.spec = SpecOf(from);
    options.mesh = &mesh;
    return ShardedModel::Create(options).value();
  };
  absl::Mutex mu;
  checkpoint::Manifest manifest;
  LocalMesh writers(from.shape);
  writers.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = make(mesh);
    Muon muon({}, *model, mesh);
    muon.set_num_steps(kOptimizerSteps);
    const std::vector<CheckpointedModel> models = {{"policy", model.get(), &muon}};
    for_each_run(models[0],
                 [&](const checkpoint::Run& run, const std::string& kind, at::Tensor elements) {
                   checkpoint::Run of_element = run;
                   for (int64_t i = 0; i < run.count; ++i) {
                     of_element.begin = run.begin + i;
                     elements[i] = value(of_element, kind);
                   }
                 });
    SnapshotOptions options;
    options.folder = folder / "c";
    options.name = checkpoint::ShardName(mesh.rank(), mesh.size());
    SnapshotWriter writer;
    ASSERT_OK(writer.Start(options, models));
    ASSERT_OK(writer.Wait());
    absl::MutexLock lock(&mu);
    manifest.shards.push_back(options.name);
    if (mesh.rank() == 0) manifest.models = {DescribeModel(models[0])};
  });
  for (const std::string& shard : manifest.shards) {
    ASSERT_OK_AND_ASSIGN(manifest.files.emplace_back(),
                         checkpoint::DescribeFile(folder / "c", shard + ".json"));
  }
  ASSERT_OK(checkpoint::WriteManifest(folder / "c", manifest));

  LocalMesh readers(to);
  readers.Run([&](const comm::DeviceMesh& mesh) {
    const auto model = make(mesh);
    Muon muon({}, *model, mesh);
    AdamW adamw({}, *model, mesh);
    const std::vector<CheckpointedModel> models = {{"policy", model.get(), &muon}};
    ASSERT_OK_AND_ASSIGN(auto reader, checkpoint::CheckpointReader::Open(folder / "c"));
    ASSERT_OK(VerifyShards(reader, models));
    ASSERT_OK(ReadShards(reader, models));
    EXPECT_EQ(muon.num_steps(), kOptimizerSteps);
    for_each_run(models[0],
                 [&](const checkpoint::Run& run, const std::string& kind, at::Tensor elements) {
                   checkpoint::Run of_element = run;
                   for (int64_t i = 0; i < run.count; ++i) {
                     of_element.begin = run.begin + i;
                     ASSERT_EQ(elements[i].item<float>(), value(of_element, kind))
                         << run.tensor << " " << kind << " " << of_element.begin;
                   }
                 });
    EXPECT_THAT(VerifyShards(reader, {{"policy", model.get(), &adamw}}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("another optimizer"), HasSubstr("momentum_buffer"))));
  });
}

TEST(ShardedCheckpoint, OfMuonLoadsIntoAnotherMeshAndIsRefusedByAdamW) {
  ExpectMuonLoads({{.dp_shard = 2}}, {.dp_shard = 3});
  const Setting split = {{.dp_shard = 2, .ep = 2}, {}, /*experts=*/true};
  ExpectMuonLoads(split, {.dp_shard = 3});
  ExpectMuonLoads({{.dp_shard = 3}, {}, /*experts=*/true}, split.shape);
}

TEST(ShardedCheckpoint, OfFrozenParametersInBfloat16HoldsTheirValues) {
  for (const bool in_background : {true, false}) {
    const TempFolder folder;
    std::filesystem::create_directories(folder / "c");
    LocalMesh world(comm::MeshShape{});
    world.Run([&](const comm::DeviceMesh& mesh) {
      ShardedModelOptions options;
      options.spec = SmallSpec();
      options.mesh = &mesh;
      options.compute_dtype = at::kBFloat16;
      options.unit_limits = kFrozen;
      ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
      SetParameters(*model, kSeed);
      AdamW optimizer({}, *model, mesh);
      const std::vector<CheckpointedModel> models = {{"policy", model.get(), &optimizer}};
      std::vector<at::Tensor> saved;
      for (const UnitShard& shard : model->shards()) saved.push_back(shard.master.clone());
      SnapshotOptions snapshot;
      snapshot.folder = folder / "c";
      snapshot.name = checkpoint::ShardName(0, 1);
      snapshot.in_background = in_background;
      SnapshotWriter writer;
      ASSERT_OK(writer.Start(snapshot, models));
      ASSERT_OK(writer.Wait());
      checkpoint::Manifest manifest;
      manifest.shards = {snapshot.name};
      manifest.models = {DescribeModel(models[0])};
      ASSERT_OK_AND_ASSIGN(manifest.files.emplace_back(),
                           checkpoint::DescribeFile(folder / "c", snapshot.name + ".json"));
      ASSERT_OK(checkpoint::WriteManifest(folder / "c", manifest));
      SetParameters(*model, kSeed + 1);

      ASSERT_OK_AND_ASSIGN(auto reader, checkpoint::CheckpointReader::Open(folder / "c"));
      ASSERT_OK(VerifyShards(reader, models));
      ASSERT_OK(ReadShards(reader, models));

      for (size_t u = 0; u < saved.size(); ++u) {
        EXPECT_TRUE(at::equal(model->shards()[u].master, saved[u])) << "unit " << u;
      }
    });
  }
}

TEST(ShardedCheckpoint, IsWrittenOnceByReplicas) {
  const TempFolder folder;
  Save(folder / "c", {{2, 2}, {}});

  ASSERT_OK_AND_ASSIGN(const auto manifest, checkpoint::ReadManifest(folder / "c"));
  EXPECT_EQ(manifest.shards.size(), 2);
}

TEST(ShardedCheckpoint, OfAnotherModelIsRefusedWithWhatDiffersAndChangesNothing) {
  const TempFolder folder;
  Save(folder / "c", {{1, 2}, {}});
  LocalMesh world(comm::MeshShape{});
  world.Run([&](const comm::DeviceMesh& mesh) {
    model::ModelSpec spec = SmallSpec();
    spec.layers.push_back(spec.layers.front());
    spec.vocab_size += 3;
    ASSERT_OK_AND_ASSIGN(Rank rank, MakeRank(mesh, {}, spec, kSeed));
    const at::Tensor before = rank.model->shards()[0].master.clone();
    ASSERT_OK_AND_ASSIGN(auto reader, checkpoint::CheckpointReader::Open(folder / "c"));

    const absl::Status status = VerifyShards(reader, rank.models);

    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("another model than the policy"),
                               HasSubstr("missing: model.layers."),
                               HasSubstr("model.embed_tokens.weight: expected float32[64, 20], "
                                         "found float32[61, 20]"))));
    const auto unloaded = rpc::GetDetail<common::v1::UnloadedParams>(status);
    ASSERT_TRUE(unloaded.has_value());
    EXPECT_GT(unloaded->missing_size(), 0);
    EXPECT_GT(unloaded->mismatched_size(), 0);
    EXPECT_TRUE(at::equal(rank.model->shards()[0].master, before));
  });
}

TEST(ShardedCheckpoint, ThatIsDamagedIsFoundByTheRankThatReadsThere) {
  const TempFolder folder;
  Save(folder / "c", {{1, 2}, {}});
  {
    std::fstream file(folder / "c/rank-1-of-2.bin",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  LocalMesh world(comm::MeshShape{});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(Rank rank, MakeRank(mesh, {}, SmallSpec(), kSeed));
    ASSERT_OK_AND_ASSIGN(auto reader, checkpoint::CheckpointReader::Open(folder / "c"));

    EXPECT_THAT(VerifyShards(reader, rank.models),
                StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("rank-1-of-2.bin is damaged"),
                                                            HasSubstr("while reading policy"))));
  });
}

// Files of this process can't grow beyond a size, as on a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    old_handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

TEST(SnapshotWriter, SaysThatTheDiskIsFullAndLeavesNothing) {
  const TempFolder folder;
  LocalMesh world(comm::MeshShape{});
  world.Run([&](const comm::DeviceMesh& mesh) {
    ASSERT_OK_AND_ASSIGN(Rank rank, MakeRank(mesh, {}, SmallSpec(), kSeed));
    SnapshotWriter writer;
    SnapshotOptions options;
    options.folder = folder.path();
    options.name = "rank-0-of-1";
    {
      const FullDisk full(1000);
      ASSERT_OK(writer.Start(options, rank.models));
      const absl::Status status = writer.Wait().status();
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank-0-of-1.bin: cannot write"));
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    // The next one finds room again.
    ASSERT_OK(writer.Start(options, rank.models));
    EXPECT_OK(writer.Wait());
  });
}

}  // namespace
}  // namespace tandem::trainer
