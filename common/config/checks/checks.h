// What is checked of each section of a configuration. Problems are added to `check`.
#ifndef TANDEM_COMMON_CONFIG_CHECKS_CHECKS_H_
#define TANDEM_COMMON_CONFIG_CHECKS_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/config/checks/checker.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

void CheckData(const v1::DataConfig& data, Checker* check);
void CheckRollout(const v1::RolloutConfig& rollout, Checker* check);
void CheckTrainer(const v1::TrainerConfig& trainer, Checker* check);
void CheckDevice(const char* key, const std::string& value, Checker* check);
// A mini-batch of prompts must divide the batch.
void CheckMiniBatch(const std::string& key, int64_t mini_batch, int64_t batch, Checker* check);
// `section` is the section's key path, ending in a dot.
void CheckOptim(const std::string& section, const v1::OptimConfig& optim, Checker* check);
// Muon updates whole matrices, which tensor parallelism splits.
void CheckMuon(const v1::RunConfig& config, const std::string& key, const v1::OptimConfig& optim,
               Checker* check);
void CheckActor(const v1::RunConfig& config, Checker* check);
void CheckCritic(const v1::RunConfig& config, Checker* check);
void CheckFilterGroups(const v1::RunConfig& config, Checker* check);
void CheckAlgorithm(const v1::AlgorithmConfig& algorithm, const v1::RewardConfig& reward,
                    Checker* check);
void CheckOverlongBuffer(const v1::RunConfig& config, Checker* check);
void CheckReward(const v1::RewardConfig& reward, Checker* check);
// Whether one of the rewards has this name.
bool HasReward(const v1::RewardConfig& reward, absl::string_view name);
void CheckEnvironment(const v1::RunConfig& config, Checker* check);
void CheckTeacher(const v1::RunConfig& config, Checker* check);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_CHECKS_CHECKS_H_
