#include "common/model/compare_parameters.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace tandem::model {
namespace {

constexpr size_t kMaxListed = 16;

void AppendList(const std::vector<std::string>& names, const char* kind, std::string& out) {
  if (names.empty()) return;
  const size_t listed = std::min(names.size(), kMaxListed);
  absl::StrAppend(&out, out.empty() ? "" : "; ", names.size(), " ", kind, ": ",
                  absl::StrJoin(absl::MakeConstSpan(names).first(listed), ", "),
                  listed < names.size() ? ", ..." : "");
}

// "a.c_attn.weight (q_proj.weight, k_proj.weight)"; the name alone if it is the parameter's.
std::string NameWithParts(const StoredLayout& layout, const StoredTensor& tensor) {
  std::string parts = layout.DescribeParts(tensor);
  return parts == tensor.name ? tensor.name : absl::StrCat(tensor.name, " (", parts, ")");
}

bool HasAll(absl::Span<const StoredView> views, const io::ModelFolder& folder) {
  return std::all_of(views.begin(), views.end(),
                     [&](const StoredView& view) { return folder.Contains(view.tensor); });
}

bool IsValueHead(const std::string& parameter) {
  return parameter == "score.weight" || parameter == "score.bias";
}

// Adds the tensor to what is wrong if the folder has it in another shape.
void CompareShape(const io::ModelFolder& folder, const std::string& tensor,
                  const std::string& label, const std::vector<int64_t>& shape,
                  ParameterMismatch& mismatch) {
  const absl::StatusOr<io::TensorView> found = folder.Find(tensor);
  if (!found.ok()) {
    mismatch.missing.push_back(label);
  } else if (found->shape != shape) {
    mismatch.misshapen.push_back(absl::StrCat(label, ": shape [", absl::StrJoin(found->shape, ", "),
                                              "] where [", absl::StrJoin(shape, ", "),
                                              "] was expected"));
  }
}

// Does the same with the parts of a quantised tensor, and adds them to what is known. Returns false
// if the folder does not have the tensor quantised.
bool CompareParts(const StoredLayout& layout, const io::ModelFolder& folder,
                  const std::string& tensor, const std::string& label,
                  const std::vector<int64_t>& shape, absl::flat_hash_set<std::string>& known,
                  ParameterMismatch& mismatch) {
  if (layout.quantization() == nullptr) return false;
  const std::vector<StoredPart> parts = layout.quantization()->PartsOf(folder, tensor, shape);
  for (const StoredPart& part : parts) {
    known.insert(part.name);
    CompareShape(folder, part.name,
                 part.name == tensor ? label : absl::StrCat(part.name, ", of ", label), part.shape,
                 mismatch);
  }
  return !parts.empty();
}

}  // namespace

bool IsNewHead(const ParameterTable& table, ParameterTable::SegmentRef ref,
               const io::ModelFolder& folder) {
  return (ref.parameter == table.value_head() || ref.parameter == table.value_head_bias()) &&
         !folder.Contains(table.segment(ref).name);
}

absl::Span<const StoredView> FindViews(const StoredLayout& layout, const io::ModelFolder& folder,
                                       size_t parameter) {
  const absl::Span<const StoredView> own = layout.ViewsOf(parameter);
  const bool tied = layout.tied_parameter() == static_cast<int>(parameter);
  return tied && !HasAll(own, folder) && HasAll(layout.tied_views(), folder) ? layout.tied_views()
                                                                             : own;
}

std::string ParameterMismatch::ToString() const {
  std::string text;
  AppendList(missing, "missing", text);
  AppendList(unexpected, "unexpected", text);
  AppendList(misshapen, "misshapen", text);
  return text;
}

ParameterMismatch CompareParameters(const StoredLayout& layout, const io::ModelFolder& folder) {
  ParameterMismatch mismatch;
  absl::flat_hash_set<std::string> known;
  for (const StoredTensor& tensor : layout.tensors()) {
    known.insert(tensor.name);
    const std::string label = NameWithParts(layout, tensor);
    if (CompareParts(layout, folder, tensor.name, label, tensor.shape, known, mismatch)) continue;
    if (!folder.Contains(tensor.name)) {
      const size_t parameter = tensor.parts[0].parameter;
      if (IsValueHead(layout.parameters()[parameter].name)) continue;
      const absl::Span<const StoredView> found = FindViews(layout, folder, parameter);
      if (found != layout.ViewsOf(parameter)) continue;  // compared below
    }
    CompareShape(folder, tensor.name, label, tensor.shape, mismatch);
  }
  for (const StoredView& view : layout.tied_views()) {
    known.insert(view.tensor);
    if (!folder.Contains(view.tensor) || CompareParts(layout, folder, view.tensor, view.tensor,
                                                      view.tensor_shape, known, mismatch)) {
      continue;
    }
    CompareShape(folder, view.tensor, view.tensor, view.tensor_shape, mismatch);
  }
  for (const std::string& name : folder.names()) {
    if (known.contains(name)) continue;
    (layout.Ignores(name) ? mismatch.ignored : mismatch.unexpected).push_back(name);
  }
  return mismatch;
}

}  // namespace tandem::model
