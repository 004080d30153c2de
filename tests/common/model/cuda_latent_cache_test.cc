// The comparisons of latent_cache_test.cc on a GPU.
#include "tests/common/model/latent_cases.h"
#include "tests/support/cuda_device.h"

namespace tandem::model {
namespace {

std::vector<ExactCase> CudaCases() {
  std::vector<ExactCase> cases = LatentCases();
  for (ExactCase& each : cases) {
    if (each.shape.latent->kv_rank == 512) each.longest = 600;  // several chunks of keys
    each.device = at::Device(at::kCUDA, 0);
    each.make_attention = &CreateCudaAttention;
  }
  return cases;
}

class CudaLatentCacheTest : public ::testing::TestWithParam<ExactCase> {
 protected:
  void SetUp() override { TANDEM_SKIP_WITHOUT_CUDA(); }
};

TEST_P(CudaLatentCacheTest, HasTheLogProbsOfTheTrainer) { CompareWithTrainer(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Shapes, CudaLatentCacheTest, ::testing::ValuesIn(CudaCases()),
                         ExactCaseName);

}  // namespace
}  // namespace tandem::model
