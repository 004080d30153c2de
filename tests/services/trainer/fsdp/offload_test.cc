// Training state in files: the same bits as in memory, little of it resident, nothing left behind.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "absl/synchronization/mutex.h"
#include "common/host/process_memory.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "services/trainer/fsdp/tensor_memory.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/fsdp/sharded_test_support.h"
#include "tests/support/sanitizer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What rank 0 saw of a few steps: losses, norms, and its masters after them.
struct Outcome {
  std::vector<double> numbers;
  std::vector<at::Tensor> masters;
};

Outcome Train(const comm::MeshShape& shape, ShardedModelOptions options) {
  Outcome outcome;
  options.spec = SmallSpec();
  const std::vector<TokenSequence> sequences = RandomSequences(9, 9, options.spec.vocab_size, 4);
  testing::LocalMesh world(shape);
  world.Run([&](const comm::DeviceMesh& mesh) {
    ShardedModelOptions own = options;
    own.mesh = &mesh;
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(own));
    SetParameters(*model, 2);
    AdamW optimizer({}, *model, mesh);
    for (int step = 0; step < 3; ++step) {
      for (const PackedBatch& batch : Deal(sequences, mesh.data_rank(), mesh.num_data_ranks(), 2)) {
        ASSERT_OK_AND_ASSIGN(const double loss, model->ForwardBackward(batch, TestLoss));
        if (mesh.rank() == 0) outcome.numbers.push_back(loss);
      }
      ASSERT_OK_AND_ASSIGN(const AdamW::StepResult result, optimizer.Step(1e-2));
      if (mesh.rank() == 0) outcome.numbers.push_back(result.grad_norm);
    }
    if (mesh.rank() != 0) return;
    for (const UnitShard& shard : model->shards()) outcome.masters.push_back(shard.master.clone());
  });
  return outcome;
}

using Setting = std::tuple<at::ScalarType, comm::MeshShape>;
class OffloadOf : public ::testing::TestWithParam<Setting> {};

TEST_P(OffloadOf, GivesTheBitsOfMemory) {
  const auto& [dtype, shape] = GetParam();
  const testing::TempFolder folder;
  ShardedModelOptions options;
  options.compute_dtype = dtype;
  const Outcome in_memory = Train(shape, options);
  options.offload = Offload::kDisk;
  options.offload_folder = folder / "offload";
  const Outcome on_disk = Train(shape, options);

  ASSERT_EQ(in_memory.numbers.size(), 9u);
  EXPECT_EQ(on_disk.numbers, in_memory.numbers);
  ASSERT_EQ(on_disk.masters.size(), in_memory.masters.size());
  for (size_t u = 0; u < in_memory.masters.size(); ++u) {
    EXPECT_TRUE(on_disk.masters[u].equal(in_memory.masters[u])) << "unit " << u;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, OffloadOf,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(comm::MeshShape{.dp_shard = 1},
                                                              comm::MeshShape{.dp_shard = 3},
                                                              comm::MeshShape{.dp_replicate = 2,
                                                                              .dp_shard = 2})));

TEST(Offload, CountsItsBytesApartFromTensorsInMemory) {
  const testing::TempFolder folder;
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  options.mesh = &mesh;
  options.compute_dtype = at::kBFloat16;
  options.offload = Offload::kDisk;
  options.offload_folder = folder.path();
  ASSERT_EQ(OffloadFile::total_bytes(), 0);
  TensorMemory::Install();
  const int64_t before = TensorMemory::current_bytes();
  {
    ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
    AdamW optimizer({}, *model, mesh);
    const int64_t parameters = model->transformer().table().num_parameters();
    EXPECT_EQ(model->memory_bytes().parameters, parameters * (4 + 2));
    EXPECT_EQ(model->memory_bytes().gradients, parameters * 4);
    EXPECT_EQ(optimizer.state_bytes(), parameters * 8);
    EXPECT_EQ(model->memory_bytes().offloaded, parameters * 18);
    EXPECT_EQ(OffloadFile::total_bytes(), parameters * 18);
    // The frequencies of the rotary embedding and the like.
    EXPECT_LT(TensorMemory::current_bytes() - before, 4096);
    // Nothing that a killed process would leave behind.
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
  EXPECT_EQ(OffloadFile::total_bytes(), 0);
}

TEST(Offload, KeepsFewUnitsResident) {
  if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "the sanitizer's own memory is resident too";
  at::set_num_threads(1);
  const testing::TempFolder folder;
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  options.spec.hidden_size = 256;
  model::LayerSpec layer = options.spec.layers.front();
  layer.feed_forward.intermediate_size = 512;
  layer.attention.head_dim = 64;
  options.spec.layers.assign(16, layer);
  options.mesh = &mesh;
  options.offload = Offload::kDisk;
  options.offload_folder = folder.path();
  ASSERT_OK_AND_ASSIGN(auto model, ShardedModel::Create(options));
  AdamW optimizer({}, *model, mesh);
  ASSERT_OK(model->RandomInit(1));
  const PackedBatch batch = Pack({{1, 2, 3, 4, 5}});
  const auto step = [&] {
    ASSERT_OK(model->ForwardBackward(batch, TestLoss).status());
    ASSERT_OK(optimizer.Step(1e-3).status());
  };
  step();  // makes buffers and scratch memory

  const int64_t resident = host::ResidentBytes();
  // The peak is counted from here on (proc(5)).
  ASSERT_TRUE(std::ofstream("/proc/self/clear_refs") << "5" << std::flush);
  step();

  const int64_t state = model->memory_bytes().offloaded;
  EXPECT_GT(state, 128 << 20);
  // The optimizer looks at four tensors of a unit at a time, of 18 units.
  EXPECT_LT(host::PeakResidentBytes() - resident, state / 5);
  EXPECT_LT(host::ResidentBytes() - resident, state / 16);
}

TEST(Offload, NamesTheFolderWhereItCannotBeMade) {
  const testing::TempFolder folder;
  const std::string file = folder.Write("file", "not a folder");
  EXPECT_THAT(OffloadFile::Create(file + "/offload").status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(file)));
}

// A limit of the size of files stands in for a full disk: space is refused when it is asked for.
TEST(Offload, DiskThatIsRefusedIsAnErrorAtTheStart) {
  const testing::TempFolder folder;
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  options.mesh = &mesh;
  options.offload = Offload::kDisk;
  options.offload_folder = folder.path();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = ShardedModel::Create(options).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, old_handler);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(HasSubstr("rank 0"), HasSubstr(folder.path()),
                                     HasSubstr("bytes of disk"))));
}

TEST(Offload, ToHostMemoryIsForGpus) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  ShardedModelOptions options;
  options.spec = SmallSpec();
  options.mesh = &mesh;
  options.offload = Offload::kCpu;
  EXPECT_THAT(ShardedModel::Create(options).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("use disk or none")));
}

}  // namespace
}  // namespace tandem::trainer
