#include "tools/tandem/diagnose/links.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/json_values.h"
#include "common/io/jsonl.h"
#include "common/status/status_macros.h"

namespace tandem::diagnose {
namespace {

using nlohmann::json;

// Smaller updates cannot be timed: latency dominates.
constexpr double kLeastBytes = 1 << 20;  // of an update
constexpr double kLeastSeconds = 1e-3;   // likewise
constexpr double kFarBehind = 0.5;       // of the siblings' rate

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

bool Tells(const Link& link) {
  const auto count = static_cast<double>(link.samples.size());
  return link.bytes() >= kLeastBytes * count && link.seconds() >= kLeastSeconds * count;
}

bool AreSiblings(const Link& a, const Link& b) {
  return a.transport == b.transport &&
         absl::StartsWith(a.from, "trainer/") == absl::StartsWith(b.from, "trainer/");
}

// "rollout-10/2" comes after "rollout-9/2".
std::tuple<std::string, size_t, std::string> InOrder(const std::string& name) {
  const std::string stem = name.substr(0, name.find_last_not_of("0123456789/") + 1);
  return {stem, name.size(), name};
}

}  // namespace

double Link::bytes() const {
  double sum = 0;
  for (const LinkSample& sample : samples) sum += sample.bytes;
  return sum;
}

double Link::seconds() const {
  double sum = 0;
  for (const LinkSample& sample : samples) sum += sample.seconds;
  return sum;
}

double Link::bytes_per_second() const {
  std::vector<double> rates;
  for (const LinkSample& sample : samples) rates.push_back(sample.bytes_per_second());
  return Median(std::move(rates));
}

absl::StatusOr<std::vector<Link>> ReadLinks(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::vector<Link>();
  ASSIGN_OR_RETURN(const std::vector<json> lines, io::ReadJsonLines(path, io::kRunFile));
  std::map<std::tuple<std::string, std::string, std::string>, Link> found;
  for (const json& line : lines) {
    const auto links = line.find("links");
    if (links == line.end() || !links->is_array()) continue;
    for (const json& entry : *links) {
      if (!entry.is_object()) continue;
      const std::string from = io::TextOr(entry, "from", "");
      const std::string to = io::TextOr(entry, "to", "");
      const std::string transport = io::TextOr(entry, "transport", "");
      Link& link = found[{from, to, transport}];
      link.from = from;
      link.to = to;
      link.transport = transport;
      link.samples.push_back({io::IntegerOr(line, "step", 0),
                              io::IntegerOr(line, "policy_version", 0),
                              io::NumberOr(entry, "bytes", 0), io::NumberOr(entry, "seconds", 0)});
    }
  }
  std::vector<Link> out;
  for (auto& [key, link] : found) out.push_back(std::move(link));
  std::stable_sort(out.begin(), out.end(), [](const Link& a, const Link& b) {
    // The trainer's links first.
    const bool of_trainer = absl::StartsWith(a.from, "trainer/");
    if (of_trainer != absl::StartsWith(b.from, "trainer/")) return of_trainer;
    return std::tuple(InOrder(a.from), InOrder(a.to)) < std::tuple(InOrder(b.from), InOrder(b.to));
  });
  return out;
}

absl::StatusOr<double> ReadProbe(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<json> lines, io::ReadJsonLines(path, {}));
  double largest = 0, rate = 0;
  for (const json& line : lines) {
    const auto measured = line.find("measured");
    if (measured == line.end() || !measured->is_object() || !measured->contains("reduces"))
      continue;
    for (const json& reduce : (*measured)["reduces"]) {
      if (io::NumberOr(reduce, "bytes", 0) < largest) continue;
      largest = io::NumberOr(reduce, "bytes", 0);
      rate = io::NumberOr(reduce, "bytes_per_second", 0);
    }
  }
  if (rate > 0) return rate;
  return absl::NotFoundError(absl::StrCat(
      path,
      ": expected the output of tandem doctor --json with a probe of the hosts, found no probe"));
}

std::vector<SlowLink> FindSlowLinks(const std::vector<Link>& links) {
  std::vector<SlowLink> slow;
  for (const Link& link : links) {
    if (!Tells(link)) continue;
    std::vector<double> siblings;
    for (const Link& other : links) {
      const bool is_itself = &other == &link;
      // One that is too fast to time is all the faster.
      if (!is_itself && AreSiblings(link, other) && other.bytes() > 0) {
        siblings.push_back(other.bytes_per_second());
      }
    }
    if (siblings.empty()) continue;
    const double usual = Median(std::move(siblings));
    if (link.bytes_per_second() < kFarBehind * usual) slow.push_back({&link, usual});
  }
  return slow;
}

std::optional<double> FastestBetweenHosts(const std::vector<Link>& links) {
  std::optional<double> fastest;
  for (const Link& link : links) {
    if (link.transport == "shared_memory" || link.transport == "cuda_ipc") continue;
    if (!Tells(link)) return std::nullopt;
    fastest = std::max(fastest.value_or(0), link.bytes_per_second());
  }
  return fastest;
}

}  // namespace tandem::diagnose
