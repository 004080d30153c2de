#include "services/rollout/receive/local_weight_load.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "common/model/arena.h"
#include "common/model/load_parameters.h"
#include "common/model/model_spec.h"
#include "common/weights/manifest.h"
#include "tests/common/model/tensor_files.h"
#include "tests/fakes/fake_weight_store.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::FakeWeightStore;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

TEST(LocalWeightLoad, AFolderBecomesVersionZeroByteForByte) {
  SKIP_WITHOUT_DATA("models/tinystories-656k");
  ASSERT_OK_AND_ASSIGN(const auto folder,
                       io::ModelFolder::Open(testing::TestData("models/tinystories-656k")));
  ASSERT_OK_AND_ASSIGN(const auto spec,
                       model::ParseModelSpec(folder.config().json, folder.config().path));
  const model::ParameterTable table(spec);
  for (const auto& [wire, type] :
       {std::pair(io::DType::kF32, at::kFloat), std::pair(io::DType::kBF16, at::kBFloat16)}) {
    ASSERT_OK_AND_ASSIGN(const auto manifest, weights::MakeManifest(table, wire));
    FakeWeightStore store(manifest);
    WeightReceiver receiver(&store);
    ASSERT_OK(LoadLocalWeights(folder, table, receiver));
    EXPECT_EQ(store.live_version(), 0);
    model::Arena expected(table, type);
    ASSERT_OK(model::LoadParameters(folder, expected));
    for (size_t i = 0; i < table.segments().size(); ++i) {
      const auto bytes = expected.SegmentBytes(i);
      EXPECT_EQ(store.LiveBytes(i),
                std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()))
          << i;
    }
    EXPECT_THAT(LoadLocalWeights(folder, table, receiver),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("version 0 is live")));
  }
}

TEST(LocalWeightLoad, AFoldersLayoutChangesNeitherBytesNorDigest) {
  // One of the matrices is transposed in the second folder.
  model::ModelSpec plain;
  plain.vocab_size = 11;
  plain.hidden_size = 4;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 6;
  layer.attention.num_heads = 2;
  layer.attention.num_kv_heads = 1;
  layer.attention.head_dim = 2;
  plain.layers.assign(1, layer);
  model::ModelSpec transposed = plain;
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  transposed.stored_rules = {{"model.layers.{layer}.mlp.down_proj.weight",
                              "c_proj",
                              model::StoredFusion::kNone,
                              {},
                              true}};
  at::manual_seed(3);
  model::NamedTensors tensors;
  const model::ParameterTable table(plain);
  for (const auto ref : table.segments()) {
    tensors[table.segment(ref).name] = at::randn(table.segment(ref).shape);
  }

  std::vector<std::string> digests;
  std::vector<std::string> bytes;
  for (const model::ModelSpec& spec : {plain, transposed}) {
    if (!spec.stored_rules.empty()) {
      tensors["c_proj"] = tensors.at(name).t();
      tensors.erase(name);
    }
    const testing::TempFolder temp;
    temp.Write("config.json", "{}");
    ASSERT_OK(model::WriteTensors(temp.path(), tensors));
    ASSERT_OK_AND_ASSIGN(const auto folder, io::ModelFolder::Open(temp.path()));
    const model::ParameterTable stored(spec);
    ASSERT_OK_AND_ASSIGN(const auto manifest, weights::MakeManifest(stored, io::DType::kBF16));
    FakeWeightStore store(manifest);
    WeightReceiver receiver(&store);
    ASSERT_OK(LoadLocalWeights(folder, stored, receiver));
    digests.push_back(store.live_model_digest());
    std::string& live = bytes.emplace_back();
    for (int i = 0; i < manifest.tensors_size(); ++i) live += store.LiveBytes(i);
  }

  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_TRUE(bytes[0] == bytes[1]);
}

}  // namespace
}  // namespace tandem::rollout
