#include "tools/tandem/gpu_check/tools.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/gpu_check/service_notes.h"

namespace tandem::gpu_check {
namespace {

std::vector<std::string> Prepended(std::string program, std::vector<std::string> args) {
  args.insert(args.begin(), std::move(program));
  return args;
}

}  // namespace

ChildOutput Tools::RunTandem(const std::string& name, std::vector<std::string> args,
                             absl::Time deadline) const {
  return Run(name, Prepended(bin + "/tandem", std::move(args)), deadline);
}

ChildOutput Tools::RunDevice(const std::string& name, std::vector<std::string> args,
                             absl::Time deadline) const {
  return Run(name, Prepended(bin + "/tandem-check-device", std::move(args)), deadline);
}

ChildOutput Tools::Run(const std::string& name, std::vector<std::string> argv,
                       absl::Time deadline) const {
  return RunChild({.argv = std::move(argv),
                   .environment = {},
                   .log_path = absl::StrCat(folder, "/", name, ".log"),
                   .deadline = deadline,
                   .interrupted = interrupted});
}

absl::StatusOr<std::string> Tools::Model(const std::string& name, const ModelShape& shape) const {
  const std::string path = absl::StrCat(folder, "/model_", name);
  if (!std::filesystem::exists(path)) RETURN_IF_ERROR(WriteRandomModel(shape, path));
  return path;
}

void AddServiceNotes(const std::string& run_dir, CheckResult& result) {
  ServiceNotes notes = ReadServiceNotes(run_dir);
  result.measured["devices"] = notes.devices;
  result.fell_back.insert(result.fell_back.end(), notes.warnings.begin(), notes.warnings.end());
  if (const std::string process = notes.process_on_cpu(); !process.empty()) {
    result.Fail(absl::StrCat(process, " computed on the CPU: ", notes.devices[process]));
  }
}

}  // namespace tandem::gpu_check
