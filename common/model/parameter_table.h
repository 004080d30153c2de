// The parameter table: every parameter of a model with its name, shape and location. It is built
// from a ModelSpec alone and allocates no tensor; the trainer's shards, the rollout's arena, the
// weight update's manifest and the checkpoint format derive from it.
//
// Parameters are grouped in units, which FSDP gathers at once. A unit's flat buffer holds its
// parameters one after another in table order, row-major, without gaps. By default a unit is what
// one stage of the forward pass reads; UnitLimits can merge or split units, and freeze parameters:
// a unit has either trainable parameters or frozen ones. The canonical order of tensors,
// segments(), depends on neither.
//
// If the model is split over a tensor-parallel group, each rank has its own table: shapes, offsets
// and sizes are those of its parts, and each segment records its box of the logical tensor.
#ifndef TANDEM_COMMON_MODEL_PARAMETER_TABLE_H_
#define TANDEM_COMMON_MODEL_PARAMETER_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

struct Unit {
  std::string name;             // "embed", "layers.3", "layers.3-5", "layers.3/1", "head/frozen"
  std::vector<int> parameters;  // indices into ParameterTable::parameters()
  int64_t numel = 0;            // of the flat buffer, before padding
  bool trainable = true;        // all of its parameters are, or none
  bool moved = false;           // likewise
  bool in_float32 = false;      // likewise
  // Holds experts that expert-parallel ranks split: sharded over the ranks that hold the same ones.
  bool of_experts = false;
};

// Limits on unit sizes. Stages are merged until they have min_elements; a stage of more than
// max_elements is split between parameters, and a larger parameter is a unit of its own. A tied
// model's embedding, which two distant stages read, is never merged, and a vision tower's stages only
// with each other. Each stage's frozen parameters are units of their own, merged with those of other
// stages likewise, and so are experts that ranks split: their units have the same sizes on all of
// these ranks.
struct UnitLimits {
  int64_t min_elements = 0;  // 0: no merging
  int64_t max_elements = 0;  // 0: no splitting
  // Patterns (frozen_parameters.h) of which CheckFrozenParameters() must have returned OK.
  std::vector<std::string> frozen_parameters;
  // Correction biases of routers are moved, unless they are frozen.
  bool moves_correction_biases = false;
  // A vision tower is trained, but for what is frozen by name.
  bool trains_vision = false;
};

// Of LayerSpec::input_gate, whole on every rank.
struct InputGateParameters {
  int gate_weight = -1;        // [size, hidden]
  int projection_weight = -1;  // [hidden, size]
  NormParameters norm;         // [hidden]
};

// Norms of a dense feed-forward and of experts beside it, [hidden].
struct BesideParameters {
  NormParameters after_dense;
  NormParameters before_experts;
  NormParameters after_experts;
};

// Indices into ParameterTable::parameters(). A layer has a dense feed-forward, or experts, or both
// (ExpertSpec::beside_dense).
struct LayerParameters {
  NormParameters attention_norm;  // [hidden]; before attention, or before both of a parallel layer
  AttentionParameters attention;
  NormParameters after_attention_norm;
  NormParameters feed_forward_norm;  // before the feed-forward layer
  NormParameters after_feed_forward_norm;
  FeedForwardParameters feed_forward;
  std::optional<ExpertParameters> experts;
  BesideParameters beside;
  // [hidden], of LayerSpec::residual_scales.
  int attention_scale = -1;
  int feed_forward_scale = -1;
  InputGateParameters input_gate;
  int output_scalar = -1;  // [1], of LayerSpec::output_scalar
};

// Of ModelSpec::layer_inputs.
struct LayerInputParameters {
  int table = -1;       // [vocab, layers * size]
  int projection = -1;  // [layers * size, hidden]
  NormParameters norm;  // [size]
};

// What makes rows of a vision tower's patches.
struct MergerParameters {
  // Of each patch; in deepstack's mergers, and where there are tiles, of all that become one row.
  NormParameters norm;
  int reduce_weight = -1;  // [tower's hidden, merged_size]; -1: none
  int up_weight = -1;      // [merger_width, merger_input_size]; -1: VisionSpec::merger_is_matrix
  int up_bias = -1;
  int down_weight = -1;  // [hidden, merger_width], or [hidden, merger_input_size] without the other
  int down_bias = -1;
};

// Of a vision tower.
struct VisionParameters {
  int patch_weight = -1;  // [tower's hidden, patch_elements]
  int patch_bias = -1;    // -1: none
  int positions = -1;     // [position_grid^2, tower's hidden], row by row; -1: none
  int class_token = -1;   // of a tile; positions are [TileSpec::tokens(), tower's hidden]
  NormParameters first_norm;
  std::vector<LayerParameters> layers;
  NormParameters last_norm;
  std::vector<MergerParameters> deepstack;  // of each of VisionSpec::deepstack_layers
  MergerParameters merger;
  int newline = -1;  // [hidden], behind each line of rows of TileSpec::canvas; -1: none
};

class ParameterTable : private ParameterDeclarations {
 public:
  // `parallel`, `experts`: the rank that the table describes. CheckTensorParallel() and
  // CheckExpertParallel() must have returned OK.
  explicit ParameterTable(const ModelSpec& spec, const UnitLimits& limits = {},
                          TensorParallel parallel = {}, ExpertParallel experts = {});

  // The model that the table describes.
  const ModelSpec& spec() const { return spec_; }
  const UnitLimits& unit_limits() const { return limits_; }
  const TensorParallel& tensor_parallel() const { return parallel_; }
  const ExpertParallel& expert_parallel() const { return experts_; }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& parameter(int index) const { return parameters_[index]; }
  // Units in the order of the forward pass: those of the vision tower, if there is one, then embed,
  // layers.0 .. layers.N-1, head.
  const std::vector<Unit>& units() const { return units_; }

  // Number of stages of the forward pass: 0 (embed), 1 .. num_layers (blocks), num_layers + 1
  // (head).
  int num_stages() const { return static_cast<int>(stages_.size()); }
  // The parameters that a stage reads, in table order; a tied model's head reads the embedding
  // last.
  const std::vector<int>& stage_parameters(int stage) const { return stages_[stage].parameters; }
  const std::vector<int>& stage_units(int stage) const { return stages_[stage].units; }
  // The first stage that reads the unit: the last in the backward pass.
  int first_stage(int unit) const { return first_stage_[unit]; }
  // The first stage that reads a trainable parameter: the backward pass ends there.
  int first_trainable_stage() const { return first_trainable_stage_; }
  // Whether any parameter is frozen or moved. If none is, and experts are not split, units follow each
  // other in the order of segments().
  bool has_frozen() const { return has_frozen_; }

  int embedding() const { return embedding_; }
  const LayerParameters& layer(int64_t i) const { return layers_[i]; }
  // Only of a model with a vision tower: parameters of the group "vision", frozen unless
  // UnitLimits::trains_vision, whole on every rank, in units of their own before the others. Stage 0
  // reads them.
  const VisionParameters& vision() const { return vision_; }
  // Whether a parameter of the tower is trained.
  bool trains_vision() const { return trains_vision_; }
  // What the model does not have is -1: positions, norms, the head's bias.
  int position_embedding() const { return position_embedding_; }
  const NormParameters& embedding_norm() const { return embedding_norm_; }
  // Of a unit of its own: the table is larger than the embedding, which a tied head reads again.
  const LayerInputParameters& layer_inputs() const { return layer_inputs_; }
  const NormParameters& final_norm() const { return final_norm_; }
  // The output projection [vocab, hidden]; the embedding itself if they are tied; -1 with a value
  // head.
  int lm_head() const { return lm_head_; }
  int lm_head_bias() const { return lm_head_bias_; }
  // The value head [1, hidden] and its bias [1]; -1 without.
  int value_head() const { return value_head_; }
  int value_head_bias() const { return value_head_bias_; }
  // Whether the forward pass multiplies by the parameter in compute type: true for matrices, and
  // for an embedding that is also the output projection.
  bool IsMultipliedBy(int index) const;

  // Elements that this rank holds.
  int64_t num_parameters() const { return num_parameters_; }

  // All segments in the order in which the layers declare them: the model's canonical order of
  // tensors.
  struct SegmentRef {
    int parameter;
    int segment;
  };
  const std::vector<SegmentRef>& segments() const { return segment_order_; }
  const Segment& segment(SegmentRef ref) const {
    return parameters_[ref.parameter].segments[ref.segment];
  }

  // Returns the table's name for a tensor that a checkpoint may carry under another name: the
  // embedding for a tied "lm_head.weight". Empty if `name` is no alias.
  std::string AliasOf(const std::string& name) const;

 private:
  struct Stage {
    std::vector<int> parameters;
    std::vector<int> units;
  };

  // A stage's parameters of one kind, or some of them if they are too large for a unit.
  struct UnitPiece {
    Unit unit;
    bool may_merge;
  };

  // Makes one unit per stage, several for the first; FormUnits() then applies the limits.
  void DeclareAll(const ModelSpec& spec);
  void DeclareEmbedding(const ModelSpec& spec, Range vocabulary);
  void DeclareLayerInputs(const LayerInputSpec& spec, int64_t hidden_size, int64_t num_layers);
  void DeclareVision(const VisionSpec& spec, int64_t hidden_size);
  // What a tower that sees tiles has before its layers, and what nothing reads.
  void DeclareTileEmbedding(const VisionSpec& spec);
  void DeclareUnread(const TileSpec& tiles);
  // `norm_size`: elements that its norm sees at once. `prefix` names it: "visual.merger.".
  MergerParameters DeclareMerger(const VisionSpec& spec, int64_t norm_size, int64_t hidden_size,
                                 const std::string& prefix);
  // `prefix` names the layer: "model.layers.0.".
  LayerParameters DeclareLayer(const LayerSpec& spec, int64_t hidden_size,
                               const std::string& prefix, TensorParallel parallel);
  void DeclareHead(const ModelSpec& spec, Range vocabulary);
  void BeginUnit(std::string name) { units_.push_back({std::move(name)}); }
  int Add(Parameter parameter) override;
  // Merges and splits the units, one per stage, according to limits_.
  void FormUnits();
  void ListStages();
  // Adds the pieces of one stage: trainable parameters before frozen ones, and split experts last.
  void SplitStage(const Unit& stage, std::vector<UnitPiece>& pieces) const;
  // Adds the pieces of one kind: those of the stage's parameters that are as `kind` is.
  void SplitKind(const Unit& stage, const Unit& kind, std::vector<UnitPiece>& pieces) const;
  void MergePieces(std::vector<UnitPiece> pieces);
  void AssignOffsets();
  void ListUnitsOfStages();
  // A parameter's size before offsets are assigned.
  int64_t EvenShare(int index) const;

  ModelSpec spec_;
  UnitLimits limits_;
  TensorParallel parallel_;
  ExpertParallel experts_;
  std::vector<Parameter> parameters_;
  std::vector<Unit> units_;
  std::vector<Stage> stages_;
  std::vector<int> first_stage_;  // of each unit
  VisionParameters vision_;
  bool declares_vision_ = false;  // what is being declared belongs to the tower
  bool declares_unread_ = false;  // no pass reads what is being declared
  std::vector<LayerParameters> layers_;
  std::vector<SegmentRef> segment_order_;
  int embedding_ = -1;
  int position_embedding_ = -1;
  NormParameters embedding_norm_;
  LayerInputParameters layer_inputs_;
  NormParameters final_norm_;
  int lm_head_ = -1;
  int lm_head_bias_ = -1;
  int value_head_ = -1;
  int value_head_bias_ = -1;
  bool tied_ = false;
  int64_t num_parameters_ = 0;
  int first_trainable_stage_ = 0;
  bool has_frozen_ = false;
  bool trains_vision_ = false;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PARAMETER_TABLE_H_
