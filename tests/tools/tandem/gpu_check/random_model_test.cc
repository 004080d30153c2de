#include "tools/tandem/gpu_check/random_model.h"

#include <gtest/gtest.h>

#include "common/io/model_config.h"
#include "common/io/safetensors.h"
#include "common/model/model_spec.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::gpu_check {
namespace {

TEST(RandomModel, IsWhatItsConfigurationSays) {
  const testing::TempFolder folder;
  ASSERT_OK(WriteRandomModel(TinyShape(), folder / "model"));
  ASSERT_OK_AND_ASSIGN(const io::ModelConfig config, io::ReadModelConfig(folder / "model"));
  ASSERT_OK_AND_ASSIGN(const model::ModelSpec spec,
                       model::ParseModelSpec(config.json, config.path));
  ASSERT_OK_AND_ASSIGN(const io::SafetensorsFile file,
                       io::SafetensorsFile::Open(folder / "model/model.safetensors"));
  int64_t elements = 0;
  for (const io::TensorView& tensor : file.tensors()) elements += tensor.num_elements();

  EXPECT_EQ(elements, spec.num_parameters());
  EXPECT_EQ(elements, TinyShape().num_parameters());
}

TEST(RandomModel, TheLargeOneHasHalfABillionParameters) {
  ASSERT_OK_AND_ASSIGN(const model::ModelSpec spec,
                       model::ParseModelSpec(ConfigOf(HalfBillionShape()), "config.json"));

  EXPECT_EQ(spec.num_parameters(), HalfBillionShape().num_parameters());
  EXPECT_GT(spec.num_parameters(), 450'000'000);
  EXPECT_LT(spec.num_parameters(), 550'000'000);
}

}  // namespace
}  // namespace tandem::gpu_check
