// Applies a StoredRule to one parameter: computes its views and the rows of the stored tensors that
// it takes.
#ifndef TANDEM_COMMON_MODEL_STORED_PLACEMENT_H_
#define TANDEM_COMMON_MODEL_STORED_PLACEMENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/model_folder.h"
#include "common/model/model_spec.h"
#include "common/model/stored_name.h"
#include "common/model/stored_view.h"

namespace tandem::model {

// Rows of a stored tensor: `blocks` times `size` rows, `period` apart, from `first` on. With several
// experts in the tensor, the rows of all of them count.
struct StoredRows {
  int64_t first = 0;
  int64_t size = 0;
  int64_t period = 0;
  int64_t blocks = 1;
};

struct StoredPlacement {
  StoredView view;
  StoredRows rows;
  int64_t num_rows = 0;   // of the tensor
  int64_t skip_rows = 0;  // of these, rows before each expert's, which belong to no parameter
  int64_t num_experts = 1;
};

// Returns the shape of a parameter; null if there is none of this name.
using ShapeOf = std::function<const std::vector<int64_t>*(const std::string& name)>;

// Places the parameter `name` of `shape` according to the first rule that matches; without one, it
// is the whole tensor of its name. One placement, or one per head. `folder`: decides what
// StoredRule::either_way leaves open, and such a rule does not count if it lacks the tensor; null: the
// rule counts as it is. Errors are those of StoredLayout::Create().
absl::StatusOr<std::vector<StoredPlacement>> PlaceParameter(const ModelSpec& spec,
                                                            const std::string& name,
                                                            const std::vector<int64_t>& shape,
                                                            const ShapeOf& shape_of,
                                                            const io::ModelFolder* folder);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STORED_PLACEMENT_H_
