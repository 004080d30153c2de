#include "common/model/compare_parameters.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace tandem::model {
namespace {

constexpr size_t kMaxListed = 16;

bool IsIgnored(const ParameterTable& table, const std::string& name) {
  return absl::EndsWith(name, "rotary_emb.inv_freq") ||
         (table.value_head() >= 0 && name == "lm_head.weight");
}

void AppendList(const std::vector<std::string>& names, const char* kind, std::string& out) {
  if (names.empty()) return;
  const size_t listed = std::min(names.size(), kMaxListed);
  absl::StrAppend(&out, out.empty() ? "" : "; ", names.size(), " ", kind, ": ",
                  absl::StrJoin(absl::MakeConstSpan(names).first(listed), ", "),
                  listed < names.size() ? ", ..." : "");
}

}  // namespace

bool IsNewHead(const ParameterTable& table, ParameterTable::SegmentRef ref,
               const io::ModelFolder& folder) {
  return (ref.parameter == table.value_head() || ref.parameter == table.value_head_bias()) &&
         !folder.Contains(table.segment(ref).name);
}

std::vector<std::string> AliasesOf(const ParameterTable& table, const std::string& segment) {
  const std::string head = "lm_head.weight";
  if (table.AliasOf(head) == segment) return {head};
  return {};
}

absl::StatusOr<io::TensorView> FindSegment(const ParameterTable& table,
                                           const io::ModelFolder& folder, const std::string& name) {
  if (folder.Contains(name)) return folder.Find(name);
  for (const std::string& alias : AliasesOf(table, name)) {
    if (folder.Contains(alias)) return folder.Find(alias);
  }
  return folder.Find(name);
}

std::string ParameterMismatch::ToString() const {
  std::string text;
  AppendList(missing, "missing", text);
  AppendList(unexpected, "unexpected", text);
  AppendList(misshapen, "misshapen", text);
  return text;
}

ParameterMismatch CompareParameters(const ParameterTable& table, const io::ModelFolder& folder) {
  ParameterMismatch mismatch;
  absl::flat_hash_set<std::string> known;
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    const Segment& segment = table.segment(ref);
    known.insert(segment.name);
    if (IsNewHead(table, ref, folder)) continue;
    const absl::StatusOr<io::TensorView> tensor = FindSegment(table, folder, segment.name);
    if (!tensor.ok()) {
      mismatch.missing.push_back(segment.name);
    } else if (tensor->shape != segment.global_shape) {
      mismatch.misshapen.push_back(
          absl::StrCat(segment.name, ": shape [", absl::StrJoin(tensor->shape, ", "), "] where [",
                       absl::StrJoin(segment.global_shape, ", "), "] was expected"));
    }
  }
  for (const std::string& name : folder.names()) {
    if (!known.contains(name) && table.AliasOf(name).empty() && !IsIgnored(table, name)) {
      mismatch.unexpected.push_back(name);
    }
  }
  return mismatch;
}

}  // namespace tandem::model
