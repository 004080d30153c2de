#include "tools/tandem/plan/hardware.h"

#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/config/nearest.h"
#include "common/host/process_memory.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "tools/tandem/plan/data.h"

namespace tandem::plan {
namespace {

constexpr double kGib = 1 << 30;
constexpr int kMostAccelerators = 1 << 16;
// A dozen lines; yaml-cpp's memory grows with the file.
constexpr int64_t kMaxFileBytes = 1 << 20;

absl::Status Expected(const std::string& text, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--hardware ", text, ": ", problem,
      "; expected NAMExPER_HOSTxHOSTS (h100x8x4), cpu:MEMORY:RANKSxHOSTS (cpu:24gib:2x1), or a "
      "YAML file"));
}

absl::StatusOr<int> Count(const std::string& text, absl::string_view part) {
  int count = 0;
  if (absl::SimpleAtoi(part, &count) && count >= 1 && count <= kMostAccelerators) return count;
  return Expected(text,
                  absl::StrCat("\"", part, "\" is not a count from 1 to ", kMostAccelerators));
}

// Parses one entry of hardware.yaml. Errors name the key and, in a file, its line.
absl::StatusOr<Hardware> ReadEntry(const YAML::Node& node, const std::string& place) {
  Hardware out;
  if (!node.IsMap()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": expected keys and values"));
  }
  const std::map<std::string, std::pair<int64_t*, double>> bytes = {
      {"memory_gib", {&out.memory_bytes, kGib}},
      {"reserved_gib", {&out.reserved_bytes, kGib}},
      {"host_memory_gib", {&out.host_memory_bytes, kGib}}};
  const std::map<std::string, std::pair<double*, double>> rates = {
      {"tflops", {&out.flops, 1e12}},
      {"efficiency", {&out.efficiency, 1}},
      {"intra_host_gb_s", {&out.intra_host, 1e9}},
      {"inter_host_gb_s", {&out.inter_host, 1e9}},
      {"host_link_gb_s", {&out.host_link, 1e9}},
      {"disk_gb_s", {&out.disk, 1e9}}};
  std::vector<std::string> known = {"name", "device", "per_host", "hosts"};
  for (const auto& [key, field] : bytes) known.push_back(key);
  for (const auto& [key, field] : rates) known.push_back(key);
  std::vector<std::string> missing(known.begin() + 4, known.end());
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const std::string value = entry.second.IsScalar() ? entry.second.Scalar() : "";
    const auto wrong = [&](absl::string_view expected) {
      return absl::InvalidArgumentError(absl::StrCat(place, ":", entry.first.Mark().line + 1, ": ",
                                                     key, ": expected ", expected, ", found \"",
                                                     value, "\""));
    };
    std::erase(missing, key);
    if (key == "name") {
      out.name = value;
    } else if (key == "device") {
      if (value != "cuda" && value != "cpu") return wrong("cuda or cpu");
      out.is_gpu = value == "cuda";
    } else if (key == "per_host" || key == "hosts") {
      int& count = key == "hosts" ? out.hosts : out.per_host;
      if (!absl::SimpleAtoi(value, &count) || count < 1 || count > kMostAccelerators) {
        return wrong("a count");
      }
    } else {
      double number = 0;
      const bool known_key = bytes.count(key) > 0 || rates.count(key) > 0;
      if (!known_key) {
        const std::string nearest = config::Nearest(key, known);
        return wrong(absl::StrCat("a known key",
                                  nearest.empty() ? "" : absl::StrCat(" ('", nearest, "'?)")));
      }
      if (!absl::SimpleAtod(value, &number) || !(number > 0) || number > 1e9) {
        return wrong("a positive number");
      }
      if (const auto field = bytes.find(key); field != bytes.end()) {
        *field->second.first = static_cast<int64_t>(number * field->second.second);
      } else {
        *rates.at(key).first = number * rates.at(key).second;
      }
    }
  }
  if (!missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": missing: ", absl::StrJoin(missing, ", ")));
  }
  return out;
}

absl::StatusOr<Hardware> BuiltIn(const std::string& text, const std::string& name) {
  const YAML::Node all = YAML::Load(kHardwareYaml);
  std::vector<std::string> names;
  for (const auto& entry : all) names.push_back(entry.first.Scalar());
  for (const std::string& known : names) {
    if (known != name) continue;
    ASSIGN_OR_RETURN(Hardware hardware, ReadEntry(all[name], "hardware.yaml"));
    hardware.name = name;
    return hardware;
  }
  const std::string nearest = config::Nearest(name, names);
  return Expected(
      text, absl::StrCat("unknown hardware \"", name, "\"",
                         nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"),
                         " (known: ", absl::StrJoin(names, ", "), ")"));
}

absl::StatusOr<Hardware> FromFile(const std::string& path) {
  try {
    ASSIGN_OR_RETURN(const std::string text, io::ReadInput(path, kMaxFileBytes));
    const YAML::Node node = YAML::Load(text);
    ASSIGN_OR_RETURN(Hardware hardware, ReadEntry(node, path));
    if (hardware.name.empty()) hardware.name = std::filesystem::path(path).stem().string();
    return hardware;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
}

// "24gib", "24g", "512mib".
absl::StatusOr<int64_t> Memory(const std::string& text, absl::string_view part) {
  std::string digits = absl::AsciiStrToLower(part);
  double unit = kGib;
  absl::string_view number = digits;
  if (absl::ConsumeSuffix(&number, "mib") || absl::ConsumeSuffix(&number, "m")) {
    unit = kGib / 1024;
  } else if (!absl::ConsumeSuffix(&number, "gib")) {
    absl::ConsumeSuffix(&number, "g");
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !(value > 0) || value > 1e6) {
    return Expected(text, absl::StrCat("\"", part, "\" is not a memory size"));
  }
  return static_cast<int64_t>(value * unit);
}

}  // namespace

std::string Hardware::Describe() const {
  const double gib = static_cast<double>(memory_bytes) / kGib;
  if (is_gpu) {
    return absl::StrFormat("%s x %d x %d: %s of %.1f GiB", name, per_host, hosts,
                           text::Count(total(), "accelerator"), gib);
  }
  return absl::StrFormat("%s: %s of %.1f GiB", name, text::Count(hosts, "host"), gib);
}

absl::StatusOr<Hardware> ParseHardware(const std::string& text) {
  std::error_code error;
  if (std::filesystem::is_regular_file(text, error)) return FromFile(text);
  if (absl::EndsWith(text, ".yaml")) {
    return absl::InvalidArgumentError(absl::StrCat("--hardware ", text, ": no such file"));
  }
  const std::string lower = absl::AsciiStrToLower(text);
  const std::vector<std::string> parts = absl::StrSplit(lower, ':');
  if (parts.size() > 1) {
    if (parts.size() > 3) return Expected(text, "too many parts");
    ASSIGN_OR_RETURN(Hardware hardware, BuiltIn(text, parts[0]));
    ASSIGN_OR_RETURN(hardware.memory_bytes, Memory(text, parts[1]));
    if (!hardware.is_gpu) hardware.host_memory_bytes = hardware.memory_bytes;
    if (parts.size() == 2) return hardware;
    const std::vector<std::string> counts = absl::StrSplit(parts[2], 'x');
    if (counts.size() > 2) return Expected(text, "too many counts");
    ASSIGN_OR_RETURN(hardware.per_host, Count(text, counts[0]));
    if (counts.size() == 2) {
      ASSIGN_OR_RETURN(hardware.hosts, Count(text, counts[1]));
    }
    return hardware;
  }
  // Parses from the end, because a name may contain an x.
  std::vector<std::string> pieces = absl::StrSplit(lower, 'x');
  std::vector<int> counts;
  while (pieces.size() > 1 && counts.size() < 2 && !pieces.back().empty() &&
         absl::ascii_isdigit(pieces.back()[0])) {
    ASSIGN_OR_RETURN(const int count, Count(text, pieces.back()));
    counts.insert(counts.begin(), count);
    pieces.pop_back();
  }
  ASSIGN_OR_RETURN(Hardware hardware, BuiltIn(text, absl::StrJoin(pieces, "x")));
  if (!counts.empty()) hardware.per_host = counts[0];
  if (counts.size() > 1) hardware.hosts = counts[1];
  return hardware;
}

Hardware ThisMachine(int ranks) {
  absl::StatusOr<Hardware> built_in = BuiltIn("cpu", "cpu");
  Hardware hardware = built_in.ok() ? *built_in : Hardware();
  hardware.name = "this machine";
  hardware.per_host = ranks;
  if (const int64_t available = host::AvailableHostBytes(); available > 0) {
    hardware.memory_bytes = available;
  }
  hardware.host_memory_bytes = hardware.memory_bytes;
  return hardware;
}

}  // namespace tandem::plan
