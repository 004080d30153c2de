// What tests/parity/rl_batch_golden.py wrote: advantages, losses and corrections of a small ragged
// batch, as PyTorch computes them in float64.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_BATCH_GOLDEN_H_
#define TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_BATCH_GOLDEN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/read_file.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {

inline nlohmann::json ReadBatchGolden() {
  const char* source = std::getenv("TANDEM_SOURCE");
  auto json = io::ReadJsonFile(std::string(source == nullptr ? "." : source) +
                               "/tests/services/trainer/algorithm/batch_golden.json");
  if (!json.ok()) throw std::runtime_error(json.status().ToString());
  return *json;
}

// The batch without anything computed.
inline TrainingBatch GoldenBatch(const nlohmann::json& golden) {
  TrainingBatch batch;
  for (size_t i = 0; i < golden["lengths"].size(); ++i) {
    Sequence& sequence = batch.sequences.emplace_back();
    const auto length = golden["lengths"][i].get<int64_t>();
    for (int64_t t = 0; t <= length; ++t) sequence.token_ids.push_back(t);
    for (int64_t t = 1; t <= length; ++t) sequence.trained.push_back(t);
    sequence.prompt_tokens = 1;
    sequence.rollout_logprobs.assign(length, NAN);
    sequence.group = golden["groups"][i];
    sequence.reward = golden["rewards"][i];
    sequence.baseline_reward = golden["baselines"][i].get<double>();
    for (const auto& part : golden["reward_parts"]) {
      sequence.reward_parts.push_back({part["name"], part["values"][i], part["weight"]});
    }
    batch.num_groups = std::max(batch.num_groups, sequence.group + 1);
  }
  return batch;
}

// Cuts a list of all tokens into what each sequence holds.
inline void SetTokens(TrainingBatch& batch, std::vector<float> Sequence::*member,
                      const nlohmann::json& values) {
  size_t at = 0;
  for (Sequence& sequence : batch.sequences) {
    (sequence.*member).clear();
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      (sequence.*member).push_back(values[at++].get<float>());
    }
  }
}

template <typename T>
std::vector<double> AllTokens(const TrainingBatch& batch, std::vector<T> Sequence::*member) {
  std::vector<double> out;
  for (const Sequence& sequence : batch.sequences) {
    out.insert(out.end(), (sequence.*member).begin(), (sequence.*member).end());
  }
  return out;
}

// Each within `tolerance` of the larger of 1 and its magnitude.
inline void ExpectNear(const std::vector<double>& actual, const nlohmann::json& expected,
                       double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    const auto value = expected[i].get<double>();
    EXPECT_NEAR(actual[i], value, tolerance * std::max(1.0, std::abs(value)))
        << what << ", element " << i;
  }
}

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_BATCH_GOLDEN_H_
