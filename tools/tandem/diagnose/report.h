// Report: where a run's processes spent their time, from the run's files: metrics.jsonl,
// updates.jsonl, and, with --trace, trace.json.
#ifndef TANDEM_TOOLS_TANDEM_DIAGNOSE_REPORT_H_
#define TANDEM_TOOLS_TANDEM_DIAGNOSE_REPORT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/diagnose/links.h"

namespace tandem::diagnose {

// Statistics of a value over the run's steps.
struct Distribution {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double max = 0;
  double sum = 0;
};
Distribution DistributionOf(std::vector<double> values);

// Mean seconds of a step on one trainer rank.
struct RankTimes {
  int rank = 0;
  double step = 0;
  double compute = 0;         // forward, backward, head, optimizer
  double all_gather = 0;      // exposed wait, not hidden behind computation
  double reduce_scatter = 0;  // likewise
  double norm_wait = 0;       // waiting for the slowest rank's gradient norm
  double other = 0;

  double exposed() const { return all_gather + reduce_scatter; }
};

// Seconds over the whole trace, summed over ranks.
struct UnitTimes {
  std::string unit;
  double all_gather_wait = 0;
  double reduce_scatter_wait = 0;
  double forward = 0;
  double backward = 0;
};

struct MemoryPoint {
  int64_t step = 0;
  double peak_rss_bytes = 0;
  double peak_tensor_bytes = 0;  // 0: not reported
};

struct Advice {
  std::string finding;
  std::string cure;
};

struct Report {
  std::string run;
  int64_t num_steps = 0;
  Distribution step;
  // Seconds that the driver waited for: generation, reward, train_step, update_weights, testing,
  // save_checkpoint. A phase that happens every n steps has statistics of the steps that had it.
  std::map<std::string, Distribution> driver_phases;
  std::vector<RankTimes> ranks;
  std::vector<UnitTimes> units;  // from the trace; the most exposed first
  Distribution update;           // seconds of a weight update
  // Exposed seconds; "other" is the driver's remaining wait: its calls, and ranks that have not
  // arrived yet.
  std::map<std::string, Distribution> update_phases;
  Distribution update_pause;
  std::optional<double> update_bytes_per_second;  // sent by the trainer while bytes were moving
  std::optional<double> changed_share;            // of a delta's elements
  std::vector<Link> links;                        // of the weight updates
  std::optional<double> probe_bytes_per_second;   // measured between hosts by the doctor
  std::vector<MemoryPoint> memory;
  std::map<std::string, int64_t> nccl_transports;  // "P2P/CUMEM" -> channels, from NCCL's log
  bool has_trace = false;
  std::vector<Advice> advice;

  // Seconds of a phase per step of the run: its sum over all steps, also those without it.
  double PerStep(const Distribution& phase) const {
    return num_steps > 0 ? phase.sum / static_cast<double>(num_steps) : 0;
  }
  // Seconds of a phase of weight updates per update of the run.
  double PerUpdate(const Distribution& phase) const {
    return update.count > 0 ? phase.sum / static_cast<double>(update.count) : 0;
  }
};

// NOT_FOUND if the folder is not a run's, FAILED_PRECONDITION if no step is finished yet. `doctor`:
// a file with the output of `tandem doctor --json`, or empty.
absl::StatusOr<Report> Diagnose(const std::string& run_dir, const std::string& doctor = "");

// Derives advice from the report's figures.
std::vector<Advice> FindAdvice(const Report& report, const config::v1::RunConfig& config);

nlohmann::json ToJson(const Report& report);
std::string ToText(const Report& report);
// Returns a self-contained HTML page with plots.
std::string ToHtml(const Report& report);

}  // namespace tandem::diagnose

#endif  // TANDEM_TOOLS_TANDEM_DIAGNOSE_REPORT_H_
