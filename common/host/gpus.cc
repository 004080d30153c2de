#include "common/host/gpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tandem::host {
namespace {

#ifdef TANDEM_GPU_ARCHITECTURES
constexpr const char* kArchitectures = TANDEM_GPU_ARCHITECTURES;
#else
constexpr const char* kArchitectures = "";
#endif

std::string FirstLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "Model: \t\t NVIDIA H100 80GB HBM3" in /proc/driver/nvidia/gpus/*/information.
std::string ModelName(const std::string& information) {
  std::ifstream file(information);
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "Model:")) {
      return std::string(absl::StripAsciiWhitespace(rest));
    }
  }
  return "";
}

// All of the machine's, in the order of their bus ids, which is the driver's.
std::vector<Gpu> MachineGpus(const std::string& root) {
  std::vector<std::string> folders;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "proc/driver/nvidia/gpus", none)) {
    folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<Gpu> gpus;
  for (const std::string& folder : folders) {
    gpus.push_back({.id = absl::StrCat(gpus.size()), .name = ModelName(folder + "/information")});
  }
  return gpus;
}

// 90 of "90", "90a", "90-real".
bool ReadArchitecture(absl::string_view text, int& number, bool& is_exact) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  is_exact = digits < text.size() && (text[digits] == 'a' || text[digits] == 'f');
  return absl::SimpleAtoi(text.substr(0, digits), &number);
}

std::string Capability(const Gpu& gpu) { return absl::StrCat(gpu.major, ".", gpu.minor); }

std::string DescribeGpu(int index, const GpuFacts& facts) {
  const Gpu& gpu = facts.gpus[index];
  std::string text = absl::StrCat("cuda:", index);
  if (!gpu.name.empty()) absl::StrAppend(&text, ", ", gpu.name);
  if (gpu.major > 0) absl::StrAppend(&text, ", compute capability ", Capability(gpu));
  if (!facts.driver.empty()) absl::StrAppend(&text, ", driver ", facts.driver);
  return text;
}

bool IsTooOld(const std::string& driver) {
  int major = 0;
  return absl::SimpleAtoi(driver.substr(0, driver.find('.')), &major) && major < kOldestDriver;
}

// Why no GPU can be used.
std::string NoGpu(const GpuFacts& facts) {
  std::string text =
      facts.driver.empty()
          ? "no NVIDIA driver is loaded"
          : absl::StrCat("driver ", facts.driver,
                         IsTooOld(facts.driver) ? " is too old" : " shows this process no GPU");
  if (!facts.problem.empty()) absl::StrAppend(&text, " (", facts.problem, ")");
  return text;
}

DeviceChoice Cpu(std::string reason) {
  return {.description = reason.empty() ? "cpu" : absl::StrCat("cpu: ", reason)};
}

}  // namespace

GpuFacts ReadGpuFacts(const std::string& root, const char* visible) {
  GpuFacts facts;
  facts.architectures = kArchitectures;
  facts.driver = FirstLineOf(root + "sys/module/nvidia/version");
  facts.gpus = MachineGpus(root);
  if (visible == nullptr) return facts;
  std::vector<Gpu> chosen;
  for (const absl::string_view id : absl::StrSplit(visible, ',', absl::SkipWhitespace())) {
    const std::string stripped(absl::StripAsciiWhitespace(id));
    const auto found = std::find_if(facts.gpus.begin(), facts.gpus.end(),
                                    [&](const Gpu& gpu) { return gpu.id == stripped; });
    // CUDA, too, ends the list at the first that does not exist; ids may also be UUIDs.
    int index = 0;
    if (found == facts.gpus.end() && absl::SimpleAtoi(stripped, &index)) break;
    chosen.push_back({.id = stripped, .name = found == facts.gpus.end() ? "" : found->name});
  }
  if (facts.gpus.empty()) chosen.clear();
  facts.gpus = std::move(chosen);
  return facts;
}

GpuFacts ReadGpuFacts() { return ReadGpuFacts("/", std::getenv("CUDA_VISIBLE_DEVICES")); }

bool RunsOn(absl::string_view architectures, int major, int minor) {
  const int capability = 10 * major + minor;
  for (const absl::string_view entry : absl::StrSplit(architectures, ',', absl::SkipEmpty())) {
    int number = 0;
    bool is_exact = false;
    if (!ReadArchitecture(entry, number, is_exact)) continue;
    const bool has_code = !absl::EndsWith(entry, "-virtual");
    const bool has_ptx = !absl::EndsWith(entry, "-real");
    if (number == capability) return true;
    if (is_exact || number > capability) continue;
    if (has_ptx || (has_code && number / 10 == major)) return true;
  }
  return false;
}

absl::StatusOr<DeviceChoice> ChooseDevice(absl::string_view key, absl::string_view setting,
                                          int local_rank, const GpuFacts& facts) {
  if (setting == "cpu") return Cpu("");
  const bool is_auto = setting.empty() || setting == "auto";
  if (facts.architectures.empty()) {
    if (is_auto) return Cpu("");
    return absl::UnimplementedError(absl::StrCat(
        key, " is ", setting,
        ", but this build supports CPUs only; configure it with -DTANDEM_CUDA=ON (preset cuda)"));
  }
  if (facts.gpus.empty()) {
    if (is_auto) return Cpu(NoGpu(facts));
    return absl::UnavailableError(absl::StrCat(
        key, " is ", setting, ", but ", NoGpu(facts), "; CUDA 13 needs driver ", kOldestDriver,
        " or newer and a GPU in CUDA_VISIBLE_DEVICES; or set ", key, "=cpu"));
  }
  const int count = static_cast<int>(facts.gpus.size());
  int index = count == 1 ? 0 : local_rank;
  absl::string_view name = setting;
  if (absl::ConsumePrefix(&name, "cuda:") && !absl::SimpleAtoi(name, &index)) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": expected auto, cpu, cuda or cuda:N, found ", setting));
  }
  if (index < 0 || index >= count) {
    return absl::UnavailableError(
        absl::StrCat(key, ": GPU ", index, " is wanted (local rank ", local_rank, "), but ", count,
                     " are visible; start fewer ranks on this machine, or set ", key, "=cpu"));
  }
  const Gpu& gpu = facts.gpus[index];
  if (gpu.major > 0 && !RunsOn(facts.architectures, gpu.major, gpu.minor)) {
    return absl::UnimplementedError(
        absl::StrCat(key, ": ", DescribeGpu(index, facts), ": this program has code for ",
                     facts.architectures, "; build it with -DTANDEM_CUDA_ARCHITECTURES=", gpu.major,
                     gpu.minor, ", or set ", key, "=cpu"));
  }
  return DeviceChoice{.gpu = index, .description = DescribeGpu(index, facts)};
}

}  // namespace tandem::host
