#include "common/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/metrics/metric_family.h"
#include "common/telemetry/refusals.h"

namespace tandem::metrics {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

int64_t NumOpenFiles() {
  std::error_code error;
  int64_t count = -1;  // the folder itself is open while it is read
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return error ? -1 : count;
}

int64_t NumThreads() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("Threads:", 0) == 0) return std::stoll(line.substr(8));
  }
  return -1;
}

}  // namespace

ProcessMetrics::ProcessMetrics(Identity identity)
    : identity_(std::move(identity)),
      start_seconds_(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())) {}

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> out;
  std::vector<prometheus::ClientMetric::Label> labels = {{"role", identity_.role},
                                                         {"version", identity_.version}};
  if (identity_.rank >= 0) labels.push_back({"rank", absl::StrCat(identity_.rank)});
  auto build = EmptyFamily("tandem_build_info", "Always 1; the labels describe the build.",
                           prometheus::MetricType::Gauge);
  AddGauge(build, 1, std::move(labels));
  out.push_back(std::move(build));
  auto refused =
      EmptyFamily("tandem_refused_connections_total",
                  "Unauthenticated connections refused at the rendezvous and on data links.",
                  prometheus::MetricType::Counter);
  for (const auto& [place, name] : {std::pair(telemetry::RefusedAt::kRendezvous, "rendezvous"),
                                    std::pair(telemetry::RefusedAt::kLinks, "links")}) {
    prometheus::ClientMetric metric;
    metric.counter.value = static_cast<double>(telemetry::NumRefusals(place));
    metric.label = {{"at", name}};
    refused.metric.push_back(std::move(metric));
  }
  out.push_back(std::move(refused));
  out.push_back(GaugeFamily("process_start_time_seconds",
                            "Start time of the process, in seconds since the epoch.",
                            start_seconds_));

  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  if (statm >> pages >> resident) {
    const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
    out.push_back(GaugeFamily("process_resident_memory_bytes", "Resident memory.",
                              static_cast<double>(resident) * page_bytes));
    out.push_back(GaugeFamily("process_virtual_memory_bytes", "Virtual address space.",
                              static_cast<double>(pages) * page_bytes));
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    out.push_back(CounterFamily("process_cpu_seconds_total",
                                "CPU time of all cores, user and system.",
                                Seconds(usage.ru_utime) + Seconds(usage.ru_stime)));
  }
  if (const int64_t files = NumOpenFiles(); files >= 0) {
    out.push_back(
        GaugeFamily("process_open_fds", "Open file descriptors.", static_cast<double>(files)));
  }
  if (const int64_t threads = NumThreads(); threads >= 0) {
    out.push_back(
        GaugeFamily("process_threads", "Threads of the process.", static_cast<double>(threads)));
  }
  return out;
}

}  // namespace tandem::metrics
