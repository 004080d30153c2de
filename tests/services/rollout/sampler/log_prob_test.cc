// The sampler's log-probs against PyTorch's (tests/parity/sampling_golden.py), and against the
// trainer's head, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>
#include <vector>

#include "common/io/read_file.h"
#include "common/model/kernels/log_probs.h"
#include "services/rollout/sampler/sampler.h"
#include "services/rollout/sampler/uniform.h"
#include "tests/services/rollout/sampler/reference_distribution.h"

namespace tandem::rollout {
namespace {

nlohmann::json ReadGolden() {
  const char* source = std::getenv("TANDEM_SOURCE");
  auto json = io::ReadJsonFile(std::string(source == nullptr ? "." : source) +
                               "/tests/services/rollout/sampler/log_probs_golden.json");
  if (!json.ok()) throw std::runtime_error(json.status().ToString());
  return *json;
}

// As the script makes them.
std::vector<float> GoldenLogits(const nlohmann::json& golden) {
  const double seed = golden["seed"], spread = golden["spread"];
  std::vector<float> logits(golden["vocab"].get<size_t>());
  for (size_t n = 0; n < logits.size(); ++n) {
    const auto i = static_cast<double>(n);
    const double angle = std::fmod(0.7 * i * i + seed, 2 * std::numbers::pi);
    logits[n] = static_cast<float>(spread * std::sin(angle) + 0.1 * std::cos(i));
  }
  return logits;
}

// Draws `id`, by the uniform in the middle of its share of the distribution.
SampledToken DrawOf(const std::vector<float>& logits, int32_t id, double temperature) {
  std::vector<double> weight(logits.size());
  double most = logits[0], before = 0, total = 0;
  for (const float logit : logits) most = std::max<double>(most, logit);
  for (size_t i = 0; i < logits.size(); ++i) {
    weight[i] = std::exp((logits[i] - most) / temperature);
    if (static_cast<int32_t>(i) < id) before += weight[i];
    total += weight[i];
  }
  const SampleRow row{0, {.temperature = temperature}, (before + weight[id] / 2) / total};
  SampledToken token;
  Sample(logits.data(), static_cast<int64_t>(logits.size()), {&row, 1}, {&token, 1});
  return token;
}

TEST(SamplerLogProbs, ArePyTorchsRawAndProcessed) {
  int compared = 0;
  const nlohmann::json file = ReadGolden();
  for (const nlohmann::json& golden : file["cases"]) {
    const std::vector<float> logits = GoldenLogits(golden);
    const double temperature = golden["temperature"];
    for (size_t j = 0; j < golden["ids"].size(); ++j) {
      const int32_t id = golden["ids"][j];
      const double raw = golden["raw"][j], processed = golden["processed"][j];
      const SampledToken token = DrawOf(logits, id, temperature);
      if (token.id != id) continue;  // too unlikely to be hit by a sum in float32
      EXPECT_NEAR(token.logprob, raw, 1e-5 * std::max(1.0, std::abs(raw))) << golden["vocab"];
      EXPECT_NEAR(token.processed_logprob, processed, 1e-5 * std::max(1.0, std::abs(processed)))
          << golden["vocab"];
      ++compared;
    }
  }
  EXPECT_GE(compared, 25);
}

TEST(SamplerLogProbs, AreTheTrainersHeadsBitForBit) {
  std::mt19937 random(3);
  int compared = 0;
  for (const int64_t vocab : {1, 3, 15, 16, 17, 97, 511, 512, 513, 1030, 4099, 32001}) {
    const int64_t num_rows = vocab > 4000 ? 50 : 400;
    const std::vector<float> logits = RandomLogits(num_rows * vocab, static_cast<uint32_t>(vocab));
    std::vector<SampleRow> rows;
    std::vector<float> temperatures;
    for (int64_t i = 0; i < num_rows; ++i) {
      FilterParams params{.temperature = 0.1 * static_cast<double>(1 + random() % 20)};
      if (random() % 2 == 0) params.top_k = 1 + random() % 50;
      if (random() % 2 == 0) params.top_p = 0.9;
      rows.push_back({i, params, Uniform(vocab, 0, i)});
      temperatures.push_back(static_cast<float>(params.temperature));
    }
    std::vector<SampledToken> tokens(num_rows);
    Sample(logits.data(), vocab, rows, absl::MakeSpan(tokens));
    std::vector<int64_t> targets;
    for (const SampledToken& token : tokens) targets.push_back(token.id);
    const auto expect_same = [&](const std::vector<float>& at, float SampledToken::*part) {
      std::vector<float> log_probs(num_rows), entropy(num_rows);
      model::kernels::LogProbsForward args{vocab, logits.data(), targets.data(), at.data()};
      args.log_probs = log_probs.data();
      args.entropy = entropy.data();
      model::kernels::LogProbsRows(args, 0, num_rows);
      for (int64_t i = 0; i < num_rows; ++i, ++compared) {
        ASSERT_EQ(std::memcmp(&(tokens[i].*part), &log_probs[i], sizeof(float)), 0)
            << "row " << i << " of " << vocab << " ids: " << tokens[i].*part << " and "
            << log_probs[i];
      }
    };
    expect_same(std::vector<float>(num_rows, 1.0f), &SampledToken::logprob);
    expect_same(temperatures, &SampledToken::processed_logprob);
  }
  EXPECT_GE(compared, 8000);
}

}  // namespace
}  // namespace tandem::rollout
