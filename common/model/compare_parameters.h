// Checks whether a Hugging Face folder holds the tensors that a model's table needs: compares names
// and shapes without reading the weights.
#ifndef TANDEM_COMMON_MODEL_COMPARE_PARAMETERS_H_
#define TANDEM_COMMON_MODEL_COMPARE_PARAMETERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/model_folder.h"
#include "common/io/safetensors.h"
#include "common/model/parameter_table.h"

namespace tandem::model {

// How a set of named tensors differs from a table.
struct ParameterMismatch {
  std::vector<std::string> missing;     // names
  std::vector<std::string> unexpected;  // names
  std::vector<std::string> misshapen;   // "NAME: shape [2, 3] where [3, 2] was expected"

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  // "2 missing: a, b; 1 unexpected: c"; lists the first few of each kind.
  std::string ToString() const;
};

// Compares the table with the folder. These do not count as unexpected: other names of tied
// parameters, buffers that old checkpoints carry (`rotary_emb.inv_freq`), and the output projection
// if the table has a value head instead. A missing value head does not count as missing, because a
// critic starts from a language model.
ParameterMismatch CompareParameters(const ParameterTable& table, const io::ModelFolder& folder);

// Returns the names under which a checkpoint may hold the segment, other than its own.
std::vector<std::string> AliasesOf(const ParameterTable& table, const std::string& segment);

// Returns the segment's logical tensor under any of its names. NOT_FOUND if the folder has none.
absl::StatusOr<io::TensorView> FindSegment(const ParameterTable& table,
                                           const io::ModelFolder& folder, const std::string& name);

// Returns true for a value head that the folder does not have.
bool IsNewHead(const ParameterTable& table, ParameterTable::SegmentRef ref,
               const io::ModelFolder& folder);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_COMPARE_PARAMETERS_H_
