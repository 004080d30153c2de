#include "tools/tandem/plan/layer_profile.h"

#include <algorithm>

#include "tools/tandem/plan/layer_memory.h"

namespace tandem::plan {
namespace {

KindBytes Difference(const KindBytes& more, const KindBytes& less) {
  KindBytes difference{};
  for (size_t i = 0; i < difference.size(); ++i) difference[i] = more[i] - less[i];
  return difference;
}

int64_t Activations(const KindBytes& bytes) {
  return bytes[static_cast<size_t>(MemoryKind::kActivations)];
}

}  // namespace

LayerProfile ProfileLayer(const model::ParameterTable& table, const CountedBatch& batch,
                          const model::LayerSpec& spec, int64_t layer, sharding::Saves saves) {
  MemoryLedger ledger;
  LayerMemory memory(ledger, table, batch, spec, layer, saves);
  LayerProfile profile;

  const int64_t bytes = batch.Bytes(batch.hidden);
  const Size x = ledger.Take(MemoryKind::kActivations, bytes);
  // Others hold what the layer reads.
  const std::vector<Size> reads(model::CarriedTensorsOf(table.spec()).size());
  const KindBytes before = ledger.now().bytes;
  ledger.ForgetPeak();
  std::vector<Size> made;
  Size out = memory.Forward(x, reads, made);
  profile.forward_peak = Difference(ledger.peak().bytes, before);
  const KindBytes with_output = ledger.now().bytes;
  out.reset();
  KindBytes without = ledger.now().bytes;
  profile.output_bytes = Activations(Difference(with_output, without));
  for (Size& carried : made) {
    carried.reset();
    profile.made_bytes.push_back(Activations(Difference(without, ledger.now().bytes)));
    without = ledger.now().bytes;
  }
  profile.saved = Difference(ledger.now().bytes, before);
  profile.has_graph = saves != sharding::Saves::kNothing;
  if (!profile.has_graph) return profile;

  const Size gradient = ledger.Take(MemoryKind::kActivations, bytes);
  const KindBytes before_backward = ledger.now().bytes;
  ledger.ForgetPeak();
  std::vector<Size> gradients = memory.Backward(gradient);
  profile.backward_peak = Difference(ledger.peak().bytes, before_backward);
  for (Size& read : memory.TakeReadGradients()) {
    const KindBytes with = ledger.now().bytes;
    read.reset();
    profile.read_gradient_bytes.push_back(Activations(Difference(with, ledger.now().bytes)));
  }
  const KindBytes after = ledger.now().bytes;
  profile.has_input_gradient = gradients.back() != nullptr;
  gradients.pop_back();
  const KindBytes of_parameters = ledger.now().bytes;
  profile.input_gradient_bytes = Activations(Difference(after, of_parameters));
  gradients.clear();
  profile.parameter_gradients = Difference(of_parameters, ledger.now().bytes);
  return profile;
}

std::vector<Size> LayerReplay::TakeAll(const KindBytes& bytes) {
  std::vector<Size> sizes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != 0) sizes.push_back(ledger_.Take(static_cast<MemoryKind>(i), bytes[i]));
  }
  return sizes;
}

Size LayerReplay::Forward(const Size& x, std::vector<Size>* made) {
  ledger_.Reach(profile_.forward_peak);
  saved_ = TakeAll(profile_.saved);
  if (profile_.has_graph) input_ = x;
  for (const int64_t bytes : profile_.made_bytes) {
    if (made != nullptr) made->push_back(ledger_.Take(MemoryKind::kActivations, bytes));
  }
  return ledger_.Take(MemoryKind::kActivations, profile_.output_bytes);
}

std::vector<Size> LayerReplay::Backward() {
  ledger_.Reach(profile_.backward_peak);
  saved_.clear();
  std::vector<Size> gradients = TakeAll(profile_.parameter_gradients);
  gradients.push_back(profile_.has_input_gradient
                          ? ledger_.Take(MemoryKind::kActivations, profile_.input_gradient_bytes)
                          : nullptr);
  return gradients;
}

std::vector<Size> LayerReplay::TakeReadGradients() {
  std::vector<Size> gradients;
  for (const int64_t bytes : profile_.read_gradient_bytes) {
    gradients.push_back(bytes > 0 ? ledger_.Take(MemoryKind::kActivations, bytes) : nullptr);
  }
  return gradients;
}

LayerProfiles::LayerProfiles(const model::ModelSpec& spec, const model::ParameterTable& table,
                             const CountedBatch& batch)
    : spec_(spec), table_(table), batch_(batch), carried_(model::CarriedTensorsOf(spec)) {
  std::vector<int64_t> kinds;  // the first layer of each
  for (int64_t layer = 0; layer < spec.num_layers(); ++layer) {
    const auto alike = std::find_if(kinds.begin(), kinds.end(),
                                    [&](int64_t first) { return AreAlike(first, layer); });
    first_alike_.push_back(alike == kinds.end() ? layer : *alike);
    if (alike == kinds.end()) kinds.push_back(layer);
  }
}

bool LayerProfiles::MakesCarried(int64_t layer) const {
  return std::any_of(carried_.begin(), carried_.end(), [&](const model::CarriedTensor& carried) {
    return carried.maker == layer + 1;
  });
}

bool LayerProfiles::AreAlike(int64_t a, int64_t b) const {
  if (!(spec_.layers[a] == spec_.layers[b])) return false;
  if (MakesCarried(a) != MakesCarried(b)) return false;
  // Whether gradients flow to the layer's input.
  const int64_t first = table_.first_trainable_stage();
  if ((first > a) != (first > b)) return false;
  const std::vector<int>& of_a = table_.stage_parameters(static_cast<int>(a) + 1);
  const std::vector<int>& of_b = table_.stage_parameters(static_cast<int>(b) + 1);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [&](int i, int j) {
    const model::Parameter& p = table_.parameter(i);
    const model::Parameter& q = table_.parameter(j);
    return p.trainable == q.trainable && p.shape == q.shape;
  });
}

const LayerProfile& LayerProfiles::Of(int64_t layer, sharding::Saves saves) {
  const int64_t first = first_alike_[layer];
  const auto [profile, is_new] = profiles_.try_emplace({first, saves});
  if (is_new) profile->second = ProfileLayer(table_, batch_, spec_.layers[first], first, saves);
  return profile->second;
}

}  // namespace tandem::plan
