#include "common/sharding/pass_stages.h"

#include <algorithm>

namespace tandem::sharding {

PassStages::PassStages(const model::ParameterTable& table, Saves checkpointed, int64_t interval)
    : table_(table),
      checkpointed_(checkpointed),
      interval_(interval),
      carried_(model::CarriedTensorsOf(table.spec())),
      made_by_(static_cast<size_t>(table.num_stages())),
      read_by_(made_by_) {
  for (int i = 0; i < static_cast<int>(carried_.size()); ++i) {
    made_by_[carried_[i].maker].push_back(i);
    for (const int reader : carried_[i].readers) read_by_[reader].push_back(i);
  }
}

Saves PassStages::SavesOf(int stage) const {
  if (!HasBackward(stage)) return Saves::kNothing;
  // The embedding's graph holds no activations, so computing it again would gain nothing. A vision
  // tower that is trained, and inputs of layers, are computed again as a whole, or kept as a whole.
  const bool computes = table_.trains_vision() || table_.spec().layer_inputs.has_value();
  if (stage == 0 && computes && checkpointed_ == Saves::kNothing) return checkpointed_;
  const bool checkpoints = stage > 0 && (stage - 1) % interval_ == 0;
  return checkpoints ? checkpointed_ : Saves::kEverything;
}

std::vector<std::vector<int>> PassStages::UnitsOfSteps(bool backward) const {
  std::vector<std::vector<int>> steps;
  for (int s = 0; s <= head(); ++s) steps.push_back(table_.stage_units(s));
  for (int s = head() - 1; backward && HasBackward(s); --s) steps.push_back(table_.stage_units(s));
  return steps;
}

std::vector<UnitGradients> PassStages::GradientsOf(int stage) const {
  std::vector<UnitGradients> units;
  const std::vector<int>& parameters = table_.stage_parameters(stage);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const model::Parameter& parameter = table_.parameter(parameters[i]);
    if (!parameter.trainable) continue;
    // The parameters of a unit may lie on both sides of another's: those of a layer around its experts.
    auto of_unit = std::find_if(units.begin(), units.end(), [&](const UnitGradients& unit) {
      return unit.unit == parameter.unit;
    });
    if (of_unit == units.end()) {
      // Backward goes from the last stage to the first: an earlier stage that also reads the unit
      // still has gradients to add.
      const bool completes = table_.first_stage(parameter.unit) == stage;
      units.push_back({.unit = parameter.unit, .completes = completes});
      of_unit = units.end() - 1;
    }
    of_unit->positions.push_back(static_cast<int>(i));
  }
  return units;
}

int PassStages::shared_unit() const {
  const bool tied = table_.lm_head() == table_.embedding();
  return tied ? table_.parameter(table_.embedding()).unit : -1;
}

}  // namespace tandem::sharding
