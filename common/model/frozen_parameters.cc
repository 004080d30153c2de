#include "common/model/frozen_parameters.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/parameter_table.h"

namespace tandem::model {
namespace {

constexpr absl::string_view kKey = "trainer.frozen_parameters";

bool MatchesAny(const std::vector<std::string>& patterns, absl::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [name](const std::string& pattern) { return MatchesPattern(pattern, name); });
}

absl::Status CheckPattern(const ParameterTable& table, const std::string& pattern) {
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    if (MatchesPattern(pattern, table.segment(ref).name)) return absl::OkStatus();
  }
  // The output projection of a tied model is the embedding, under whose name it is frozen.
  constexpr absl::string_view kHead = "lm_head.weight";
  const std::string tied = table.AliasOf(std::string(kHead));
  if (!tied.empty() && MatchesPattern(pattern, kHead)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kKey, ": '", pattern, "' matches no tensor: ", kHead, " of this model is ",
                     tied, "; name that one, which freezes both"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(kKey, ": '", pattern, "' matches no tensor of the model; expected names like ",
                   table.segment(table.segments().front()).name, ", with * for any characters"));
}

absl::Status CheckParameter(const Parameter& parameter, const std::vector<std::string>& patterns) {
  std::vector<std::string> matched;
  std::vector<std::string> others;
  for (const Segment& segment : parameter.segments) {
    (MatchesAny(patterns, segment.name) ? matched : others).push_back(segment.name);
  }
  if (matched.empty() || others.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kKey, ": ", absl::StrJoin(matched, ", "), " cannot be frozen without ",
                   absl::StrJoin(others, ", "), ": they are one parameter (", parameter.name,
                   "); match all of them, or none"));
}

}  // namespace

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  const size_t star = pattern.find('*');
  if (star == absl::string_view::npos) return pattern == name;
  if (!absl::StartsWith(name, pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  for (size_t skipped = 0; skipped <= name.size(); ++skipped) {
    if (MatchesPattern(pattern, name.substr(skipped))) return true;
  }
  return false;
}

bool IsFrozen(const Parameter& parameter, const std::vector<std::string>& patterns) {
  return std::all_of(parameter.segments.begin(), parameter.segments.end(),
                     [&](const Segment& segment) { return MatchesAny(patterns, segment.name); });
}

absl::Status CheckFrozenParameters(const ModelSpec& spec,
                                   const std::vector<std::string>& patterns) {
  if (patterns.empty()) return absl::OkStatus();
  const ParameterTable table(spec);
  for (const std::string& pattern : patterns) {
    const absl::Status matches = CheckPattern(table, pattern);
    if (!matches.ok()) return matches;
  }
  bool trains = false;
  for (const Parameter& parameter : table.parameters()) {
    const absl::Status whole = CheckParameter(parameter, patterns);
    if (!whole.ok()) return whole;
    trains |= parameter.trainable && !IsFrozen(parameter, patterns);
  }
  if (trains) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kKey, ": ", absl::StrJoin(patterns, ", "),
                   " match every tensor of the model; leave at least one to train"));
}

}  // namespace tandem::model
