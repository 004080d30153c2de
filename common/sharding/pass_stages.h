// PassStages: the stages of a pass over a sharded model: embed, the blocks, and the head. The head's
// backward pass follows its forward pass directly; that of the others runs from the last block to
// the first stage with a trainable parameter.
#ifndef TANDEM_COMMON_SHARDING_PASS_STAGES_H_
#define TANDEM_COMMON_SHARDING_PASS_STAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/model/carried_tensors.h"
#include "common/model/parameter_table.h"

namespace tandem::sharding {

// The results of a stage's forward pass that it keeps for its backward pass.
enum class Saves {
  kNothing,     // besides its input: the backward pass computes the stage again
  kSelected,    // outputs of matrix products and of attention; the rest is cheap to recompute
  kEverything,  // all that its backward pass needs
};

// The gradients of one unit that a stage's backward pass yields.
struct UnitGradients {
  int unit = -1;
  std::vector<int> positions;  // of its trainable parameters in ParameterTable::stage_parameters()
  // No later stage of the backward pass adds to the unit: its sum over ranks can start. Of a tied
  // embedding, the head's gradients leave the unit incomplete.
  bool completes = false;
};

class PassStages {
 public:
  // `checkpointed`: for blocks 0, n, 2n, ... with n the interval; the others save everything. The
  // table outlives the stages.
  PassStages(const model::ParameterTable& table, Saves checkpointed, int64_t interval);

  // Number of stages without the head, whose index this is.
  int head() const { return table_.num_stages() - 1; }
  // Whether the backward pass reaches the stage. Those before the first trainable parameter need
  // neither a graph nor gradients.
  bool HasBackward(int stage) const {
    return stage >= 0 && stage >= table_.first_trainable_stage();
  }
  Saves SavesOf(int stage) const;

  // Steps of a GatherSchedule: the units that each stage reads, forward and, if `backward`,
  // backward. The forward step of a stage has the stage's index.
  std::vector<std::vector<int>> UnitsOfSteps(bool backward) const;
  size_t BackwardStep(int stage) const { return static_cast<size_t>(2 * head() - stage); }

  // Indices of the carried tensors (common/model/carried_tensors.h) that a stage makes and reads, each in
  // ascending order.
  const std::vector<int>& MadeBy(int stage) const { return made_by_[stage]; }
  const std::vector<int>& ReadBy(int stage) const { return read_by_[stage]; }
  const std::vector<model::CarriedTensor>& carried() const { return carried_; }

  // In the order in which a stage's gradients are added.
  std::vector<UnitGradients> GradientsOf(int stage) const;
  // The unit to which two stages add in one micro-batch, that of a tied embedding; -1 for none.
  int shared_unit() const;

 private:
  const model::ParameterTable& table_;
  const Saves checkpointed_;
  const int64_t interval_;
  const std::vector<model::CarriedTensor> carried_;
  std::vector<std::vector<int>> made_by_;  // of each stage
  std::vector<std::vector<int>> read_by_;
};

}  // namespace tandem::sharding

#endif  // TANDEM_COMMON_SHARDING_PASS_STAGES_H_
