#include "tools/tandem/diagnose/report.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/load.h"
#include "common/io/file_util.h"
#include "common/io/json_values.h"
#include "common/io/jsonl.h"
#include "common/io/parse_json.h"
#include "common/io/read_file.h"
#include "common/io/whole_lines.h"
#include "common/status/status_macros.h"

namespace tandem::diagnose {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMaxTraceBytes = int64_t{16} << 30;

// Lines of metrics.jsonl, without that of step 0.
class Rows {
 public:
  explicit Rows(std::vector<json> rows) : rows_(std::move(rows)) {}

  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  const std::vector<json>& all() const { return rows_; }

  // Values of the steps that have this metric.
  std::vector<double> Values(const std::string& name) const {
    std::vector<double> out;
    for (const json& row : rows_) {
      const auto found = row.find(name);
      if (found != row.end() && found->is_number()) out.push_back(found->get<double>());
    }
    return out;
  }
  double Mean(const std::string& name) const { return DistributionOf(Values(name)).mean; }

 private:
  std::vector<json> rows_;
};

void AddDriverPhases(const Rows& rows, Report& report) {
  for (const char* phase :
       {"gen", "reward", "train_step", "update_weights", "testing", "save_checkpoint"}) {
    const Distribution found = DistributionOf(rows.Values(absl::StrCat("timing_s/", phase)));
    if (found.count > 0) report.driver_phases[phase] = found;
  }
}

void AddRanks(const Rows& rows, Report& report) {
  for (int rank = 0;; ++rank) {
    const std::string prefix = absl::StrCat("timing_s/rank.", rank, "/");
    if (rows.Values(prefix + "step").empty()) break;
    RankTimes times;
    times.rank = rank;
    times.step = rows.Mean(prefix + "step");
    for (const char* phase : {"forward", "backward", "head", "optimizer"}) {
      times.compute += rows.Mean(prefix + phase);
    }
    times.all_gather = rows.Mean(prefix + "all_gather_wait");
    times.reduce_scatter = rows.Mean(prefix + "reduce_scatter_wait");
    times.norm_wait = rows.Mean(prefix + "norm_wait");
    times.other = rows.Mean(prefix + "other");
    report.ranks.push_back(times);
  }
}

void AddUpdates(const Rows& rows, Report& report) {
  report.update = DistributionOf(rows.Values("timing_s/update_weights"));
  report.update_pause = DistributionOf(rows.Values("update_weights/pause_s"));
  const std::string prefix = "update_weights/exposed_s/";
  std::set<std::string> phases;
  for (const json& row : rows.all()) {
    for (const auto& [name, value] : row.items()) {
      if (absl::StartsWith(name, prefix)) phases.insert(name.substr(prefix.size()));
    }
  }
  for (const std::string& phase : phases) {
    report.update_phases[phase] = DistributionOf(rows.Values(prefix + phase));
  }
  std::vector<double> others;
  for (const json& row : rows.all()) {
    if (!row.contains("timing_s/update_weights") || phases.empty()) continue;
    double other = io::NumberOr(row, "timing_s/update_weights", 0);
    for (const std::string& phase : phases) other -= io::NumberOr(row, (prefix + phase).c_str(), 0);
    others.push_back(std::max(0.0, other));
  }
  if (!others.empty()) report.update_phases["other"] = DistributionOf(others);
  double moving = 0;
  for (const char* phase : {"gather", "pack", "wire", "unpack"}) {
    const auto found = report.update_phases.find(phase);
    if (found != report.update_phases.end()) moving += found->second.sum;
  }
  const Distribution sent = DistributionOf(rows.Values("update_weights/sent_bytes"));
  if (moving > 0 && sent.sum > 0) report.update_bytes_per_second = sent.sum / moving;
  const std::vector<double> changed = rows.Values("update_weights/changed_share");
  if (!changed.empty()) report.changed_share = DistributionOf(changed).mean;
}

void AddMemory(const Rows& rows, Report& report) {
  for (const json& row : rows.all()) {
    if (!row.contains("perf/peak_rss_bytes")) continue;
    report.memory.push_back({io::IntegerOr(row, "training/global_step", 0),
                             io::NumberOr(row, "perf/peak_rss_bytes", 0),
                             io::NumberOr(row, "perf/peak_tensor_bytes", 0)});
  }
}

absl::Status AddTrace(const std::string& path, Report& report) {
  ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path, kMaxTraceBytes));
  const json trace = io::ParseJson<json>(text).value_or(nullptr);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a trace, found other JSON"));
  }
  report.has_trace = true;
  std::map<std::string, UnitTimes> units;
  for (const json& event : trace["traceEvents"]) {
    if (io::TextOr(event, "ph", "") != "X" || !event.contains("args")) continue;
    const std::string unit = io::TextOr(event["args"], "unit", "");
    if (unit.empty()) continue;
    UnitTimes& times = units[unit];
    times.unit = unit;
    const double seconds = io::NumberOr(event, "dur", 0) * 1e-6;
    const std::string name = io::TextOr(event, "name", "");
    if (name == "all_gather_wait") times.all_gather_wait += seconds;
    if (name == "reduce_scatter_wait") times.reduce_scatter_wait += seconds;
    if (name == "forward") times.forward += seconds;
    if (name == "backward") times.backward += seconds;
  }
  for (auto& [name, times] : units) report.units.push_back(std::move(times));
  std::sort(report.units.begin(), report.units.end(), [](const UnitTimes& a, const UnitTimes& b) {
    return a.all_gather_wait + a.reduce_scatter_wait > b.all_gather_wait + b.reduce_scatter_wait;
  });
  return absl::OkStatus();
}

// "... Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", which NCCL writes with NCCL_DEBUG=INFO.
void AddNcclTransports(const std::string& logs, Report& report) {
  constexpr absl::string_view kChannel = "NCCL INFO Channel ", kVia = " via ";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(logs, error)) {
    if (entry.path().extension() != ".log" || !entry.is_regular_file(error)) continue;
    // Searched by hand: std::regex recurses for each character, and a log's lines are long. What
    // follows a line that is too long, or a log that cannot be read, is left out.
    const auto look = [&](absl::string_view line) {
      const size_t channel = line.find(kChannel);
      const size_t via = line.rfind(kVia);
      if (channel == absl::string_view::npos || via == absl::string_view::npos) return true;
      if (via + 1 < channel + kChannel.size()) return true;
      const absl::string_view rest = line.substr(via + kVia.size());
      const auto end = std::find_if_not(rest.begin(), rest.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/';
      });
      if (end != rest.begin()) ++report.nccl_transports[std::string(rest.begin(), end)];
      return true;
    };
    io::ForEachWholeLine(entry.path().string(), 0, look).IgnoreError();
  }
}

}  // namespace

Distribution DistributionOf(std::vector<double> values) {
  Distribution out;
  out.count = static_cast<int64_t>(values.size());
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  for (const double value : values) out.sum += value;
  out.mean = out.sum / static_cast<double>(values.size());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  out.p50 = at(0.5);
  out.p95 = at(0.95);
  out.max = values.back();
  return out;
}

absl::StatusOr<Report> Diagnose(const std::string& run_dir, const std::string& doctor) {
  const std::string config_path = run_dir + "/config.yaml";
  if (!fs::exists(config_path)) {
    return absl::NotFoundError(
        absl::StrCat(run_dir, ": expected the folder of a run (run_dir); it has no config.yaml"));
  }
  RETURN_IF_ERROR(io::OpenRegularFile(config_path).status());
  ASSIGN_OR_RETURN(const config::v1::RunConfig config, config::LoadRunConfig({config_path}, {}));
  std::vector<json> lines;
  if (fs::exists(run_dir + "/metrics.jsonl")) {
    ASSIGN_OR_RETURN(lines, io::ReadJsonLines(run_dir + "/metrics.jsonl", io::kRunFile));
  }
  // The line of step 0 is of the policy before training.
  std::erase_if(
      lines, [](const json& line) { return io::IntegerOr(line, "training/global_step", 0) <= 0; });
  const Rows rows(std::move(lines));
  if (rows.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(run_dir, "/metrics.jsonl: no step is complete yet"));
  }
  Report report;
  report.run = fs::path(run_dir).lexically_normal().filename().string();
  report.num_steps = static_cast<int64_t>(rows.size());
  report.step = DistributionOf(rows.Values("timing_s/step"));
  AddDriverPhases(rows, report);
  AddRanks(rows, report);
  AddUpdates(rows, report);
  AddMemory(rows, report);
  ASSIGN_OR_RETURN(report.links, ReadLinks(run_dir + "/updates.jsonl"));
  if (!doctor.empty()) {
    ASSIGN_OR_RETURN(report.probe_bytes_per_second, ReadProbe(doctor));
  }
  if (fs::exists(run_dir + "/trace.json")) {
    RETURN_IF_ERROR(AddTrace(run_dir + "/trace.json", report));
  }
  AddNcclTransports(run_dir + "/logs", report);
  report.advice = FindAdvice(report, config);
  return report;
}

}  // namespace tandem::diagnose
