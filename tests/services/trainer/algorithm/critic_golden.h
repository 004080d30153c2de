// What tests/parity/critic_golden.py wrote, and the model that it trained.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_CRITIC_GOLDEN_H_
#define TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_CRITIC_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/io/model_folder.h"
#include "common/io/read_file.h"
#include "services/trainer/data/training_batch.h"
#include "services/trainer/fsdp/sharded_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {

inline std::string SourcePath(const std::string& path) {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source == nullptr ? "." : source) + "/" + path;
}

inline nlohmann::json ReadCriticGolden() {
  auto json = io::ReadJsonFile(SourcePath("tests/services/trainer/algorithm/critic_golden.json"));
  if (!json.ok()) throw std::runtime_error(json.status().ToString());
  return *json;
}

// The model of tests/services/trainer/golden, sharded over the mesh. Collective.
inline std::unique_ptr<ShardedModel> GoldenModel(const comm::DeviceMesh& mesh, bool value_head,
                                                 bool trainable = true) {
  auto folder = io::ModelFolder::Open(SourcePath("tests/services/trainer/golden"));
  EXPECT_OK(folder.status());
  auto spec = model::ParseModelSpec(folder->config().json, folder->config().path);
  EXPECT_OK(spec.status());
  ShardedModelOptions options;
  options.spec = value_head ? model::ValueModelSpec(*spec) : *spec;
  options.mesh = &mesh;
  options.trainable = trainable;
  auto model = ShardedModel::Create(options);
  EXPECT_OK(model.status());
  EXPECT_OK((*model)->Load(*folder));
  return *std::move(model);
}

// A prompt of `prompt` tokens with a completion that is trained on.
inline Sequence GoldenSequence(const std::vector<int64_t>& token_ids, int64_t prompt, int64_t group,
                               double reward) {
  Sequence out;
  out.token_ids = token_ids;
  out.prompt_tokens = prompt;
  out.response_tokens = static_cast<int64_t>(token_ids.size()) - prompt;
  for (int64_t t = prompt; t < static_cast<int64_t>(token_ids.size()); ++t) {
    out.trained.push_back(t);
  }
  out.group = group;
  out.reward = reward;
  return out;
}

// Each expected metric, to a relative 2e-5.
inline void ExpectMetrics(const std::map<std::string, double>& actual,
                          const nlohmann::json& expected) {
  for (const auto& [name, value] : expected.items()) {
    ASSERT_EQ(actual.count(name), 1u) << name;
    const double wanted = value.get<double>();
    EXPECT_NEAR(actual.at(name), wanted, 2e-5 * std::abs(wanted) + 2e-6) << name;
  }
}

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_CRITIC_GOLDEN_H_
