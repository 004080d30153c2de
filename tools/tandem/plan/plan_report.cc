#include "tools/tandem/plan/plan_report.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/summary.h"
#include "common/text/count.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/plan/mesh_fit.h"

namespace tandem::plan {
namespace {

using text::Count;

constexpr int kBarWidth = 40;

template <typename Enum>
std::string ValueName(Enum value) {
  const auto* enumeration = google::protobuf::GetEnumDescriptor<Enum>();
  std::string prefix;
  for (const char c : enumeration->name()) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  const auto* descriptor = enumeration->FindValueByNumber(static_cast<int>(value));
  if (descriptor == nullptr) return "";
  return absl::AsciiStrToLower(descriptor->name().substr(prefix.size() + 1));
}

std::string Row(const std::string& name, int64_t bytes, int64_t whole) {
  const double share = whole > 0 ? static_cast<double>(bytes) / static_cast<double>(whole) : 0.0;
  const int width =
      std::clamp(static_cast<int>(share * kBarWidth + 0.5), bytes > 0 ? 1 : 0, 2 * kBarWidth);
  return absl::StrFormat("  %-18s %12s  %s\n", name, FormatBytes(bytes), std::string(width, '#'));
}

// What a full bar stands for: the memory that there is, or, if none is left, what is needed.
int64_t FullBar(int64_t budget_bytes, int64_t needed_bytes) {
  return std::max<int64_t>(1, budget_bytes > 0 ? budget_bytes : needed_bytes);
}

std::string RankTable(const RunPlan& plan) {
  const int64_t whole = FullBar(plan.budget.rank_bytes, plan.needed_bytes());
  std::string text = absl::StrFormat(
      "memory   peak of %s, in %s; a full bar is %s\n",
      plan.mesh.size() == 1 ? "the trainer rank"
                            : absl::StrFormat("each of %d trainer ranks", plan.mesh.size()),
      plan.rank.peak.place, FormatBytes(whole));
  for (size_t k = 0; k < kNumMemoryKinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    if (plan.rank.peak.of(kind) > 0) {
      text += Row(MemoryKindName(kind), plan.rank.peak.of(kind), whole);
    }
  }
  text += Row("tensors", plan.rank.peak.total(), whole);
  text += absl::StrFormat("  %-18s %12s  of the process, besides tensors\n", "runtime",
                          FormatBytes(plan.budget.process_bytes));
  if (plan.rank.pixel_bytes > 0) text += Row("pixels of images", plan.rank.pixel_bytes, whole);
  if (plan.rank.host_bytes > 0) text += Row("in host memory", plan.rank.host_bytes, whole);
  if (plan.rank.disk_bytes > 0) text += Row("on disk", plan.rank.disk_bytes, whole);
  return text;
}

std::string RolloutTable(const RunPlan& plan) {
  const config::v1::RolloutConfig& rollout = plan.config.rollout();
  const int64_t whole =
      FullBar(plan.hardware.is_gpu ? plan.budget.rollout_bytes : 0, plan.rollout.total());
  std::string text = absl::StrFormat(
      "rollout  %s of %s%s, %s\n", Count(rollout.replicas(), "replica"),
      Count(rollout.tensor_model_parallel_size(), "rank"), rollout.replicas() == 1 ? "" : " each",
      plan.budget.shared ? "on the trainer's machines" : "on separate accelerators");
  text += Row("weights, twice", plan.rollout.weights, whole);
  if (plan.rollout.packed > 0) text += Row("packed weights", plan.rollout.packed, whole);
  text += Row("KV cache", plan.rollout.kv_cache, whole);
  if (plan.rollout.states > 0) text += Row("recurrent states", plan.rollout.states, whole);
  if (plan.rollout.images > 0) text += Row("images", plan.rollout.images, whole);
  text += Row("transfer", plan.rollout.transfer, whole);
  text += Row("temporaries", plan.rollout.temporaries, whole);
  text += Row("together", plan.rollout.total(), whole);
  text += absl::StrFormat(
      "  the cache holds %s of %s\n", Count(plan.rollout.sequences, "sequence"),
      Count(plan.config.data().max_prompt_length() + config::LongestCompletion(plan.config),
            "token"));
  return text;
}

}  // namespace

std::string DescribePlan(const RunPlan& plan) {
  const config::v1::TrainerConfig& trainer = plan.config.trainer();
  const BatchPlan& batch = plan.batch;
  std::string text =
      absl::StrFormat("model    %s, %.2f billion parameters, %s\n", plan.spec.architecture,
                      static_cast<double>(plan.spec.num_parameters()) / 1e9,
                      plan.setup.element_bytes == 4 ? "float32" : "bfloat16");
  absl::StrAppend(&text, "machines ", plan.hardware.Describe(), "\n");
  absl::StrAppend(&text, "mesh     ", DescribeMesh(plan.mesh), ", ",
                  ValueName(trainer.sharding_strategy()), "; checkpointing ",
                  ValueName(trainer.activation_checkpointing()), ", offload ",
                  ValueName(trainer.offload()), ", micro-batches of at most ",
                  trainer.max_tokens_per_micro_batch(), " tokens, units of at most ",
                  FormatBytes(plan.rank.largest_unit), "\n");
  for (size_t i = 0; i < plan.reasons.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "why      " : "         ", plan.reasons[i], "\n");
  }
  absl::StrAppend(&text, "batch    ", Count(batch.prompts, "prompt"), " x ",
                  Count(plan.config.rollout().n(), "sample"), " = ", Count(batch.samples, "sample"),
                  " of at most ", Count(batch.longest_sequence + 1, "token"), " = ",
                  Count(batch.step_tokens + batch.samples, "token"), "\n         ",
                  Count(batch.optimizer_steps, "optimizer step"), " of ",
                  Count(batch.mini_batch_samples, "sample"), "; on ",
                  batch.data_ranks == 1 ? "the data rank"
                                        : absl::StrCat("each of ", batch.data_ranks, " data ranks"),
                  " ", Count(batch.samples_per_rank, "sample"), " in ",
                  Count(batch.micro_batches, "micro-batch", "micro-batches"), " of at most ",
                  batch.micro_batch_samples, " of the longest\n");
  absl::StrAppend(&text, RankTable(plan));
  if (plan.with_rollouts) absl::StrAppend(&text, RolloutTable(plan));
  absl::StrAppend(&text, plan.fits() ? "fits     " : "DOES NOT FIT: ",
                  plan.fits()
                      ? absl::StrCat(FormatBytes(plan.budget.rank_bytes - plan.needed_bytes()),
                                     " of a rank's memory left")
                      : plan.problem,
                  "\n");
  return text;
}

nlohmann::json PlanToJson(const RunPlan& plan) {
  const config::v1::TrainerConfig& trainer = plan.config.trainer();
  nlohmann::json kinds = nlohmann::json::object();
  for (size_t k = 0; k < kNumMemoryKinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    kinds[MemoryKindKey(kind)] = plan.rank.peak.of(kind);
  }
  nlohmann::json out = {
      {"fits", plan.fits()},
      {"problem", plan.problem},
      {"model",
       {{"architecture", plan.spec.architecture}, {"parameters", plan.spec.num_parameters()}}},
      {"hardware",
       {{"name", plan.hardware.name},
        {"per_host", plan.hardware.per_host},
        {"hosts", plan.hardware.hosts},
        {"memory_bytes", plan.hardware.memory_bytes}}},
      {"mesh",
       {{"dp_replicate", plan.mesh.dp_replicate},
        {"dp_shard", plan.mesh.dp_shard},
        {"ep", plan.mesh.ep},
        {"tp", plan.mesh.tp},
        {"ulysses", plan.mesh.sequence}}},
      {"settings",
       {{"sharding_strategy", ValueName(trainer.sharding_strategy())},
        {"activation_checkpointing", ValueName(trainer.activation_checkpointing())},
        {"offload", ValueName(trainer.offload())},
        {"max_tokens_per_micro_batch", trainer.max_tokens_per_micro_batch()}}},
      {"batch",
       {{"prompts", plan.batch.prompts},
        {"samples", plan.batch.samples},
        {"mini_batch_samples", plan.batch.mini_batch_samples},
        {"optimizer_steps", plan.batch.optimizer_steps},
        {"data_ranks", plan.batch.data_ranks},
        {"samples_per_rank", plan.batch.samples_per_rank},
        {"micro_batches", plan.batch.micro_batches},
        {"longest_sequence", plan.batch.longest_sequence + 1},
        {"tokens", plan.batch.step_tokens + plan.batch.samples}}},
      {"rank_memory",
       {{"ranks", plan.mesh.size()},
        {"peak_tensor_bytes", plan.rank.peak.total()},
        {"available_bytes", plan.budget.rank_bytes},
        {"process_bytes", plan.budget.process_bytes},
        {"host_bytes", plan.rank.host_bytes},
        {"disk_bytes", plan.rank.disk_bytes},
        {"pixel_bytes", plan.rank.pixel_bytes},
        {"place", plan.rank.peak.place},
        {"kinds", kinds}}},
      {"step_seconds",
       {{"total", plan.cost.total()},
        {"compute", plan.cost.compute},
        {"sharding", plan.cost.sharding},
        {"replicas", plan.cost.replicas},
        {"tensors", plan.cost.tensors},
        {"sequences", plan.cost.sequences},
        {"offload", plan.cost.offload}}},
      {"reasons", plan.reasons}};
  if (plan.with_rollouts) {
    out["rollout_memory"] = {{"replicas", plan.config.rollout().replicas()},
                             {"ranks_each", plan.config.rollout().tensor_model_parallel_size()},
                             {"shared", plan.budget.shared},
                             {"weights", plan.rollout.weights},
                             {"packed", plan.rollout.packed},
                             {"kv_cache", plan.rollout.kv_cache},
                             {"transfer", plan.rollout.transfer},
                             {"temporaries", plan.rollout.temporaries},
                             {"total", plan.rollout.total()},
                             {"available_bytes", plan.budget.rollout_bytes},
                             {"sequences", plan.rollout.sequences}};
    if (plan.rollout.states > 0) out["rollout_memory"]["states"] = plan.rollout.states;
    if (plan.rollout.images > 0) out["rollout_memory"]["images"] = plan.rollout.images;
  }
  return out;
}

}  // namespace tandem::plan
