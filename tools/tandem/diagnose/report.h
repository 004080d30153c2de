// Where the time of a run went between its processes, from what the run left: metrics.jsonl,
// updates.jsonl, and, where it was made with --trace, trace.json.
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

// Of a value over the run's steps.
struct Distribution {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double max = 0;
  double sum = 0;
};
Distribution DistributionOf(std::vector<double> values);

// Seconds of a step's mean on one trainer rank.
struct RankTimes {
  int rank = 0;
  double step = 0;
  double compute = 0;         // forward, backward, head, optimizer
  double all_gather = 0;      // waited for, that is not hidden behind the computation
  double reduce_scatter = 0;  // likewise
  double norm_wait = 0;       // for the slowest rank to have its gradients' norm
  double other = 0;

  double exposed() const { return all_gather + reduce_scatter; }
};

// Seconds of the whole trace, over ranks.
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
  double peak_tensor_bytes = 0;  // 0 where it was not told
};

struct Advice {
  std::string finding;
  std::string cure;
};

struct Report {
  std::string run;
  int64_t num_steps = 0;
  Distribution step;
  // generation, reward, train_step, update_weights, testing, save_checkpoint: what the driver
  // waited for.
  std::map<std::string, Distribution> driver_phases;
  std::vector<RankTimes> ranks;
  std::vector<UnitTimes> units;  // of the trace; the most exposed first
  Distribution update;           // seconds of a weight update
  // Exposed seconds; "other" is what the driver waits for besides: its calls, and ranks that are
  // not there yet.
  std::map<std::string, Distribution> update_phases;
  Distribution update_pause;
  std::optional<double> update_bytes_per_second;  // that left the trainer while bytes were moving
  std::optional<double> changed_share;            // of a delta's elements
  std::vector<Link> links;                        // of the weight updates
  std::optional<double> probe_bytes_per_second;   // what the doctor measured between the hosts
  std::vector<MemoryPoint> memory;
  std::map<std::string, int64_t> nccl_transports;  // "P2P/CUMEM" -> channels, of NCCL's own log
  bool has_trace = false;
  std::vector<Advice> advice;
};

// NOT_FOUND where the folder is no run's, FAILED_PRECONDITION where no step is done yet. `doctor`:
// a file of what `tandem doctor --json` said, or empty.
absl::StatusOr<Report> Diagnose(const std::string& run_dir, const std::string& doctor = "");

// What the figures say should be changed.
std::vector<Advice> FindAdvice(const Report& report, const config::v1::RunConfig& config);

nlohmann::json ToJson(const Report& report);
std::string ToText(const Report& report);
// A page of its own, plots included, that needs no other file.
std::string ToHtml(const Report& report);

}  // namespace tandem::diagnose

#endif  // TANDEM_TOOLS_TANDEM_DIAGNOSE_REPORT_H_
