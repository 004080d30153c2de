// The sampler's CUDA kernel on a CPU, against the CPU's sampler: the same token for the same logits
// and uniform.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "services/rollout/sampler/sample_job.h"
#include "services/rollout/sampler/sampler.h"
#include "services/rollout/sampler/uniform.h"
#include "tests/services/rollout/sampler/reference_distribution.h"
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/row_kernels.cu"
#include "services/rollout/sampler/sample_kernel.cu"

namespace tandem::rollout {
namespace {

void ExpectTheSame(const std::vector<float>& logits, int64_t vocab,
                   const std::vector<SampleRow>& rows) {
  std::vector<SampledToken> expected(rows.size());
  Sample(logits.data(), vocab, rows, absl::MakeSpan(expected));
  std::vector<cuda::SampleJob> jobs;
  for (const SampleRow& row : rows) jobs.push_back(cuda::JobOf(row, vocab));
  std::vector<cuda::SampleResult> found(rows.size());
  ASSERT_EQ(cuda::LaunchSample(logits.data(), vocab, jobs.data(), static_cast<int64_t>(jobs.size()),
                               found.data(), nullptr),
            cudaSuccess);
  for (size_t i = 0; i < rows.size(); ++i) {
    const FilterParams& params = rows[i].params;
    EXPECT_EQ(found[i].id, expected[i].id)
        << "vocabulary " << vocab << ", row " << rows[i].row << ", temperature "
        << params.temperature << ", top_k " << params.top_k << ", top_p " << params.top_p
        << ", min_p " << params.min_p << ", uniform " << rows[i].uniform;
    EXPECT_NEAR(found[i].logprob, expected[i].logprob, 1e-5);
    EXPECT_NEAR(found[i].processed_logprob, expected[i].processed_logprob, 1e-5);
  }
}

TEST(SampleKernel, DrawsTheCpusTokens) {
  for (const int64_t vocab : {1, 7, 513, 3000}) {
    std::vector<float> logits = RandomLogits(2 * vocab, 1);
    std::vector<SampleRow> rows;
    for (const double temperature : {0.0, 1.0, 0.5, 2.5}) {
      for (const int64_t top_k : {0, 1, 50, 600}) {
        for (const double top_p : {1.0, 0.9, 0.3}) {
          for (const double min_p : {0.0, 0.05}) {
            const auto n = static_cast<int64_t>(rows.size());
            rows.push_back({n % 2, {temperature, top_k, top_p, min_p}, Uniform(7, n, 0)});
          }
        }
      }
    }
    ExpectTheSame(logits, vocab, rows);
  }
}

// What the trainer's head says of a token has the bits of what was said when it was sampled.
TEST(SampleKernel, LogProbsAreThoseOfTheHead) {
  for (const int64_t vocab : {7, 513, 3000, 40000}) {
    const std::vector<float> logits = RandomLogits(vocab, 2);
    std::vector<cuda::SampleJob> jobs;
    const std::vector<float> temperatures = {1.0f, 0.7f, 1.3f, 1e-3f};
    for (const float temperature : temperatures) {
      const auto n = static_cast<int64_t>(jobs.size());
      jobs.push_back(cuda::JobOf({0, {temperature, 0, 1.0, 0.0}, Uniform(7, n, 0)}, vocab));
    }
    std::vector<cuda::SampleResult> sampled(jobs.size());
    ASSERT_EQ(cuda::LaunchSample(logits.data(), vocab, jobs.data(), 4, sampled.data(), nullptr),
              cudaSuccess);
    for (size_t i = 0; i < jobs.size(); ++i) {
      const int64_t target = sampled[i].id;
      for (const bool processed : {false, true}) {
        const float temperature = processed ? temperatures[i] : 1.0f;
        float log_prob = 0, entropy = 0, log_sum_exp = 0;
        ASSERT_EQ(model::cuda::Launch(
                      model::cuda::RowLogProbs{1, vocab, logits.data(), &target, &temperature,
                                               &log_prob, &entropy, &log_sum_exp},
                      nullptr),
                  cudaSuccess);
        EXPECT_EQ(log_prob, processed ? sampled[i].processed_logprob : sampled[i].logprob)
            << "vocabulary " << vocab << ", temperature " << temperature;
      }
    }
  }
}

TEST(SampleKernel, BreaksTiesById) {
  std::vector<float> logits(3000, 0.0f);
  for (int i = 1000; i < 2500; ++i) logits[i] = 2.0f;
  logits[5] = -0.0f;
  std::vector<SampleRow> rows;
  for (int i = 0; i < 8; ++i) {
    const double uniform = (i + 0.5) / 8;
    rows.push_back({0, {.temperature = 0.0}, uniform});
    rows.push_back({0, {.top_k = 20}, uniform});
    rows.push_back({0, {.top_k = 1600}, uniform});
    rows.push_back({0, {.top_p = 0.25}, uniform});
    rows.push_back({0, {.top_p = 0.999}, uniform});
    rows.push_back({0, {.min_p = 0.9}, uniform});
    rows.push_back({0, {.top_k = 40, .top_p = 0.5}, uniform});
  }
  ExpectTheSame(logits, 3000, rows);
}

TEST(SampleKernel, TakesExtremeParameters) {
  const std::vector<float> logits = RandomLogits(1000, 7, 30.0f);
  std::vector<SampleRow> rows;
  for (const double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
    rows.push_back({0, {.temperature = 1e-300}, uniform});
    rows.push_back({0, {.temperature = 1e300}, uniform});
    rows.push_back({0, {.top_p = 1e-300}, uniform});
    rows.push_back({0, {.min_p = 1.0}, uniform});
    rows.push_back({0, {.top_k = 1000, .min_p = 1e-30}, uniform});
  }
  ExpectTheSame(logits, 1000, rows);
}

TEST(SampleKernel, SaysWhichRowsAreNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> logits(400, 0.0f);
  logits[5] = NAN;
  logits[107] = infinity;
  for (int i = 200; i < 400; ++i) logits[i] = -infinity;
  logits[342] = -3.0f;
  ExpectTheSame(logits, 100, {{0, {}, 0.3}, {1, {}, 0.3}, {2, {}, 0.3}, {3, {}, 0.3}});
}

}  // namespace
}  // namespace tandem::rollout
