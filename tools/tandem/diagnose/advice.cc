// Derives advice from the figures of a run. Each rule checks one figure and states it.
#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/tandem/diagnose/report.h"

namespace tandem::diagnose {
namespace {

using config::v1::RunConfig;
using Rule = std::function<void(const Report&, const RunConfig&, std::vector<Advice>&)>;

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

double MeanOf(const Report& report, double (*of)(const RankTimes&)) {
  double sum = 0;
  for (const RankTimes& rank : report.ranks) sum += of(rank);
  return report.ranks.empty() ? 0 : sum / static_cast<double>(report.ranks.size());
}

double PhasePerStep(const Report& report, const char* phase) {
  const auto found = report.driver_phases.find(phase);
  return found == report.driver_phases.end() ? 0 : report.PerStep(found->second);
}

void ExposedCommunication(const Report& report, const RunConfig& config, std::vector<Advice>& out) {
  const double step = MeanOf(report, [](const RankTimes& t) { return t.step; });
  const double gather = MeanOf(report, [](const RankTimes& t) { return t.all_gather; });
  const double scatter = MeanOf(report, [](const RankTimes& t) { return t.reduce_scatter; });
  if (report.ranks.size() < 2 || step <= 0 || (gather + scatter) / step < 0.15) return;
  std::string cure;
  if (!config.trainer().shared_memory()) {
    cure = "ranks of one host use sockets; set trainer.shared_memory=true";
  } else if (gather > scatter) {
    cure = absl::StrFormat(
        "gather further ahead (trainer.prefetch_units=%d), or keep the weights of the forward pass "
        "for the backward pass (trainer.reshard_after_forward=false, more memory)",
        config.trainer().prefetch_units() + 1);
  } else {
    cure =
        "use larger units (trainer.min_unit_bytes), for fewer exchanges to wait for, or more "
        "tokens per step (data.train_batch_size, trainer.max_tokens_per_micro_batch)";
  }
  out.push_back({absl::StrFormat("%s of a training step is exposed communication (all-gather %.3f "
                                 "s, reduce-scatter %.3f s of %.3f s)",
                                 Percent((gather + scatter) / step), gather, scatter, step),
                 cure});
}

void LateRank(const Report& report, const RunConfig&, std::vector<Advice>& out) {
  if (report.ranks.size() < 2) return;
  std::vector<double> compute;
  for (const RankTimes& rank : report.ranks) compute.push_back(rank.compute);
  std::sort(compute.begin(), compute.end());
  const double median = compute[(compute.size() - 1) / 2];
  for (const RankTimes& rank : report.ranks) {
    if (median <= 0 || rank.compute < 1.2 * median) continue;
    out.push_back({absl::StrFormat("rank %d is slow: it computes for %.3f s per step, the median "
                                   "rank for %.3f s; the others wait for it",
                                   rank.rank, rank.compute, median),
                   "check what else runs on that rank's host, its clock and thermal limits, and "
                   "trainer.threads; batches are balanced by tokens"});
  }
}

void GenerationBound(const Report& report, const RunConfig& config, std::vector<Advice>& out) {
  const double generation = PhasePerStep(report, "gen");
  if (report.step.mean <= 0 || generation / report.step.mean < 0.6) return;
  const bool waits = config.trainer().mode() == config::v1::TRAINING_MODE_SYNC ||
                     config.trainer().mode() == config::v1::TRAINING_MODE_UNSPECIFIED;
  out.push_back(
      {absl::StrFormat("the trainer waits for samples for %s of a step (%.3f of %.3f s)",
                       Percent(generation / report.step.mean), generation, report.step.mean),
       waits ? "sample during training (trainer.mode=one_step_off or async), or add replicas "
               "(rollout.replicas)"
             : "add replicas (rollout.replicas), or give them more threads"});
}

void UpdateShare(const Report& report, const RunConfig& config, std::vector<Advice>& out) {
  if (report.step.mean <= 0 || report.update.count == 0) return;
  const double per_step = report.PerStep(report.update);
  const double share = per_step / report.step.mean;
  if (share < 0.15) return;
  std::string cure = "let ranks and replicas of one host share memory (trainer.shared_memory)";
  if (config.trainer().weight_transport() != config::v1::WEIGHT_TRANSPORT_DELTA) {
    cure =
        "send only changes (trainer.weight_transport=delta): at small learning rates a few percent "
        "of the values change";
  } else if (report.changed_share.has_value() && *report.changed_share > 0.2) {
    cure = absl::StrFormat(
        "a delta of %s of the values saves little: trainer.weight_transport="
        "reshard",
        Percent(*report.changed_share));
  }
  out.push_back({absl::StrFormat("weight updates take %s of a step (%.3f of %.3f s)",
                                 Percent(share), per_step, report.step.mean),
                 cure});
}

void SlowVerify(const Report& report, const RunConfig&, std::vector<Advice>& out) {
  const auto verify = report.update_phases.find("verify");
  if (verify == report.update_phases.end() || report.update.mean <= 0) return;
  const double per_update = report.PerUpdate(verify->second);
  const double share = per_update / report.update.mean;
  if (share < 0.2 || per_update < 0.01) return;
  out.push_back({absl::StrFormat("replicas take %.3f s, %s of an update, to verify it", per_update,
                                 Percent(share)),
                 "digests are computed while bytes arrive: a slow replica has too few cores to "
                 "receive and generate at once (rollout.threads)"});
}

void LongPause(const Report& report, const RunConfig& config, std::vector<Advice>& out) {
  if (report.update_pause.count == 0 || report.update_pause.p95 < 0.1) return;
  out.push_back({absl::StrFormat("replicas pause for %.3f s at a commit (95th percentile)",
                                 report.update_pause.p95),
                 config.rollout().in_flight() == config::v1::IN_FLIGHT_POLICY_WAIT
                     ? "rollout.in_flight=wait lets requests finish first; keep_recompute does not"
                     : "check the rollouts' memory: pages may be swapped out"});
}

void GrowingMemory(const Report& report, const RunConfig&, std::vector<Advice>& out) {
  // The first steps fill caches.
  if (report.memory.size() < 20) return;
  const auto& middle = report.memory[report.memory.size() / 2];
  const auto& last = report.memory.back();
  const double growth = last.peak_rss_bytes - middle.peak_rss_bytes;
  if (growth < 0.05 * middle.peak_rss_bytes || growth < double{64 << 20}) return;
  out.push_back({absl::StrFormat("a trainer rank's memory grew by %.0f MiB from step %d to step %d",
                                 growth / (1 << 20), middle.step, last.step),
                 "longer samples need more: compare response_length/max; otherwise set "
                 "trainer.memory_megabytes, so that the plan keeps to a limit"});
}

void SlowLinks(const Report& report, const RunConfig&, std::vector<Advice>& out) {
  constexpr size_t kMost = 5;  // of many the cause is one
  const std::vector<SlowLink> slow = FindSlowLinks(report.links);
  for (size_t i = 0; i < std::min(kMost, slow.size()); ++i) {
    out.push_back(
        {absl::StrFormat("the link %s -> %s carries %.4f GB/s of a weight update (%s), similar "
                         "links %.4f GB/s%s",
                         slow[i].link->from, slow[i].link->to,
                         1e-9 * slow[i].link->bytes_per_second(), slow[i].link->transport,
                         1e-9 * slow[i].siblings,
                         i + 1 == kMost && slow.size() > kMost
                             ? absl::StrCat("; ", slow.size() - kMost, " more links are as slow")
                             : ""),
         "time this pair of hosts with tandem doctor; check the adapter's speed (ethtool), the "
         "route (ip route get), and what else uses them; a receiver with too few cores is slow as "
         "well (rollout.threads)"});
  }
}

void LinksBelowProbe(const Report& report, const RunConfig& config, std::vector<Advice>& out) {
  const std::optional<double> fastest = FastestBetweenHosts(report.links);
  if (!fastest.has_value() || !report.probe_bytes_per_second.has_value()) return;
  if (*fastest > 0.5 * *report.probe_bytes_per_second) return;
  out.push_back(
      {absl::StrFormat("no link between hosts carries more than %.3f GB/s of a weight update, but "
                       "the doctor's probe reached %.3f GB/s between the same hosts",
                       1e-9 * *fastest, 1e-9 * *report.probe_bytes_per_second),
       config.trainer().threads() == 0
           ? "the network is not the bottleneck: give the processes cores of their own while "
             "weights move (trainer.threads, rollout.threads), or make messages larger "
             "(rollout.update_weights_bucket_megabytes)"
           : "the network is not the bottleneck: more threads (trainer.threads, rollout.threads), "
             "or larger messages (rollout.update_weights_bucket_megabytes)"});
}

void NcclOverSockets(const Report& report, const RunConfig&, std::vector<Advice>& out) {
  int64_t direct = 0;
  int64_t sockets = 0;
  for (const auto& [transport, channels] : report.nccl_transports) {
    (transport.find("NET/Socket") != std::string::npos ? sockets : direct) += channels;
  }
  if (sockets == 0) return;
  out.push_back(
      {absl::StrCat("NCCL moves ", sockets, " of ", sockets + direct, " channels over TCP sockets"),
       "GPUs of one host: NCCL_P2P_DISABLE and NCCL_SHM_DISABLE must not be set, "
       "NCCL_P2P_LEVEL=SYS allows every path, /dev/shm must be large enough; between "
       "hosts: NCCL_IB_HCA and NCCL_NET name the adapters"});
}

}  // namespace

std::vector<Advice> FindAdvice(const Report& report, const RunConfig& config) {
  std::vector<Advice> out;
  for (const Rule& rule : std::initializer_list<Rule>{
           GenerationBound, ExposedCommunication, LateRank, UpdateShare, SlowVerify, LongPause,
           SlowLinks, LinksBelowProbe, GrowingMemory, NcclOverSockets}) {
    rule(report, config, out);
  }
  return out;
}

}  // namespace tandem::diagnose
