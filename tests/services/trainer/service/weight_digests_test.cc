// The digests of the trainer's ranks add up to those of the model's file, whatever the mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/safetensors.h"
#include "common/weights/tensor_digests.h"
#include "services/trainer/service/rank_publisher.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/service/trainer_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOk;

std::string GoldenFolder() {
  return std::string(std::getenv("TANDEM_SOURCE")) + "/tests/services/trainer/golden";
}

config::v1::RunConfig ConfigOf(const comm::MeshShape& shape, config::v1::ElementType dtype) {
  config::v1::RunConfig config = TinyConfig(MakeFolder(absl::StrCat("weight_digests.", getpid())));
  config.mutable_model()->set_path(GoldenFolder());
  config.mutable_model()->set_random_init(false);
  config.mutable_model()->set_dtype(dtype);
  config.mutable_trainer()->set_ranks(shape.size());
  return config;
}

// The sums over all ranks, by tensor.
std::vector<weights::DigestSum> DigestOnMesh(const comm::MeshShape& shape,
                                             config::v1::ElementType dtype) {
  const config::v1::RunConfig config = ConfigOf(shape, dtype);
  std::vector<v1::HeldDigests> held(shape.size());
  testing::LocalMesh world(shape);
  world.Run([&](const comm::DeviceMesh& mesh) {
    auto engine = TrainerEngine::Create(config, mesh, at::kCPU);
    ASSERT_THAT(engine, IsOk());
    auto publisher = RankPublisher::Create(**engine, config);
    ASSERT_THAT(publisher, IsOk());
    auto digests = (*publisher)->DigestHeld();
    ASSERT_THAT(digests, IsOk());
    held[mesh.rank()] = *std::move(digests);
  });
  std::vector<weights::DigestSum> sums(held[0].lanes_size() / 2);
  for (const v1::HeldDigests& rank : held) {
    EXPECT_EQ(rank.lanes_size(), 2 * static_cast<int>(sums.size()));
    for (size_t i = 0; i < sums.size(); ++i) {
      const int lane = 2 * static_cast<int>(i);
      sums[i].Add({{rank.lanes(lane), rank.lanes(lane + 1)}});
    }
  }
  return sums;
}

// Of the file's bytes, cast.
std::vector<weights::DigestSum> DigestFile(at::ScalarType type) {
  auto file = io::SafetensorsFile::Open(GoldenFolder() + "/model.safetensors");
  EXPECT_THAT(file, IsOk());
  auto config = io::ReadModelConfig(GoldenFolder());
  EXPECT_THAT(config, IsOk());
  auto spec = model::ParseModelSpec(config->json, config->path);
  EXPECT_THAT(spec, IsOk());
  const model::ParameterTable table(*spec);
  auto manifest = weights::MakeManifest(table, io::DType::kF32);
  EXPECT_THAT(manifest, IsOk());
  std::vector<weights::DigestSum> sums;
  for (const weights::TensorEntry& tensor : manifest->tensors()) {
    auto view = file->Find(tensor.name());
    EXPECT_THAT(view, IsOk());
    const at::Tensor bytes = at::empty({static_cast<int64_t>(view->bytes.size())}, at::kByte);
    std::memcpy(bytes.data_ptr(), view->bytes.data(), view->bytes.size());
    const at::Tensor cast = bytes.view(at::kFloat).to(type);
    sums.push_back(weights::SumOfHeld(
        tensor, {static_cast<const std::byte*>(cast.const_data_ptr()), cast.nbytes()}));
  }
  return sums;
}

class WeightDigestsTest : public ::testing::TestWithParam<comm::MeshShape> {};

TEST_P(WeightDigestsTest, AreThoseOfTheFileInTheTypeOfTheWire) {
  EXPECT_EQ(DigestOnMesh(GetParam(), config::v1::ELEMENT_TYPE_FLOAT32), DigestFile(at::kFloat));
  EXPECT_EQ(DigestOnMesh(GetParam(), config::v1::ELEMENT_TYPE_BFLOAT16), DigestFile(at::kBFloat16));
}

INSTANTIATE_TEST_SUITE_P(Meshes, WeightDigestsTest,
                         ::testing::Values(comm::MeshShape{}, comm::MeshShape{.dp_shard = 2},
                                           comm::MeshShape{.dp_shard = 3},
                                           comm::MeshShape{.dp_replicate = 2, .dp_shard = 2},
                                           comm::MeshShape{.dp_shard = 2, .tp = 2},
                                           comm::MeshShape{
                                               .dp_replicate = 2, .dp_shard = 3, .tp = 2}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.dp_replicate, "x", info.param.dp_shard,
                                               "x", info.param.tp);
                         });

}  // namespace
}  // namespace tandem::trainer
