// Checks whether a Hugging Face folder holds the tensors that a model needs: compares names and
// shapes without reading the weights.
#ifndef TANDEM_COMMON_MODEL_COMPARE_PARAMETERS_H_
#define TANDEM_COMMON_MODEL_COMPARE_PARAMETERS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/io/model_folder.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"

namespace tandem::model {

// How the tensors of a folder differ from those of a layout. Names are the folder's; "NAME (PARAMETER,
// ...)" where the parameters have others, "PART, of NAME" for a part of a quantised tensor.
struct ParameterMismatch {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> misshapen;  // "NAME: shape [2, 3] where [3, 2] was expected"
  std::vector<std::string> ignored;    // known to be no parameters; no difference

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  // "2 missing: a, b; 1 unexpected: c"; lists the first few of each kind.
  std::string ToString() const;
};

// Compares the layout with the folder. Another name of tied parameters is no difference, nor is
// what StoredLayout::Ignores(). A missing value head does not count as missing, because a critic
// starts from a language model.
ParameterMismatch CompareParameters(const StoredLayout& layout, const io::ModelFolder& folder);

// Returns the views under which the folder has the parameter: its own, or those of the tied output
// projection if the folder has only that.
absl::Span<const StoredView> FindViews(const StoredLayout& layout, const io::ModelFolder& folder,
                                       size_t parameter);

// Returns true for a value head that the folder does not have.
bool IsNewHead(const ParameterTable& table, ParameterTable::SegmentRef ref,
               const io::ModelFolder& folder);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_COMPARE_PARAMETERS_H_
