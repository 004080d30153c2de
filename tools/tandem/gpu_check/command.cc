// tandem gpu-check: what a first user with a GPU runs. Checks that the GPU computes what it should,
// measures how fast, and writes a JSON file to send back.
#include "tools/tandem/commands/command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/atomic_file.h"
#include "common/io/json_text.h"
#include "common/rpc/termination_signal.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"
#include "common/version/version.h"
#include "tools/tandem/driver/local_cluster.h"
#include "tools/tandem/gpu_check/checks.h"
#include "tools/tandem/gpu_check/report.h"
#include "tools/tandem/gpu_check/run_checks.h"

namespace tandem::gpu_check {
namespace {

constexpr absl::Duration kSanitizerTime = absl::Minutes(30);

struct Options {
  std::string output = "gpu_check.json";
  bool full = false;
  std::vector<std::string> only;
  double time_limit_s = 600;
};

// A folder for logs and models, which stays if a check failed.
class WorkFolder {
 public:
  static absl::StatusOr<std::unique_ptr<WorkFolder>> Create() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tandem-gpu-check-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot create the folder ", pattern));
    }
    return std::unique_ptr<WorkFolder>(new WorkFolder(pattern));
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!stays_) {
      std::filesystem::remove_all(path_, ignored);
      return;
    }
    // Nobody reads the weights, which are large.
    for (const auto& entry : std::filesystem::directory_iterator(path_, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("model_", 0) == 0) std::filesystem::remove_all(entry.path(), ignored);
    }
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::string& path() const { return path_; }
  void Keep() { stays_ = true; }

 private:
  explicit WorkFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  bool stays_ = false;
};

absl::Status RunGpuCheck(const Options& options) {
  RETURN_IF_ERROR(RequireGpuBuild(host::ReadGpuFacts()));
  rpc::TerminationSignal termination;
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkFolder> folder, WorkFolder::Create());
  const Tools tools{.bin = driver::BinaryFolder(), .folder = folder->path(), .interrupted = [&] {
                      return termination.received() != 0;
                    }};
  Machine machine;
  const std::vector<Check> checks =
      AllChecks(tools, machine, {.full = options.full, .only = options.only});
  Report report;
  report.version = std::string(version::BuildVersion());
  report.started = absl::Now();
  report.num_checks = checks.size();
  absl::Status written;
  RunChecksOptions run;
  run.deadline = report.started + absl::Seconds(options.time_limit_s) +
                 (options.full ? kSanitizerTime : absl::ZeroDuration());
  run.interrupted = tools.interrupted;
  run.begins = [&](const Check& check, size_t index) {
    std::fprintf(stderr, "[%zu/%zu] %s ...\n", index + 1, checks.size(), check.title.c_str());
  };
  // After each check, so that whoever ends the program has the results so far.
  run.ended = [&](const std::vector<Ran>& ran) {
    report.ran = ran;
    report.seconds = absl::ToDoubleSeconds(absl::Now() - report.started);
    written = io::WriteFileAtomically(options.output, io::JsonText(ToJson(report), 2) + "\n");
    std::fprintf(stderr, "%s", text::Printable(Table({ran.back()})).c_str());
  };
  const std::vector<Ran> ran = RunChecks(checks, run);
  const absl::Status status = StatusOf(ran);
  if (!status.ok()) folder->Keep();
  std::printf("%s", text::Printable(Table(ran)).c_str());
  RETURN_IF_ERROR(written);
  std::printf("results: %s\n", text::Printable(options.output).c_str());
  if (termination.received() != 0) return absl::CancelledError("interrupted");
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; logs: ", folder->path()));
}

}  // namespace
}  // namespace tandem::gpu_check

namespace tandem::commands {

void AddGpuCheck(CLI::App& app, Runner& runner) {
  CLI::App* command = app.add_subcommand(
      "gpu-check", "Checks on a GPU what Tandem computes, and measures how fast, in minutes");
  auto options = std::make_shared<gpu_check::Options>();
  command->add_option("--output", options->output, "JSON file of the results")
      ->capture_default_str();
  command->add_flag("--full", options->full,
                    "Also runs the comparisons of kernels in compute-sanitizer's four tools, if it "
                    "is on PATH: up to half an hour more");
  command
      ->add_option("--only", options->only,
                   "Runs this check alone, behind 'facts', which is always run; repeat the flag "
                   "for several")
      ->check(CLI::IsMember(gpu_check::CheckNames()))
      ->allow_extra_args(false);
  command
      ->add_option("--time-limit", options->time_limit_s,
                   "Seconds for all checks but compute-sanitizer; one that would begin later fails")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->callback(
      [&runner, options] { runner = [options] { return gpu_check::RunGpuCheck(*options); }; });
}

}  // namespace tandem::commands
