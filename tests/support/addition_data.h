// A small data set of additions for whole runs.
#ifndef TANDEM_TESTS_SUPPORT_ADDITION_DATA_H_
#define TANDEM_TESTS_SUPPORT_ADDITION_DATA_H_

#include <sstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace tandem::testing {

inline std::string WriteAdditions(const TempFolder& folder, const std::string& name, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const int a = i % 7, b = i / 7 % 5;
    text += nlohmann::json{{"prompt", std::to_string(a) + "+" + std::to_string(b) + "="},
                           {"answer", std::to_string(a + b)}}
                .dump() +
            "\n";
  }
  return folder.Write(name, text);
}

// Arguments of a run of the tiny model on additions into `folder`/run: 2 ranks, 2 replicas, 3
// steps.
inline std::vector<std::string> TinyRun(const TempFolder& folder, const std::string& command) {
  const std::string model = WriteTinyModel(folder);
  const std::string train = WriteAdditions(folder, "train.jsonl", 24);
  const std::string test = WriteAdditions(folder, "test.jsonl", 6);
  const std::string config = folder.Write("run.yaml", R"(
model: {path: )" + model + R"(, dtype: float32, random_init: true}
data: {train_files: [)" + train + R"(], test_files: [)" + test +
                                                          R"(], train_batch_size: 4}
rollout: {n: 4, max_tokens: 4, replicas: 2, kv_cache_megabytes: 8}
trainer: {ranks: 2, total_steps: 3, test_freq: 3, collective_timeout_s: 30}
actor: {optim: {lr: 1e-3}}
reward: {name: prefix_match}
run_dir: )" + (folder / "run") + "\n");
  return {command, "--local", "--config", config};
}

inline std::vector<nlohmann::json> JsonLines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_ADDITION_DATA_H_
