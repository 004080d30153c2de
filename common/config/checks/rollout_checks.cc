#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/checks/checks.h"
#include "common/host/cpu_list.h"

namespace tandem::config {
namespace {

void CheckRolloutCpus(const v1::RolloutConfig& rollout, Checker* check) {
  if (rollout.cpus().empty() || rollout.cpus() == "auto") return;
  const auto cpus = host::ParseCpuList(rollout.cpus());
  if (!cpus.ok()) {
    check->Fail("rollout.cpus", absl::StrCat("auto, or a list: ", cpus.status().message()));
  }
}

}  // namespace

void CheckRollout(const v1::RolloutConfig& rollout, Checker* check) {
  check->Integer("rollout.n", rollout.n(), 1);
  check->AtLeastZero("rollout.temperature", rollout.temperature());
  check->Integer("rollout.top_k", rollout.top_k(), 0);
  check->Number("rollout.top_p", rollout.top_p(), rollout.top_p() > 0 && rollout.top_p() <= 1,
                "in (0, 1]");
  check->Number("rollout.min_p", rollout.min_p(), rollout.min_p() >= 0 && rollout.min_p() < 1,
                "in [0, 1)");
  check->Integer("rollout.max_tokens", rollout.max_tokens(), 1);
  check->Integer("rollout.replicas", rollout.replicas(), 1, kMaxProcesses);
  check->Integer("rollout.update_weights_bucket_megabytes",
                 rollout.update_weights_bucket_megabytes(), 1, 65536);
  check->Integer("rollout.block_size", rollout.block_size(), 1, 65536);
  check->Integer("rollout.kv_cache_megabytes", rollout.kv_cache_megabytes(), 0, kMaxMegabytes);
  check->Integer("rollout.max_num_seqs", rollout.max_num_seqs(), 1);
  check->Integer("rollout.max_num_batched_tokens", rollout.max_num_batched_tokens(), 1);
  check->Integer("rollout.threads", rollout.threads(), 0, kMaxProcesses);
  check->Integer("rollout.max_model_len", rollout.max_model_len(), 0);
  check->Integer("rollout.max_concurrent_groups", rollout.max_concurrent_groups(), 0);
  check->Seconds("rollout.request_timeout_s", rollout.request_timeout_s());
  const v1::ValKwargs& val = rollout.val_kwargs();
  check->AtLeastZero("rollout.val_kwargs.temperature", val.temperature());
  check->Integer("rollout.val_kwargs.n", val.n(), 1);
  check->Integer("rollout.val_kwargs.top_k", val.top_k(), 0);
  check->Number("rollout.val_kwargs.top_p", val.top_p(), val.top_p() > 0 && val.top_p() <= 1,
                "in (0, 1]");
  for (const std::string& address : rollout.endpoints())
    check->Address("rollout.endpoints", address);
  for (const std::string& stop : rollout.stop()) {
    if (stop.empty()) check->Fail("rollout.stop", "expected text, found \"\"");
  }
  for (const std::string& name : rollout.served_model_name()) {
    if (name.empty()) check->Fail("rollout.served_model_name", "expected a name, found \"\"");
  }
  for (const int64_t id : rollout.stop_token_ids()) {
    check->Integer("rollout.stop_token_ids", id, 0, INT32_MAX);
  }
  check->Integer("rollout.tensor_model_parallel_size", rollout.tensor_model_parallel_size(), 1,
                 kMaxProcesses);
  // Elsewhere replicas may have more ranks than this configuration says.
  if (rollout.enable_expert_parallel() && rollout.tensor_model_parallel_size() == 1 &&
      rollout.endpoints().empty() && rollout.endpoints_file().empty()) {
    check->Fail("rollout.enable_expert_parallel",
                "needs rollout.tensor_model_parallel_size above 1: a single rank has all experts");
  }
  check->Seconds("rollout.collective_timeout_s", rollout.collective_timeout_s());
  CheckDevice("rollout.device", rollout.device(), check);
  CheckRolloutCpus(rollout, check);
}

}  // namespace tandem::config
