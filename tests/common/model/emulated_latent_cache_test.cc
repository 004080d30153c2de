// The comparisons of latent_cache_test.cc through the kernels of a GPU, which run on a CPU
// (emulated_gpu/latents.cc).
#include "tests/common/model/emulated_attention.h"
#include "tests/common/model/latent_cases.h"

namespace tandem::model {
namespace {

std::vector<ExactCase> EmulatedCases() {
  std::vector<ExactCase> cases = LatentCases();
  // Takes minutes; the kernel's own test has such heads.
  std::erase_if(cases, [](const ExactCase& each) { return each.shape.latent->kv_rank == 512; });
  for (ExactCase& each : cases) {
    each.make_attention = &MakeEmulated;
    each.longest = 40;
    each.threads = 1;  // a block's threads share one thread of the CPU
  }
  return cases;
}

class EmulatedLatentCacheTest : public ::testing::TestWithParam<ExactCase> {};

TEST_P(EmulatedLatentCacheTest, HasTheLogProbsOfTheTrainer) { CompareWithTrainer(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedLatentCacheTest, ::testing::ValuesIn(EmulatedCases()),
                         ExactCaseName);

}  // namespace
}  // namespace tandem::model
