// ShardLayout: maps the elements of the logical tensors to the ranks that hold one copy of the
// model. A tensor-parallel rank has boxes of them, and an expert-parallel rank some of the experts,
// placed in the units of its own table; the ranks that share these units hold a slice of each.
#ifndef TANDEM_SERVICES_TRAINER_FSDP_SHARD_LAYOUT_H_
#define TANDEM_SERVICES_TRAINER_FSDP_SHARD_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "common/comm/mesh_shape.h"
#include "common/model/parameter_table.h"
#include "common/model/transformer.h"

namespace tandem::trainer {

class ShardLayout {
 public:
  // Layout of a model over a mesh of that shape. Allocates tables, no tensors. Elements of parameters that
  // stay in float32 (Parameter::in_float32) count as `float32_elements`.
  ShardLayout(const model::Transformer& transformer, const comm::MeshShape& mesh,
              int64_t float32_elements = 1);

  // Ranks of one copy: the first ones of the mesh, in its order.
  int num_ranks() const { return mesh_.num_shards() * mesh_.tp; }

  // The logical tensors, in the model's canonical order.
  size_t num_tensors() const { return tables_[0].segments().size(); }
  const model::Segment& tensor(size_t i) const {
    return tables_[0].segment(tables_[0].segments()[i]);
  }
  int64_t tensor_numel(size_t i) const;

  // Elements that are contiguous both in a tensor and in a rank's shard of a unit.
  struct Run {
    int unit = 0;
    int64_t shard_offset = 0;  // of the first, within the rank's shard
    int64_t first = 0;         // of the first, within the logical tensor
    int64_t count = 0;
  };
  // The elements of [first, first + count) of a tensor that `rank` provides, in order. Exactly one
  // rank provides each element; the first tensor-parallel rank provides those that all of them
  // hold.
  std::vector<Run> RunsOf(int rank, size_t tensor, int64_t first, int64_t count) const;

 private:
  // How often the elements of a parameter count.
  int64_t ElementsOf(const model::Parameter& parameter) const {
    return parameter.in_float32 ? float32_elements_ : 1;
  }

  const comm::MeshShape mesh_;
  const int64_t float32_elements_;
  // By expert-parallel rank, then by tensor-parallel rank.
  std::vector<model::ParameterTable> tables_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_FSDP_SHARD_LAYOUT_H_
