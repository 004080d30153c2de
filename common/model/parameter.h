// Parameter: one parameter of a model as a layer declares it: its name, shape, role and split over
// tensor-parallel ranks. ParameterTable assigns its unit and offset.
//
//   Parameter qkv = Stack("qkv_proj.weight",
//                         {Rows("q_proj.weight", {64, 32}, {0, 64}),
//                          Rows("k_proj.weight", {16, 32}, {0, 16}),
//                          Rows("v_proj.weight", {16, 32}, {0, 16})},
//                         ParameterRole::kMatrix, kShardRows);
//
// Projections that read the same input are one parameter with several segments (q, k, v; gate, up)
// stacked along dim 0, so that one matrix product computes them. Each segment is one tensor of the
// Hugging Face folder. The wire, files and errors use the segments' names.
#ifndef TANDEM_COMMON_MODEL_PARAMETER_H_
#define TANDEM_COMMON_MODEL_PARAMETER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/tensor_parallel.h"

namespace tandem::model {

// How a tensor is placed along one axis of a mesh.
struct Placement {
  enum class Kind { kReplicate, kShard };
  Kind kind = Kind::kReplicate;
  int dim = 0;  // of kShard; each segment is split on its own
};
inline constexpr Placement kReplicate{Placement::Kind::kReplicate, 0};
inline constexpr Placement kShardRows{Placement::Kind::kShard, 0};
inline constexpr Placement kShardColumns{Placement::Kind::kShard, 1};

// A parameter's role in the forward pass: determines how it is initialized, packed and used.
enum class ParameterRole {
  kEmbedding,  // rows are looked up; initialized from a normal distribution
  kMatrix,     // a linear layer multiplies by it in compute type; initialized likewise
  kNorm,       // scales a normed row; initialized to ones
  kBias,       // added; initialized to zeros
  kScalar,     // of an activation; Segment::initial_value
  kValueHead,  // a critic's output row, multiplied by in float32; initialized like a matrix
  // Of a convolution over tokens; initialized like a matrix.
  kConvolution,
  // The logarithm of a rate of decay; initialized to that of a number from 0.01 to 16.
  kDecay,
};

struct Segment {
  std::string name;                   // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;         // [rows, ...] that this rank holds
  std::vector<int64_t> global_shape;  // of the logical tensor
  std::vector<int64_t> start;         // first index of the rank's box in each dim
  int64_t row = 0;                    // first row within the parameter
  int64_t offset = 0;                 // first element within the unit's flat buffer
  int64_t numel = 0;                  // of the box
  // Every element of a new model's tensor; unset: as the parameter's role says.
  std::optional<float> initial_value;
};

struct Parameter {
  std::string name;  // "model.layers.0.self_attn.qkv_proj.weight"
  std::vector<int64_t> shape;
  std::vector<Segment> segments;  // in row order; at least one
  ParameterRole role = ParameterRole::kMatrix;
  Placement tensor_parallel;  // over the tensor-parallel axis
  // Products with parts of it read it row by row: a rollout on the CPU keeps it so too.
  bool read_by_row = false;
  bool of_expert = false;  // of a routed expert; empty on the ranks that do not hold the expert
  bool trainable = true;   // another one has no gradient and no optimizer state
  // Not trainable, but a rule changes it between steps (UnitLimits::moves_correction_biases): it is
  // kept in float32 like a trainable one, and is in every weight update.
  bool moved = false;
  bool corrects_router = false;  // the correction bias of a router
  // In float32 whatever the model's type is: in arenas, weight updates and files. A unit has either such
  // parameters or others.
  bool in_float32 = false;
  std::string group = "base";  // "base", "adapter NAME", "vision"
  // Set by the table.
  int unit = 0;        // index into ParameterTable::units()
  int64_t offset = 0;  // first element within the unit's flat buffer
  int64_t numel = 0;
};

// Elements of a tensor of this shape.
int64_t NumElements(const std::vector<int64_t>& shape);

// Whole: a segment that every rank holds in full. Part: a segment of which a rank holds the indices
// `part` of `dim`. Rows: likewise for dim 0.
Segment Whole(std::string name, std::vector<int64_t> shape);
Segment Part(std::string name, std::vector<int64_t> shape, int dim, Range part);
Segment Rows(std::string name, std::vector<int64_t> shape, Range part);

// Stack: a parameter of segments stacked along dim 0. Single: of one segment, whose name it takes.
Parameter Stack(std::string name, std::vector<Segment> segments, ParameterRole role,
                Placement placement);
Parameter Single(Segment segment, ParameterRole role, Placement placement);

// Collects a model's parameters in the order of the forward pass, as its layers declare them.
class ParameterDeclarations {
 public:
  virtual ~ParameterDeclarations() = default;
  // Returns the parameter's index.
  virtual int Add(Parameter parameter) = 0;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PARAMETER_H_
