#include "common/security/method_roles.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace tandem::security {
namespace {

constexpr Role kDriver = Role::kDriver;
constexpr Role kTrainer = Role::kTrainer;
constexpr Role kRollout = Role::kRollout;
constexpr Role kReward = Role::kReward;
constexpr Role kObserver = Role::kObserver;

}  // namespace

const std::vector<MethodRoles>& AllMethodRoles() {
  static const auto* table = new std::vector<MethodRoles>{
      // The trainer: the driver drives it, and no rollout calls it.
      {"/tandem.trainer.v1.TrainerService/GetModelInfo", {kDriver, kObserver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/AcquireLease", {kDriver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/RenewLease", {kDriver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/ReleaseLease", {kDriver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/TrainStep", {kDriver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/ComputeLogProbs", {kDriver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/PublishWeights", {kDriver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/GetWeightDigests", {kDriver, kObserver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/SaveCheckpoint", {kDriver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/LoadCheckpoint", {kDriver}, {kTrainer}},
      {"/tandem.trainer.v1.TrainerService/Watch", {kDriver, kObserver}, {kTrainer}},

      {"/tandem.rollout.v1.RolloutService/Generate", {kDriver}, {kRollout}},
      {"/tandem.rollout.v1.RolloutService/Abort", {kDriver}, {kRollout}},
      {"/tandem.rollout.v1.RolloutService/Pause", {kDriver}, {kRollout}},
      {"/tandem.rollout.v1.RolloutService/Resume", {kDriver}, {kRollout}},
      {"/tandem.rollout.v1.RolloutService/Score", {kDriver}, {kRollout}},
      {"/tandem.rollout.v1.RolloutService/OpenSession", {kDriver}, {kRollout}},
      {"/tandem.rollout.v1.RolloutService/CloseSession", {kDriver}, {kRollout}},
      {"/tandem.rollout.v1.RolloutService/GetServerInfo", {kDriver, kObserver}, {kRollout}},

      // The trainer provides weights; a rollout that joins late reads them from another rollout.
      {"/tandem.rollout.v1.WeightService/GetManifest", {kTrainer, kDriver, kObserver}, {kRollout}},
      {"/tandem.rollout.v1.WeightService/BeginUpdate", {kTrainer}, {kRollout}},
      {"/tandem.rollout.v1.WeightService/VerifyUpdate", {kTrainer}, {kRollout}},
      {"/tandem.rollout.v1.WeightService/CommitUpdate", {kTrainer}, {kRollout}},
      {"/tandem.rollout.v1.WeightService/AbortUpdate", {kTrainer}, {kRollout}},
      {"/tandem.rollout.v1.WeightService/GetDigests", {kTrainer, kDriver, kObserver}, {kRollout}},
      {"/tandem.rollout.v1.WeightService/ReadWeights", {kRollout}, {kRollout}},

      // Any observer may look; only the driver may load the network.
      {"/tandem.diagnostics.v1.DiagnosticsService/CheckReach",
       {kDriver, kObserver},
       {kTrainer, kRollout}},
      {"/tandem.diagnostics.v1.DiagnosticsService/ProbeGroup", {kDriver}, {kTrainer, kRollout}},

      // An environment judges too: one role for both services of the user's.
      {"/tandem.reward.v1.RewardService/ComputeRewards", {kDriver}, {kReward}},
      {"/tandem.environment.v1.EnvironmentService/Play", {kDriver}, {kReward}},

      // Every role may check a process's health and list its services.
      {"/grpc.health.v1.Health/Check",
       {kDriver, kTrainer, kRollout, kReward, kObserver},
       {kTrainer, kRollout, kReward}},
      {"/grpc.health.v1.Health/Watch",
       {kDriver, kTrainer, kRollout, kReward, kObserver},
       {kTrainer, kRollout, kReward}},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
       {kDriver, kTrainer, kRollout, kReward, kObserver},
       {kTrainer, kRollout, kReward}},
  };
  return *table;
}

const MethodRoles* FindMethodRoles(absl::string_view method) {
  static const auto* by_method = [] {
    auto* map = new absl::flat_hash_map<absl::string_view, const MethodRoles*>;
    for (const MethodRoles& row : AllMethodRoles()) map->emplace(row.method, &row);
    return map;
  }();
  const auto found = by_method->find(method);
  return found == by_method->end() ? nullptr : found->second;
}

absl::Status CheckCaller(absl::string_view method, Roles found) {
  const MethodRoles* row = FindMethodRoles(method);
  if (row != nullptr && row->callers.Meets(found)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(method, ": expected a caller with the role ",
                   row == nullptr ? "none, because the method is unknown" : row->callers.ToString(),
                   "; found ", found.ToString()));
}

absl::Status CheckServer(absl::string_view method, Roles found) {
  const MethodRoles* row = FindMethodRoles(method);
  if (row != nullptr && row->servers.Meets(found)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(method, ": expected a server whose certificate has the role ",
                   row == nullptr ? "none, because the method is unknown" : row->servers.ToString(),
                   "; found ", found.ToString(), ": is this the right address?"));
}

}  // namespace tandem::security
