#include "services/rollout/receive/local_weight_load.h"

#include "common/model/arena.h"
#include "common/model/load_parameters.h"
#include "common/model/model_spec.h"
#include "common/weights/manifest.h"
#include "tests/fakes/fake_weight_store.h"
#include "tests/support/status_matchers.h"
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

}  // namespace
}  // namespace tandem::rollout
