// tandem bench plan: the transfer plan of a weight update of any size, and how long the update
// would take on described hardware. Starts nothing.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/json_text.h"
#include "common/text/count.h"
#include "common/weights/reshard_check.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/plan/update_plan.h"

namespace tandem::bench {
namespace {

struct PlanOptions {
  plan::UpdatePlanRequest request;
  int64_t bucket_megabytes = 64;
  bool json = false;
};

// The values that both output formats print.
struct Figures {
  weights::SenderBalance balance;
  double share_of_model = 0;
  size_t groups = 0;
  size_t largest_group = 0;
};

Figures FiguresOf(const plan::UpdatePlan& update) {
  Figures out;
  out.balance = weights::BalanceOf(*update.fleet.feed);
  out.share_of_model = static_cast<double>(out.balance.max_bytes) /
                       static_cast<double>(std::max<int64_t>(1, update.model_bytes));
  for (const std::vector<int>& group : update.fleet.Groups()) {
    ++out.groups;
    out.largest_group = std::max(out.largest_group, group.size());
  }
  return out;
}

std::string Bytes(double bytes) {
  if (bytes >= 1e9) return absl::StrFormat("%.2f GB", bytes / 1e9);
  return absl::StrFormat("%.2f MB", bytes / 1e6);
}

std::string Row(const char* transport, const weights::Prediction& prediction) {
  return absl::StrFormat("%-10s %9.3f s  %10s / %-10s %10s / %-10s %s\n", transport,
                         prediction.seconds, Bytes(prediction.trainer_nics.max),
                         Bytes(prediction.trainer_nics.mean), Bytes(prediction.rollout_nics.max),
                         Bytes(prediction.rollout_nics.mean), prediction.critical_path);
}

std::string Table(const plan::UpdatePlanRequest& request, const plan::UpdatePlan& update) {
  const weights::ReshardPlan& feed = *update.fleet.feed;
  const Figures figures = FiguresOf(update);
  std::string text =
      absl::StrFormat("model     %s: %.2f billion parameters, %s in %s\n", request.model_shape,
                      update.parameters / 1e9, Bytes(update.model_bytes), request.dtype);
  absl::StrAppendFormat(
      &text,
      "trainer   %s: dp_replicate %d x dp_shard %d x tp %d\n"
      "rollout   %s: %s of %d, in a chain\n",
      text::Count(update.mesh.size(), "rank"), update.mesh.dp_replicate, update.mesh.dp_shard,
      update.mesh.tp, text::Count(request.rollout_ranks, "rank"),
      text::Count(update.fleet.replica_ranks.size(), "replica"), request.rollout_tensor_parallel);
  absl::StrAppendFormat(
      &text,
      "plan      %.3f s, %.0f MiB resident; %d messages of at most %s, %d pieces; "
      "checked in %.3f s: every byte arrives once\n"
      "groups    %d, the largest of %d of %d ranks\n",
      update.seconds, update.rss_bytes / 1048576.0, feed.messages.size(),
      Bytes(feed.largest_message_bytes()), feed.num_pieces(), update.check_seconds, figures.groups,
      figures.largest_group, update.fleet.num_ranks());
  absl::StrAppendFormat(
      &text,
      "sends     a trainer rank at most %s (%.4f%% of the model), on average %s: %.4f of an even "
      "share\n",
      Bytes(figures.balance.max_bytes), 100 * figures.share_of_model,
      Bytes(figures.balance.mean_bytes), figures.balance.max_over_mean);
  absl::StrAppendFormat(
      &text, "\non %s, %d ranks a host; bytes of a NIC, max / mean\n%-10s %11s  %-23s %-23s %s\n",
      update.hardware.name, update.hardware.per_host, "transport", "predicted",
      "   out of the trainer", "   into the rollout", " critical path");
  return absl::StrCat(text, Row("broadcast", update.broadcast), Row("reshard", update.reshard),
                      Row("delta", update.delta));
}

nlohmann::json ToJson(const weights::Prediction& prediction) {
  return {{"seconds", prediction.seconds},
          {"busy_seconds", prediction.busy_seconds},
          {"critical_path", prediction.critical_path},
          {"trainer_nic_bytes_max", prediction.trainer_nics.max},
          {"trainer_nic_bytes_mean", prediction.trainer_nics.mean},
          {"rollout_nic_bytes_max", prediction.rollout_nics.max},
          {"rollout_nic_bytes_mean", prediction.rollout_nics.mean}};
}

nlohmann::json ToJson(const plan::UpdatePlanRequest& request, const plan::UpdatePlan& update) {
  const weights::ReshardPlan& feed = *update.fleet.feed;
  const Figures figures = FiguresOf(update);
  return {{"bench", "plan"},
          {"model_shape", request.model_shape},
          {"parameters", update.parameters},
          {"dtype", request.dtype},
          {"bytes", update.model_bytes},
          {"trainer_ranks", request.trainer_ranks},
          {"dp_replicate", update.mesh.dp_replicate},
          {"dp_shard", update.mesh.dp_shard},
          {"trainer_tensor_parallel", update.mesh.tp},
          {"rollout_ranks", request.rollout_ranks},
          {"tensor_model_parallel_size", request.rollout_tensor_parallel},
          {"replicas", update.fleet.replica_ranks.size()},
          {"hardware", request.hardware},
          {"density", request.density},
          {"plan_seconds", update.seconds},
          {"plan_rss_bytes", update.rss_bytes},
          {"check_seconds", update.check_seconds},
          {"messages", feed.messages.size()},
          {"pieces", feed.num_pieces()},
          {"largest_message_bytes", feed.largest_message_bytes()},
          {"groups", figures.groups},
          {"largest_group_ranks", figures.largest_group},
          {"sent_bytes_max", figures.balance.max_bytes},
          {"sent_bytes_mean", figures.balance.mean_bytes},
          {"sent_max_over_mean", figures.balance.max_over_mean},
          {"sent_share_of_model", figures.share_of_model},
          {"transports",
           {{"broadcast", ToJson(update.broadcast)},
            {"reshard", ToJson(update.reshard)},
            {"delta", ToJson(update.delta)}}}};
}

absl::Status RunPlan(const PlanOptions& options) {
  plan::UpdatePlanRequest request = options.request;
  // A value out of range stays out of range.
  request.bucket_bytes = std::clamp<int64_t>(options.bucket_megabytes, 0, 1 << 20) << 20;
  absl::StatusOr<plan::UpdatePlan> update = plan::MakeUpdatePlan(request);
  if (absl::IsInternal(update.status())) return update.status();
  if (!update.ok()) return commands::Misuse(update.status());
  const std::string text = options.json ? absl::StrCat(io::JsonText(ToJson(request, *update)), "\n")
                                        : Table(request, *update);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddPlan(CLI::App& bench, commands::Runner& runner) {
  CLI::App* command = bench.add_subcommand(
      "plan", "Plans a weight update for any number of ranks and predicts its time");
  auto options = std::make_shared<PlanOptions>();
  plan::UpdatePlanRequest& request = options->request;
  command
      ->add_option("--model-shape", request.model_shape,
                   "Model: a name of model_shapes.json, or a folder with config.json")
      ->required();
  command->add_option("--trainer-ranks", request.trainer_ranks, "Ranks of the trainer")->required();
  command->add_option("--rollout-ranks", request.rollout_ranks, "Ranks of all rollout replicas")
      ->required();
  command
      ->add_option("--tensor-model-parallel-size", request.rollout_tensor_parallel,
                   "Ranks of one replica")
      ->capture_default_str();
  command
      ->add_option("--trainer-tensor-parallel", request.trainer_tensor_parallel,
                   "Tensor-parallel ranks of the trainer")
      ->capture_default_str();
  command->add_option("--dp-replicate", request.dp_replicate, "Copies of the trainer's state")
      ->capture_default_str();
  command
      ->add_option("--hardware", request.hardware,
                   "Accelerator of hardware.yaml x number per host, or a YAML file")
      ->capture_default_str();
  command
      ->add_option("--bucket-megabytes", options->bucket_megabytes,
                   "Maximum size of a message in MiB")
      ->capture_default_str();
  command->add_option("--dtype", request.dtype, "bfloat16, float16 or float32")
      ->capture_default_str();
  command->add_option("--density", request.density, "Share of elements that change, for delta")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Prints one JSON object instead of the table");
  command->callback([&runner, options] { runner = [options] { return RunPlan(*options); }; });
}

}  // namespace tandem::bench
